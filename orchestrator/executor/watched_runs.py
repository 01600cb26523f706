"""The runs that an open executor is awake for: those that it began, resumed or answered, while they wait.

One task sleeps until the first of them is due, and asks the store for the heads of all of them at once, so that it sees
what other processes did: answers, events, resumed and ended runs. What is due is taken up and driven in the background,
or by the caller that waits for it in `start`. A run that made no progress, or whose drive stopped, is tried again after
longer and longer pauses. A pause that a person asked for is never lifted.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from orchestrator.clock import SYSTEM_CLOCK, Clock
from orchestrator.errors import RunConflict, RunEnded, RunUnknown, StoreError
from orchestrator.executor.heartbeat import POLL
from orchestrator.executor.lease import is_held
from orchestrator.executor.run_status import is_parked
from orchestrator.kernel.queries import waits_only_for_timers
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.shared import retry_delay

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive


@dataclass(slots=True, eq=False)
class Watched:
    """A run that waits."""

    head: int
    """The last record that this executor has seen."""
    since: float
    """Since when it has seen the run unchanged, by the steady clock."""
    due: float | None = None
    """Time at which it is to be taken up, by the steady clock; None: when another process moves it."""
    driven: bool = False
    """True if another executor drives it, or may do so: checked with each poll."""
    moved: anyio.Event = field(default_factory=anyio.Event)
    """Set when the run is no longer watched in this way."""
    awaited: bool = False
    """True if a caller waits to drive it."""
    context: object = None
    """The value of `ctx.context` in its nodes, where this executor drove it."""
    observed: int = 0
    """The last record that was written here, so that the observers of this executor know of it."""
    retries: float | None = None
    """If its drive failed here: the earliest time, by the steady clock, at which it is tried again."""


def moved_by_others(machine: RunState) -> bool:
    """True if what began the run also continues it: a call of a graph as a tool, or a replay."""
    return machine.caller is not None or (machine.fork is not None and machine.fork.relation == "replay")


_AGAIN = 0.5
"""Seconds before a run that made no progress when it was due is taken up again; they double each time."""
_LONGEST = 60.0
"""Seconds between two such attempts at most."""


class Backoff:
    """Memory of runs that the executor took up without progress."""

    def __init__(self) -> None:
        self._stuck: dict[str, tuple[int, float]] = {}
        """Run that did not move when it was due -> its head, and the seconds until the next attempt."""
        self._given_up: dict[str, int] = {}
        """Run whose drive stopped because of an error -> how often in a row."""

    def clear(self) -> None:
        """Forget all runs."""
        self._stuck, self._given_up = {}, {}

    def taken_up(self, run_id: str, head: int) -> None:
        """Note that a run that is due is taken up."""
        _, before = self._stuck.get(run_id, (0, _AGAIN / 2))
        self._stuck[run_id] = head, min(_LONGEST, before * 2)

    def until_due(self, run_id: str, head: int, seconds: float) -> float:
        """Seconds until a run that is due in so many seconds is taken up."""
        stuck = self._stuck.get(run_id)
        if stuck is not None and stuck[0] == head:
            return max(seconds, stuck[1])
        self._stuck.pop(run_id, None)
        return seconds

    def given_up(self, run_id: str) -> float:
        """Note that the drive of a run failed; returns the least seconds until it is tried again."""
        count = self._given_up[run_id] = self._given_up.get(run_id, 0) + 1
        return min(_LONGEST, retry_delay(count))

    def succeeded(self, run_id: str) -> None:
        """A drive of the run ended as it should."""
        self._given_up.pop(run_id, None)


def seconds_to_retry(info: RunInfo) -> float:
    """Seconds until the store lets a run be tried again."""
    return 0.0 if info.retry_at is None else max(0.0, info.retry_at - SYSTEM_CLOCK.now())


_AT_ONCE = 32
"""Most due runs that are taken up at the same time."""
_NOT_OURS = (RunConflict, RunEnded, RunUnknown)
"""Why the drive of a run stops that this executor no longer holds."""


class WatchedRuns:
    """The runs that one executor watches, while it is open. `run` is a background task of the executor."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        awake: bool,
        take_up: Callable[[str], Awaitable[None]],
        moved: Callable[[str], Awaitable[None]],
    ) -> None:
        """
        Args:
            store: the runs.
            clock: tells when they are due.
            awake: whether the executor watches any; False for `Executor(idle="sleep")`.
            take_up: takes a run up and drives it.
            moved: called when a run has ended or waits that another executor drove.
        """
        self.awake = awake
        self._store, self._clock, self._take_up, self._moved = store, clock, take_up, moved
        self._open = False
        self._for_workers: set[str] = set()
        self._runs: dict[str, Watched] = {}
        self._dues: list[tuple[float, str]] = []
        """A heap; an entry that is not the `due` of its run any more is skipped."""
        self._changed = anyio.Event()
        self._asleep_until = 0.0
        self._backoff = Backoff()

    def __len__(self) -> int:
        return len(self._runs)

    def open(self, tasks: TaskGroup) -> None:
        """Begin to watch, in a task of the executor's."""
        if self.awake:
            self._open = True
            tasks.start_soon(self._run, tasks)

    def close(self) -> None:
        """Forget all runs, and the event loop in which they were watched. Callers that wait for one return."""
        for one in self._runs.values():
            one.moved.set()
        self._runs, self._dues, self._changed = {}, [], anyio.Event()
        self._backoff.clear()
        self._open = False

    # -- what is watched -----------------------------------------------------------------------------------------

    def after_drive(self, drive: Drive) -> None:
        """Watch a run whose drive is over, if it paused; forget it, if it ended or was interrupted.

        A run that another executor took over is watched, too. A run that a call of a graph as a tool began is not:
        its caller goes on with it. Neither is a replay.
        """
        machine, fault = drive.machine, drive.fault
        if fault is None:
            self._backoff.succeeded(drive.run_id)
        if drive.run_id in self._for_workers:
            self._for_workers.discard(drive.run_id)
        elif not self._open or moved_by_others(machine) or machine.ended is not None:
            self.forget(drive.run_id)
        elif isinstance(fault, RunConflict):
            self.watch(drive.run_id)
        elif fault is not None or machine.status != "paused" or drive.log.journal.stored < machine.head:
            self.forget(drive.run_id)
        else:
            due = drive.log.clock.first_due(machine)
            wait = None if due is None else max(0.0, due - drive.log.clock.now())
            one = Watched(machine.head, self._clock.steady(), context=drive.log.context, observed=machine.head)
            self._add(drive.run_id, one, wait)

    def watch(self, run_id: str) -> None:
        """Watch a run that another executor may drive now."""
        if self._open:
            before = self._runs.get(run_id)
            one = Watched(0, self._clock.steady(), driven=True, context=None if before is None else before.context)
            self._add(run_id, one, None)

    def retry(self, drive: Drive) -> bool:
        """Watch a run whose background drive stopped because of an error: it is tried again after its back-off.

        Returns:
            False if it is not.
        """
        if not self._open or moved_by_others(drive.machine) or isinstance(drive.fault, _NOT_OURS):
            return False
        now, stored = self._clock.steady(), drive.log.journal.stored
        again = now + self._backoff.given_up(drive.run_id)
        one = Watched(0, now, driven=True, context=drive.log.context, observed=stored, retries=again)
        self._add(drive.run_id, one, None)
        return True

    def postpone(self, run_id: str) -> None:
        """Note that a run could not be taken up because the store failed: look at it again."""
        one = self._runs.get(run_id)
        if one is not None:
            one.driven = True

    def leave_to_workers(self, run_id: str) -> None:
        """Do not watch this run from now on: a worker of this executor, or of another, takes it up when it is due."""
        self._for_workers.add(run_id)

    def forget(self, run_id: str) -> None:
        """Stop watching a run: it has ended, is driven here, or sleeps until it is resumed."""
        one = self._runs.pop(run_id, None)
        if one is not None:
            one.moved.set()

    def seconds(self, run_id: str, head: int) -> float:
        """For how long this executor has seen the run unchanged at this record."""
        one = self._runs.get(run_id)
        return self._clock.steady() - one.since if one is not None and one.head == head else 0.0

    def goes_on(self, run_id: str) -> bool:
        """True if the run is taken up here when it is due: in the background, or by a caller that waits for it."""
        one = self._runs.get(run_id)
        return one is not None and one.due is not None

    def retries(self, run_id: str) -> bool:
        """True if the drive of the run stopped here because of an error, and is tried again."""
        one = self._runs.get(run_id)
        return one is not None and one.retries is not None

    def context_of(self, run_id: str) -> object:
        """The value of `ctx.context` that the run had when this executor drove it; None: there is none."""
        one = self._runs.get(run_id)
        return None if one is None else one.context

    def waits_on(self, machine: RunState) -> bool:
        """True if `start`, `wait` and `stream` keep waiting: the run waits only for time, and moves by itself."""
        return self._open and not moved_by_others(machine) and waits_only_for_timers(machine)

    async def turn(self, run_id: str) -> None:
        """Wait until a run can go on; then the caller is to drive it. Cancelled, the run sleeps until it is resumed."""
        one = self._runs.get(run_id)
        if one is None:
            return
        one.awaited = True
        try:
            await one.moved.wait()
        except BaseException:
            if self._runs.get(run_id) is one:
                self.forget(run_id)
            raise

    async def change(self, run_id: str) -> None:
        """Wait until something may have happened to a run."""
        one = self._runs.get(run_id)
        if one is not None:
            await one.moved.wait()
        else:
            await anyio.sleep(POLL)

    def _add(self, run_id: str, one: Watched, wait: float | None) -> None:
        self.forget(run_id)
        self._runs[run_id] = one
        if len(self._runs) == 1:
            self._changed.set()
        self._set_due(run_id, one, wait)

    def _set_due(self, run_id: str, one: Watched, wait: float | None) -> None:
        if wait is None:
            one.due = None
            return
        one.due = self._clock.steady() + self._backoff.until_due(run_id, one.head, wait)
        heapq.heappush(self._dues, (one.due, run_id))
        if one.due < self._asleep_until:
            self._changed.set()

    # -- the task ------------------------------------------------------------------------------------------------

    async def _run(self, tasks: TaskGroup) -> None:
        """Take up what is due, for as long as the executor is open."""
        places = anyio.Semaphore(_AT_ONCE)
        looked = self._clock.steady()
        while True:
            self._changed = anyio.Event()
            if not self._runs:
                self._asleep_until = 0.0
                await self._changed.wait()
                continue
            now = self._clock.steady()
            self._asleep_until = min(looked + POLL, self._next_due())
            with anyio.move_on_after(max(0.0, self._asleep_until - now)):
                await self._changed.wait()
            self._fire(tasks, places)
            if self._clock.steady() - looked >= POLL:
                with suppress(StoreError):  # the next look may succeed
                    await self._look()
                looked = self._clock.steady()

    def _next_due(self) -> float:
        while self._dues:
            due, run_id = self._dues[0]
            one = self._runs.get(run_id)
            if one is not None and one.due == due:
                return due
            heapq.heappop(self._dues)
        return float("inf")

    def _fire(self, tasks: TaskGroup, places: anyio.Semaphore) -> None:
        now = self._clock.steady()
        while self._next_due() <= now:
            _, run_id = heapq.heappop(self._dues)
            one = self._runs[run_id]
            self._backoff.taken_up(run_id, one.head)
            if one.awaited:
                self.forget(run_id)
            else:
                one.due = None
                tasks.start_soon(self._move, run_id, places)

    async def _move(self, run_id: str, places: anyio.Semaphore) -> None:
        async with places:
            if run_id in self._runs:
                await self._take_up(run_id)

    async def _look(self) -> None:
        """See what other executors did to the runs."""
        asked = self._clock.steady()
        heads = await self._store.heads(list(self._runs))
        for run_id, one in list(self._runs.items()):
            head = heads.get(run_id)
            if head is None:
                if one.since < asked:
                    self.forget(run_id)
            elif one.driven or head[0] != one.head:
                with suppress(RunUnknown):
                    await self._see(run_id, one)

    async def _see(self, run_id: str, one: Watched) -> None:
        info = await self._store.info(run_id)
        held, waits = is_held(info.lease), info.status != "running"
        driven = held and not waits
        if self._runs.get(run_id) is not one:
            return
        moved = one.head not in (0, info.head)
        if one.head != info.head:
            one.head, one.since = info.head, self._clock.steady()
        unseen = waits and one.observed != info.head
        one.driven = driven or (held and unseen)
        if info.status in FINAL or (one.retries is not None and not driven and (moved or is_parked(info))):
            self.forget(run_id)  # one to be tried again was paused, or given up by another executor
        else:
            self._set_due(run_id, one, None if driven else self._left(info, one))
        if unseen and not held:
            one.observed = info.head
            await self._moved(run_id)

    def _left(self, info: RunInfo, one: Watched) -> float | None:
        """Seconds until a run is due: no more than were left of them when its last record was written."""
        if info.status == "running" and info.due is None:  # it was given up, or interrupted
            if one.retries is None:
                return None
            return max(seconds_to_retry(info), one.retries - self._clock.steady(), 0.0)
        if info.due is None:
            return None
        return max(seconds_to_retry(info), min(info.due - self._clock.now(), info.due - info.updated))
