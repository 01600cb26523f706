"""The runs that one executor holds: taking them up, driving them, letting them go."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

from orchestrator._lazy import lazy_modules
from orchestrator.calls import contained
from orchestrator.errors import GraphUnknown, RunConflict, RunEnded, RunUnknown, StoreUnavailable
from orchestrator.executor import lease as leases
from orchestrator.executor.concurrency import Signal, YieldBudget
from orchestrator.executor.failures import NotOpen, fault_of
from orchestrator.executor.heartbeat import Heartbeat, take_messages
from orchestrator.executor.journal import LAST_FLUSH, Flusher
from orchestrator.executor.loader import HistoryPages, Loaded, RunLoader
from orchestrator.executor.observers import Observation, RunObserver
from orchestrator.executor.options import NO_OPTIONS, ResumeOptions
from orchestrator.executor.os_signals import guard
from orchestrator.executor.resources import Resources
from orchestrator.executor.resuming import (
    Contexts,
    MakeContext,
    NameCode,
    References,
    Reopening,
    audited,
    begin,
    guard_run,
    reopening_of,
    stops_of,
)
from orchestrator.executor.run_log import Children, DriveClock, IdleFollower, LastSeen, Shared
from orchestrator.executor.run_status import due_of_given_back
from orchestrator.executor.run_tools import compare_offered, offered
from orchestrator.executor.snapshots import NONE_KEPT, Kept, Snapshots
from orchestrator.executor.watched_runs import WatchedRuns
from orchestrator.graph.model import GraphDefinition
from orchestrator.json import JsonObject
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.seals import Audit, Chain, Seal
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.owner import Owner
from orchestrator.tasks import OwnTask
from orchestrator.tools.pool_client import PoolLeases
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor import drive
    from orchestrator.executor.drive import Drive, Resumption
else:
    (drive,) = lazy_modules("orchestrator.executor", "drive")  # who only looks at runs drives none

log = logging.getLogger("orchestrator")

_driving: ContextVar[tuple[Host, ...]] = ContextVar("driving", default=())
"""The hosts in whose drives or background this task is, the outermost first: a node may open an executor of its own."""
_CLOSED = "the executor is not open any more: it was closed meanwhile; the run can be resumed"
_LAST_CALLS = 5.0
"""Seconds that calls under way get to release leases before the store is closed."""
_LOOK = 0.05
"""Seconds between two looks at a lease that another holds."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A run that is loaded, and that the executor can go on with."""

    found: Loaded
    graph: GraphDefinition
    """The version of its graph that it goes on in."""
    reopening: Reopening | None
    lines: tuple[str, ...]
    """Changes of its tools."""
    stops: tuple[tuple[str, ...] | None, tuple[str, ...] | None] | None
    refs: JsonObject | None
    context: object
    checked: Audit | None
    """The records that are believed; None: all."""


class Host:
    """Store, leases and live runs of one executor."""

    def __init__(
        self,
        store: Store,
        resources: Resources,
        *,
        children: Callable[[Host], Children],
        lease_ttl: float,
        strict: bool,
        seal: Seal | None,
        awake: bool,
        make_context: MakeContext | None,
        name_code: NameCode | None,
        observers: Sequence[RunObserver],
        on_pause: RunObserver | None,
    ) -> None:
        """
        Args:
            children: makes what calls of graphs as tools reach other runs with.
            store, resources, and the others: see `Executor`.
        """
        self.store, self.resources, self.seal = store, resources, seal
        self.ttl, self.strict = lease_ttl, strict
        self.owner = Owner.here()
        self.snapshots = Snapshots(store, believed=seal is None)
        self.loader = RunLoader(store, resources, self.snapshots)
        self.histories = HistoryPages(store, self.loader)
        self.live: dict[str, Drive] = {}
        self._entered: dict[str, Signal] = {}
        """Runs that a task takes up or gives back now: other tasks wait for that, so none meets its own lease."""
        self._driven: set[Drive] = set()
        """Drives that a task is in: it releases them."""
        self.faults: dict[str, BaseException] = {}  # why background runs were given up
        self.idle_followers: dict[str, set[IdleFollower]] = {}
        """Followers of runs that are not driven here."""
        self.shared = Shared(store, children(self), Flusher(), PoolLeases(), YieldBudget())
        self.own: OwnTask[None] | None = None
        """Opens and closes the executor; None: it was never opened, or is closed."""
        self.tasks: TaskGroup | None = None
        self.closed = Signal()
        """Set when it closes; another one each time that it opens."""
        self.fatal: SystemExit | None = None
        """The exit that a background run requested; it is raised when the executor closes."""
        self.stopping = False
        """True if the process is about to end."""
        self.last_seen = LastSeen(resources.clock)
        self.presence = leases.Presence(store, self.owner, lease_ttl)
        self.heartbeat = Heartbeat(store, self.live, self.presence)
        self.observation = Observation(store, self.owner, self.loader.load, observers, on_pause)
        self.contexts = Contexts(self.live, make_context)
        self.refs = References(name_code)
        self.watched = WatchedRuns(
            store, resources.clock, awake=awake, take_up=self.continue_alone, moved=self.observation.moved
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connect the tools and run the background tasks; then interrupt all runs and release what they hold.

        An executor may be opened again, also in another event loop.
        """
        async with self.resources.tools, self.observation.opened():
            await self._forget_abandoned()
            try:
                async with anyio.create_task_group() as tasks:
                    self._begin(tasks)
                    try:
                        yield
                    finally:
                        self.tasks = None
                        self.closed.set()
                        self.watched.close()
                        tasks.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._interrupt()
                    await self.shared.holdings.close()

    def _begin(self, tasks: TaskGroup) -> None:
        self.tasks, self.closed = tasks, Signal()
        self.resources.reset()
        self.heartbeat.reset()
        self.shared.flusher.reset()
        for work in (self.heartbeat.renew_leases, self.heartbeat.poll_inboxes, self.shared.flusher.run):
            tasks.start_soon(work)
        self.watched.open(tasks)
        tasks.start_soon(guard, self.stop)

    async def _interrupt(self) -> None:
        """Interrupt the runs that callers drive in tasks of their own, and release those whose drives never began."""
        await self._interrupt_live()
        with anyio.move_on_after(0.0 if self.stopping else _LAST_CALLS):
            for facts in tuple(self.heartbeat.working):  # they give back what they claimed
                await facts.over.wait()
            while self._entered:  # so do calls that take a run up now
                await next(iter(self._entered.values())).wait()
        await self._interrupt_live()

    async def _interrupt_live(self) -> None:
        for live in list(self.live.values()):
            if live.begun:
                live.stop()
            if live.begun or live in self._driven:  # a drive that has not begun its steps finds the executor closed
                await live.done.wait()
            else:
                await self.release(live)

    async def _forget_abandoned(self) -> None:
        """Release runs that were driven in an event loop which was closed without a word."""
        self._driven.clear()
        for run_id, live in list(self.live.items()):
            del self.live[run_id]
            await self._drop(run_id, live.log.lease.token)

    async def stop(self) -> None:
        """Interrupt every run and wait until all leases are released. Tasks that wait for a run stay suspended."""
        self.stopping = True
        with anyio.move_on_after(LAST_FLUSH + 1):
            while leases.keeps(self.owner):
                for live in list(self.live.values()):
                    live.stop()  # again and again: some were only being taken up
                await anyio.sleep(0.005)

    def background(self) -> TaskGroup:
        """The executor's task group.

        Raises:
            RuntimeError: the executor is not open.
        """
        if self.tasks is None:
            fault = None if self.own is None else self.own.fault
            raise NotOpen("the executor is not open: use it in `async with Executor(...) as executor:`") from fault
        return self.tasks

    def check_open(self, tasks: TaskGroup) -> None:
        """Refuse to go on with what began while the executor was open.

        Args:
            tasks: its task group as it was then.

        Raises:
            RuntimeError: it has been closed since.
        """
        if self.tasks is not tasks:
            raise NotOpen(_CLOSED)

    async def open(
        self, run_id: str, options: ResumeOptions = NO_OPTIONS, hold: leases.LeaseHandle | None = None
    ) -> Drive:
        """Take the lease of a stored run, unless `hold` is its lease, and load it with the current code of its graph.

        Raises:
            RunUnknown, RunEnded, GraphUnknown, GraphChanged
            ToolsChanged: tools that it may still call are missing, or take other arguments.
            ContextMissing: it was begun with a context, and none is given or made.
            RunConflict: another executor holds it.
        """
        given = hold is not None
        with ExitStack() as entered:
            try:
                info = await self.store.info(run_id)
                reopening = reopening_of(self.resources.clock, info, options)
                newest = await self._newest_graph(info)
                tasks = self.background()
                if hold is None:
                    hold = await self.take(run_id, options.wait)
                else:
                    await self.enter(run_id)
                entered.callback(self.leave, run_id)
                ready = await self._load(info, newest, options, reopening)
                self.check_open(tasks)
                return await self._ready_drive(hold, ready, options)
            except BaseException as error:  # nothing of this drive has been stored
                if hold is not None:
                    await self._drop(run_id, hold.token, fault_of(error) if given else None)
                raise

    async def _newest_graph(self, info: RunInfo) -> GraphDefinition:
        try:
            return self.resources.graph(info.graph, info.run_id)
        except GraphUnknown:
            await self.store.read(info.run_id, limit=1)  # says so if it is the run's row that is damaged
            raise

    async def _load(
        self, info: RunInfo, newest: GraphDefinition, options: ResumeOptions, reopening: Reopening | None
    ) -> _Ready:
        """Load a run whose lease is held, and compare what it needs with what the executor has."""
        with contained():  # the application's code may migrate the run
            found = await self.loader.load_to_resume(info, newest, options, strict=self.strict, reopening=reopening)
            machine = found.checkpoint.machine
            if machine.ended is not None:
                raise RunEnded(info.run_id, machine.status)
            graph = found.moved.plan.graph or newest
            # a run that was enqueued elsewhere has one record: no step relies on tools yet
            accept = options.accept_changes or machine.head == 1
            tools = self.resources.tools
            lines = compare_offered(found.moved, graph, tools, strict=self.strict, accept=accept)
            stops, refs = stops_of(options, graph), self.refs.new(found.moved)
            context = await self.contexts.for_stored(info, machine, options.context)
        checked = await audited(self.store, self.seal, machine, trust_answers=options.trust_answers)
        return _Ready(found, graph, reopening, lines, stops, refs, context, checked)

    async def _ready_drive(self, hold: leases.LeaseHandle, ready: _Ready, options: ResumeOptions) -> Drive:
        """A drive of a loaded run, with what is journaled before its steps go on."""
        machine, fit, checked = ready.found.checkpoint.machine, ready.found.fit, ready.checked
        run_id = machine.run_id
        known = max(self.last_seen.seconds(run_id, machine.head), self.watched.seconds(run_id, machine.head))
        chain, kept = None if checked is None else checked.chain, ready.found.checkpoint.kept
        changes = (*(fit.changes or ()), *ready.lines) if ready.lines else fit.changes
        tools = offered(ready.graph, self.resources.tools) if ready.lines else None
        live = self.add(self.new_drive(
            machine, hold, kept, options.resources, chain=chain, known=known, context=ready.context,
            resumption=drive.Resumption(changes, tools, ready.stops, ready.refs, options.by),
        ))  # fmt: skip
        try:
            begin(live.log, ready.reopening, options)
            if fit.migrated is not None:
                live.log.push(fit.migrated.record.model_copy(update={**live.log.now()}))
            await guard_run(self.store, live.log, checked, self.resources.asked.get(ready.graph.content))
        except BaseException:
            del self.live[run_id]
            live.log.closing = True
            raise
        return live

    async def borrow(self, run_id: str) -> Drive:
        """Take the lease of a run without loading its code, to journal something and release it.

        Raises:
            RunUnknown, RunEnded
            RunConflict: another executor holds it.
        """
        hold = await self.take(run_id)
        try:
            info = await self.store.info(run_id)
            if info.status in FINAL:
                raise RunEnded(run_id, info.status)
            found = await self.loader.checkpoint_of(info, await self.loader.stored_graph(info))
            checked = await audited(self.store, self.seal, found.machine)
        except BaseException:
            await self.give_back(hold)
            raise
        return self.new_drive(
            found.machine, hold, found.kept, chain=None if checked is None else checked.chain, undriven=info
        )

    async def take(self, run_id: str, wait: float = 0.0) -> leases.LeaseHandle:
        """Take the lease of a run. Other tasks of this executor wait to take it until `leave` is called.

        Raises:
            RunUnknown
            RunConflict: another executor still holds it after `wait` seconds; or this one drives it: it is in `live`.
        """
        until = anyio.current_time() + wait
        while True:
            await self.enter(run_id)
            live = self.live.get(run_id)
            driven = live is not None and not live.done.is_set()
            try:
                if driven:
                    raise RunConflict(run_id, "this executor drives it")
                return await leases.take(self.presence, run_id, stopping=lambda: self.stopping)
            except BaseException as error:
                self.leave(run_id)
                if driven or not isinstance(error, RunConflict):
                    raise
                held = await self.store.lease(run_id)
                # a worker of this executor may have claimed it, and takes it up now
                if held is not None and held.holder != self.owner.executor and anyio.current_time() >= until:
                    raise
            await anyio.sleep(_LOOK)

    async def enter(self, run_id: str) -> None:
        """Wait until no other task of this executor takes a run up or gives it back, then keep others waiting."""
        while True:
            live, other = self.live.get(run_id), self._entered.get(run_id)
            if other is not None:
                await other.wait()
            elif live is not None and live.log.closing and not live.done.is_set():
                await live.done.wait()
            else:
                self._entered[run_id] = Signal()
                return

    def leave(self, run_id: str) -> None:
        """Let other tasks of this executor take up a run again."""
        self._entered.pop(run_id).set()

    async def give_back(self, hold: leases.LeaseHandle) -> None:
        """Give a lease back that was taken and not used."""
        try:
            await self._drop(hold.lease.run_id, hold.token)
        finally:
            self.leave(hold.lease.run_id)

    def new_drive(
        self,
        machine: RunState,
        hold: leases.LeaseHandle,
        kept: Kept = NONE_KEPT,
        own: Resources | None = None,
        *,
        chain: Chain | None,
        known: float = 0.0,
        undriven: RunInfo | None = None,
        context: object = None,
        resumption: Resumption | None = None,
    ) -> Drive:
        """A drive of a run whose lease this executor holds.

        Args:
            machine: the run.
            hold: its lease.
            kept: its last snapshot.
            own: what it is driven with, if that is not what the executor was given.
            chain: seals its records.
            known: for how many seconds this process has seen it stand still at its last record.
            undriven: its row, if something is journaled to it without driving it.
            context, resumption: see `Drive`.
        """
        clock = DriveClock(self.resources.clock, machine.updated, known)
        due_of = None if undriven is None else partial(due_of_given_back, clock, undriven)
        observed = self.observation.observed(machine)
        live: Drive = drive.Drive(
            machine, hold, self.shared, clock, own or self.resources, kept=kept, chain=chain, due_of=due_of,
            on_durable=None if observed is None else observed.stored, context=context,
            resumption=resumption,
        )  # fmt: skip
        if observed is not None:
            self.observation.add(live, observed)
        return live

    def add(self, live: Drive) -> Drive:
        """Count a run as driven here."""
        self.live[live.run_id] = live
        self.faults.pop(live.run_id, None)
        self.watched.forget(live.run_id)
        self.heartbeat.update()
        for follower in tuple(self.idle_followers.get(live.run_id, ())):
            follower.notify()
        return live

    async def _drop(self, run_id: str, token: str, fault: str | None = None) -> None:
        with anyio.CancelScope(shield=True):
            await leases.give_back(self.store, run_id, token, fault)

    async def drive(self, live: Drive) -> Run:
        """Drive a run in the calling task until it ends or pauses.

        Raises:
            RuntimeError: the executor was closed before its steps began.
            and see `Drive.run`
        """
        tasks = self.tasks
        outer = _driving.set((*_driving.get(), self))
        self._driven.add(live)
        try:
            with contained():
                await self.observation.driving(live)
                if live.machine.fork or live.machine.caller:
                    await self._attach_replay(live)
                live.answer_by_policy()
            if tasks is None or self.tasks is not tasks or live.done.is_set():
                await checkpoint_if_cancelled()  # as it is in the background
                raise NotOpen(_CLOSED)
            await live.run(take_messages)
        except NotOpen:
            raise
        except Exception as error:
            live.fault = live.fault or error
            raise
        finally:
            _driving.reset(outer)
            if not live.done.is_set():  # it failed before its steps could run
                with anyio.CancelScope(shield=True):
                    await self.release(live)
            self._driven.discard(live)
            if self.live.get(live.run_id) is live:
                del self.live[live.run_id]
            self.watched.after_drive(live)
            if live.fault is None and live.log.journal.stored == live.log.journal.head:
                self.snapshots.remember(live.machine, live.snapshots.kept)
            await self.observation.left(live)
        if self.stopping:
            await anyio.sleep_forever()
        return self.run_of(live)

    async def _attach_replay(self, live: Drive) -> None:
        """Give a run that is about to be driven its recording, if it is a replay or was called by one."""
        if live.log.replay is None and live.machine.ended is None:
            from orchestrator.executor.replay.attach import attach  # late: few runs are replays

            await attach(self.store, self.loader, self.live, live)

    @property
    def drives_here(self) -> bool:
        """True if this task is part of a run that the executor drives, or of what it does in the background."""
        return self in _driving.get()

    def mark_task(self) -> None:
        """Count this task, and the tasks that it starts, as the executor's own: closing it waits for them."""
        _driving.set((*_driving.get(), self))

    async def release(self, live: Drive) -> None:
        """Release a run that was opened and is not driven."""
        live.log.closing = True
        try:
            if live.machine.ended is not None:
                await self.shared.holdings.release(live.run_id)
            await live.release()
        finally:
            if self.live.get(live.run_id) is live:
                del self.live[live.run_id]
            elif live.run_id in self._entered:  # it was borrowed
                self.leave(live.run_id)
        await self.observation.left(live)

    async def drive_alone(self, live: Drive) -> None:
        """Drive a run in the background; `wait` raises its error later."""
        try:
            with contained():
                await self.drive(live)
        except Exception as error:
            self.given_up(live.run_id, error, again=self.watched.retry(live))
        except SystemExit as error:
            self.fatal = error  # raised when all is released: it stops the loop of asyncio where it stands
            self.background().cancel_scope.cancel()

    async def continue_alone(self, run_id: str) -> None:
        """Go on with a run in the background, without lifting a pause. Losing it to another executor is silent."""
        try:
            live = await self.open(run_id, ResumeOptions(context=self.watched.context_of(run_id)))
        except RunConflict:
            if run_id not in self.live:
                self.watched.watch(run_id)
        except (RunEnded, RunUnknown):
            self.watched.forget(run_id)
        except StoreUnavailable as error:
            self.watched.postpone(run_id)
            self.given_up(run_id, error, again=True)
        except Exception as error:  # whatever it is, the other runs go on
            self.watched.forget(run_id)
            self.given_up(run_id, error)
        else:
            live.journal_resumed(unpause=False)
            await self.drive_alone(live)

    def given_up(self, run_id: str, error: Exception, *, again: bool = False) -> None:
        """Note why the background drive of a run failed: `wait` raises it. `again`: whether it is tried again later."""
        self.faults[run_id] = error
        what = "is tried again" if again else "can be resumed"
        log.warning("run %s was interrupted and %s: %s", run_id, what, error, extra={"given_up": run_id})

    def run_of(self, live: Drive) -> Run:
        """Return the run at the end of a drive."""
        graph = live.machine.plan.graph
        assert graph is not None
        return Run(live.machine, graph, self.store, interrupted=True)
