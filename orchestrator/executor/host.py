"""The runs that one executor holds: their leases, drives and shared resources. `executor.resuming` resumes runs.

The context of a run (`ctx.context` in its nodes) is given or made, and never stored. References to the code of
a run are text: neither this module nor a store imports the code.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

from orchestrator._lazy import lazy_modules
from orchestrator.errors import ContextMissing, RunConflict
from orchestrator.executor import lease as leases
from orchestrator.executor.concurrency import Signal, YieldBudget
from orchestrator.executor.failures import NotOpen
from orchestrator.executor.heartbeat import Heartbeat
from orchestrator.executor.journal import LAST_FLUSH, Flusher
from orchestrator.executor.loader import HistoryPages, RunLoader
from orchestrator.executor.observers import Observation, RunObserver
from orchestrator.executor.os_signals import stop_on_signal
from orchestrator.executor.resources import Resources
from orchestrator.executor.run_log import Children, DriveClock, IdleFollower, LastSeen, Shared
from orchestrator.executor.run_status import due_of_given_back
from orchestrator.executor.snapshots import NONE_KEPT, Kept
from orchestrator.executor.watched_runs import WatchedRuns
from orchestrator.graph.codec import as_json
from orchestrator.json import JsonObject
from orchestrator.kernel.records import Record, RunStarted
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.seals import Chain, Seal
from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.owner import Owner
from orchestrator.tasks import OwnTask
from orchestrator.tools.pool_client import PoolLeases
from orchestrator.user_code import contained
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor import drive
    from orchestrator.executor.drive import Drive, Resumption
else:
    (drive,) = lazy_modules("orchestrator.executor", "drive")  # not needed to read runs

log = logging.getLogger("orchestrator")

_driving: ContextVar[tuple[Host, ...]] = ContextVar("driving", default=())
"""Hosts in whose drives or background this task runs, the outermost first: a node may open an executor of its own."""
_CLOSED = "the executor was closed in the meantime; the run can be resumed"
_LAST_CALLS = 5.0
"""Seconds that calls in progress have to release leases before the store is closed."""
_LOOK = 0.05
"""Seconds between polls of a lease that another executor holds."""


MakeContext: TypeAlias = Callable[[RunInfo], "Awaitable[object] | object"]
"""Makes the context of a run, by its row: its id, graph and labels."""


class Contexts:
    """Finds the contexts of the runs of one executor."""

    def __init__(self, live: Mapping[str, Drive], make: MakeContext | None) -> None:
        self.make = make
        """See `Executor(contexts=)`."""
        self._live = live

    async def for_new(self, run_id: str, graph: str, labels: Mapping[str, str], caller: str | None) -> object:
        """Return the context of a run that starts without a given one; None if it has none."""
        found = self._of_caller(caller)
        if found is None and self.make is not None:
            found = await self._made(RunInfo(run_id, graph, "running", labels))
        return found

    async def for_stored(self, info: RunInfo, run: RunState, given: object) -> object:
        """Return the context of a run that is resumed.

        Raises:
            ContextMissing: the run needs one, and none is given or made.
        """
        found = given
        if found is None:
            found = self._of_caller(None if run.caller is None else run.caller.run_id)
        if found is None and self.make is not None:
            found = await self._made(info)
        if found is None and run.started is not None and run.started.context:
            raise ContextMissing(info.run_id)
        return found

    def check(self, run_id: str, first: Record, given: object) -> None:
        """Refuse a fork that would continue without the context that the run needs.

        Raises:
            ContextMissing: the run needs one, and none is given or made.
        """
        needs = isinstance(first, RunStarted) and first.context
        if needs and given is None and self.make is None:
            raise ContextMissing(run_id)

    def _of_caller(self, run_id: str | None) -> object:
        caller = None if run_id is None else self._live.get(run_id)
        return None if caller is None else caller.log.context

    async def _made(self, info: RunInfo) -> object:
        with contained():
            made = None if self.make is None else self.make(info)
            return await made if inspect.isawaitable(made) else made


NameCode: TypeAlias = Callable[[str, str, Mapping[str, object]], "Mapping[str, object] | None"]
"""Names the code of an executor, by (`run.root_id`, name of the graph, references of the run); None: keep those."""


class References:
    """Finds the references of the runs of one executor."""

    def __init__(self, name_code: NameCode | None) -> None:
        self._name_code = name_code
        """See `Executor(refs=)`."""

    def new(self, run: RunState) -> JsonObject | None:
        """Return the references of a resumed run, if they change. A run that another one called keeps its own."""
        graph = run.plan.graph
        if graph is None or run.caller is not None:
            return None
        found = self.of(run.root_id, graph.name, run.refs)
        return None if found == run.refs else found

    def of(self, root_id: str, graph: str, has: JsonObject) -> JsonObject:
        """Return the references of a run.

        Args:
            root_id: the run's id; for a fork, the id of the run at the root of its forks.
            graph: the name of its graph.
            has: its current references.

        Raises:
            InvalidValue: those of the executor cannot be stored.
        """
        found = None if self._name_code is None else self._name_code(root_id, graph, has)
        return has if found is None else dict(as_json(dict(found), "refs", inside=1))


class Host:
    """Store, leases and live runs of one executor."""

    def __init__(
        self,
        store: Store,
        resources: Resources,
        *,
        children: Callable[[Host], Children],
        continue_run: Callable[[Host, str], Awaitable[None]],
        lease_ttl: float,
        strict: bool,
        restored_at: float,
        seal: Seal | None,
        awake: bool,
        make_context: MakeContext | None,
        name_code: NameCode | None,
        observers: Sequence[RunObserver],
        on_pause: RunObserver | None,
    ) -> None:
        """Arguments that are not listed are those of `Executor`.

        Args:
            children: makes the object through which calls of graphs as tools access other runs.
            continue_run: resumes a run and drives it in the background.
        """
        self.store, self.resources, self.seal = store, resources, seal
        self.ttl, self.strict = lease_ttl, strict
        self.owner = Owner.here()
        self.loader = RunLoader(store, resources, believed=seal is None)
        self.histories = HistoryPages(store, self.loader)
        self.live: dict[str, Drive] = {}
        self._entered: dict[str, Signal] = {}
        """Runs that a task takes or releases now: other tasks wait, so that none meets a lease of this executor."""
        self._driven: set[Drive] = set()
        """Drives that a task runs, which also releases them."""
        self.faults: dict[str, BaseException] = {}  # errors of background runs that were given up
        self.idle_followers: dict[str, set[IdleFollower]] = {}
        """Followers of runs that this executor does not drive."""
        self.shared = Shared(store, children(self), Flusher(), PoolLeases(), YieldBudget(), restored_at)
        self.own: OwnTask[None] | None = None
        """Opens and closes the executor; None if it was never opened, or is closed."""
        self.tasks: TaskGroup | None = None
        self.closed = Signal()
        """Set when the executor closes; replaced each time it opens."""
        self.fatal: SystemExit | None = None
        """The exit that a background run requested; it is raised when the executor closes."""
        self.stopping = False
        """True if the process is about to exit."""
        self.last_seen = LastSeen(resources.clock)
        self.presence = leases.Presence(store, self.owner, lease_ttl)
        self.heartbeat = Heartbeat(store, self.live, self.presence)
        self.observation = Observation(store, self.owner, self.loader.load, observers, on_pause)
        self.contexts = Contexts(self.live, make_context)
        self.refs = References(name_code)
        self.watched = WatchedRuns(
            store, resources.clock, awake=awake, take_up=partial(continue_run, self), moved=self.observation.moved
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connect the tools and run the background tasks; on exit, interrupt all runs and release their leases.

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
        tasks.start_soon(stop_on_signal, self.stop)

    async def _interrupt(self) -> None:
        """Interrupt the runs that callers drive in their own tasks, and release those whose drives never started."""
        await self._interrupt_live()
        with anyio.move_on_after(0.0 if self.stopping else _LAST_CALLS):
            for facts in tuple(self.heartbeat.working):  # they release what they claimed
                await facts.over.wait()
            while self._entered:  # so do calls that resume a run now
                await next(iter(self._entered.values())).wait()
        await self._interrupt_live()

    async def _interrupt_live(self) -> None:
        for live in list(self.live.values()):
            if live.begun:
                live.stop()
            if live.begun or live in self._driven:  # a drive that has not started its steps finds the executor closed
                await live.done.wait()
            else:
                await self.release(live)

    async def _forget_abandoned(self) -> None:
        """Release runs driven in an event loop that was closed without closing the executor."""
        self._driven.clear()
        for run_id, live in list(self.live.items()):
            del self.live[run_id]
            await self.drop_lease(run_id, live.log.lease.token)

    async def stop(self) -> None:
        """Interrupt every run and wait until all leases are released. Tasks that wait for a run stay suspended."""
        self.stopping = True
        with anyio.move_on_after(LAST_FLUSH + 1):
            while leases.keeps(self.owner):
                for live in list(self.live.values()):
                    live.stop()  # repeated, because some runs were only being resumed
                await anyio.sleep(0.005)

    def background(self) -> TaskGroup:
        """Return the executor's task group.

        Raises:
            NotOpen: the executor is not open.
        """
        if self.tasks is None:
            fault = None if self.own is None else self.own.fault
            raise NotOpen("the executor is not open: use it in `async with Executor(...) as executor:`") from fault
        return self.tasks

    def check_open(self, tasks: TaskGroup) -> None:
        """Check that the executor was not closed since a call started.

        Args:
            tasks: its task group at that time.

        Raises:
            NotOpen: it has been closed since.
        """
        if self.tasks is not tasks:
            raise NotOpen(_CLOSED)

    async def take(self, run_id: str, wait: float = 0.0, *, free: bool = False) -> leases.LeaseHandle:
        """Take the lease of a run. Other tasks of this executor cannot take it until `leave` is called.

        Args:
            run_id: the run's id.
            wait: seconds to wait for a holder.
            free: True if the run's row, just read, has no lease.

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
                return await leases.take(self.presence, run_id, free=free, stopping=lambda: self.stopping)
            except BaseException as error:
                self.leave(run_id)
                if driven or not isinstance(error, RunConflict):
                    raise
                held = await self.store.lease(run_id)
                # a worker of this executor may have claimed it, and resumes it now
                if held is not None and held.holder != self.owner.executor and anyio.current_time() >= until:
                    raise
            await anyio.sleep(_LOOK)

    async def enter(self, run_id: str) -> None:
        """Wait until no other task of this executor takes or releases a run, then exclude other tasks."""
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
        """Allow other tasks of this executor to resume a run."""
        self._entered.pop(run_id).set()

    async def give_back(self, hold: leases.LeaseHandle) -> None:
        """Release a lease that was taken and not used."""
        try:
            await self.drop_lease(hold.lease.run_id, hold.token)
        finally:
            self.leave(hold.lease.run_id)

    async def forgive(self, run_id: str) -> None:
        """Forget that drives of a run were given up: a person asks to continue it, so back-off starts again."""
        info = await self.store.info(run_id)
        if info.deaths and not leases.is_held(info.lease):
            await self.give_back(await self.take(run_id))

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
        """Return a drive of a run whose lease this executor holds.

        Args:
            machine: the run.
            hold: its lease.
            kept: its last snapshot.
            own: its resources, if they are not those of the executor.
            chain: seals its records.
            known: for how many seconds this process has seen it unchanged at its last record.
            undriven: its row, if the lease is held only to journal something.
            context, resumption: see `Drive`.
        """
        clock = DriveClock(self.resources.clock, machine.updated, known)
        due_of = None if undriven is None else partial(due_of_given_back, clock, undriven)
        observed = self.observation.observed(machine)
        live: Drive = drive.Drive(
            machine,
            hold,
            self.shared,
            clock,
            own or self.resources,
            kept=kept,
            chain=chain,
            due_of=due_of,
            on_durable=None if observed is None else observed.stored,
            context=context,
            resumption=resumption,
        )
        if observed is not None:
            self.observation.add(live, observed)
        return live

    def add(self, live: Drive) -> Drive:
        """Add a run to those that are driven here."""
        self.live[live.run_id] = live
        self.faults.pop(live.run_id, None)
        self.watched.forget(live.run_id)
        self.heartbeat.update()
        for follower in tuple(self.idle_followers.get(live.run_id, ())):
            follower.notify()
        return live

    async def drop_lease(self, run_id: str, token: str, fault: str | None = None) -> None:
        with anyio.CancelScope(shield=True):
            await leases.give_back(self.store, run_id, token, fault)

    async def drive(self, live: Drive) -> Run:
        """Drive a run in the calling task until it ends or pauses.

        Raises:
            NotOpen: the executor was closed before its steps started.
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
                await checkpoint_if_cancelled()  # like a drive in the background
                raise NotOpen(_CLOSED)
            tracing = self.resources.tracing
            await (live.run() if tracing is None else tracing.drive(live.log, live.resources, live.run))
        except NotOpen:
            raise
        except Exception as error:
            live.fault = live.fault or error
            raise
        finally:
            _driving.reset(outer)
            if not live.done.is_set():  # the drive failed before its steps could run
                with anyio.CancelScope(shield=True):
                    await self.release(live)
            self._driven.discard(live)
            if self.live.get(live.run_id) is live:
                del self.live[live.run_id]
            self.watched.after_drive(live)
            if live.fault is None and live.log.journal.stored == live.log.journal.head:
                self.loader.remember(live.machine, live.snapshots.kept)
            await self.observation.left(live)
        if self.stopping:
            await anyio.sleep_forever()
        return self.run_of(live)

    async def _attach_replay(self, live: Drive) -> None:
        """Attach its recording to a run that is about to be driven, if it is a replay or was called by one."""
        if live.log.replay is None and live.machine.ended is None:
            from orchestrator.executor.replay.attach import attach  # imported late: few runs are replays

            await attach(self.store, self.loader, self.live, live)

    @property
    def drives_here(self) -> bool:
        """Return True if this task is part of a run that the executor drives, or of its background tasks."""
        return self in _driving.get()

    def mark_task(self) -> None:
        """Mark this task, and the tasks that it starts, as the executor's own: closing waits for them."""
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
            elif live.run_id in self._entered:  # its lease was held only to journal something
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
            self.fatal = error  # raised after all is released, because it stops asyncio's event loop at once
            self.background().cancel_scope.cancel()

    def given_up(self, run_id: str, error: Exception, *, again: bool = False) -> None:
        """Record why the background drive of a run failed: `wait` raises it. `again`: whether it is retried later."""
        self.faults[run_id] = error
        what = "is tried again" if again else "can be resumed"
        log.warning("run %s was interrupted and %s: %s", run_id, what, error, extra={"given_up": run_id})

    def run_of(self, live: Drive) -> Run:
        """Return the run at the end of a drive."""
        graph = live.machine.plan.graph
        assert graph is not None
        return Run(live.machine, graph, self.store, interrupted=True)
