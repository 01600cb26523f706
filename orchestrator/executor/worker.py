"""Taking runs that no executor drives, for as long as a worker runs.

`Places` counts the runs that it drives at the same time: in total, and per graph.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import InvalidValue, RunConflict, RunEnded, RunUnknown, StoreError, StoreUnavailable
from orchestrator.executor import lease as leases
from orchestrator.executor import resume_many, schedules
from orchestrator.executor.concurrency import Signal
from orchestrator.executor.failures import REFUSALS, NotOpen
from orchestrator.executor.heartbeat import WorkerFacts
from orchestrator.executor.host import Host
from orchestrator.executor.lease import LeaseHandle
from orchestrator.executor.options import NO_OPTIONS, ResumeOptions
from orchestrator.executor.resuming import journal_resumed, open_run
from orchestrator.executor.run_status import waits_to_be_taken_up, with_status
from orchestrator.executor.worker_health import WorkerHealth
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Alerting, Changing, RunInfo
from orchestrator.stores.fair_claims import Turns
from orchestrator.stores.requests import ClaimRequest, RunQuery

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive


class Places:
    """The places of one worker, and the number that is taken.

    Args:
        slots: maximum number of runs.
        graph_slots: graph -> maximum number of its runs.
        graphs: the worker's graphs.

    Raises:
        InvalidValue: `graph_slots` names another graph, or a number that is not 1 or more.
    """

    def __init__(self, slots: int, graph_slots: Mapping[str, int], graphs: Collection[str]) -> None:
        for name, most in graph_slots.items():
            if name not in graphs:
                known = ", ".join(sorted(graphs)) or "none"
                raise InvalidValue(
                    f"graph_slots: {name!r} is not a graph of this worker, which has {known}", where=name
                )
            if isinstance(most, bool) or not isinstance(most, int) or most < 1:
                raise InvalidValue(f"graph_slots: {name}={most!r} is not a whole number of 1 or more", where=name)
        self.slots, self._most = slots, dict(graph_slots)
        self.driven: Counter[str] = Counter()
        """Graph -> number of its runs that are driven."""

    @property
    def busy(self) -> int:
        """Return the number of places that are taken."""
        return self.driven.total()

    @property
    def free(self) -> int:
        """Return the number of free places."""
        return self.slots - self.busy

    @property
    def full(self) -> bool:
        """Return True if no place is free."""
        return self.free <= 0

    def open(self, graphs: Collection[str]) -> list[str]:
        """Return the names of the graphs of which a further run can be driven."""
        return [name for name in graphs if self._left(name) > 0]

    def most(self) -> dict[str, int]:
        """Return graph -> number of its runs that can be taken now, for graphs limited to fewer than are free."""
        return {name: self._left(name) for name in self._most if self._left(name) < self.free}

    def _left(self, graph: str) -> int:
        return max(0, self._most.get(graph, self.slots) - self.driven[graph])

    def take(self, graph: str) -> None:
        """Record that a run of a graph is taken."""
        self.driven[graph] += 1

    def give_back(self, graph: str) -> None:
        """Record that a run of a graph is no longer driven."""
        self.driven[graph] -= 1


log = logging.getLogger("orchestrator.worker")

_LONGEST = 30.0
"""Maximum seconds between two attempts while the store fails."""
_COUNTED = 1000
"""Maximum number of parked runs that are counted."""
_DUE_IS_LATE = 0.002
"""Seconds added to a due time, so that it has passed by the clock of the store."""


async def work(
    host: Host,
    *,
    slots: int,
    poll: float,
    graphs: Collection[str] | None,
    graph_slots: Mapping[str, int] | None,
    fair_by: str | None,
    eager: bool,
    stop: anyio.Event,
    grace: float,
    drained: anyio.Event | None,
    health: WorkerHealth | None,
) -> None:
    """See `Executor.work`."""
    if slots < 1 or not poll > 0:
        raise ValueError(f"slots={slots}, poll={poll}: slots must be at least 1, and poll more than 0 seconds")
    host.background()
    own, closed = host.own, host.closed
    health = health or WorkerHealth()
    worker = _Worker(host, slots, poll, graphs, graph_slots, fair_by, eager, health)
    health.begin(worker.facts.graphs, slots, host.ttl)
    try:
        async with host.heartbeat.working_as(worker.facts), anyio.create_task_group() as tasks:
            tasks.start_soon(worker.take_runs, tasks)
            tasks.start_soon(worker.check_health)
            tasks.start_soon(_end_with, closed, tasks)
            await stop.wait()
            health.drain()
            worker.facts.draining = True
            await host.heartbeat.show()
            await worker.drain(grace)
            if drained is not None:
                await drained.wait()
            tasks.cancel_scope.cancel()
    finally:
        health.end()
    if closed.is_set() and own is not None and not own.closing:
        raise NotOpen("the executor has ended because of an error: `close` raises it")


async def _end_with(closed: Signal, tasks: TaskGroup) -> None:
    """End the work when the executor closes: it can no longer renew leases."""
    await closed.wait()
    tasks.cancel_scope.cancel()


class _Outage:
    """Seconds for which a worker takes no runs because the store fails in their drives.

    The runs are not at fault, so no failure is recorded for them. A store that accepts claims nevertheless, such as one
    on a full disk, would have the same steps repeated at once.
    """

    def __init__(self, poll: float) -> None:
        self._poll = self._pause = poll
        self._until = 0.0

    def meet(self) -> None:
        """Called when a drive was given up because the store was unreachable."""
        now = anyio.current_time()
        if now >= self._until:  # otherwise another run met the same outage
            self._until = now + self._pause * random.uniform(0.5, 1.0)
            self._pause = min(_LONGEST, self._pause * 2)

    def end(self) -> None:
        """Called when a drive ended normally."""
        self._pause = self._poll

    async def over(self) -> None:
        """Wait until the pause after an outage of the store is over."""
        left = self._until - anyio.current_time()
        if left > 0:
            await anyio.sleep(left)


class _Worker:
    def __init__(
        self,
        host: Host,
        slots: int,
        poll: float,
        graphs: Collection[str] | None,
        graph_slots: Mapping[str, int] | None,
        fair_by: str | None,
        eager: bool,
        health: WorkerHealth,
    ) -> None:
        self._host, self._poll, self._graphs, self._health = host, poll, graphs, health
        self._closed = host.closed
        self._places = Places(slots, graph_slots or {}, self._names)
        self._eager = eager
        self._turns = None if fair_by is None else Turns(fair_by)
        self.facts = WorkerFacts(self._names, slots)
        self._lives: dict[str, Drive] = {}
        self._outage = _Outage(poll)
        self._ended = anyio.Event()
        """Set when a driven run is released."""
        self._stops = False
        self._refused: list[RunInfo] | None = None
        """Parked runs that did not fit an earlier worker, and that this one has not tried yet; None: not read yet."""
        self._alerts: int | None = None
        """Number of alerts before the last claim; None: the store sends none."""

    @property
    def _names(self) -> list[str]:
        return list(self._host.resources.graphs if self._graphs is None else self._graphs)

    async def take_runs(self, tasks: TaskGroup) -> None:
        """Claim runs and drive them in tasks of the group."""
        pause = self._poll
        while not self._stops:
            try:
                await self._outage.over()
                full = await self._claim(tasks)
                pause = self._poll
                if full:
                    await resume_many.call_observers(self._host)
                else:
                    await self._rest()
            except StoreError as error:
                self._health.fail(error)
                log.warning("the store fails, the next attempt is in about %.1f s: %s", pause, error)
                await anyio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(_LONGEST, pause * 2)
            while self._places.full:
                await self._one_ends()

    async def _claim(self, tasks: TaskGroup) -> bool:
        """Take the runs that can be taken. Returns whether there may be more."""
        if self._host.stopping or self._closed.is_set():
            await anyio.sleep_forever()  # it is cancelled
        await schedules.fire_due(self._host)
        places, store = self._places, self._host.store
        self._alerts = store.alerts() if self._eager and isinstance(store, Alerting) else None
        await self._retake(tasks)
        free, graphs, most = places.free, places.open(self._names), places.most()
        presence = self._host.presence
        request = ClaimRequest(
            presence.owner, graphs=graphs, limit=free, ttl=presence.ttl, most=most or None, turns=self._turns
        )
        began = SYSTEM_CLOCK.steady()
        self._health.ask()
        takes = graphs and free and not self._closed.is_set()
        taken = await leases.claim(presence, request) if takes else []
        self._health.answer()
        self._health.claim(SYSTEM_CLOCK.steady() - began)
        for info, hold in taken:
            self._begin(info, hold, tasks)
        return len(taken) == free

    async def _retake(self, tasks: TaskGroup) -> None:
        """Try once to drive each parked run that did not fit the code of earlier workers: this one may be newer."""
        host, places = self._host, self._places
        if self._refused is None:
            self._refused = [one for one in await host.store.parked(limit=_COUNTED) if one.fault.startswith(REFUSALS)]
        for info in [*self._refused]:
            if places.full or info.graph not in places.open(self._names):
                continue
            hold = None
            with suppress(RunConflict, RunUnknown):  # another worker has taken the run
                hold = await leases.take(host.presence, info.run_id, stopping=lambda: host.stopping)
            self._refused.remove(info)
            if hold is not None:
                self._begin(info, hold, tasks)

    def _begin(self, info: RunInfo, hold: LeaseHandle, tasks: TaskGroup) -> None:
        self._places.take(info.graph)
        self._health.take(info.graph)
        tasks.start_soon(self._drive, info, hold)

    async def _drive(self, info: RunInfo, hold: LeaseHandle) -> None:
        host, run_id = self._host, info.run_id
        status, given_up = None, False
        try:
            live = await open_run(host, run_id, NO_OPTIONS, hold)
            self._lives[run_id] = live
            host.watched.leave_to_workers(run_id)
            if self._stops:
                live.wind_down()
            journal_resumed(live, unpause=False)
            run = await host.drive(live)
            status = run.status
            self._outage.end()
            log.info("run %s of %s: %s", run_id, run.graph, status)
        except (RunConflict, RunEnded, RunUnknown) as error:
            log.debug("run %s: %s", run_id, error)
        except NotOpen as error:
            log.debug("run %s was released: %s", run_id, error)
        except Exception as error:  # an error must not stop the other runs
            given_up = True
            if isinstance(error, StoreUnavailable):
                self._health.fail(error)
                self._outage.meet()
            log.warning("run %s could not be continued, and is tried again later: %s", run_id, error)
        finally:
            self._lives.pop(run_id, None)
            self._places.give_back(info.graph)
            self._health.leave(info.graph, status, given_up=given_up)
            self._ended.set()

    async def check_health(self) -> None:
        """Record that the event loop turns each second, and check the store with each heartbeat."""
        health, presence, due = self._health, self._host.presence, 0.0
        while True:
            health.turn(self._host.heartbeat.last)
            if SYSTEM_CLOCK.steady() >= due and health.asked:
                due = SYSTEM_CLOCK.steady() + presence.ttl / 3
                health.ask()
                try:
                    health.counts.parked = len(await self._host.store.parked(limit=_COUNTED))
                    health.answer()
                except StoreError as error:
                    health.fail(error)
            await anyio.sleep(1.0)

    async def _one_ends(self) -> None:
        self._ended = anyio.Event()
        await self._ended.wait()

    async def _rest(self) -> None:
        """Wait until there may be a run to take: one is due, one was released here, or the store changed."""
        store, host = self._host.store, self._host
        self._ended = anyio.Event()
        changing = store if isinstance(store, Changing) else None
        before = None if changing is None else changing.changes()
        times = [one.next_at for one in await store.schedules() if schedules.waits_for(host, one)]
        next_due = await store.next_due(self._places.open(self._names)) if self._eager else None
        due = min(times if next_due is None else [next_due, *times], default=None)
        unobserved = await resume_many.call_observers(host)
        others = before is None or unobserved or bool((await store.runs(RunQuery(status="running", limit=1))).runs)
        if changing is not None and before is not None and before != changing.changes():
            return
        while not self._stops:
            wait = self._poll
            if due is not None:
                wait = min(wait, max(0.0, due - host.resources.clock.now() + _DUE_IS_LATE))
            if await self._wait(wait):
                return
            overdue = due is not None and due <= host.resources.clock.now()
            if others or overdue or self._ended.is_set() or not self._eager:
                return  # if other workers hold runs, one of them may have died, which sends no alert
            if isinstance(store, Changing) and store.changes() != before:
                return

    async def _wait(self, seconds: float) -> bool:
        """Wait until a run here is released, or the store announces one to take. Returns whether it did."""
        store, alerted = self._host.store, False
        with anyio.move_on_after(seconds):
            if self._alerts is None or not isinstance(store, Alerting):
                await self._ended.wait()
                return False
            async with anyio.create_task_group() as tasks:

                async def listen(store: Alerting, seen: int) -> None:
                    nonlocal alerted
                    await store.wait_for_alert(seen)
                    alerted = True
                    tasks.cancel_scope.cancel()

                tasks.start_soon(listen, store, self._alerts)
                await self._ended.wait()
                tasks.cancel_scope.cancel()
        return alerted

    async def drain(self, grace: float) -> None:
        """Take no more runs, and let the running steps end."""
        self._stops = True
        for live in list(self._lives.values()):
            live.wind_down()
        with anyio.move_on_after(grace):
            while self._places.busy:
                await self._one_ends()


@dataclass(frozen=True, slots=True)
class Driven:
    """The state of a run after `ExecutorWorkers.drive` drove it.

    Attributes:
        status: the run's status.
        due: when it is to be driven again, in Unix seconds; None: after an answer, or never.
    """

    status: str
    due: float | None = None


async def drive(host: Host, run_id: str, wait: float, health: WorkerHealth | None) -> Driven:
    """See `ExecutorWorkers.drive`."""
    until = anyio.current_time() + wait
    while True:
        live = host.live.get(run_id)
        if live is not None:
            await live.done.wait()
            if live.fault is not None and not isinstance(live.fault, RunConflict):
                raise live.fault
            return await _driven(host, run_id)
        info = await host.store.info(run_id)
        later = waits_to_be_taken_up(info) and not host.last_seen.overdue(info)
        if info.status in FINAL or later:
            return Driven(info.status, info.due)
        try:
            live = await open_run(host, run_id, ResumeOptions(wait=max(0.0, until - anyio.current_time())))
        except RunEnded:
            continue
        except RunConflict:
            if run_id not in host.live:
                raise
            continue  # another task of this executor has taken the run
        with (health or WorkerHealth()).counting(info.graph) as ended:
            journal_resumed(live, unpause=False)
            ended((await host.drive(live)).status)
        return await _driven(host, run_id)


async def _driven(host: Host, run_id: str) -> Driven:
    info = await host.store.info(run_id)
    return Driven(with_status(info).status, info.due)
