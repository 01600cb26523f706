"""The waiting runs that an open executor is awake for: those that it started, resumed or answered.

One task sleeps until the first of them is due, and polls the store for the heads of all of them, so that it notices the
work of other processes: answers, events, resumed and ended runs. A due run is resumed and driven in the background, or
by the caller that waits for it in `start`. A run that made no progress, or whose drive stopped, is retried after longer
and longer pauses. A pause requested by a person is never lifted.
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
from orchestrator.executor.concurrency import Signal
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
    """The last record that this executor has read."""
    since: float
    """Time since when this executor has seen the run unchanged, by the steady clock."""
    due: float | None = None
    """Time at which it is to be resumed, by the steady clock; None: another process continues it."""
    driven: bool = False
    """True if another executor drives it, or may do so: checked with each poll."""
    moved: Signal = field(default_factory=Signal)
    """Set when the run is no longer watched with this object."""
    awaited: bool = False
    """True if a caller waits to drive it."""
    context: object = None
    """The value of `ctx.context` in its nodes, if this executor drove it."""
    observed: int = 0
    """The last record written here, about which the observers of this executor are called."""
    retries: float | None = None
    """If its drive failed here: the earliest time, by the steady clock, at which it is tried again."""


def moved_by_others(machine: RunState) -> bool:
    """Return True if the originator of the run also continues it: a call of a graph as a tool, or a replay."""
    return machine.caller is not None or (machine.fork is not None and machine.fork.relation == "replay")


_AGAIN = 0.5
"""Seconds before a run that made no progress when it was due is resumed again; doubled each time."""
_LONGEST = 60.0
"""Maximum seconds between two such attempts."""


class Backoff:
    """Remembers the runs that the executor resumed without progress."""

    def __init__(self) -> None:
        self._stuck: dict[str, tuple[int, float]] = {}
        """Run without progress when it was due -> its head, and the seconds until the next attempt."""
        self._given_up: dict[str, int] = {}
        """Run whose drive stopped with an error -> number of times in a row."""

    def clear(self) -> None:
        """Forget all runs."""
        self._stuck, self._given_up = {}, {}

    def taken_up(self, run_id: str, head: int) -> None:
        """Record that a due run is resumed."""
        _, before = self._stuck.get(run_id, (0, _AGAIN / 2))
        self._stuck[run_id] = head, min(_LONGEST, before * 2)

    def until_due(self, run_id: str, head: int, seconds: float) -> float:
        """Return the seconds until a run that is due in `seconds` is resumed."""
        stuck = self._stuck.get(run_id)
        if stuck is not None and stuck[0] == head:
            return max(seconds, stuck[1])
        self._stuck.pop(run_id, None)
        return seconds

    def given_up(self, run_id: str) -> float:
        """Record that the drive of a run failed. Returns the minimum seconds until it is retried."""
        count = self._given_up[run_id] = self._given_up.get(run_id, 0) + 1
        return min(_LONGEST, retry_delay(count))

    def succeeded(self, run_id: str) -> None:
        """Record that a drive of the run ended normally."""
        self._given_up.pop(run_id, None)


def seconds_to_retry(info: RunInfo) -> float:
    """Return the seconds until the store allows a retry of a run."""
    return 0.0 if info.retry_at is None else max(0.0, info.retry_at - SYSTEM_CLOCK.now())


_AT_ONCE = 32
"""Maximum number of due runs that are resumed at the same time."""
_NOT_OURS = (RunConflict, RunEnded, RunUnknown)
"""Errors of the drive of a run that this executor no longer holds."""


class WatchedRuns:
    """The runs that one executor watches while it is open. `run` is a background task of the executor."""

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
            store: the store of the runs.
            clock: the clock by which they are due.
            awake: whether the executor watches any; False for `Executor(idle="sleep")`.
            take_up: resumes a run and drives it.
            moved: called when a run driven by another executor has ended or waits.
        """
        self.awake = awake
        self._store, self._clock, self._take_up, self._moved = store, clock, take_up, moved
        self._open = False
        self._for_workers: set[str] = set()
        self._runs: dict[str, Watched] = {}
        self._dues: list[tuple[float, str]] = []
        """A heap; entries that differ from the current `due` of their run are skipped."""
        self._changed = anyio.Event()
        self._asleep_until = 0.0
        self._backoff = Backoff()

    def __len__(self) -> int:
        return len(self._runs)

    def open(self, tasks: TaskGroup) -> None:
        """Start watching, in a task of the executor."""
        if self.awake:
            self._open = True
            tasks.start_soon(self._run, tasks)

    def close(self) -> None:
        """Forget all runs, and the event loop. Callers that wait for a run return."""
        for one in self._runs.values():
            one.moved.set()
        self._runs, self._dues, self._changed = {}, [], anyio.Event()
        self._backoff.clear()
        self._open = False

    # -- watched runs --------------------------------------------------------------------------------------------

    def after_drive(self, drive: Drive) -> None:
        """Watch a run whose drive is over, if it paused; forget it, if it ended or was interrupted.

        A run that another executor took over is also watched. Runs started by a call of a graph as a tool, and replays,
        are not: their callers continue them.
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
        """Watch a run whose background drive stopped with an error: it is retried after its back-off.

        Returns:
            False if it is not retried.
        """
        if not self._open or moved_by_others(drive.machine) or isinstance(drive.fault, _NOT_OURS):
            return False
        now, stored = self._clock.steady(), drive.log.journal.stored
        again = now + self._backoff.given_up(drive.run_id)
        one = Watched(0, now, driven=True, context=drive.log.context, observed=stored, retries=again)
        self._add(drive.run_id, one, None)
        return True

    def postpone(self, run_id: str) -> None:
        """Record that a run could not be resumed because the store failed: try it again."""
        one = self._runs.get(run_id)
        if one is not None:
            one.driven = True

    def leave_to_workers(self, run_id: str) -> None:
        """Stop watching a run: a worker of this or another executor resumes it when it is due."""
        self._for_workers.add(run_id)

    def forget(self, run_id: str) -> None:
        """Stop watching a run: it has ended, is driven here, or sleeps until it is resumed."""
        one = self._runs.pop(run_id, None)
        if one is not None:
            one.moved.set()

    def seconds(self, run_id: str, head: int) -> float:
        """Return for how many seconds this executor has seen the run unchanged at this record."""
        one = self._runs.get(run_id)
        return self._clock.steady() - one.since if one is not None and one.head == head else 0.0

    def goes_on(self, run_id: str) -> bool:
        """Return True if the run is resumed here when it is due: in the background, or by a waiting caller."""
        one = self._runs.get(run_id)
        return one is not None and one.due is not None

    def retries(self, run_id: str) -> bool:
        """Return True if the drive of the run stopped here with an error, and is retried."""
        one = self._runs.get(run_id)
        return one is not None and one.retries is not None

    def context_of(self, run_id: str) -> object:
        """Return the value of `ctx.context` from when this executor drove the run; None if there is none."""
        one = self._runs.get(run_id)
        return None if one is None else one.context

    def waits_on(self, machine: RunState) -> bool:
        """Return True if `start`, `wait` and `stream` keep waiting: the run waits only for time."""
        return self._open and not moved_by_others(machine) and waits_only_for_timers(machine)

    async def turn(self, run_id: str) -> None:
        """Wait until a run can continue and the caller is to drive it. Cancelled, the run sleeps until resumed."""
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
        """Wait until a run may have changed."""
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
        """Resume due runs, for as long as the executor is open."""
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
                with suppress(StoreError):  # the next poll may succeed
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
        """Read the changes that other executors made to the runs."""
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
            self.forget(run_id)  # a run to be retried was paused, or given up by another executor
        else:
            self._set_due(run_id, one, None if driven else self._left(info, one))
        if unseen and not held:
            one.observed = info.head
            await self._moved(run_id)

    def _left(self, info: RunInfo, one: Watched) -> float | None:
        """Return the seconds until a run is due, if ever: at most those left when its last record was written."""
        if info.status == "running" and info.due is None:  # it was given up, or interrupted
            if one.retries is None:
                return None
            return max(seconds_to_retry(info), one.retries - self._clock.steady(), 0.0)
        if info.due is None:
            return None
        return max(seconds_to_retry(info), min(info.due - self._clock.now(), info.due - info.updated))
