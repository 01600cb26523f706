"""Functions that are called about runs once their records are durable: for webhooks, metrics and traces.

Each function has a task and a queue of its own, with one place per run: what waits is the run, and it is called with
the run as it is by then. So a slow function holds nothing up, and skips what a later call covers.

While a run is driven, its inbox in the store holds a notice. It is deleted when every function was called about the
last record of the drive. If the process dies before, `recover` and workers with observers replace it by a notice of
their own and call their functions about the run. Of several that try, one does.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import anyio
import anyio.to_thread

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
"""The executors of this process that are open and have observers."""

_PATIENCE = 60.0
"""Seconds behind the last record of a run after which another process counts as gone that cannot be looked for, or that
has not called its observers."""

_AT_ONCE = 100
"""Runs whose notices are taken over at once."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A run that has ended or waits, and whose observers this executor is to call."""

    info: RunInfo
    notice: int


class Notices:
    """The notices of one executor."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self.others = False
        """True if another process was still to call its observers about a run that had ended or paused, when
        `take_over` looked last."""
        self._store, self._owner = store, owner
        self._mine: set[int] = set()
        self._looks = False

    def open(self) -> None:
        """The executor was opened."""
        self._mine.clear()
        self._looks = self.others = False
        _open_here.add(self._owner.executor)

    def close(self) -> None:
        """The executor was closed: notices that are left are left to others."""
        _open_here.discard(self._owner.executor)

    async def post(self, run_id: str) -> list[int]:
        """Post a notice about a run that is to be driven; the ids of it and of those that it replaces."""
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
        """Take over the notices of processes that are gone, about runs of these graphs that no executor drives.

        A run that was interrupted is left to the executor that takes it up.

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
        except RunUnknown:  # deleted meanwhile
            return None
        if mine not in there or not self._is_own(there[mine]):
            self._mine.discard(mine)
            return None  # another executor was quicker
        if left[-1] not in there:  # and has called its observers
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
        """True if the executor that posted a notice calls no observers any more, as far as this process can tell."""
        owner = message.body.get("owner")
        if not isinstance(owner, dict):
            return True  # of an earlier version
        if self._is_own(message):
            return message.id not in self._mine
        return owner.get("executor") not in _open_here if is_here(owner) else is_dead(owner)


log = logging.getLogger("orchestrator")

_MOST = 1000
"""Runs that wait for one function; it is not called about further ones here."""
_CLOSING = 5.0
"""Seconds that a closing executor gives the functions for what is left."""


class RunObserver(Protocol):
    """Is called about a run when records of it are durable, at least once for each record.

    A sync function runs in a thread. What it raises is logged.
    """

    def __call__(self, run: Run, seq: int, /) -> Awaitable[object] | object:
        """
        Args:
            run: the run as it is after record `seq`.
            seq: the number of the last durable record. Calls about one run may skip numbers, and repeat them after a
                crash.
        """
        ...


@dataclass(eq=False)
class Observed:
    """A run as its durable records make it."""

    observation: Observation
    machine: RunState
    graph: GraphDefinition
    run_id: str
    over: bool = False
    """True once it was given back."""
    driven: bool = False
    stale: bool = False
    """True if it has to be read from the store."""
    given_up: bool = False
    """True if its drive stopped because of an error."""
    notices: Sequence[int] = ()
    called: dict[_Calls, int] = field(default_factory=dict)
    """The last record about which each function was called."""
    uncalled: set[_Calls] = field(default_factory=set)
    """The functions that are still to be called about the end of the drive."""

    def stored(self, records: Sequence[Record]) -> None:
        """Fold what is durable now."""
        try:
            for record in records:
                if record.seq > self.machine.head:  # a record that reopens a run is folded when it is taken up
                    apply(self.machine, record)
        except Exception as error:  # whatever it is, the run is not held up
            log.debug("run %s: its observers get it from the store: %r", self.run_id, error)
            self.stale = True
        self.observation.changed(self)


class _Calls:
    """The calls of one function."""

    def __init__(self, function: RunObserver, store: Store) -> None:
        self._function, self._store = function, store
        self._pending: dict[str, Observed] = {}
        self._covered: dict[str, list[Observed]] = {}
        """Earlier drives of pending runs: the call about the last one is about them, too."""
        self._some = anyio.Event()
        self.idle = anyio.Event()

    def reset(self) -> None:
        """Begin again, maybe in another event loop."""
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
        """Make the calls, for as long as the executor is open."""
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
                except OrchestratorError as error:  # it was deleted, or the store cannot be read
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
    """The functions of one executor, and the runs that they are to be called about."""

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
        """Make the calls while the block runs; then those that are left, for some seconds."""
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
            calls.idle.set()  # the end of the event loop may cancel it first of all: nothing waits for it then

    # -- what a host says ----------------------------------------------------------------------------------------

    def observed(self, machine: RunState) -> Observed | None:
        """A run that is taken up, and whose records are all durable; None: it has no observers."""
        graph = machine.plan.graph
        return Observed(self, machine.copy(), graph, machine.run_id) if self._all and graph is not None else None

    def add(self, live: Drive, run: Observed) -> None:
        """A run was taken up."""
        self._runs[live] = run
        self.changed(run)

    async def driving(self, live: Drive, *, driven: bool = True) -> None:
        """Records are about to be written: leave a notice in case this process dies.

        Args:
            driven: whether the run is driven; False: something is journaled, and it is given back.
        """
        run = self._runs.get(live)
        if run is not None:
            run.driven = driven
            run.notices = await self.notices.post(live.run_id)

    async def left(self, live: Drive) -> None:
        """A run was given back."""
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
        """Records of a run became durable."""
        for calls in self._always:
            calls.add(run)

    async def called(self, calls: _Calls, run: Observed) -> None:
        """A function was called about the end of a drive."""
        run.uncalled.discard(calls)
        if not run.uncalled:
            await self._acknowledge(run)

    async def _acknowledge(self, run: Observed) -> None:
        if run.notices:
            notices, run.notices = run.notices, ()
            with suppress(StoreError):  # then they are called once more
                await self.notices.discard(notices)

    # -- what other processes did --------------------------------------------------------------------------------

    async def call_about(self, run: Run, *notices: int) -> None:
        """Call the functions about a run that has ended or waits, and that another process drove."""
        machine = run.machine
        await self._conclude(Observed(self, machine, run.definition, machine.run_id, driven=True, notices=notices))

    async def moved(self, run_id: str) -> None:
        """Another executor drove a run that this one is awake for, and it has ended or waits."""
        if self._all:
            try:
                await self.call_about(await self.load(run_id))
            except OrchestratorError as error:
                log.debug("run %s: its observers are not called: %s", run_id, error)


def _waits(machine: RunState) -> bool:
    """True if a run waits for a person or an event, and its own caller does not ask for it."""
    inner = machine.started is not None and machine.started.caller is not None
    return not inner and any(str(question.kind) != "timer" for question in machine.questions.values())
