"""A run in the process that holds its lease: its machine, journal, lease, clock and followers.

A record is folded first, then buffered, then stored. `RunLog.at` and `RunLog.now` are the only places that stamp a
record's `seq`, `ts`, `activation`, `path` and `node`, beside `RunLog.done`:

    log.push(EffectSettled(**log.at(activation), key=key, ok=True, ...))

Steps, effects and commands write through the log and wait on it. The drive that runs the steps is attached as
`scheduler` while it exists; if the lease is held only to journal a command, it starts no steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import anyio
from msgspec import Struct, structs

from orchestrator.clock import Clock
from orchestrator.errors import GraphUnknown, RunConflict, RunEnded, StoreError
from orchestrator.executor.concurrency import YieldBudget
from orchestrator.executor.journal import Flusher, Journal, due_of
from orchestrator.executor.lease import LeaseHandle
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.json import JsonObject
from orchestrator.kernel.fold import apply
from orchestrator.kernel.question import Question
from orchestrator.kernel.records import EffectIntended, Record, Stamp, StepDone, StepStamp
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.seals import Chain
from orchestrator.kernel.state import Activation
from orchestrator.stores.base import RunInfo, Store
from orchestrator.tools.pool_client import PoolLeases
from orchestrator.tools.tool import Tool

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractAsyncContextManager

    from orchestrator.executor.replay.running import RunningReplay
    from orchestrator.executor.trusted_approvals import TrustedApprovals
    from orchestrator.graph.limits import Limits
    from orchestrator.kernel.question import Answer
    from orchestrator.kernel.records import Caller
    from orchestrator.views.run import Run


class DriveClock:
    """Clock of one drive of a run: it starts at the wall clock's time and is steady from then on.

    Wall clocks can be wrong by any amount and can jump. For a time written by another clock, no drive waits longer than
    was left when it was written (`left`), and the time of a run never runs backwards.
    """

    __slots__ = ("_ahead", "_asked", "_began", "_steady", "_updated")

    def __init__(self, clock: Clock, updated: float = 0.0, known: float = 0.0) -> None:
        """
        Args:
            clock: the clock of the executor.
            updated: the time of the last record before the drive, by the clock of whatever wrote it.
            known: for how many seconds this process has seen the run unchanged at that record.
        """
        now = clock.now()
        self._steady = clock.steady
        self._ahead = now - self._steady()
        self._began, self._updated = now - known, updated
        self._asked: dict[str, float] = {}

    def now(self) -> float:
        """Return the current time in Unix seconds."""
        return self._ahead + self._steady()

    def left(self, until: float, meant: float | None) -> float:
        """Return the seconds until a recorded time, which may be from another clock.

        Args:
            meant: seconds that were left when it was recorded; None: not known.
        """
        left = until - self.now()
        return max(0.0, left if meant is None else min(left, meant))

    def asked(self, question: Question) -> None:
        """Record that a question was asked in this drive."""
        if question.deadline is not None:
            self._asked[question.id] = self.now()

    def due(self, machine: RunState, question: Question) -> float | None:
        """Return a question's deadline, if any, at most as far off as intended when this process first saw it."""
        deadline = question.deadline
        if deadline is None:
            return None
        asked = machine.asked_at.get(question.id, self._updated)
        return min(deadline, self._asked.get(question.id, self._began) + max(0.0, deadline - asked))

    def first_due(self, machine: RunState) -> float | None:
        """Return the time of the first deadline of an open question, if the run waits for it; None while steps run."""
        if not machine.questions or machine.status != "paused" or machine.is_held:
            return None
        return min(
            (at for one in machine.questions.values() if (at := self.due(machine, one)) is not None), default=None
        )


class LastSeen:
    """Remembers since when runs with a deadline are unchanged, for executors whose clocks disagree."""

    _MOST = 10_000
    """Maximum number of runs remembered; beyond it all are forgotten and observed anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, float], float]] = {}
        """Run -> its head when last checked, when it was created (its id may be that of a deleted run), and since when,
        by the steady clock, the head is unchanged.
        """

    def overdue(self, info: RunInfo) -> bool:
        """Return True if a deadline of a run has passed, by the clock or by how long the run was seen unchanged.

        If clocks disagree, the deadline may seem far off: it passes at the latest after the seconds that were left of
        it when the run's last record was written.
        """
        if info.due is None:
            self._seen.pop(info.run_id, None)
            return False
        now_steady = self._clock.steady()
        seen, since = self._seen.get(info.run_id, ((0, 0.0), 0.0))
        if seen != (info.head, info.created):
            if len(self._seen) >= self._MOST:
                self._seen.clear()
            since = now_steady
            self._seen[info.run_id] = (info.head, info.created), since
        return info.due <= self._clock.now() or now_steady - since >= max(0.0, info.due - info.updated)

    def seconds(self, run_id: str, head: int) -> float:
        """Return for how many seconds the run was seen unchanged at this record, and reset the measurement."""
        (seen, _), since = self._seen.pop(run_id, ((0, 0.0), 0.0))
        return self._clock.steady() - since if seen == head else 0.0


class Follower(Protocol):
    """Receives the events of a run while this executor holds the run's lease."""

    def stored(self, records: Sequence[Record]) -> None:
        """Take records that are durable now."""

    def live(self, seq: int, kind: str, data: dict[str, object]) -> bool:
        """Take a live event that follows record `seq`. False: earlier events were lost; send the replies so far."""
        ...

    def close(self) -> None:
        """End the events: the lease of the run is released."""


class IdleFollower(Protocol):
    """Waits for events of a run that this executor does not drive."""

    def notify(self) -> None:
        """Called when this executor takes the run's lease, before any step runs."""


ToolsFor: TypeAlias = "Callable[[GraphDefinition | None], Mapping[str, Tool]]"
"""Returns the tools that arguments in an answer are checked against, for the graph of the run."""

_JUMP = 1.0
"""Seconds: a record whose time differs by more from the drive's was stamped by a wall clock that has jumped."""


class Scheduler(Protocol):
    """The part of a drive that runs the steps of a run."""

    @property
    def works(self) -> bool:
        """Return True while steps run."""
        ...

    def add(self, activation: Activation) -> None:
        """Start an activation."""

    def cancel(self, activation: Activation) -> None:
        """Stop an activation that is no longer part of the run."""

    def hurry(self) -> None:
        """Start writing buffered records, without waiting."""

    def stored(self) -> None:
        """Called when records have become durable."""


class ReplySoFar(Protocol):
    """A model's reply in progress."""

    def events(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Return types and data of live events with the reply so far, for a reader that has missed any of it."""
        ...


class Command(Protocol):
    """A command to a run."""

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> Command:
        """Return the command, checked and adapted to the run's state.

        Args:
            tools: the tools that arguments in an answer are checked against.
            now: Unix time in seconds.

        Raises:
            QuestionUnknown, StaleAnswer, InvalidAnswer: the command does not fit the run.
        """
        ...

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal the command, which is checked.

        Args:
            message: the inbox message that contained it.

        Returns:
            False: it does not apply to the run's current state, and nothing was journaled.
        """
        ...

    def body(self) -> dict[str, object]:
        """Return the command as plain JSON, for the run's inbox."""
        ...


class Children(Protocol):
    """Access of a call of a graph as a tool to the executor's other runs: its child runs and calling runs."""

    def live(self, run_id: str) -> RunLog | None:
        """Return a run that this executor drives; None also if the run is about to end."""
        ...

    async def start(
        self, graph: GraphDefinition, given: object, run_id: str, caller: Caller, limits: Limits | None
    ) -> Run:
        """Run a graph, or continue the run with this id.

        In a fork, if the same call of the other run started a run, the new run is a fork of that run.
        """
        ...

    async def reopen(self, run: Run, by: str, limits: Limits | None) -> Run:
        """Continue a run that did not complete. Returns it unchanged if `by` reopened it or it cannot continue."""
        ...

    async def answer(self, run: Run, question: str, answer: Answer, parent: str) -> Run:
        """Pass on an answer that was given to the parent, and continue the run."""
        ...

    async def cancel(self, run_id: str) -> Run | None:
        """Cancel a run that its parent no longer waits for. Returns the run; None if it never started."""
        ...

    async def load(self, run_id: str) -> Run:
        """Load a run from the store."""
        ...

    async def borrow(self, run_id: str) -> AbstractAsyncContextManager[RunLog]:
        """Hold the lease of a run within the block, to journal something.

        Raises:
            RunUnknown, RunEnded
            RunConflict: another process holds its lease.
        """
        ...

    async def post(self, run_id: str, command: Command) -> tuple[bool, Record | None]:
        """Leave a command for a run that another process drives, and wait until the process takes it.

        Returns:
            Whether it was taken: False if no process drives the run any more; and the record that the command led to.
        """
        ...


class Shared(Struct, frozen=True):
    """Objects that all runs of an executor share."""

    store: Store
    children: Children
    flusher: Flusher
    holdings: PoolLeases
    yield_budget: YieldBudget
    restored_at: float
    """When the store was restored from a backup, in Unix seconds; 0 if it was not."""


class ResultIndex(Struct):
    """Where the journal of a run has the results of its tools, so that each record is read once to find them."""

    places: dict[str, tuple[int, str]] = {}
    """Id of a result -> number of its record, and `StoredResult.checked_by`."""
    calls: dict[str, str] = {}
    """Key of a call of a tool, or of an effect that stores a changed result -> `checked_by` of its result."""
    upto: int = 0
    """Number of the last record that was read."""


class RunLog:
    """A run whose lease this process holds."""

    def __init__(
        self,
        machine: RunState,
        lease: LeaseHandle,
        shared: Shared,
        clock: DriveClock,
        scheduler: Scheduler,
        *,
        snapshot_of: Callable[[RunState], bytes | None],
        chain: Chain | None = None,
        due_of: Callable[[RunState], float | None] | None = None,
        on_durable: Callable[[Sequence[Record]], None] | None = None,
        context: object = None,
    ) -> None:
        """
        Args:
            machine: the folded run.
            lease: its lease.
            shared: objects that the executor's runs share.
            clock: the time of the drive.
            scheduler: the part that runs its steps.
            snapshot_of: makes the snapshot stored with a run that pauses or ends.
            chain: seals its records; None: they are not sealed.
            due_of: when the next deadline of an open question passes; None: by the clock.
            on_durable: called with records that have become durable.
            context: passed to its nodes as `ctx.context`.
        """
        self.machine, self.lease, self.clock = machine, lease, clock
        self.children, self.holdings = shared.children, shared.holdings
        self.run_id: str = machine.run_id
        self.journal = Journal(
            shared.store,
            machine.run_id,
            machine.head,
            lease.token,
            on_stored=self._stored,
            due_of=due_of or clock.first_due,
            snapshot_of=snapshot_of,
            chain=chain,
        )
        self.is_new = machine.head <= 1
        """True if the run starts in this process: nothing was done in it before."""
        self.watchers: set[Follower] = set()
        self.replies: dict[str, ReplySoFar] = {}
        """Key of a model call in progress -> its reply so far, if it is streamed."""
        self.results = ResultIndex()
        self.replay: RunningReplay | None = None
        """Set if the run is a replay, or a replay called it."""
        self.context = context
        self.approvals: TrustedApprovals | None = None
        """The trusted approvals of tool calls: calls without one are asked about. None: all records are trusted."""
        self.scheduler: Scheduler | None = scheduler
        self.task: asyncio.Task[Any] | None = None
        """The task that drives the run, in an event loop of asyncio."""
        self.cancels = 0
        """Number of times that this task had been cancelled before the drive."""
        self.closing = False
        """True if it is too late to give this process any more work."""
        self._on_durable = on_durable
        self.restored_at = shared.restored_at
        self._flusher = shared.flusher
        self._moved: anyio.Event | None = None
        self._stamped = 0.0
        """The last time that was given to a record: it is by the drive's clock."""

    @property
    def restored(self) -> bool:
        """True if the run comes from a backup: it may have made calls that its journal does not have."""
        return self.machine.created < self.restored_at

    # -- stamps --------------------------------------------------------------------------------------------------

    def now(self) -> Stamp:
        """Return the stamp of a record about the run."""
        ts = self._stamped = self.clock.now()
        return {"seq": self.machine.head + 1, "ts": ts}

    def at(self, activation: Activation) -> StepStamp:
        """Return the stamp of a record about a step."""
        ts = self._stamped = self.clock.now()
        key, path, node = activation.key, activation.path, activation.node
        return {"seq": self.machine.head + 1, "ts": ts, "activation": key, "path": path, "node": node}

    def done(self, activation: Activation, outcome: str, update: JsonObject, started: float) -> StepDone:
        """Return the record of a step that ended, without what few of them have: each field given takes time."""
        ts = self._stamped = self.clock.now()
        return StepDone(
            seq=self.machine.head + 1,
            ts=ts,
            activation=activation.key,
            path=activation.path,
            node=activation.node,
            outcome="done" if outcome == "done" else outcome,  # of several equal strings one is the default
            update=dict(update),
            started=started,
            ended=ts,
        )

    def of(self, record: EffectIntended) -> StepStamp:
        """Return the stamp of a record about the step of an earlier record."""
        return {**self.now(), "activation": record.activation, "path": record.path, "node": record.node}

    # -- writing -------------------------------------------------------------------------------------------------

    def put(self, record: Record, message: int | None = None) -> Delta:
        """Fold a record and buffer it; stop the activations that it cancels. The caller runs those that it starts.

        Args:
            message: the inbox message that contained it, deleted when the record is stored.

        Raises:
            RunEnded: the run has ended, so its lease is released.
        """
        machine, journal = self.machine, self.journal
        if machine.ended is not None:
            raise RunEnded(self.run_id, machine.status)
        if record.ts is not self._stamped:
            now = self.clock.now()
            if not -_JUMP <= record.ts - now <= _JUMP:
                record = structs.replace(record, ts=now)
        delta = apply(machine, record)
        if self.approvals is not None:
            self.approvals.note(record)
        if not journal.buffer:
            self._flusher.note(self)
        journal.put(record, message)
        if delta.cancelled and self.scheduler is not None:
            for activation in delta.cancelled:
                self.scheduler.cancel(activation)
        if self._moved is not None:
            self.stir()
        return delta

    def reopen(self, record: Record) -> None:
        """Buffer the record `reopened`, which is already folded: no other record may follow a run's end."""
        self.journal.reopen()
        self._flusher.note(self)
        self.journal.put(record)

    def push(self, record: Record, message: int | None = None) -> None:
        """Put a record, like `put`, and schedule the activations that it starts."""
        started = self.put(record, message).started
        if self.scheduler is not None:
            for activation in started:
                self.scheduler.add(activation)

    def halt(self, activation: Activation) -> None:
        """Stop an activation that a limit suspended while it waits inside a call."""
        if self.scheduler is not None:
            self.scheduler.cancel(activation)

    async def moved(self) -> None:
        """Wait until another record is journaled, or `stir` is called."""
        if self._moved is None:
            self._moved = anyio.Event()
        await self._moved.wait()

    def stir(self) -> None:
        """Wake the tasks that wait in `moved`."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    # -- durability ----------------------------------------------------------------------------------------------

    async def durable(self) -> None:
        """Wait until all records so far are in the store.

        Raises:
            RunConflict, RunUnknown, StoreError: the records cannot be stored; the drive ends.
        """
        if self.journal.stored < self.journal.head:
            await self.journal.durable(self.machine)

    def hurry(self) -> None:
        """Start writing buffered records, without waiting."""
        if self.scheduler is not None:
            self.scheduler.hurry()

    def flush(self) -> None:
        """Start writing buffered records if steps run; otherwise a write is already in progress."""
        if self.journal.buffer and self.scheduler is not None and self.scheduler.works:
            self.scheduler.hurry()

    def close(self) -> None:
        """Release references to the drive: the returned `Run` has the machine, and keeps nothing else alive."""
        self.scheduler = self.journal.on_stored = None
        self.journal.due_of = due_of

    def _stored(self, records: Sequence[Record]) -> None:
        if not self.journal.buffer:
            self._flusher.forget(self)
        for watcher in tuple(self.watchers):  # a follower that is no longer read may leave meanwhile
            watcher.stored(records)
        if self._on_durable is not None:
            self._on_durable(records)
        if self.scheduler is not None:
            self.scheduler.stored()

    # -- the fence -----------------------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Return whether this process holds the run's lease, as far as it can tell. Thread-safe."""
        return self.journal.fault is None and self.lease.fresh

    async def ensure_held(self) -> None:
        """Ensure that this process still holds the run's lease; `LeaseHandle.fresh` defines when the store is asked.

        Raises:
            RunConflict: it does not.
            StoreError: the store cannot be read. Both end the drive.
        """
        self.check()
        try:
            await self.lease.ensure()
        except (RunConflict, StoreError) as error:
            self.journal.fault = self.journal.fault or error
            raise

    def check(self) -> None:
        """Raise the journal's fault, if it has one."""
        if self.journal.fault is not None:
            raise self.journal.fault

    # -- watchers ------------------------------------------------------------------------------------------------

    def tell(self, kind: str, data: dict[str, object]) -> None:
        """Send a live event to every watcher, after the records journaled so far."""
        for watcher in tuple(self.watchers):
            if not watcher.live(self.journal.head, kind, data):
                self._tell_replies(watcher)

    def watch(self, watcher: Follower) -> None:
        """Add a watcher, and send it the replies in progress."""
        self.watchers.add(watcher)
        self._tell_replies(watcher)

    def _tell_replies(self, watcher: Follower) -> None:
        for reply in self.replies.values():
            for kind, data in reply.events():
                watcher.live(self.journal.head, kind, data)

    def node_of(self, activation: Activation) -> Node:
        """Return the node that an activation runs.

        Raises:
            GraphUnknown: the graph was given without its code.
        """
        plan = activation.frame.plan
        graph = plan.graph
        if graph is None:
            raise GraphUnknown(f"run {self.run_id!r}: graph {plan.name!r} was given without its nodes")
        return graph.nodes[activation.node]
