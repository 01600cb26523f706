"""A run as this process holds it: its machine, its journal, its lease, its clock, and its followers.

A record is folded first, then buffered, then stored. `RunLog.at` and `RunLog.now` are the only places that stamp a
record's `seq`, `ts`, `activation`, `path` and `node`:

    log.push(EffectSettled(**log.at(activation), key=key, ok=True, ...))

Steps, effects and commands write through the log and wait on it. The drive that runs the steps is attached as
`scheduler` while there is one; a run that is held only to journal a command has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import anyio

from orchestrator.clock import Clock
from orchestrator.errors import GraphUnknown, RunConflict, RunEnded, StoreError
from orchestrator.executor.concurrency import YieldBudget
from orchestrator.executor.journal import Flusher, Journal, due_of
from orchestrator.executor.lease import LeaseHandle
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.kernel.fold import apply
from orchestrator.kernel.question import Question
from orchestrator.kernel.records import EffectIntended, Record, Stamp, StepStamp
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.seals import Chain
from orchestrator.kernel.state import Activation
from orchestrator.stores.base import RunInfo, Store
from orchestrator.tools.pool_client import PoolLeases
from orchestrator.tools.tool import Tool

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractAsyncContextManager

    from orchestrator.executor.approvals import CallGuard
    from orchestrator.executor.replay.running import RunningReplay
    from orchestrator.graph.limits import Limits
    from orchestrator.kernel.question import Answer
    from orchestrator.kernel.records import Caller
    from orchestrator.views.run import Run


class DriveClock:
    """The time of one drive of a run: the wall clock's at its beginning, and steady from then on.

    A wall clock can be wrong by any amount and can jump. What was written by another one is never waited for longer
    than was meant (`left`), and the seconds of a run go on as they began.
    """

    __slots__ = ("_ahead", "_asked", "_began", "_steady", "_updated")

    def __init__(self, clock: Clock, updated: float = 0.0, known: float = 0.0) -> None:
        """
        Args:
            clock: the clock of the executor.
            updated: the time of the last record before the drive, by the clock of whatever wrote it.
            known: for how many seconds this process has seen the run stand still at that record.
        """
        now = clock.now()
        self._steady = clock.steady
        self._ahead = now - self._steady()
        self._began, self._updated = now - known, updated
        self._asked: dict[str, float] = {}

    def now(self) -> float:
        """Unix seconds."""
        return self._ahead + self._steady()

    def left(self, until: float, meant: float | None) -> float:
        """Seconds until a time that was written down, maybe by another clock.

        Args:
            meant: how many seconds off it was when it was written down, None: not known.
        """
        left = until - self.now()
        return max(0.0, left if meant is None else min(left, meant))

    def asked(self, question: Question) -> None:
        """A question was asked in this drive."""
        if question.deadline is not None:
            self._asked[question.id] = self.now()

    def due(self, machine: RunState, question: Question) -> float | None:
        """Time of its deadline: no later than was meant, counted from when this process first saw the question."""
        deadline = question.deadline
        if deadline is None:
            return None
        asked = machine.asked_at.get(question.id, self._updated)
        return min(deadline, self._asked.get(question.id, self._began) + max(0.0, deadline - asked))

    def first_due(self, machine: RunState) -> float | None:
        """Time of the first deadline of an open question, if the run waits for it; None while steps run."""
        if not machine.questions or machine.status != "paused" or machine.is_held:
            return None
        return min(
            (at for one in machine.questions.values() if (at := self.due(machine, one)) is not None), default=None
        )


class LastSeen:
    """Since when this process has seen runs with a deadline unchanged, for executors whose clocks disagree."""

    _MOST = 10_000
    """Most runs that are remembered; then all are forgotten, and are watched anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, float], float]] = {}
        """Run -> its head when it was last looked at, when it was created (its id may be that of a deleted run), and
        since when its head is that, by the steady clock."""

    def overdue(self, info: RunInfo) -> bool:
        """True if a deadline of a run has passed, by the clock or by how long the run was seen unchanged.

        Where clocks disagree the deadline may lie far off: no more seconds are waited for than were left of it when the
        run's last record was written.
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
        """For how long the run was seen to stand still at this record. It is forgotten: the run goes on."""
        (seen, _), since = self._seen.pop(run_id, ((0, 0.0), 0.0))
        return self._clock.steady() - since if seen == head else 0.0


class Follower(Protocol):
    """A reader of a run's events while it is held here."""

    def stored(self, records: Sequence[Record]) -> None:
        """These records are durable now."""

    def live(self, seq: int, kind: str, data: dict[str, object]) -> bool:
        """A live event came behind record `seq`. False: it lost what came before, and needs the replies so far."""
        ...

    def close(self) -> None:
        """The run is given back: nothing more will come."""


class IdleFollower(Protocol):
    """A reader of a run that is not driven here."""

    def notify(self) -> None:
        """The run was taken up here, and nothing is done in it yet."""


ToolsFor: TypeAlias = "Callable[[GraphDefinition | None], Mapping[str, Tool]]"
"""The tools that arguments in an answer are checked by, for the graph of the run."""

_JUMP = 1.0
"""Seconds: a record whose time is further from the drive's was stamped by a wall clock that has jumped."""


class Scheduler(Protocol):
    """The part of a drive that runs the steps of a run."""

    @property
    def works(self) -> bool:
        """True while steps run."""
        ...

    def add(self, activation: Activation) -> None:
        """Run an activation."""

    def cancel(self, activation: Activation) -> None:
        """Stop an activation that is no longer part of the run."""

    def hurry(self) -> None:
        """Begin to write what is buffered, without waiting for it."""

    def stored(self) -> None:
        """Records have become durable."""


class ReplySoFar(Protocol):
    """A model's reply under way."""

    def events(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Types and data of the live events that give the reply so far to one who saw nothing, or other parts of it."""
        ...


class Command(Protocol):
    """Something that is said to a run."""

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> Command:
        """The same, as it is to be applied to a run in this state.

        Args:
            tools: the tools that arguments in an answer are checked by.
            now: Unix time in seconds.

        Raises:
            QuestionUnknown, StaleAnswer, InvalidAnswer: it does not fit the run.
        """
        ...

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal it, once it is checked.

        Args:
            message: the inbox message that brought it.

        Returns:
            False: it does not concern the run as it is now, and nothing was journaled.
        """
        ...

    def body(self) -> dict[str, object]:
        """It as plain JSON, for the run's inbox."""
        ...


class Children(Protocol):
    """The other runs of an executor, as a call of a graph as a tool reaches them: those inside and those around."""

    def live(self, run_id: str) -> RunLog | None:
        """A run that this executor drives; None also if it is about to end."""
        ...

    async def start(
        self, graph: GraphDefinition, given: object, run_id: str, caller: Caller, limits: Limits | None
    ) -> Run:
        """Run a graph, or continue the run of this id.

        In a fork, where the same call of another run began a run, this one begins as a fork of that one.
        """
        ...

    async def reopen(self, run: Run, by: str, limits: Limits | None) -> Run:
        """Continue a run that did not complete; return it as it is if `by` reopened it or it cannot continue."""
        ...

    async def answer(self, run: Run, question: str, answer: Answer, parent: str) -> Run:
        """Pass on an answer that was given to the parent, and continue."""
        ...

    async def cancel(self, run_id: str) -> Run | None:
        """Cancel a run that its parent no longer waits for; return it as it is then, None if it never began."""
        ...

    async def load(self, run_id: str) -> Run:
        """A run as it is in the store."""
        ...

    async def borrow(self, run_id: str) -> AbstractAsyncContextManager[RunLog]:
        """Take a run up to journal something, and give it back at the end of the block.

        Raises:
            RunUnknown, RunEnded
            RunConflict: another process holds it.
        """
        ...

    async def post(self, run_id: str, command: Command) -> tuple[bool, Record | None]:
        """Leave a command for a run that another process drives, and wait until it is taken.

        Returns:
            False if no process drives the run any more. And the record that the command led to.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """Objects that all runs of an executor share."""

    store: Store
    children: Children
    flusher: Flusher
    holdings: PoolLeases
    yield_budget: YieldBudget


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
            shared: what the executor's runs have in common.
            clock: the time of the drive.
            scheduler: runs its steps.
            snapshot_of: makes what is stored with a run that pauses or ends.
            chain: seals its records; None: nothing does.
            due_of: when the next deadline of an open question passes; None: as the clock says.
            on_durable: called with records that have become durable.
            context: what its nodes get as `ctx.context`.
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
        """True if the run begins with this process: nothing was done in it before."""
        self.watchers: set[Follower] = set()
        self.replies: dict[str, ReplySoFar] = {}
        """Keys of model calls under way whose replies come in pieces."""
        self.replay: RunningReplay | None = None
        """Set if the run is a replay, or a replay called it."""
        self.context = context
        self.guard: CallGuard | None = None
        """Asks about tool calls that only records approve which are not believed; None: all records are."""
        self.scheduler: Scheduler | None = scheduler
        self.task: asyncio.Task[Any] | None = None
        """The task that drives the run, in an event loop of asyncio."""
        self.cancels = 0
        """Number of times that this task had been cancelled before."""
        self.closing = False
        """True if it is too late to hand anything to this process."""
        self._on_durable = on_durable
        self._flusher = shared.flusher
        self._moved: anyio.Event | None = None

    # -- stamps --------------------------------------------------------------------------------------------------

    def now(self) -> Stamp:
        """The stamp of a record about the run."""
        return {"seq": self.machine.head + 1, "ts": self.clock.now()}

    def at(self, activation: Activation) -> StepStamp:
        """The stamp of a record about a step."""
        seq, ts, path = self.machine.head + 1, self.clock.now(), activation.path
        return {"seq": seq, "ts": ts, "activation": activation.key, "path": path, "node": activation.node}

    def of(self, record: EffectIntended) -> StepStamp:
        """The stamp of a record about the step of an earlier record."""
        return {**self.now(), "activation": record.activation, "path": record.path, "node": record.node}

    # -- writing -------------------------------------------------------------------------------------------------

    def put(self, record: Record, message: int | None = None) -> Delta:
        """Fold a record and buffer it; stop what it cancels. What it starts is the caller's to run.

        Args:
            message: the inbox message that brought it, deleted when the record is stored.

        Raises:
            RunEnded: nothing follows a run's end, with which its lease is given back.
        """
        machine, journal = self.machine, self.journal
        if machine.ended is not None:
            raise RunEnded(self.run_id, machine.status)
        now = self.clock.now()
        if not -_JUMP <= record.ts - now <= _JUMP:
            record = record.model_copy(update={"ts": now})
        delta = apply(machine, record)
        if self.guard is not None:
            self.guard.note(record)
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
        """Buffer the record `reopened`, which is folded already: only it may follow a run's end."""
        self.journal.reopen()
        self._flusher.note(self)
        self.journal.put(record)

    def push(self, record: Record, message: int | None = None) -> None:
        """The same, and run what it starts."""
        started = self.put(record, message).started
        if self.scheduler is not None:
            for activation in started:
                self.scheduler.add(activation)

    def halt(self, activation: Activation) -> None:
        """Stop an activation that a limit set aside while it waits inside of a call."""
        if self.scheduler is not None:
            self.scheduler.cancel(activation)

    async def moved(self) -> None:
        """Wait until something more is journaled, or `stir` is called."""
        if self._moved is None:
            self._moved = anyio.Event()
        await self._moved.wait()

    def stir(self) -> None:
        """Wake what waits in `moved`."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    # -- durability ----------------------------------------------------------------------------------------------

    async def durable(self) -> None:
        """Wait until everything that happened so far is in the store.

        Raises:
            RunConflict, RunUnknown, StoreError: it cannot be; the drive ends.
        """
        if self.journal.stored < self.journal.head:
            await self.journal.durable(self.machine)

    def hurry(self) -> None:
        """Begin to write what is buffered now, without waiting for it."""
        if self.scheduler is not None:
            self.scheduler.hurry()

    def flush(self) -> None:
        """Begin to write what is buffered, if steps run; where none does, what landed is being written."""
        if self.journal.buffer and self.scheduler is not None and self.scheduler.works:
            self.scheduler.hurry()

    def close(self) -> None:
        """Let go of what drove the run: the reply that its caller gets, which holds the machine, keeps nothing else."""
        self.scheduler = self.journal.on_stored = None
        self.journal.due_of = due_of

    def _stored(self, records: Sequence[Record]) -> None:
        if not self.journal.buffer:
            self._flusher.forget(self)
        for watcher in tuple(self.watchers):  # one that is no longer read may leave meanwhile
            watcher.stored(records)
        if self._on_durable is not None:
            self._on_durable(records)
        if self.scheduler is not None:
            self.scheduler.stored()

    # -- the fence -----------------------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """True if the run is held here, and can be journaled, as far as this process knows. Any thread may ask."""
        return self.journal.fault is None and self.lease.fresh

    async def ensure_held(self) -> None:
        """Make sure that the run is still held here; see `LeaseHandle.fresh` for when the store has to be asked.

        Raises:
            RunConflict: it is not.
            StoreError: the store cannot say. Both end the drive.
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
        """Send a live event to every watcher, behind what is journaled so far."""
        for watcher in tuple(self.watchers):
            if not watcher.live(self.journal.head, kind, data):
                self._tell_replies(watcher)

    def watch(self, watcher: Follower) -> None:
        """Add a watcher, and give it the replies under way as far as they have come."""
        self.watchers.add(watcher)
        self._tell_replies(watcher)

    def _tell_replies(self, watcher: Follower) -> None:
        for reply in self.replies.values():
            for kind, data in reply.events():
                watcher.live(self.journal.head, kind, data)

    def node_of(self, activation: Activation) -> Node:
        """The node that an activation runs.

        Raises:
            GraphUnknown: the graph was given without its code.
        """
        plan = activation.frame.plan
        graph = plan.graph
        if graph is None:
            raise GraphUnknown(f"run {self.run_id!r}: graph {plan.name!r} was given without its nodes")
        return graph.nodes[activation.node]
