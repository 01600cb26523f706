"""Recorded runs: as data, with the answers that people kept; and replayed, to see what another prompt had answered.

A counterfactual replay takes the results of all calls that the change does not reach from the journal of its run, and
makes the others. So a prompt is evaluated on last month's runs for the price of what changed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from orchestrator.errors import InvalidInput, OrchestratorError, RunUnknown
from orchestrator.evaluation.budget import Purse, check_amounts, check_prices, guarded
from orchestrator.evaluation.data import Entry, Row
from orchestrator.evaluation.kept import checked_name, keep
from orchestrator.evaluation.results import MAX_WRONG, shown
from orchestrator.evaluation.scorers import AUTHOR, LABEL, Case, ScoreFunction, Scorer, scorer_of, text_of, trajectory
from orchestrator.evaluation.variants import identity_of
from orchestrator.executor import Executor
from orchestrator.executor.failures import without_group
from orchestrator.graph.limits import NO_USAGE, Usage
from orchestrator.json import digest
from orchestrator.kernel.status import FINAL
from orchestrator.memory import MemoryOptions
from orchestrator.models.offline.simulated import is_simulated
from orchestrator.stores import Codec, open_store, with_codec
from orchestrator.tools import ToolsLike, toolbox_of
from orchestrator.views.replay_result import answer_of

if TYPE_CHECKING:
    from orchestrator.executor import Replay, Run
    from orchestrator.graph_class import Graph
    from orchestrator.kernel.seals import Seal
    from orchestrator.models import Model
    from orchestrator.models.middleware import RateLimit
    from orchestrator.stores.base import Note, Store

EXPECTED = "expected"
"""Name of the notes by which people write the right answer of a run."""
People: TypeAlias = Literal["kept", "rejected", ""]
"""What people say about an answer by their scores: kept from a mean of 0.5 on; empty: they gave none."""


@dataclass
class RecordedRuns:
    """The completed runs of a graph as data, the newest first.

    A row has the run's input. Its expected answer is the text of a note named `expected`, else the run's own answer, if
    people did not reject it: the mean of their scores on the run is 0.5 or more, or they gave none. Rejected runs
    without a right answer are left out. Forks, replays, runs that a call started and runs of evaluations are no rows.

    Attributes:
        graph: the name of the graph; None: of any graph.
        store: the store, or its URL.
        labels: labels that the runs must have.
        since: Unix seconds: only runs that were created at this time or later.
        limit: number of runs at most, the newest.
        codec: decrypts the values in the store.
    """

    graph: str | None
    store: str | Store
    labels: Mapping[str, str] = field(default_factory=dict)
    since: float | None = None
    limit: int | None = None
    codec: Codec | None = None
    remarks: list[str] = field(default_factory=list, init=False)
    """What a reader of the result should know about the data."""

    @property
    def name(self) -> str:
        """Return the name of the data."""
        return f"runs of {self.graph}" if self.graph is not None else "runs"

    async def entries(self) -> AsyncIterator[Entry]:
        """See `DataSource.entries`."""
        rejected = number = 0
        async with self.opened() as executor:
            async for run_id in self.ids(executor):
                run = await executor.load(run_id)
                row, people = row_of(run, await executor.notes.list(run_id), number + 1)
                if row.expected is None and people == "rejected":
                    rejected += 1
                    continue
                number += 1
                yield row
        left = (
            f"{rejected:,} runs whose answers people rejected were left out: a note named 'expected' has the right one"
        )
        self.remarks = [left] if rejected else []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Executor]:
        """Open an executor that reads the store."""
        kept = with_codec(open_store(self.store) if isinstance(self.store, str) else self.store, self.codec)
        try:
            async with Executor(kept) as executor:
                yield executor
        finally:
            if isinstance(self.store, str):
                with anyio.CancelScope(shield=True):
                    await kept.close()

    async def ids(self, executor: Executor) -> AsyncIterator[str]:
        """Yield the ids of the runs."""
        cursor: str | None = None
        left = inf if self.limit is None else self.limit
        while left > 0:
            page = await executor.runs(
                graph=self.graph, status="completed", labels=dict(self.labels), after=cursor, limit=200
            )
            for info in page.runs:
                too_old = self.since is not None and info.created < self.since
                if info.parent is None and LABEL not in info.labels and not too_old and left > 0:
                    left -= 1
                    yield info.run_id
            cursor = page.cursor
            if cursor is None:
                return


def row_of(run: Run, notes: Sequence[Note], number: int) -> tuple[Row, People]:
    """Return a recorded run as a row, and what people say about its answer.

    Args:
        run: the run.
        notes: its notes.
        number: the row's place in the data.
    """
    theirs = [one for one in notes if one.by != AUTHOR and one.step is None]
    scores = [one.score for one in theirs if one.score is not None]
    people: People = "" if not scores else "kept" if sum(scores) / len(scores) >= 0.5 else "rejected"
    right = next((one.text for one in reversed(theirs) if one.name == EXPECTED and one.text), None)
    started = run.machine.started
    values = {} if started is None else dict(started.values)
    named = run.definition.input
    given: object = values.get(named) if isinstance(named, str) else {k: values.get(k) for k in named or values}
    expected = right if right is not None else None if people == "rejected" else run.output
    return Row(run.run_id, given, expected, line=number, recorded=True), people


@dataclass(frozen=True)
class ReplayedRun:
    """A recorded run whose answer changed, or that could not be replayed to its end. Texts are cut."""

    run_id: str
    replay_id: str
    people: People
    status: str
    before: str
    after: str
    why: str = ""


@dataclass(frozen=True)
class Counterfactual:
    """What recorded runs answer after a change."""

    data: str
    graph: str
    runs: int
    same: int
    """Runs whose answer stayed."""
    kept: int
    """Runs whose answers people kept, and how many of these stayed."""
    kept_same: int
    rejected: int
    """Runs whose answers people rejected, and how many of these changed."""
    rejected_changed: int
    paid: Usage
    """What live calls of the replays spent, also in earlier parts: those that the change reached."""
    saved: Usage
    """What calls had spent whose results came from the journals."""
    changed: tuple[ReplayedRun, ...]
    """The first 500 runs whose answer changed, in the order of the data."""
    failed: tuple[ReplayedRun, ...] = ()
    """The first 500 runs without another answer: the replay failed, waits for a person, or was not possible."""
    failed_count: int = 0
    taken: int = 0
    """Replays that an earlier part had settled: nothing was paid for them again."""
    stopped: str = ""
    """Why it stopped before its end; empty if it did not."""
    name: str = ""
    """Its name in the store, for the page."""
    simulated: bool = False
    """True if a model was simulated: figures then say nothing about a real one."""
    updated: float = 0.0
    """Unix seconds."""

    @property
    def changed_count(self) -> int:
        """Number of runs with another answer."""
        return self.runs - self.same - self.failed_count

    @property
    def share_kept(self) -> float:
        """The share of the answers to be kept that stayed: of those that people kept, or of all without scores."""
        return self.kept_same / self.kept if self.kept else self.same / self.runs if self.runs else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        spent = {name: getattr(self, name).model_dump(mode="json", include=_SPENT) for name in ("paid", "saved")}
        listed = {name: [asdict(one) for one in getattr(self, name)] for name in ("changed", "failed")}
        return {**plain, "changed_count": self.changed_count, **spent, **listed}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Counterfactual:
        """Return a result from its JSON.

        Raises:
            ValueError, TypeError, KeyError: it is not the JSON of a result.
        """
        return cls(
            **{name: data[name] for name in _PLAIN},
            paid=Usage(**data["paid"]),
            saved=Usage(**data["saved"]),
            changed=tuple(ReplayedRun(**one) for one in data["changed"]),
            failed=tuple(ReplayedRun(**one) for one in data["failed"]),
        )

    def notes(self) -> list[str]:
        """Return the result as lines."""
        answers = f"{self.same:,} answers stayed, {self.changed_count:,} changed"
        lines = [f"{self.runs:,} {self.data}, replayed with {self.graph}: {answers}"]
        if self.kept or self.rejected:
            lines.append(
                f"of {self.kept:,} answers that people kept {self.kept_same:,} stayed; of {self.rejected:,} that they "
                f"rejected {self.rejected_changed:,} changed"
            )
        earlier = f"; {self.taken:,} of {self.runs:,} replays were settled before" if self.taken else ""
        for name, usage, more in (("paid in all", self.paid, earlier), ("saved", self.saved, "")):
            lines.append(f"{name}: {usage.calls:,} calls, {usage.tokens:,} tokens, cost {usage.cost:.4f}{more}")
        if self.failed_count:
            lines.append(f"{self.failed_count:,} runs have no other answer yet")
        lines += [f"stopped: {self.stopped}"] if self.stopped else []
        return [
            *lines,
            *(["simulated: a model with a stated error rate answered, no real one"] if self.simulated else []),
        ]

    def to_text(self) -> str:
        """Return the result as text, with the runs whose answers changed."""
        rows = [f"{one.run_id}: {one.before!r} -> {one.after!r}" for one in self.changed]
        rows += [f"{one.run_id}: {one.status} {one.why}".rstrip() for one in self.failed]
        return "\n".join([*self.notes(), *([""] if rows else []), *rows])


_PLAIN = (
    "name", "data", "graph", "runs", "same", "kept", "kept_same", "rejected", "rejected_changed", "failed_count",
    "taken", "stopped", "simulated", "updated",
)  # fmt: skip
_SPENT = {"calls", "input_tokens", "output_tokens", "cost"}


async def counterfactual(
    data: RecordedRuns,
    graph: Graph,
    *,
    model: Model | None = None,
    models: Mapping[str, Model] | None = None,
    scorer: str | ScoreFunction | Scorer = "exact",
    tools: ToolsLike = (),
    deps: object = None,
    concurrency: int = 4,
    budget: float | None = None,
    rate: RateLimit | None = None,
    approve: str | None = None,
    seal: Seal | None = None,
    name: str | None = None,
) -> Counterfactual:
    """Replay recorded runs with a changed graph, and compare the answers.

    Calls that the change does not reach take their results from the journals; the others are made. Each replay is a run
    with an id that follows from its run, the graph, the models and the tools, so the same call again pays nothing, and
    an interrupted one continues. Calls that cannot be undone wait for a person. The result is also kept in the store,
    for the page of `orchestrator serve`.

    Args:
        data: the runs.
        graph: the graph with the change: another prompt, another structure with the same input.
        model: the model of live calls of nodes that name none.
        models: named models.
        scorer: whether an answer stayed: the recorded answer is the expected one.
        tools: tools that nodes may call.
        deps: the value of `ctx.deps` in nodes.
        concurrency: number of replays at the same time.
        budget: what live calls may cost.
        rate: a limit of requests that holds for all replays together.
        approve: approve live calls of tools up to this risk, except irreversible ones.
        seal: seals the records of the replays.
        name: the name of the result. Default: the names of the data, the graph and the model, and the first characters
            of the digest of the graph, the models and the tools.

    Returns:
        The answers that changed, what was paid, and what was saved.

    Raises:
        InvalidInput: there are no such runs.
        InvalidValue: an option cannot be used, or there is a budget, and the price of a model is unknown.
        GraphUnknown: the graph needs a model or tool that is missing.
    """
    check_amounts(budget, concurrency=concurrency)
    toolbox = toolbox_of(tools)
    identity = identity_of(graph, model, models or {}, toolbox)
    own = f"{data.name} with {graph.name}@{identity[:6]} {getattr(model, 'name', '')}".strip().replace("/", "-")
    named = checked_name(name or own)
    purse = Purse(inf if budget is None else budget)
    used = [*([] if model is None else [model]), *(models or {}).values()]
    if budget is not None:
        check_prices(used)
    async with AsyncExitStack() as opened:
        reading = await opened.enter_async_context(data.opened())
        executor = await opened.enter_async_context(
            Executor(
                reading.store,
                graphs=[graph],
                model=None if model is None else guarded(model, purse, rate, None),
                models={name: guarded(one, purse, rate, None) for name, one in (models or {}).items()},
                tools=toolbox,
                deps=deps,
                memory=MemoryOptions(cache=False),
                seal=seal,
            )
        )
        work = _Replays(executor, graph, identity, scorer_of(scorer), approve)
        with without_group():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when, purse.over, tasks.cancel_scope)
                if not await work.run(data.ids(reading), concurrency):
                    raise InvalidInput(f"data {data.name!r} has no completed runs: look at `orchestrator runs`")
                tasks.cancel_scope.cancel()
        stopped = purse.stop if purse.over.is_set() else ""
        found = work.result(data.name, named, stopped, simulated=any(map(is_simulated, used)))
        await keep(executor, named, found.to_json(), ("changed", "failed"))
        return found


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class _Replays:
    """The replays of a counterfactual evaluation."""

    def __init__(self, executor: Executor, graph: Graph, identity: str, scorer: Scorer, approve: str | None) -> None:
        self._executor, self._graph, self._identity = executor, graph, identity
        self._scorer, self._approve = scorer, approve
        self._counts = dict.fromkeys(("runs", "same", "kept", "kept_same", "rejected", "rejected_changed"), 0)
        self._paid = self._saved = NO_USAGE
        self._changed: dict[int, ReplayedRun] = {}
        self._failed: dict[int, ReplayedRun] = {}
        self._failed_count = self._taken = 0

    async def run(self, ids: AsyncIterator[str], concurrency: int) -> int:
        """Replay the runs, a few at a time, and return their number."""
        free = anyio.Semaphore(concurrency)

        async def one(number: int, run_id: str) -> None:
            try:
                await self._replay(number, run_id)
            finally:
                free.release()

        number = 0
        async with anyio.create_task_group() as tasks:
            async for run_id in ids:
                await free.acquire()
                tasks.start_soon(one, number, run_id)
                number += 1
        return number

    async def _replay(self, number: int, run_id: str) -> None:
        run = await self._executor.load(run_id)
        row, people = row_of(run, await self._executor.notes.list(run_id), number + 1)
        replay_id = f"what-if-{digest([self._identity, run_id])[:24]}"
        with suppress(RunUnknown):
            earlier = await self._executor.store.info(replay_id)
            self._taken += earlier.status in FINAL
        before = shown(text_of(answer_of(run)))
        made: Replay | None = None
        try:
            made = await self._executor.replay(
                run_id, self._graph, live="always", replay_id=replay_id, approve=self._approve
            )
        except OrchestratorError as error:
            self._count(people, None)
            why = shown(str(error))
            self._fail(number, ReplayedRun(run_id, replay_id, people, "not replayed", before, "", why))
            return
        finally:
            if made is None:  # it was refused or interrupted, or the budget is spent: calls that ended are paid
                with anyio.CancelScope(shield=True), suppress(OrchestratorError):
                    cut_off = await self._executor.load(replay_id)
                    self._paid += cut_off.usage
        assert made is not None
        self._paid, self._saved = self._paid + made.run.usage, self._saved + made.saved
        after = shown(text_of(answer_of(made.run)))
        found = ReplayedRun(run_id, replay_id, people, made.status, before, after)
        try:
            same = await self._is_same(made, replace(row, expected=run.output))
        except OrchestratorError as error:  # of the scorer: the replay is paid
            same, found = None, replace(found, why=shown(str(error)))
        self._count(people, same)
        if same is None:
            self._fail(number, found)
        elif not same:
            _add(self._changed, number, found)

    def _fail(self, number: int, found: ReplayedRun) -> None:
        self._failed_count += 1
        _add(self._failed, number, found)

    async def _is_same(self, made: Replay, row: Row) -> bool | None:
        """Return whether the answer stayed; None if the replay has no answer."""
        if made.status != "completed":
            return None
        if made.run.output == made.parent.output:
            return True
        records = await self._executor.store.read(made.run.run_id)
        return (await self._scorer.score(Case(row, made.run, trajectory(records)))).passed

    def _count(self, people: People, same: bool | None) -> None:
        counts = self._counts
        counts["runs"] += 1
        counts["same"] += bool(same)
        counts["kept"] += people == "kept"
        counts["kept_same"] += people == "kept" and bool(same)
        counts["rejected"] += people == "rejected"
        counts["rejected_changed"] += people == "rejected" and same is False

    def result(self, data: str, name: str, stopped: str, *, simulated: bool) -> Counterfactual:
        """Return the result."""
        changed, failed = (
            tuple(one for _, one in sorted(found.items())[:MAX_WRONG]) for found in (self._changed, self._failed)
        )
        return Counterfactual(
            data, self._graph.name, **self._counts, paid=self._paid, saved=self._saved, changed=changed,
            failed=failed, failed_count=self._failed_count, taken=self._taken, stopped=stopped, name=name,
            simulated=simulated, updated=time.time(),
        )  # fmt: skip


def _add(cases: dict[int, ReplayedRun], number: int, found: ReplayedRun) -> None:
    """Add a run to those that are listed, of which the first ones are kept."""
    cases[number] = found
    if len(cases) > 2 * MAX_WRONG:
        for later in sorted(cases)[MAX_WRONG:]:
            del cases[later]
