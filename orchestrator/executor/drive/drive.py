"""A run while this process drives it: one loop for new runs, resumed ones, nested graphs and watched ones.

Its steps are run by `Workers`; what they journal, and what comes from outside, goes through `put` and `push`.

How a drive ends:

    nothing runs any more            the run has ended, or waits for answers: all is durable, the lease given back
    the awaiting task is cancelled   interrupted: what landed is made durable, the lease given back
    the journal cannot be written    all workers are stopped and the error is raised; the run can be resumed
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import GraphUnknown, InvalidUpdate, RunConflict, RunEnded, StoreError
from orchestrator.executor.clock import DriveClock, next_due, ring
from orchestrator.executor.drive.workers import Workers
from orchestrator.executor.effects.callers import Callers, callers_of, total_up
from orchestrator.executor.effects.children import child_id, old_child_id
from orchestrator.executor.effects.questions import about, by_policy, policy_answers
from orchestrator.executor.interrupts import alone, found_in
from orchestrator.executor.lease import give_back, given_back
from orchestrator.executor.snapshots import Keeper, keep
from orchestrator.kernel.records import Answered, Asked, EffectIntended, EffectSettled, Ended, Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from orchestrator.executor.drive.workers import Pace
    from orchestrator.executor.effects.call_guard import CallGuard
    from orchestrator.executor.events import Watcher
    from orchestrator.executor.flushing import Flusher
    from orchestrator.executor.journal import Journal
    from orchestrator.executor.lease import Hold
    from orchestrator.executor.pool_leases import PoolLeases
    from orchestrator.executor.resources import Given
    from orchestrator.graph.node import Node
    from orchestrator.kernel.admission import Delta
    from orchestrator.kernel.machine import Machine
    from orchestrator.kernel.records import Record
    from orchestrator.kernel.token import Activation

_JUMP = 1.0
"""Seconds: a record whose time is further from the drive's was stamped by a wall clock that has jumped."""
LAST_FLUSH = 10.0
"""Seconds that an interrupted run gets to write what landed."""


class LiveRun:
    """One run that this process holds the lease of."""

    def __init__(
        self,
        given: Given,
        machine: Machine,
        journal: Journal,
        hold: Hold,
        holdings: PoolLeases,
        flusher: Flusher,
        pace: Pace,
        *,
        kept: int = 0,
    ) -> None:
        self.given, self.machine, self.journal, self.hold = given, machine, journal, hold
        self.holdings, self.flusher = holdings, flusher
        self.began = machine.head <= 1
        """Whether it begins with this drive: nothing was done in it before."""
        self.run_id: str = machine.run_id
        self.watchers: set[Watcher] = set()
        self.seen: set[int] = set()
        """Inbox messages that were handled; they are in the inbox until their records are stored."""
        self.guard: CallGuard | None = None
        """Asks about tool calls that only records approve which are not believed; None: all records are."""
        self.changes: tuple[str, ...] | None = None
        """How its graph's content, or its tools, changed since it was last driven; None: they did not."""
        self.tools: dict[str, str] | None = None
        """Its tools as they are now, if they changed."""
        self.fault: BaseException | None = None
        """Why the drive was given up."""
        self.closing = False
        """Whether it is too late to hand anything to this drive."""
        self.done = anyio.Event()
        """Set when the lease is given back."""
        self._workers = Workers(self, pace)
        self.clock = DriveClock(machine.updated)
        self._changed = anyio.Event()
        self._clock_runs = False
        self._due = 0.0
        """What the clock waits for, Unix seconds."""
        self._tasks: TaskGroup | None = None
        self._moved: anyio.Event | None = None
        self.callers: Callers | None = callers_of(given.children, self)
        """The runs around it, where a call of a graph as a tool began it."""
        self.keeper = Keeper(kept)
        journal.on_stored, journal.due_of = self._stored, self._due_of

    # -- the journal ---------------------------------------------------------------------------------------------

    def _due_of(self, machine: Machine) -> float | None:
        return self.clock.first_due(machine)

    def put(self, record: Record, message: int | None = None) -> Delta:
        """Fold a record and buffer it; stop what it cancels. What it starts is the caller's to run.

        Raises:
            RunEnded: nothing follows a run's end, with which its lease is given back.
        """
        if self.machine.ended is not None:
            raise RunEnded(self.run_id, self.machine.status)
        now = self.clock.now()
        if abs(record.ts - now) > _JUMP:
            record = record.model_copy(update={"ts": now})
        delta = self.machine.apply(record)
        if self.guard is not None:
            self.guard.note(record)
        if not self.journal.buffer:
            self.flusher.note(self)
        self.journal.put(record, message)
        for activation in delta.cancelled:
            self._workers.cancel(activation)
        if self._moved is not None:
            self._moved.set()
            self._moved = None
        return delta

    def push(self, record: Record, message: int | None = None) -> None:
        """The same, and run what it starts."""
        for activation in self.put(record, message).started:
            self._workers.add(activation)

    def halt(self, activation: Activation) -> None:
        """Stop an activation that a limit set aside while it waits inside of a call."""
        self._workers.cancel(activation)

    async def moved(self) -> None:
        """Wait until something more is journaled."""
        if self._moved is None:
            self._moved = anyio.Event()
        await self._moved.wait()

    async def durable(self) -> None:
        """Wait until everything that happened so far is in the store.

        Raises:
            RunConflict, RunUnknown, StoreError: it cannot be; the drive ends.
        """
        if self.journal.stored < self.journal.head:
            await self.journal.durable(self.machine)

    @property
    def held(self) -> bool:
        """Whether the run is held by this drive, and can be journaled, as far as is known here. Any thread may ask."""
        return self.journal.fault is None and self.hold.fresh

    async def ensure_held(self) -> None:
        """Make sure that the run is still ours; see `Hold.fresh` for when that has to be asked.

        Raises:
            RunConflict: it is not.
            StoreError: the store cannot say. Both end the drive.
        """
        self.check()
        try:
            await self.hold.ensure()
        except (RunConflict, StoreError) as error:
            self.journal.fault = self.journal.fault or error
            raise

    def hurry(self) -> None:
        """Begin to write what is buffered now, without waiting for it."""
        if self._tasks is not None and not self.closing:
            self._tasks.start_soon(self._write)

    @property
    def works(self) -> bool:
        """Whether steps run; where none does, what landed is being written."""
        return self._workers.active > 0

    def check(self) -> None:
        """Raise the journal's fault, if it has one."""
        if self.journal.fault is not None:
            raise self.journal.fault

    async def _write(self) -> None:
        try:
            await self.durable()
        except Exception as error:
            self.fail(error)

    def _stored(self, records: Sequence[Record]) -> None:
        for watcher in tuple(self.watchers):  # one that nobody reads any more may leave meanwhile
            watcher.stored(records)
        if self.keeper.due(self.journal.stored) and self._tasks is not None and not self.closing:
            self.keeper.busy = True
            self._tasks.start_soon(self._keep)

    async def _keep(self) -> None:
        """Store a snapshot, so that whoever takes the run up again need not fold it from its beginning."""
        try:
            seq, data = self.machine.head, self.keeper.take(self.machine)
            if data is not None:
                await self._write()  # never ahead of the journal
                if self.journal.stored >= seq:
                    await keep(self.journal.store, self.run_id, seq, data)
        finally:
            self.keeper.busy = False

    def tell(self, kind: str, data: dict[str, object]) -> None:
        """Send a live event to every watcher, behind what is journaled so far."""
        for watcher in tuple(self.watchers):
            watcher.live(self.journal.head, kind, data)

    # -- the loop ------------------------------------------------------------------------------------------------

    async def drive(self, look: Callable[[LiveRun], Awaitable[None]]) -> None:
        """Go on until the run ends, or pauses. `look` handles what has come for the run from outside.

        Raises:
            RunConflict: somebody else moved the run.
            RunUnknown: somebody removed it, or its store's file.
            StoreError: the journal could not be written.
            GraphUnknown: the executor lacks code, a model or a tool that the run needs.
            ReplayMismatch: changed code would leave an irreversible effect behind.
        """
        pauses = False
        try:
            await self._drive(look)
            pauses = self.fault is None and self.machine.status == "paused"
        except BaseExceptionGroup as group:
            raise found_in(group, (KeyboardInterrupt, SystemExit)) or alone(group) from None
        finally:
            self.closing = True
            with anyio.CancelScope(shield=True):
                await (self.holdings.rest if pauses else self.holdings.release)(self.run_id)
                await self.let_go()
        if self.fault is not None:
            raise self.fault

    async def _drive(self, look: Callable[[LiveRun], Awaitable[None]]) -> None:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._workers.open(tasks)
            self.look_at_the_clock()
            try:
                await self._until_quiet(look)
            except Exception as error:
                self.fail(error)
            self.closing = True
            if self._clock_runs or self.keeper.busy:  # of what runs beside, only these do not end by themselves
                tasks.cancel_scope.cancel()

    async def _until_quiet(self, look: Callable[[LiveRun], Awaitable[None]]) -> None:
        while True:
            await self._workers.quiet()
            await self.end_if_over()
            head = self.journal.head
            await self.durable()
            if self.machine.ended is None:
                await look(self)
            if not self._workers.active and self.journal.head == head:
                return  # else something came, and may be over already

    def land(self, record: Record) -> list[Activation]:
        """Journal how a step ended; gives what it started."""
        if record.type == "asked":
            return self._ask(record)
        started = self.put(record).started
        if record.type == "graph_opened":
            left = self.machine.time_left_inside(record.activation)
            if left is not None and (not self._clock_runs or self.machine.updated + left < self._due):
                self.look_at_the_clock()
        return started

    def _ask(self, record: Asked) -> list[Activation]:
        started = self.put(record).started
        now = self.clock.now()
        self.clock.asked(record.question)
        answer = by_policy(self.machine, record.question, now, self.clock.due(self.machine, record.question))
        if answer is not None:
            seq = self.machine.head + 1
            started += self.put(
                Answered(
                    seq=seq,
                    ts=now,
                    question=record.question.id,
                    answer=answer,
                    policy=True,
                    about=about(record.question),
                )
            ).started
        elif record.question.deadline is not None:
            self.look_at_the_clock()
        return started

    def policy(self) -> None:
        """Give the answers that policy and passed deadlines give."""
        for answered in policy_answers(self.machine, self.clock):
            self.push(answered)

    def fail(self, error: BaseException) -> None:
        """Give the drive up: stop every worker."""
        if self.fault is None:
            self.fault = error
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """End the drive as a cancelled one ends: what landed is made durable, the run can be resumed."""
        self.closing = True
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    # -- ends ----------------------------------------------------------------------------------------------------

    async def end_if_over(self) -> None:
        """Journal the end of the run, when nothing is left to do but that."""
        machine = self.machine
        result = machine.result
        if result is None or machine.ended is not None:
            return
        await self._end_the_lost_inside()
        self._settle_the_lost()
        schema = machine.plan.schema
        status, error = result.status, result.error
        if status == "completed":
            try:
                schema.check(result.values)
            except InvalidUpdate as fault:
                status, error = "failed", Failure(type="InvalidUpdate", message=str(fault))
        output: object = None
        if status in ("completed", "exhausted") and machine.plan.graph is not None:
            output = machine.plan.graph.result(schema.dump(result.values))
        reduced = schema.reduced(result.values, schema.fields)
        self.put(
            Ended.model_validate(
                {
                    "seq": machine.head + 1, "ts": time.time(), "status": status, "output": output, "error": error,
                    "reduced": reduced,
                }
            )
        )  # fmt: skip

    def _lost(self) -> list[EffectIntended]:
        """Every effect without an end that nobody will ever hear of again."""
        entries = self.machine.ledger.entries()
        return [one.intended for one in entries if one.settled is None or one.settled.seq < one.intended.seq]

    async def _end_the_lost_inside(self) -> None:
        """Cancel the runs of graphs that were called as tools, and that nobody waits for any more.

        Those were left while they asked something, or when a process died: there was no step that could cancel them.
        """
        for intended in self._lost():
            if intended.kind == "tool" and intended.effect == "idempotent":
                for run_id in (child_id(self.run_id, intended.key), old_child_id(self.run_id, intended.key)):
                    total_up(self, intended.key, await self.given.children.cancel(run_id))

    def _settle_the_lost(self) -> None:
        """Journal an end for those effects."""
        for intended in self._lost():
            now = time.time()
            error = Failure(
                type="Cancelled", message="cancelled while it was under way", node=intended.node, path=intended.path
            )
            self.put(
                EffectSettled(
                    seq=self.machine.head + 1,
                    ts=now,
                    activation=intended.activation,
                    path=intended.path,
                    node=intended.node,
                    key=intended.key,
                    ok=False,
                    error=error,
                    started=intended.ts,
                    ended=now,
                    unknown=intended.effect == "irreversible",
                )
            )

    async def let_go(self) -> None:
        """Make durable what landed, give the lease back, tell whoever waits."""
        if self.journal.fault is None and self.journal.stored < self.journal.head:
            with anyio.move_on_after(LAST_FLUSH):
                try:
                    await self.durable()
                except Exception as error:
                    self.fault = self.fault or error
        if self.journal.released:
            given_back(self.hold.token)
        else:
            with anyio.move_on_after(LAST_FLUSH):
                await give_back(self.journal.store, self.run_id, self.hold.token)
        for watcher in tuple(self.watchers):
            watcher.close()
        self.done.set()

    # -- what goes on beside -------------------------------------------------------------------------------------

    def look_at_the_clock(self) -> None:
        """Time limits or deadlines may have changed."""
        if self._clock_runs:
            self._changed.set()
        elif self._tasks is not None and next_due(self) is not None:
            self._clock_runs = True
            self._tasks.start_soon(self._watch_the_clock)

    async def _watch_the_clock(self) -> None:
        while (due := next_due(self)) is not None:
            self._due = due
            self._changed = anyio.Event()
            with anyio.move_on_after(max(0.0, due - self.clock.now())):
                await self._changed.wait()
            ring(self, self.clock.now())
        self._clock_runs = False

    def node_of(self, activation: Activation) -> Node:
        """The node that an activation runs.

        Raises:
            GraphUnknown: the graph was given without its code.
        """
        graph = activation.frame.plan.graph
        if graph is None:
            raise GraphUnknown(f"run {self.run_id!r}: graph {activation.frame.plan.name!r} was given without its nodes")
        return graph.nodes[activation.node]
