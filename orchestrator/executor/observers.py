"""Functions that are called about runs once their records are durable: for webhooks, metrics and traces.

Each function has its own task and a queue with one place per run. It is called with the latest state of the run, so a
slow function delays nothing, and skips what a later call covers.

While a run is driven, its inbox in the store holds a notice. It is deleted when every function was called about the
last record of the drive. If the process dies earlier, `recover` and workers with observers replace it with their own
notice and call their functions about the run. If several try, one succeeds.
"""

from __future__ import annotations

import inspect
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import anyio
import anyio.to_thread
from msgspec import Struct

from orchestrator.errors import OrchestratorError, RunConflict, RunEnded, RunUnknown, StoreError
from orchestrator.executor.lease import is_held
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.fold import apply
from orchestrator.kernel.records import Record
from orchestrator.kernel.run_state import RunState
from orchestrator.redaction import redact
from orchestrator.stores.base import Message, RunInfo, Store
from orchestrator.stores.owner import Owner, is_dead, is_here
from orchestrator.stores.rows import NOTICE
from orchestrator.user_code import call_in_thread, contained
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive

_open_here: set[str] = set()
"""Executors of this process that are open and have observers."""

_PATIENCE = 60.0
"""Seconds after the last record of a run. Then a process that cannot be checked, or that has not called its observers,
is considered gone.
"""

_AT_ONCE = 100
"""Number of runs whose notices are taken over at once."""


class TakenOver(Struct, frozen=True):
    """A run that has ended or waits, and whose observers this executor must call."""

    info: RunInfo
    notice: int


class Notices:
    """The notices of one executor."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self.others = False
        """True if, at the last `take_over`, another process still had to call its observers about a run that had ended
        or paused.
        """
        self._store, self._owner = store, owner
        self._mine: set[int] = set()
        self._looks = False

    def open(self) -> None:
        """Called when the executor is opened."""
        self._mine.clear()
        self._looks = self.others = False
        _open_here.add(self._owner.executor)

    def close(self) -> None:
        """Called when the executor is closed: remaining notices are left to other executors."""
        _open_here.discard(self._owner.executor)

    async def post(self, run_id: str) -> list[int]:
        """Post a notice about a run to be driven. Returns its id and those of the notices that it replaces."""
        left = [
            message.id
            for message in await self._store.inbox([run_id])
            if message.body.get("type") == NOTICE and (self._is_gone(message) or self._is_own(message))
        ]
        return [await self._posted(run_id, None), *left]

    async def discard(self, ids: Sequence[int]) -> None:
        """Delete notices: the observers were called."""
        self._mine.difference_update(ids)
        await self._store.discard(ids)

    async def take_over(self, graphs: Collection[str], now: float) -> list[TakenOver]:
        """Take over notices about runs of these graphs that no executor drives, if their processes are gone.

        An interrupted run is left to the executor that resumes it.

        Args:
            graphs: names of graphs.
            now: Unix seconds.
        """
        if self._looks:
            return []
        self._looks = True
        try:
            found: dict[str, list[Message]] = {}
            for message in await self._store.notices():
                if message.id not in self._mine:
                    found.setdefault(message.run_id, []).append(message)
            heads = await self._store.heads(found) if found else {}
            still = [run_id for run_id in found if heads.get(run_id, (0, "running"))[1] != "running"]
            self.others = len(still) > _AT_ONCE
            taken = [await self._take(run_id, found[run_id], graphs, now) for run_id in still[:_AT_ONCE]]
            return [one for one in taken if one is not None]
        finally:
            self._looks = False

    async def _take(
        self, run_id: str, notices: Sequence[Message], graphs: Collection[str], now: float
    ) -> TakenOver | None:
        try:
            info = await self._store.info(run_id)
            if info.graph not in graphs or info.status == "running":
                return None
            held = is_held(info.lease)
            left = [one.id for one in notices if self._is_gone(one) or now - info.updated > _PATIENCE]
            self.others = self.others or held or len(left) < len(notices)
            if held:
                return None
            if not left:
                return None
            mine = await self._posted(run_id, f"notice {left[-1]}")
            there = {message.id: message for message in await self._store.inbox([run_id])}
        except RunUnknown:  # deleted since then
            return None
        if mine not in there or not self._is_own(there[mine]):
            self._mine.discard(mine)
            return None  # another executor has taken the run
        if left[-1] not in there:  # the other process has called its observers
            await self.discard([mine])
            return None
        await self._store.discard(left)
        return TakenOver(info, mine)

    async def _posted(self, run_id: str, key: str | None) -> int:
        notice = await self._store.post(run_id, {"type": NOTICE, "owner": self._owner.data()}, key=key)
        self._mine.add(notice)
        return notice

    def _is_own(self, message: Message) -> bool:
        owner = message.body.get("owner")
        return isinstance(owner, dict) and owner.get("executor") == self._owner.executor

    def _is_gone(self, message: Message) -> bool:
        """Return True if the executor that posted a notice no longer calls observers, as far as can be determined."""
        owner = message.body.get("owner")
        if not isinstance(owner, dict):
            return True  # a notice of an earlier version
        if self._is_own(message):
            return message.id not in self._mine
        return owner.get("executor") not in _open_here if is_here(owner) else is_dead(owner)


log = logging.getLogger("orchestrator")

_MOST = 1000
"""Maximum number of runs that wait for one function; it is not called about further ones here."""
_CLOSING = 5.0
"""Seconds that a closing executor gives the functions for the remaining calls."""


class RunObserver(Protocol):
    """A function that is called about a run when records of it are durable, at least once for each record.

    A sync function runs in a thread. Its exceptions are logged.
    """

    @abstractmethod
    def __call__(self, run: Run, seq: int, /) -> Awaitable[object] | object:
        """
        Args:
            run: the run after record `seq`.
            seq: the number of the last durable record. Calls about one run may skip numbers, and repeat them after a
                crash.
        """
        ...


@dataclass(eq=False)
class Observed:
    """A run in the state of its durable records."""

    observation: Observation
    machine: RunState
    graph: GraphDefinition
    run_id: str
    over: bool = False
    """True once its lease was released."""
    driven: bool = False
    stale: bool = False
    """True if it has to be read from the store again."""
    given_up: bool = False
    """True if its drive stopped because of an error."""
    notices: Sequence[int] = ()
    called: dict[_Calls, int] = field(default_factory=dict)
    """Number of the last record about which each function was called."""
    uncalled: set[_Calls] = field(default_factory=set)
    """Functions that still have to be called about the end of the drive."""

    def stored(self, records: Sequence[Record]) -> None:
        """Fold records that are durable now."""
        try:
            for record in records:
                if record.seq > self.machine.head:  # a record that reopens a run is folded when the run is resumed
                    apply(self.machine, record)
        except Exception as error:  # an error in an observer must not delay the run
            log.debug("run %s: its observers get it from the store: %r", self.run_id, error)
            self.stale = True
        self.observation.changed(self)


class _Calls:
    """Calls of one function."""

    def __init__(self, function: RunObserver, store: Store) -> None:
        self._function, self._store = function, store
        self._pending: dict[str, Observed] = {}
        self._covered: dict[str, list[Observed]] = {}
        """Earlier drives of pending runs, which the call about the last one also covers."""
        self._some = anyio.Event()
        self.idle = anyio.Event()

    def reset(self) -> None:
        """Start again, maybe in another event loop."""
        self._pending.clear()
        self._covered.clear()
        self._some, self.idle = anyio.Event(), anyio.Event()
        self.idle.set()

    def add(self, run: Observed) -> None:
        """Call the function about a run."""
        if run.run_id not in self._pending and len(self._pending) >= _MOST:
            log.error("run %s: %s is too slow and is not called here", run.run_id, _name(self._function))
            return
        other = self._pending.get(run.run_id)
        if other is not None and other is not run:
            run, other = (other, run) if other.machine.head > run.machine.head else (run, other)
            self._covered.setdefault(run.run_id, []).append(other)
        self._pending[run.run_id] = run
        self.idle = anyio.Event() if self.idle.is_set() else self.idle
        self._some.set()

    async def go(self, observation: Observation) -> None:
        """Make the calls for as long as the executor is open."""
        while True:
            while self._pending:
                run = self._pending.pop(next(iter(self._pending)))
                over, covered = run.over, self._covered.pop(run.run_id, [])
                try:
                    if run.stale or run.given_up:
                        await self._call(await observation.load(run.run_id))
                    elif run.called.get(self) != run.machine.head:
                        run.called[self] = run.machine.head
                        await self._call(Run(run.machine.copy(), run.graph, self._store))
                except OrchestratorError as error:  # the run was deleted, or the store cannot be read
                    log.debug("run %s: its observers are not called: %s", run.run_id, error)
                for one in (*covered, *((run,) if over else ())):
                    if one.over:
                        await observation.called(self, one)
            self.idle.set()
            self._some = anyio.Event()
            await self._some.wait()

    async def _call(self, run: Run) -> None:
        try:
            with contained():
                if _is_async(self._function):
                    await cast("Awaitable[object]", self._function(run, run.seq))
                    return
                made = await anyio.to_thread.run_sync(
                    call_in_thread, self._function, run, run.seq, abandon_on_cancel=True
                )
                if inspect.isawaitable(made):
                    await made
        except Exception as error:
            words = redact(f"{type(error).__name__}: {error}")
            log.error("run %s: %s failed at record %d: %s", run.run_id, _name(self._function), run.seq, words)


def _is_async(function: RunObserver) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _name(function: RunObserver) -> str:
    return f"observer {getattr(function, '__qualname__', type(function).__qualname__)}"


class Observation:
    """The observers of one executor, and the runs about which they have to be called."""

    def __init__(
        self,
        store: Store,
        owner: Owner,
        load: Callable[[str], Awaitable[Run]],
        observers: Sequence[RunObserver],
        on_pause: RunObserver | None,
    ) -> None:
        for function in (*observers, *((on_pause,) if on_pause is not None else ())):
            if not callable(function):
                raise TypeError(f"{function!r} cannot observe runs: give functions of (run, seq)")
        self.notices = Notices(store, owner)
        self._store = store
        self._always = [_Calls(function, store) for function in observers]
        self._on_pause = None if on_pause is None else _Calls(on_pause, store)
        self._all = [*self._always, *((self._on_pause,) if self._on_pause is not None else ())]
        self._runs: dict[Drive, Observed] = {}
        self.load = load
        """Reads a run from the store."""

    def __bool__(self) -> bool:
        return bool(self._all)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Make the calls while the block runs, and after it the remaining ones, for some seconds."""
        async with anyio.create_task_group() as tasks:
            if self._all:
                self.notices.open()
            for calls in self._all:
                calls.reset()
                tasks.start_soon(self._go, calls)
            try:
                yield
            finally:
                with anyio.move_on_after(_CLOSING, shield=True):
                    for calls in self._all:
                        await calls.idle.wait()
                tasks.cancel_scope.cancel()
                self.notices.close()

    async def _go(self, calls: _Calls) -> None:
        try:
            await calls.go(self)
        finally:
            # Set in any case: if the event loop ends first and cancels this task, `opened` must not wait for it.
            calls.idle.set()

    # -- notifications from the host -----------------------------------------------------------------------------

    def observed(self, machine: RunState) -> Observed | None:
        """Return the observed state of a run whose records are all durable; None if there are no observers."""
        graph = machine.plan.graph
        return Observed(self, machine.copy(), graph, machine.run_id) if self._all and graph is not None else None

    def add(self, live: Drive, run: Observed) -> None:
        """Called when a run is resumed."""
        self._runs[live] = run
        self.changed(run)

    async def driving(self, live: Drive, *, driven: bool = True) -> None:
        """Leave a notice, before records are written, in case this process dies.

        Args:
            driven: whether the run is driven; False: its lease is held only to journal something.
        """
        run = self._runs.get(live)
        if run is not None:
            run.driven = driven
            run.notices = await self.notices.post(live.run_id)

    async def left(self, live: Drive) -> None:
        """Called when a run is released."""
        run = self._runs.pop(live, None)
        if run is None:
            return
        if run.machine.status == "running" and live.fault is not None:
            run.given_up = not isinstance(live.fault, RunConflict | RunEnded | RunUnknown)
        await self._conclude(run)

    async def _conclude(self, run: Observed) -> None:
        """Call the functions about the end of a drive."""
        run.over = True
        wanted = list(self._always)
        if self._on_pause is not None and run.driven and run.machine.status == "paused" and _waits(run.machine):
            wanted.append(self._on_pause)
        run.uncalled = set(wanted)
        for calls in wanted:
            calls.add(run)
        if not wanted:
            await self._acknowledge(run)

    def changed(self, run: Observed) -> None:
        """Called when records of a run are durable."""
        for calls in self._always:
            calls.add(run)

    async def called(self, calls: _Calls, run: Observed) -> None:
        """Called after a function was called about the end of a drive."""
        run.uncalled.discard(calls)
        if not run.uncalled:
            await self._acknowledge(run)

    async def _acknowledge(self, run: Observed) -> None:
        if run.notices:
            notices, run.notices = run.notices, ()
            with suppress(StoreError):  # if not deleted, they are called once more
                await self.notices.discard(notices)

    # -- runs driven by other processes --------------------------------------------------------------------------

    async def call_about(self, run: Run, *notices: int) -> None:
        """Call the functions about a run that another process drove, and that has ended or waits."""
        machine = run.machine
        await self._conclude(Observed(self, machine, run.definition, machine.run_id, driven=True, notices=notices))

    async def moved(self, run_id: str) -> None:
        """Called when a watched run, driven by another executor, has ended or waits."""
        if self._all:
            try:
                await self.call_about(await self.load(run_id))
            except OrchestratorError as error:
                log.debug("run %s: its observers are not called: %s", run_id, error)


def _waits(machine: RunState) -> bool:
    """Return True if a run waits for a person or an event, and its caller does not ask for it."""
    inner = machine.started is not None and machine.started.caller is not None
    return not inner and any(str(question.kind) != "timer" for question in machine.questions.values())
