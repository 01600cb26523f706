"""Going on with runs, and waiting for them: resume, recover, wait; also many of them at once.

Many are resumed at once after a bug was repaired, or a night's runs after an outage.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio

from orchestrator.errors import OrchestratorError, RunConflict, RunEnded
from orchestrator.executor.commands import RISKS
from orchestrator.executor.host import Host
from orchestrator.executor.lease import is_held
from orchestrator.executor.options import ResumeOptions
from orchestrator.executor.resuming import change_limits, stops_of
from orchestrator.executor.run_status import is_parked, waits_to_be_taken_up, with_status
from orchestrator.executor.watched_runs import moved_by_others
from orchestrator.kernel.records import RunStarted
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Holder, Page, RunInfo, Store
from orchestrator.stores.owner import is_dead
from orchestrator.stores.rows import NOTICE
from orchestrator.values import MAX_NAME, cut, in_calendar
from orchestrator.views.run import Run
from orchestrator.views.worker_info import WorkerInfo, WorkerState

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive


log = logging.getLogger("orchestrator")

LOOK = 0.05
"""Seconds between two looks at what the holder of a run did."""

_GAP, _GAPS = 0.5, 3
"""Seconds for which nobody took up a run whose time has come; looks in a row at a running run without a holder."""


async def resume(host: Host, run_id: str, options: ResumeOptions, *, background: bool = False) -> Run:
    """See `Executor.resume`."""
    live = await take_up(host, run_id, options)
    if background:
        return await go_on(host, run_id, live)
    return await (wait_for(host, run_id, None) if live is None else drive_on(host, live))


async def take_up(host: Host, run_id: str, options: ResumeOptions, *, unpause: bool = True) -> Drive | None:
    """Have a run go on: return it, taken up and to be driven by the caller; None if it is driven here already.

    Raises:
        see `Executor.resume`
    """
    check_risk(options.approve)
    while True:
        live = host.live.get(run_id)
        if live is not None and not live.log.closing:
            _change(host, live, options, unpause=unpause)
            return None
        if live is not None:
            await live.done.wait()
        try:
            await _forgive(host, run_id)
            live = await host.open(run_id, options)
        except RunConflict:
            if run_id not in host.live:
                raise
            continue  # another task of this executor was quicker
        live.journal_resumed(options.approve, unpause=unpause)
        return live


def _change(host: Host, live: Drive, options: ResumeOptions, *, unpause: bool) -> None:
    """Change how a run that is driven here goes on."""
    if options.migrate is not None:
        raise RunConflict(live.run_id, "this executor drives it in the graph that it has: pause it, then migrate it")
    graph = live.machine.plan.graph
    stops = None if graph is None else stops_of(options, graph)
    live.change(stops, options.by)
    # Else it is not taken up by this, it just goes on.
    if live.machine.paused or options.approve is not None or stops is not None:
        live.journal_resumed(options.approve, unpause=unpause)
        live.answer_by_policy()
    change_limits(live.log, options.limits)


async def _forgive(host: Host, run_id: str) -> None:
    """Forget that drives of a run were given up, where someone asks for it to go on: back-off begins from the start."""
    info = await host.store.info(run_id)
    if info.deaths and not is_held(info.lease):
        await host.give_back(await host.take(run_id))


def check_risk(approve: str | None) -> None:
    """Refuse a policy that is no risk.

    Raises:
        ValueError: it is none.
    """
    if approve is not None and approve not in RISKS:
        raise ValueError(f"approve={approve!r} is not a risk: use one of {', '.join(RISKS)}")


async def drive_on(host: Host, live: Drive, began: Callable[[Drive], None] | None = None) -> Run:
    """Drive a run in the calling task until it ends or pauses. While it waits only for timers, wait with it.

    Cancelled, the run is interrupted, and sleeps until it is resumed.

    Args:
        began: called with each further drive, before anything happens in it.
    """
    while True:
        run = await host.drive(live)
        if not host.watched.waits_on(run.machine):
            return run
        await host.watched.turn(run.run_id)
        if host.tasks is None:
            return run  # the executor was closed meanwhile
        try:
            live = await host.open(run.run_id, ResumeOptions(context=live.log.context))
        except (RunConflict, RunEnded):  # another executor was quicker
            return await wait_for(host, run.run_id, None)
        if began is not None:
            began(live)
        live.journal_resumed(unpause=False)


async def go_on(host: Host, run_id: str, live: Drive | None) -> Run:
    """Drive a run in the background and return it as it is once what was said to it is durable.

    Args:
        live: the run if it was taken up here, and is driven from now on; None: it is driven already.
    """
    if live is not None:
        host.background().start_soon(host.drive_alone, live)
    live = live or host.live.get(run_id)
    if live is not None:
        with contextlib.suppress(Exception):  # the drive has the same error, and `wait` raises it
            await live.log.durable()
    return await host.loader.load(run_id)


async def take_up_free(host: Host, run_id: str, options: ResumeOptions) -> Drive | None:
    """Take a run up as `resume` does, if it can continue and no executor drives it. A person's pause is not lifted.

    Returns:
        None if it is driven, has ended, or waits for a person or an event: then an executor that is awake goes on with
        it from now on when its deadline passes.
    """
    info = await host.store.info(run_id)
    if run_id in host.live or info.status in FINAL or is_held(info.lease) or host.watched.goes_on(run_id):
        return None
    if info.status == "paused":
        machine = (await host.loader.load(run_id)).machine
        if moved_by_others(machine):
            return None
        if not host.last_seen.overdue(info) and not host.watched.waits_on(machine):
            if info.due is not None:
                host.watched.watch(run_id)
            return None
    with contextlib.suppress(RunConflict, RunEnded):  # another was quicker
        return await take_up(host, run_id, options, unpause=False)
    return None


async def wait_for(host: Host, run_id: str, limit: float | None) -> Run:
    """Wait until a run ends or pauses, or was interrupted and is driven by no executor; see `Waiting`.

    Raises:
        TimeoutError: it took longer.
        and the error that this executor gave it up for.
    """
    with anyio.move_on_after(limit) as scope:
        waiting = Waiting(host, run_id)
        while True:
            live = host.live.get(run_id)
            if live is not None:
                await live.done.wait()
                fault = live.fault
                if fault is not None:
                    raise fault
                run = host.run_of(live)
                if not host.watched.waits_on(run.machine):
                    return run
            if run_id in host.faults:
                raise host.faults.pop(run_id)
            found = await waiting.look()
            if found is not None:
                return found
            await waiting.rest()
    assert scope.cancelled_caught
    raise TimeoutError(f"run {run_id!r} has neither ended nor paused after {limit} s; it continues")


class Waiting:
    """A run that is joined and not driven here, look by look: for `wait`, and for readers of its events.

    It is followed while an executor drives it, while it waits to be taken up, and, by an executor that is awake, while
    it waits for nothing but time. If nobody takes it up when its time has come, or for as long as a lease lasts, it is
    taken up here. Living workers that have its graph come first.

    Args:
        host: what joins it.
        run_id: its id.
        joins: whether it may be taken up here, and others are expected to take it up; False: it is only read.
        pause: seconds between two looks.
    """

    def __init__(self, host: Host, run_id: str, *, joins: bool = True, pause: float = LOOK) -> None:
        self._host, self._run_id, self._joins, self._pause = host, run_id, joins, pause
        self._free = self._tried = 0
        """Looks in a row that found nobody driving it; the record at which it was taken up here."""
        self._paused: Run | None = None
        self._sleeps = False

    async def look(self) -> Run | None:
        """Return the run if it ended, was interrupted, or waits for a person or an event; None: look again."""
        host, info = self._host, await self._host.store.info(self._run_id)
        self._sleeps, overdue = False, info.due is not None and host.last_seen.overdue(info)
        if info.status != "running":
            if self._paused is None or self._paused.seq != info.head:
                self._paused = await host.loader.load(self._run_id)
            run, by_itself = self._paused, host.watched.waits_on(self._paused.machine)
            if run.status == "running":
                return None  # it went on between the two reads
            if overdue and self._may_act(info) and not moved_by_others(run.machine):
                await self._take_up_after(info, _GAP)
                return None
            self._sleeps = by_itself and self._tried != info.head
            return None if self._sleeps else run
        if is_held(info.lease) or (self._joins and info.due is not None and not overdue):
            self._free = 0
        elif self._joins and waits_to_be_taken_up(info):
            await self._take_up_after(info, host.ttl)
        elif host.watched.retries(self._run_id):
            self._sleeps = True
        else:  # between two holders there may be a moment without one
            self._free += 1
            if self._free > _GAPS:
                run = await host.loader.load(self._run_id)
                return run if run.status != "running" or run.queued else None
        return None

    async def rest(self) -> None:
        """Wait until the next look is worth it."""
        await (self._host.watched.change(self._run_id) if self._sleeps else anyio.sleep(self._pause))

    def _may_act(self, info: RunInfo) -> bool:
        known = self._joins and info.graph in self._host.resources.graphs and info.head != self._tried
        return known and not is_held(info.lease) and not self._host.watched.goes_on(self._run_id)

    async def _take_up_after(self, info: RunInfo, seconds: float) -> None:
        """Take the run up in the background, if nobody did so for some seconds, and no living worker has its graph."""
        host, self._free = self._host, self._free + 1
        if self._free * self._pause < seconds or not self._may_act(info):
            return
        self._free = 0
        if any(one.state == "alive" and info.graph in one.graphs for one in await workers(host.store)):
            return
        self._tried = info.head
        with contextlib.suppress(RunConflict, RunEnded):  # another was quicker
            options = ResumeOptions(context=host.watched.context_of(self._run_id))
            await go_on(host, self._run_id, await take_up(host, self._run_id, options, unpause=False))


async def recover(host: Host, only: Collection[str] | None) -> list[Run]:
    """See `Executor.recover`."""
    found: dict[str, Run] = {}

    async def recover_one(run_id: str) -> None:
        live: Drive | None = None
        try:
            live = await host.open(run_id)
            live.journal_resumed(unpause=False)
            found[run_id] = await host.drive(live)
        except (RunConflict, RunEnded):
            return  # somebody else was quicker
        except Exception as error:  # whatever it is, the other runs go on
            if live is not None:
                host.watched.retry(live)
            log.warning("run %s cannot be recovered: %s", run_id, error)

    async def all_of(runs: Collection[str]) -> None:
        async with anyio.create_task_group() as tasks:
            for run_id in runs:
                tasks.start_soon(recover_one, run_id)

    wanted = [one for one in await lost(host, host.resources.graphs) if only is None or one in only]
    # Runs that others called go on when those make their calls again; what is left then goes on by itself.
    inner = [one for one in wanted if (await host.store.info(one)).labels.get("parent") in wanted]
    await all_of([one for one in wanted if one not in inner])
    if inner:
        left = await lost(host, host.resources.graphs)
        await all_of([one for one in inner if one in left])
    await call_observers(host)
    return list(found.values())


async def call_observers(host: Host) -> bool:
    """Call observers about runs that were driven by processes which are gone and did not call them.

    Returns:
        Whether other processes are still to call their observers.
    """
    if not host.observation:
        return False
    notices = host.observation.notices
    for one in await notices.take_over(host.resources.graphs, host.resources.clock.now()):
        try:
            await host.observation.call_about(await host.loader.load(one.info.run_id), one.notice)
        except OrchestratorError as error:  # it is damaged, or was deleted
            log.warning("run %s: its observers are not called: %s", one.info.run_id, error)
    return notices.others


async def lost(host: Host, graphs: Collection[str] | None) -> list[str]:
    """Runs (of graphs of these names) that could go on and that nobody drives, the oldest first."""
    known = [info for info in await host.store.unsettled(graphs) if info.run_id not in host.live]
    messages = await host.store.inbox([info.run_id for info in known])
    addressed = {message.run_id for message in messages if message.body.get("type") != NOTICE}
    found: list[str] = []
    for info in known:
        lost_by_its_holder = info.status == "running" and info.due is None
        recoverable = lost_by_its_holder or host.last_seen.overdue(info) or info.run_id in addressed
        backs_off = info.retry_at is not None and info.retry_at > time.time()
        if recoverable and not backs_off and not is_parked(info) and not is_held(info.lease):
            found.append(info.run_id)
    return found


STATUSES = ("failed", "exhausted", "cancelled", "interrupted", "paused")
"""Statuses of runs that can be resumed."""


@dataclass(frozen=True, slots=True)
class ResumedRun:
    """The outcome of one run of many."""

    run_id: str
    graph: str
    before: str
    """Its status before."""
    status: str
    """Its status now; empty if it could not be resumed."""
    error: str = ""
    """Why it could not be resumed, or why it ended, as text."""
    exception: Exception | None = field(default=None, compare=False)
    """The error for which it could not be resumed."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The outcomes of many runs."""

    runs: tuple[ResumedRun, ...] = ()
    """In the order in which they came to an end or paused."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Status now -> number of runs. Those that could not be resumed are under an empty text."""
        return Counter(run.status for run in self.runs)

    @property
    def errors(self) -> Mapping[str, str]:
        """Run -> why it could not be resumed."""
        return {run.run_id: run.error for run in self.runs if not run.status}


OnProgress: TypeAlias = "Callable[[ResumedRun, int, int], object]"
"""Called for each run, with the number of those that are over and the number of all."""


class Listing(Protocol):
    """Lists runs, as `Executor.runs` does."""

    async def __call__(
        self,
        *,
        status: Collection[str] | None,
        graph: str | None,
        labels: Mapping[str, str] | None,
        after: str | None,
        limit: int,
    ) -> Page: ...


def check_statuses(status: Collection[str] | str, *, retry: bool) -> frozenset[str]:
    """The statuses of the runs to resume.

    Raises:
        ValueError: one is unknown, cannot be resumed, or needs `retry`.
    """
    wanted = frozenset({status} if isinstance(status, str) else status)
    unknown = sorted(wanted - set(STATUSES))
    if unknown or not wanted:
        said = f"status={unknown[0]!r} cannot be resumed" if unknown else "no status is given"
        raise ValueError(f"{said}: use one or several of {', '.join(STATUSES)}")
    ended = sorted(wanted & FINAL)
    if ended and not retry:
        raise ValueError(f"runs with the status {ended[0]!r} have ended: resume them with retry=True")
    return wanted


async def find(
    store: Store,
    listing: Listing,
    status: Collection[str],
    graph: str | None,
    labels: Mapping[str, str] | None,
    only: Collection[str] | None,
) -> list[RunInfo]:
    """The runs to resume, the oldest first, without replays and without runs that graph tools began."""
    found: list[RunInfo] = []
    cursor: str | None = None
    while True:
        page = await listing(status=status, graph=graph, labels=labels, after=cursor, limit=200)
        for info in page.runs:
            if (only is None or info.run_id in only) and not await _is_called(store, info):
                found.append(info)
        cursor = page.cursor
        if cursor is None:
            return found[::-1]


async def _is_called(store: Store, info: RunInfo) -> bool:
    """True if another run continues it: it was begun by a call of its graph, or is a replay."""
    if info.parent is not None:
        return info.parent.relation in ("call", "replay")
    parent = info.labels.get("parent")
    if parent is None:
        return False
    if info.run_id.startswith(f"{parent}."):  # begun by an early version
        return True
    (first,) = await store.read(info.run_id, limit=1)
    return isinstance(first, RunStarted) and first.caller is not None


async def resume_matching(
    host: Host,
    listing: Listing,
    status: Collection[str] | str,
    graph: str | None,
    labels: Mapping[str, str] | None,
    only: Collection[str] | None,
    options: ResumeOptions,
    concurrency: int,
    on_progress: OnProgress | None,
) -> Resumed:
    """See `Executor.resume_all`."""
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency}: use 1 or more")
    wanted = check_statuses(status, retry=options.retry)
    found = await find(host.store, listing, wanted, graph, labels, only)
    return await resume_all(host, found, options, concurrency, on_progress)


async def resume_all(
    host: Host, found: Sequence[RunInfo], options: ResumeOptions, concurrency: int, on_progress: OnProgress | None
) -> Resumed:
    """Resume runs, at most `concurrency` at the same time. See `Executor.resume_all`."""
    over: list[ResumedRun] = []
    left: Iterator[RunInfo] = iter(found)

    async def work() -> None:
        for info in left:  # shared: each worker takes the next one
            one = await _resumed(host, info, options)
            over.append(one)
            if on_progress is not None:
                on_progress(one, len(over), len(found))

    async with anyio.create_task_group() as tasks:
        for _ in range(min(concurrency, len(found))):
            tasks.start_soon(work)
    return Resumed(tuple(over))


async def _resumed(host: Host, info: RunInfo, options: ResumeOptions) -> ResumedRun:
    try:
        run = await resume(host, info.run_id, options)
    except Exception as error:  # whatever it is, the other runs go on
        if not isinstance(error, OrchestratorError):
            log.warning("run %s could not be resumed", info.run_id, exc_info=error)
        why = f"{type(error).__name__}: {error}"
        return ResumedRun(info.run_id, info.graph, info.status, "", why, error)
    error_text = "" if run.error is None else str(run.error)
    return ResumedRun(run.run_id, run.graph, info.status, run.status, error_text)


_RUNS = 20
"""Runs that are named for each worker at most."""


async def workers(store: Store) -> list[WorkerInfo]:
    """See `ExecutorWorkers.list`."""
    found = [_info(one) for one in await store.holders(runs=_RUNS)]
    shown = [one for one in found if one.worker or one.held]
    return sorted(shown, key=lambda one: (one.state in ("lapsed", "dead"), not one.worker, one.started or 0.0, one.id))


async def parked(store: Store, limit: int) -> list[RunInfo]:
    """See `ExecutorWorkers.parked`."""
    found = await store.parked(limit=limit)
    return [with_status(info) for info in found if is_parked(info) and not is_held(info.lease)]


def _info(one: Holder) -> WorkerInfo:
    owner, said = one.owner, one.owner.get("worker")
    worker = said if isinstance(said, Mapping) else {}
    pid, slots, started, graphs = owner.get("pid"), worker.get("slots"), worker.get("started"), worker.get("graphs")
    return WorkerInfo(
        id=one.holder, state=_state(one, worker), worker=isinstance(said, Mapping),
        host=cut(str(owner.get("host", "")), MAX_NAME), pid=pid if isinstance(pid, int) else None,
        graphs=tuple(cut(str(name), MAX_NAME) for name in graphs) if isinstance(graphs, list) else (),
        slots=slots if isinstance(slots, int) else None,
        started=in_calendar(started) if isinstance(started, int | float) else None,
        version=cut(str(worker.get("version", "")), MAX_NAME), heartbeat=max(0.0, one.ttl - one.left), ttl=one.ttl,
        held=one.held, runs=one.runs,
    )  # fmt: skip


def _state(one: Holder, worker: Mapping[str, object]) -> WorkerState:
    if is_dead(one.owner):
        return "dead"
    if one.left <= 0:
        return "lapsed"
    return "draining" if worker.get("draining") else "alive"
