"""Reading runs, and the open questions of all runs: without code, without a lease and without changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, cast, get_args

from msgspec import Struct
from pydantic import ValidationError

from orchestrator.errors import InvalidValue, OrchestratorError, RunConflict, RunUnknown, StoreUnavailable
from orchestrator.executor.host import Host
from orchestrator.executor.journal import questions_of, totals_of
from orchestrator.kernel.question import AnyQuestion, Question, QuestionKind
from orchestrator.kernel.records import check_readable
from orchestrator.stores.base import RunInfo, StatsRow, Store
from orchestrator.stores.codec import Damaged, encoded_in, key_of
from orchestrator.stores.requests import Append, QuestionQuery, StatsQuery
from orchestrator.stores.rows import QuestionPage, WaitingQuestion, encrypted_with
from orchestrator.stores.shared import forks_of
from orchestrator.tasks import away
from orchestrator.values import check_labels, check_position, check_text

if TYPE_CHECKING:
    from orchestrator.views.history import Point
    from orchestrator.views.run_diff import RunDiff


async def history(host: Host, run_id: str, at: int | None, after: int, limit: int | None) -> list[Point]:
    """See `Executor.history`."""
    from orchestrator.views.history import points

    check_text(run_id, "run_id")
    check_position(at)
    check_position(after, "after")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidValue(f"limit={limit!r}: give a number of steps, 0 or more, or None", where="limit")
    if after or limit is not None:
        return await host.histories.page(run_id, at, after or 0, limit)
    info = await host.store.info(run_id)
    records = await host.store.read(run_id, upto=at)
    check_readable(records[:1])  # checked now, not when the first point is read
    return points(await host.loader.plan_of(info, records), records)


async def diff(host: Host, run_a: str, run_b: str) -> RunDiff:
    """See `Executor.diff`."""
    from orchestrator.views.diff import diff_of

    check_text(run_a, "run_a")
    check_text(run_b, "run_b")
    one, other = await host.loader.load(run_a), await host.loader.load(run_b)
    records, others = await host.store.read(run_a, upto=one.seq), await host.store.read(run_b, upto=other.seq)
    return await away(lambda: diff_of(one, records, other, others))


async def forks(host: Host, run_id: str) -> list[RunInfo]:
    """See `ExecutorForks.list`."""
    check_text(run_id, "run_id")
    return await forks_of(host.store, run_id)


async def stats(
    store: Store,
    by: Sequence[str] | str,
    *,
    since: float | None,
    until: float | None,
    graph: str | None,
    labels: Mapping[str, str] | None,
) -> list[StatsRow]:
    """See `Executor.stats`."""
    names = (by,) if isinstance(by, str) else tuple(by)
    for what in (*names, *(() if graph is None else (graph,))):
        check_text(what, "a filter of statistics")
    return await store.stats(
        StatsQuery(by=names, since=since, until=until, graph=graph, labels=check_labels(labels or {}))
    )


QUESTION_KINDS: tuple[str, ...] = get_args(QuestionKind)


class RunQuestion(Struct, frozen=True):
    """An open question of one of the runs of a store."""

    run_id: str
    graph: str
    """The graph's name."""
    question: AnyQuestion
    asked: float
    """Time since which it waits, Unix seconds."""
    labels: Mapping[str, str] = {}
    """The run's labels."""

    @property
    def deadline(self) -> float | None:
        """Return the time after which the declared default applies, Unix seconds; None if there is no deadline."""
        return self.question.deadline


class RunQuestions(Struct, frozen=True):
    """A page of the open questions, the oldest run first, and those of one run in the order of their places.

    `cursor` leads to the next page; None if there is none.
    """

    questions: tuple[RunQuestion, ...] = ()
    cursor: str | None = None


async def open_questions(
    host: Host,
    *,
    graph: str | None,
    labels: Mapping[str, str] | None,
    kinds: Collection[str] | str | None,
    after: str | None,
    limit: int,
) -> RunQuestions:
    """See `Executor.questions`."""
    for what in (graph, after):
        if what is not None:
            check_text(what, "a filter of questions")
    wanted = None if kinds is None else {kinds} if isinstance(kinds, str) else set(kinds)
    for kind in sorted(wanted or ()):
        if kind not in QUESTION_KINDS:
            raise InvalidValue(f"{kind!r} is not a kind of question; use one of {', '.join(QUESTION_KINDS)}")
    labels = check_labels(labels or {})

    async def listed() -> QuestionPage:
        return await host.store.questions(
            QuestionQuery(graph=graph, labels=labels, kinds=wanted, after=after, limit=limit)
        )

    page = await listed()
    before: frozenset[str] = frozenset()
    while (new := frozenset(page.unlisted)) - before:  # questions of earlier versions, once in the life of a store
        for run_id in page.unlisted:
            with suppress(RunConflict, RunUnknown, StoreUnavailable):
                await _list(host, run_id)
        before |= new
        page = await listed()
    found = list(page.questions)
    if after is None:  # if nothing can be written, they are on the first page
        for run_id in page.unlisted:
            found += [one for one in await _folded(host, run_id) if wanted is None or one.question.kind in wanted]
        found.sort(key=lambda one: one.question.asked)
    questions = [one for row in found if (one := _question(row)) is not None]
    ordered = [one for _, run in groupby(questions, key=lambda one: one.run_id) for one in sorted(run, key=_place)]
    return RunQuestions(tuple(ordered), page.cursor)


async def _list(host: Host, run_id: str) -> None:
    """Store the open questions and the totals of a run that an earlier version wrote."""
    info = await host.store.info(run_id)
    try:
        machine = await host.loader.machine_of(info, await host.loader.stored_graph(info))
    except StoreUnavailable:
        raise
    except OrchestratorError:
        return  # opening the run reports the damage
    await host.store.append(
        Append(
            run_id,
            [],
            after=machine.head,
            waiting=len(machine.questions),
            totals=totals_of(machine),
            questions=questions_of(machine),
        )
    )


async def _folded(host: Host, run_id: str) -> list[WaitingQuestion]:
    try:
        info = await host.store.info(run_id)
        machine = await host.loader.machine_of(info, await host.loader.stored_graph(info))
    except OrchestratorError:
        return []
    return [WaitingQuestion(run_id, info.graph, info.labels, one) for one in questions_of(machine)]


def _place(one: RunQuestion) -> list[int]:
    """Return the sort key of a question among those of its run: the numbers of the branches in its path."""
    numbers = (part.rpartition(".")[2] for part in one.question.path.split("/"))
    return [int(number[:9]) for number in numbers if number.isdecimal()]


def _question(row: WaitingQuestion) -> RunQuestion | None:
    """Return a question as it was asked; None if its row is damaged: the run itself contains it.

    If it is encrypted and its key is missing, its prompt is a note about that.
    """
    text = encoded_in(row.question.data)
    try:
        if text is not None:
            hidden = {"id": row.question.id, "kind": row.question.kind, "prompt": encrypted_with(key_of(text))}
            question = cast("AnyQuestion", Question.model_validate({**hidden, "node": ""}))
            return RunQuestion(row.run_id, row.graph, question, row.question.asked, row.labels)
        question = cast("AnyQuestion", Question.model_validate(row.question.data))
    except (ValidationError, Damaged):
        return None
    return RunQuestion(row.run_id, row.graph, question, row.question.asked, row.labels)
