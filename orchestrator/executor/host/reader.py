"""Reading runs: without code, without a lease and without changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from orchestrator.errors import InvalidValue
from orchestrator.executor.host.following import RunEvents
from orchestrator.executor.host.host import HasHost, Host
from orchestrator.executor.host.run_status import is_interrupted, standby_of, waits_to_be_taken_up
from orchestrator.graph.definition import GraphDefinition
from orchestrator.kernel.question import QuestionKind
from orchestrator.kernel.records.coded import check_readable
from orchestrator.stores.base import Page, Relation, RunInfo, StatsRow
from orchestrator.stores.families import forks_of
from orchestrator.values import check_labels, check_position, check_text
from orchestrator.views.events import Event
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.host.open_questions import RunQuestions
    from orchestrator.executor.host.version_check import VersionCheck
    from orchestrator.views.history import Point
    from orchestrator.views.run_diff import RunDiff

QUESTION_KINDS: tuple[str, ...] = get_args(QuestionKind)


class RunReader(HasHost):
    """The runs of a store, as they are and as they were."""

    async def load(self, run_id: str, at: int | None = None) -> Run:
        """Return a run as it is, or as it was after record `at`. This runs nothing and needs no code.

        Raises:
            RunUnknown: the store has no such run.
            InvalidValue: `at` is no number of a record.
            StoreCorrupt: a record is damaged; the records before it can be loaded with `at`.
        """
        check_text(run_id, "run_id")
        check_position(at)
        return await load(self._host, run_id, at)

    async def history(
        self, run_id: str, at: int | None = None, *, after: int = 0, limit: int | None = None
    ) -> list[Point]:
        """The steps of a run until record `at`, in the order in which they ended.

        With `after` and `limit` they come page by page, and a page reads no more of the journal than it needs if it
        follows the one before: `after` is the `seq` of its last step.

        Args:
            run_id: the run's id.
            at: the number of the last record; None: all of them.
            after: only steps that ended behind this record.
            limit: the most steps to return; None: no limit.

        Raises:
            RunUnknown, StoreCorrupt: see `load`.
            InvalidValue: `at` or `after` is no number of a record, or `limit` no number of steps.
        """
        from orchestrator.views.history import points

        check_text(run_id, "run_id")
        check_position(at)
        check_position(after, "after")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InvalidValue(f"limit={limit!r}: the number of steps is expected, 0 or more, or None", where="limit")
        if after or limit is not None:
            return await self._host.histories.page(run_id, at, after or 0, limit)
        info = await self._host.store.info(run_id)
        records = await self._host.store.read(run_id, upto=at)
        check_readable(records[:1])  # now, not when the first point is read
        return points(await self._host.loader.plan_of(info, records), records)

    async def check_against(self, graph: GraphDefinition) -> list[VersionCheck]:
        """Compare the runs of the store that have not ended with a new version of their graph, before a deploy.

        This changes nothing, and needs no code but the new graph.

        Args:
            graph: the new version. Runs of graphs of its name are compared.

        Returns:
            For each of these runs, the newest first, whether it would be refused, and what it would need. A run that
            cannot be read is there with a `fault`.
        """
        from orchestrator.executor.host.version_check import check_against

        return await check_against(self._host, graph)

    async def diff(self, run_a: str, run_b: str) -> RunDiff:
        """Compare two runs, step by step. This runs nothing and needs no code.

        Args:
            run_a: a run.
            run_b: another run, of the same graph, another version of it, or another graph.

        Returns:
            The differences in their order: prompts, results, answers, outcomes, updates, the end; and what both spent.

        Raises:
            RunUnknown, StoreCorrupt: see `load`.
        """
        from orchestrator.away import away
        from orchestrator.views.diff import diff_of

        check_text(run_a, "run_a")
        check_text(run_b, "run_b")
        one, other = await load(self._host, run_a), await load(self._host, run_b)
        read = self._host.store.read
        records, others = await read(run_a, upto=one.seq), await read(run_b, upto=other.seq)
        return await away(lambda: diff_of(one, records, other, others))

    async def forks(self, run_id: str) -> list[RunInfo]:
        """The runs that were forked from a run, the newest first; also of one that is deleted. See `Executor.fork`."""
        check_text(run_id, "run_id")
        return await forks_of(self._host.store, run_id)

    def events(
        self,
        run_id: str,
        *,
        after: int = 0,
        follow: bool = False,
        until: Literal["end", "pause"] = "end",
        style: Literal["embedia"] | None = None,
        tokenizer: Callable[[str], int] | None = None,
    ) -> AsyncIterator[Event]:
        """Return the events of a run after record `after`.

        Args:
            run_id: the run's id.
            after: the number of the last record to leave out; 0: none.
            follow: continue with new events, with live ones if this executor drives the run. A run that goes on
                after its end, because it was reopened, continues the numbers.
            until: where following stops: at the `end` of the run, or also where it stands still in a `pause`, because
                it waits for answers, events or a timer, or was paused.
            style: `embedia` uses the names and order of that framework; None: the library's own.
            tokenizer: counts the tokens of a text, for `style="embedia"`; None: only replies have counts, those of the
                provider.

        Raises:
            ValueError: `style` or `until` is unknown, or `tokenizer` is given without `style="embedia"`.
        """
        return RunEvents(self._host, run_id, after=after, follow=follow, until=until, style=style, tokenizer=tokenizer)

    async def runs(
        self,
        *,
        status: Collection[str] | str | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent: str | None = None,
        relation: Relation | None = None,
        search: str | None = None,
        q: str | None = None,
        since: float | None = None,
        begun_since: float | None = None,
        begun_before: float | None = None,
        waiting: bool | None = None,
        failed_tool: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Return a page of the runs that match every filter, the newest first.

        With `q`, the runs that `search` finds come first. Then the journals of the others are searched, from the newest
        run on, until a page has read its share: about 5,000 records, 1,000 runs, or 8 million characters. The page's
        `scanned` says how far it looked, and its cursor leads on, so a page may be empty and not be the last one.

        Args:
            status: a status or several; an executor drives those that are `running`, and none those that are
                `interrupted`.
            graph: the name of a graph.
            labels: labels that a run must have, with their values.
            parent: the id of the run from which a run began.
            relation: how a run began from another: `fork`, `replay` or `call` (by a call of its graph as a tool).
            search: words that must all occur in a run's labels, input or output, of which the first 2,000 characters
                count. Case and diacritics do not count.
            q: the same, and words may also occur in prompts, data of tools, questions, answers, events and states.
            since: Unix seconds: the run was created or written to at this time or later.
            begun_since: the run was created at this time or later.
            begun_before: the run was created before this time.
            waiting: whether the run has open questions; None: either.
            failed_tool: the name of a tool of which a call failed in the run; `*` is any tool.
            after: the `cursor` of the page before; None: the first page.
            limit: the most runs on a page.

        Raises:
            ValueError: a status is unknown, or both `search` and `q` are given.
            StoreError: `after` is not a cursor of this store, or of this kind of search.
        """
        from orchestrator.executor.host.run_list import run_list

        return await run_list(
            self._host.store, status=status, graph=graph, labels=labels, parent=parent, relation=relation,
            search=search, q=q, since=since, begun_since=begun_since, begun_before=begun_before, waiting=waiting,
            failed_tool=failed_tool, after=after, limit=limit,
        )  # fmt: skip

    async def stats(
        self,
        by: Sequence[str] | str = (),
        *,
        since: float | None = None,
        until: float | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[StatsRow]:
        """Return what runs spent, in groups: from totals that are kept beside the runs, so no journal is read.

        What a fork inherited is in no sum, and what a run of a graph tool spent is its own.

        Args:
            by: what makes a group: `day` (UTC, when the run was created), `graph`, `model`, `tool`, `node`, or
                `label:KEY`. Several make a group of each combination; none, one group of all runs.
            since: Unix seconds: only runs that were created at this time or later.
            until: only runs that were created before this time.
            graph: the name of a graph.
            labels: labels that a run must have, with their values.

        Returns:
            One row for each group, sorted by the values of `by`.

        Raises:
            InvalidValue: something in `by` cannot make a group.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        for what in (*names, *(() if graph is None else (graph,))):
            check_text(what, "a filter of statistics")
        return await self._host.store.stats(
            by=names, since=since, until=until, graph=graph, labels=check_labels(labels or {})
        )

    async def questions(
        self,
        *,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        kinds: Collection[str] | str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> RunQuestions:
        """Return a page of the open questions of all runs, the oldest first. No journal is read.

        Runs of earlier versions that wait are folded once, when questions are first listed.

        Args:
            graph: the name of a graph.
            labels: labels that a run must have, with their values.
            kinds: kinds of questions: `approval`, `input`, `unknown_outcome`, `pause`, `event`, `timer`, `limit`; None:
                any. People answer all but `event` and `timer`.
            after: the `cursor` of the page before; None: the first page.
            limit: the most questions on a page.

        Raises:
            InvalidValue: a kind is unknown.
            StoreError: `after` is not a cursor of this list.
        """
        for what in (graph, after):
            if what is not None:
                check_text(what, "a filter of questions")
        wanted = None if kinds is None else {kinds} if isinstance(kinds, str) else set(kinds)
        for kind in sorted(wanted or ()):
            if kind not in QUESTION_KINDS:
                raise InvalidValue(f"{kind!r} is not a kind of questions; use one of {', '.join(QUESTION_KINDS)}")
        from orchestrator.executor.host.open_questions import open_questions

        return await open_questions(
            self._host, graph=graph, labels=check_labels(labels or {}), kinds=wanted, after=after, limit=limit
        )


async def load(host: Host, run_id: str, at: int | None = None) -> Run:
    """See `RunReader.load`."""
    info = await host.store.info(run_id)
    graph = await host.loader.stored_graph(info)
    machine = await host.loader.machine_of(info, graph, at)
    interrupted = at is None and is_interrupted(info)
    queued = at is None and waits_to_be_taken_up(info)
    standby = standby_of(info) if at is None else None
    return Run(
        machine, machine.plan.graph or graph, host.store, interrupted=interrupted, queued=queued, standby=standby,
        archived=info.archived,
    )  # fmt: skip
