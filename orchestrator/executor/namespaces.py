"""Namespaces of an executor: `executor.schedules`, `workers`, `replays`, `forks`, `graphs`, `memory` and `cache`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from anyio.abc import TaskStatus
from msgspec import Struct

from orchestrator._lazy import lazy_modules
from orchestrator.errors import InvalidValue, OrchestratorError
from orchestrator.executor import reader, worker_list
from orchestrator.executor.host import Host
from orchestrator.executor.options import ForkOptions, ReplayOptions
from orchestrator.graph.codec import shown
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.versions import Migration
from orchestrator.memory import Access, Memory, MemoryOptions, names_of
from orchestrator.stores.base import RunInfo, Schedule
from orchestrator.stores.items import ItemUsage, namespace_text
from orchestrator.stores.requests import RunQuery
from orchestrator.values import check_position

if TYPE_CHECKING:
    from orchestrator.executor import resume_many, schedules, worker
    from orchestrator.executor.calls import memory
    from orchestrator.executor.fork import making, preview
    from orchestrator.executor.fork.preview import ForkChoices, ForkPreview
    from orchestrator.executor.replay import start_replay as replays
    from orchestrator.executor.replay.running import Live
    from orchestrator.executor.replay.start_replay import ReplayBatch
    from orchestrator.executor.versions import migration_planning
    from orchestrator.executor.versions.comparison import Grade
    from orchestrator.executor.worker import Driven
    from orchestrator.executor.worker_health import WorkerHealth
    from orchestrator.views.replay_result import Replay
    from orchestrator.views.worker_info import WorkerInfo
else:
    resume_many, schedules, worker = lazy_modules("orchestrator.executor", "resume_many schedules worker")
    (memory,) = lazy_modules("orchestrator.executor.calls", "memory")
    making, preview = lazy_modules("orchestrator.executor.fork", "making preview")
    (replays,) = lazy_modules("orchestrator.executor.replay", "start_replay")
    (migration_planning,) = lazy_modules("orchestrator.executor.versions", "migration_planning")


class ExecutorSchedules:
    """The schedules of a store: workers start runs at their times."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def put(
        self,
        graph: GraphDefinition | str,
        cron: str,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        name: str | None = None,
        timezone: str = "UTC",
        catch_up: str = "skip",
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
    ) -> Schedule:
        """Have workers start runs of a graph at set times. The schedule is stored; a time never fires twice.

        The same arguments change nothing; other arguments replace a schedule with the same name. A paused one stays
        paused.

        Args:
            graph: a graph, or the name of one of the executor's graphs.
            cron: minute, hour, day of month, month and day of week, such as `30 6 * * 1-5`; seconds may come first.
            input: the input of each run, see `Executor.start`.
            name: the schedule's name; the ids of its runs start with it. None: the graph's name.
            timezone: the time zone of `cron`, such as `Europe/Vienna`.
            catch_up: which times that were missed by more than 60 s fire when a worker runs again: `skip`: none,
                `one`: the latest, `all`: the latest 1,000.
            labels: labels of each run, which also has the label `schedule` with the schedule's name.
            approve: approve calls of tools up to this risk without asking.

        Returns:
            The schedule, with its next time.

        Raises:
            InvalidInput: the input does not fit the graph's state.
            InvalidValue: another argument cannot be used.
            ImportError: the extra `schedule` is not installed.
        """
        return await schedules.put(
            self._host,
            graph,
            cron,
            input,
            name=name,
            timezone=timezone,
            catch_up=catch_up,
            labels=labels,
            approve=approve,
        )

    async def list(self) -> Sequence[Schedule]:
        """Return all schedules of the store, by name."""
        return await self._host.store.schedules()

    async def pause(self, name: str) -> Schedule | None:
        """Pause a schedule: no worker starts its runs until `resume`. Returns None if the schedule does not exist."""
        return await schedules.pause(self._host, name, paused=True)

    async def resume(self, name: str) -> Schedule | None:
        """Let workers start runs of a schedule again. Returns None if the schedule does not exist.

        Times that passed while it was paused do not count as missed: the next run is at the first time from now on.
        """
        return await schedules.pause(self._host, name, paused=False)

    async def delete(self, name: str) -> bool:
        """Remove a schedule. Its runs stay. Returns False if there is no schedule with this name."""
        return await self._host.store.delete_schedule(name)


class ExecutorWorkers:
    """The workers of a store, and the runs that no executor drives. `Executor.work` runs a worker."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def list(self) -> Sequence[WorkerInfo]:
        """Return the executors that share the store: workers, and others that hold runs. Live ones come first.

        One that stopped normally is not listed. One that died stays listed for at least an hour.
        """
        return await worker_list.workers(self._host.store)

    async def parked(self, *, limit: int = 100) -> Sequence[RunInfo]:
        """Return runs that only `resume` continues, because 5 drives in a row died or were given up.

        Args:
            limit: maximum number of runs to return, the longest parked first.
        """
        return await worker_list.parked(self._host.store, limit)

    async def recoverable(self) -> Sequence[str]:
        """Return the ids of the runs, of any graph, that `Executor.recover` would resume if it had their code."""
        return await resume_many.lost(self._host, None)

    async def drive(self, run_id: str, *, wait: float = 0.0, health: WorkerHealth | None = None) -> Driven:
        """Continue a run until it ends or pauses. For programs that deliver runs to workers through their own queue.

        Calling it again is safe: a run that has ended, or that is to start later, is left alone. If this executor
        drives the run already, the call waits for it. A pause that a person asked for is not lifted.

        Args:
            run_id: the run's id.
            wait: seconds to wait for another executor that holds the run.
            health: counts the drive, if this call drives the run.

        Returns:
            The run's status, and when to call again.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: another executor drives the run.
            GraphUnknown: this executor lacks the run's graph, or a model or tool of it; another executor may have it.
            OrchestratorError: as of `Executor.resume`.
        """
        return await worker.drive(self._host, run_id, wait, health)

    def wind_down(self, run_id: str) -> bool:
        """Interrupt a run that this executor drives once its running steps have ended: no other step starts.

        The run is then released, and another executor may resume it.

        Returns:
            Whether this executor drives it.
        """
        live = self._host.live.get(run_id)
        if live is not None:
            live.wind_down()
        return live is not None

    async def start_task(self, work: Callable[[TaskStatus[None]], Awaitable[None]]) -> None:
        """Run a function in the background, and wait until it has started; closing cancels it.

        Args:
            work: the function, which calls `started()` of its argument.

        Raises:
            RuntimeError: the executor is not open.
        """

        async def run(*, task_status: TaskStatus[None]) -> None:
            self._host.mark_task()
            await work(task_status)

        await self._host.background().start(run)


class ExecutorReplays:
    """Replays of many runs, and earlier replays. `Executor.replay` makes one."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def submit(
        self,
        runs: Mapping[str, str],
        /,
        graph: GraphDefinition | str | None = None,
        *,
        at: int | None = None,
        approve: str | None = None,
        live: Live = "never",
        concurrency: int = 2,
    ) -> ReplayBatch:
        """Start to replay many runs in the background, a few at a time, and return at once.

        A run that cannot be replayed does not stop the others. `load` returns the result of each replay. The same ids
        and arguments mean the same replays: finished ones are not repeated, and interrupted ones continue.

        Args:
            runs: the id of each run -> the id of its replay.
            graph: see `Executor.replay`.
            at: see `Executor.replay`.
            approve: see `Executor.replay`.
            live: see `Executor.replay`.
            concurrency: number of replays that run at the same time.

        Returns:
            The replays, with how far each is, and `stop` and `wait`. Leaving the executor stops them.

        Raises:
            ValueError: an argument is invalid.
        """
        options = ReplayOptions(graph=graph, at=at, approve=approve, live=live)
        return replays.begin(self._host, runs, options, concurrency)

    async def load(self, run_id: str) -> Replay:
        """Return the current result of a replay.

        Args:
            run_id: the id of the replay.

        Returns:
            The replay, compared with the run that it replays.

        Raises:
            RunUnknown: the store does not have the replay, or the run that it replays.
            InvalidValue: the run is not a replay.
        """
        return await replays.replayed(self._host, run_id)


class ExecutorForks:
    """The forks of runs, and previews of forks. `Executor.fork` makes one."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def list(self, run_id: str) -> Sequence[RunInfo]:
        """Return the forks of a run, the newest first; also of a deleted run. See `Executor.fork`."""
        return await reader.forks(self._host, run_id)

    async def preview(
        self,
        parent: str,
        /,
        at: int | None = None,
        *,
        update: Mapping[str, object] | None = None,
        branch: str | None = None,
        answer: object = None,
        answers: Mapping[str, object] | None = None,
        result: object = None,
        request: Mapping[str, object] | None = None,
        pause: bool | None = None,
        graph: GraphDefinition | str | None = None,
        migrate: Migration | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        digests: Collection[str] | None = None,
        start: bool = True,
    ) -> ForkPreview:
        """Return what a fork would reuse, repeat and ask about. No run is made.

        Args:
            parent: the id of the run to fork. This argument and the others are those of `Executor.fork`.

        Returns:
            The preview, by the current content of the store.

        Raises:
            OrchestratorError: as of `Executor.fork`.
        """
        options = ForkOptions(
            parent,
            at=at,
            update=update,
            branch=branch,
            answer=answer,
            answers=answers,
            result=result,
            request=request,
            pause=pause,
            graph=graph,
            migrate=migrate,
            run_id=run_id,
            labels=labels,
            digests=digests,
        )
        return await preview.preview(self._host, options, start=start)

    async def choices(self, parent: str, /, at: int | None = None) -> ForkChoices:
        """Return what a fork of a run at a record can change: values, the result or the answer in that record.

        Args:
            parent: the id of the run.
            at: the number of the record; None: the last one before the run's end.

        Returns:
            The branches with their values and the JSON Schemas of their states; the result, if the record is that of
            a call; the answer, if the record is one.

        Raises:
            RunUnknown: the store has no such run.
            InvalidValue: there is no such record, or nothing can follow it.
        """
        check_position(at)
        return await preview.choices(self._host, await self._host.store.info(parent), at)


class ExecutorGraphs(Mapping[str, GraphDefinition]):
    """The graphs of an executor, by name: the newest version of each. `Executor.add_graph` adds one."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._graphs = host.resources.graphs

    def __getitem__(self, name: str) -> GraphDefinition:
        return self._graphs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._graphs)

    def __len__(self) -> int:
        return len(self._graphs)

    def __repr__(self) -> str:
        return f"ExecutorGraphs({self._graphs!r})"

    def remove(self, graph: GraphDefinition) -> None:
        """Forget a version of a graph. This executor can then resume only those runs of it that it drives.

        Args:
            graph: the graph.
        """
        self._host.resources.remove(graph)

    async def check_runs(self, graph: GraphDefinition) -> list[VersionCheck]:
        """Compare the unfinished runs of the store with a new version of their graph, before a deployment.

        This changes nothing, and needs no code but the new graph.

        Args:
            graph: the new version. Runs of graphs of its name are compared.

        Returns:
            For each of these runs, the newest first, whether it would be refused, and what it would need. A run that
            cannot be read is included with a `fault`.
        """
        return await check_against(self._host, graph)


class ExecutorMemory(Memory):
    """The memory of an executor's store. Nothing is journaled."""

    __slots__ = ("_made",)

    def __init__(self, host: Host) -> None:
        self._made = memory.MemoryAccess(host.store, host.resources.memory, host.resources.threads)

    @property
    def _options(self) -> MemoryOptions:
        return self._made.options

    async def _access(self, access: Access) -> Any:
        return await self._made.make(access)

    async def prune(self, prefix: Sequence[str] = (), *, older_than: timedelta | None = None) -> int:
        """Remove items that have expired.

        Args:
            prefix: the first names of their namespaces; `()`: any.
            older_than: also remove items last written longer ago; `timedelta(0)`: all items.

        Returns:
            Number of removed items.

        Raises:
            InvalidValue: an argument cannot be used.
        """
        if older_than is not None and not isinstance(cast(object, older_than), timedelta):
            raise InvalidValue(f"older_than={shown(older_than)}: give a timedelta", where="older_than")
        age = None if older_than is None else older_than.total_seconds()
        if age is not None and age < 0:
            raise InvalidValue(f"older_than={older_than!r}: use an age of 0 or more", where="older_than")
        return await self._made.store.prune_items("memory", tuple(names_of(prefix, least=0)), older_than=age)

    async def usage(self) -> ItemUsage:
        """Return the number of items, and their size in bytes."""
        return await self._made.store.item_usage("memory")


class CachedResult(Struct, frozen=True):
    """A stored result of a node with `cache=`."""

    graph: str
    node: str
    key: str
    """Digest of all that the result depends on."""
    created: float
    """Unix seconds, by the store's clock; so is the next field."""
    expires: float | None
    size: int
    """Size in the store, in bytes."""


class ExecutorCache:
    """The stored results of nodes with `cache=`."""

    def __init__(self, host: Host) -> None:
        self._store = host.store

    async def list(
        self, graph: str | None = None, node: str | None = None, *, after: CachedResult | None = None, limit: int = 100
    ) -> Sequence[CachedResult]:
        """Return stored results, ordered by graph, node and key.

        Args:
            graph: the name of a graph; None: any.
            node: the name of a node of that graph; None: any.
            after: the last result of the previous page.
            limit: maximum number of results to return.

        Raises:
            ValueError: a node is named without its graph.
        """
        place = None if after is None else (namespace_text((after.graph, after.node)), after.key)
        items = await self._store.items("cache", _prefix(graph, node), after=place, limit=limit)
        return [
            CachedResult(item.namespace[0], item.namespace[-1], item.key, item.updated, item.expires, item.size)
            for item in items
        ]

    async def clear(self, graph: str | None = None, node: str | None = None) -> int:
        """Remove stored results, so that their steps run again.

        Args:
            graph: the name of a graph; None: any.
            node: the name of a node of that graph; None: any.

        Returns:
            Number of removed results.

        Raises:
            ValueError: a node is named without its graph.
        """
        return await self._store.prune_items("cache", _prefix(graph, node), older_than=0)

    async def prune(self, *, older_than: timedelta | None = None) -> int:
        """Remove results that have expired.

        Args:
            older_than: also remove results that are older.

        Returns:
            Number of removed results.

        Raises:
            ValueError: the age is negative.
        """
        age = None if older_than is None else older_than.total_seconds()
        if age is not None and age < 0:
            raise ValueError(f"older_than={older_than!r}: use an age of 0 or more")
        return await self._store.prune_items("cache", older_than=age)

    async def usage(self) -> ItemUsage:
        """Return the number of results, and their size in bytes."""
        return await self._store.item_usage("cache")


def _prefix(graph: str | None, node: str | None) -> tuple[str, ...]:
    if graph is None and node is not None:
        raise ValueError(f"node={node!r}: name its graph, too")
    return tuple(name for name in (graph, node) if name is not None)


_PAGE = 200
_UNENDED = ("running", "paused")


class VersionCheck(Struct, frozen=True):
    """The effect of a new version of its graph on one run."""

    run_id: str
    status: str
    grade: Grade
    """How the run can continue in the new version; `compatible` also if only content changed, or nothing."""
    at: Sequence[str] = ()
    """Nodes at which the run is."""
    changes: Sequence[str] = ()
    """Every difference of structure, each with its grade."""
    options: Sequence[str] | None = None
    """Options of `orchestrator resume RUN` with which it continues; None if it needs none, or none are known."""
    guesses: Sequence[str] = ()
    """Assumptions of these options, line by line: check it before you use them."""
    undecided: Mapping[str, Sequence[str]] = {}
    """Removed state fields that may have become one of several new ones, with those new fields."""
    fault: str = ""
    """Reason why the run could not be compared; empty if it could."""
    refs: Mapping[str, object] = {}
    """References to its code, as text."""
    root_id: str = ""
    """Id that its first record contains: for a fork, that of the run at the root of all forks."""

    @property
    def refused(self) -> bool:
        """Return True if an executor with only the new version would refuse the run."""
        return self.grade != "compatible"


async def check_against(host: Host, graph: GraphDefinition) -> list[VersionCheck]:
    """See `ExecutorGraphs.check_runs`."""
    found: list[VersionCheck] = []
    cursor: str | None = None
    while True:
        page = await host.store.runs(RunQuery(status=_UNENDED, graph=graph.name, after=cursor, limit=_PAGE))
        for info in page.runs:
            try:
                found.append(await _checked(host, info, graph))
            except OrchestratorError as error:
                found.append(VersionCheck(info.run_id, info.status, "compatible", fault=str(error)))
        cursor = page.cursor
        if cursor is None:
            return found


async def _checked(host: Host, info: RunInfo, graph: GraphDefinition) -> VersionCheck:
    machine = await host.loader.machine_of(info, await host.loader.stored_graph(info))
    at = sorted({token.node for token in machine.root.live.values()}) if machine.root is not None else []
    refs = machine.refs
    old = machine.plan.graph
    if old is None or machine.structure == graph.structure:
        return VersionCheck(info.run_id, machine.status, "compatible", at, refs=refs, root_id=machine.root_id)
    found = migration_planning.assess(machine, old, graph)
    remedy = found.remedy
    return VersionCheck(
        info.run_id,
        machine.status,
        found.grade,
        at,
        tuple(map(str, found.changes)),
        None if remedy is None else remedy.options,
        () if remedy is None else remedy.guesses,
        found.undecided,
        refs=refs,
        root_id=machine.root_id,
    )
