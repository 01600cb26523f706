"""A run driven by this process: one loop for new, resumed, nested and streamed runs.

`StepTasks` runs its steps, and `Timers` ends those that take too long. Their records, and external requests, go
through the run's log.

How a drive ends:

    no step runs any more            the run has ended or waits for answers: all is durable, the lease is released
    the awaiting task is cancelled   interrupted: finished steps are made durable, the lease is released
    the journal cannot be written    all workers stop and the error is raised; the run can be resumed
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, structs
from pydantic import ValidationError

from orchestrator._lazy import lazy_modules
from orchestrator.errors import EncryptionKeyMissing, InvalidUpdate, InvalidValue, RunError, message_of
from orchestrator.executor.calls.limits import Spend, child_id, total_up
from orchestrator.executor.commands import about, answered_by_rule, by_policy, command_of, policy_answers
from orchestrator.executor.concurrency import Signal
from orchestrator.executor.failures import fault_of, find_exception, unwrap_single
from orchestrator.executor.journal import LAST_FLUSH
from orchestrator.executor.lease import LeaseHandle, give_back, given_back
from orchestrator.executor.resources import Resources
from orchestrator.executor.run_log import DriveClock, RunLog, Shared
from orchestrator.executor.run_tools import own_tool
from orchestrator.executor.snapshots import Kept, SnapshotPolicy, store_snapshot
from orchestrator.executor.step_tasks import StepTasks
from orchestrator.executor.timers import Timers
from orchestrator.json import JsonObject
from orchestrator.kernel import records as r
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.limits import time_left_inside
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.seals import Chain
from orchestrator.kernel.state import Activation
from orchestrator.stores.base import Message
from orchestrator.stores.codec import encoded_in, key_of
from orchestrator.stores.rows import MARK, NOTICE
from orchestrator.tools.toolbox import Toolbox
from orchestrator.user_code import as_error, contained
from orchestrator.values import Unfit

if TYPE_CHECKING:
    from orchestrator.executor.replay import steps
else:
    (steps,) = lazy_modules("orchestrator.executor.replay", "steps")


logger = logging.getLogger("orchestrator")


_LAST_CALL = 10.0
"""Seconds that a tool may take to end what a call has begun elsewhere."""


async def end_if_over(log: RunLog, tools: Toolbox) -> None:
    """Journal the end of the run, if nothing else is left to do."""
    machine = log.machine
    result = machine.result
    if result is None or machine.ended is not None or machine.is_held:
        return
    if _abandoned(log):
        await _end_abandoned_runs(log)
        await _end_continued_calls(log, tools)
        _settle_abandoned(log)
    schema = machine.plan.schema
    status, error = result.status, result.error
    if status == "completed":
        try:
            schema.check(result.values)
        except InvalidUpdate as fault:
            status, error = "failed", r.Failure(type="InvalidUpdate", message=str(fault))
    output, reduced = None, None
    try:
        if status in ("completed", "exhausted") and machine.plan.graph is not None:
            graph = machine.plan.graph
            names = graph.output_fields
            output = graph.result(schema.dump({name: one for name, one in result.values.items() if name in names}))
        reduced = schema.reduced(result.values, schema.fields, checked=False)
    except (InvalidUpdate, Unfit):  # the merged result cannot be stored; an incomplete run ends without it
        pass
    log.put(
        r.Ended(
            **log.now(), status=status, output=output, error=error, reduced=None if reduced is None else dict(reduced)
        )
    )


def _abandoned(log: RunLog) -> list[r.EffectIntended]:
    """Return the effects without an end that no step waits for any more."""
    entries = log.machine.ledger.entries()
    return [
        one.intended
        for one in entries
        if one.settled is None or one.settled.seq < one.intended.seq or _goes_on(log, one)
    ]


def _goes_on(log: RunLog, entry: EffectEntry) -> bool:
    """Return True if a call of this run, not of one that it was forked from, has begun something that goes on."""
    settled = entry.settled
    return settled is not None and bool(settled.secret) and settled.unknown and settled.seq > log.machine.forked_at


async def _end_abandoned_runs(log: RunLog) -> None:
    """Cancel the runs of graphs that were called as tools and abandoned.

    They were abandoned while they asked a question, or when a process died: no step was there to cancel them.
    """
    for intended in _abandoned(log):
        if intended.kind == "tool" and intended.effect == "idempotent":
            run = await log.children.cancel(child_id(log.run_id, intended.key))
            total_up(log, intended.key, run)


async def _end_continued_calls(log: RunLog, tools: Toolbox) -> None:
    """End what suspended calls have begun elsewhere, such as the task of a server."""
    for entry in log.machine.ledger.entries():
        if entry.settled is None or not _goes_on(log, entry):
            continue
        name = entry.intended.name
        tool = own_tool(log.machine.plan.graph, entry.intended.node, name) or tools.get(name)
        abandon = getattr(tool, "abandon", None)
        if abandon is None:
            logger.warning("run %s: what %s has begun goes on: this process does not have the tool", log.run_id, name)
            continue
        try:
            with anyio.fail_after(_LAST_CALL), contained():
                await abandon(entry.intended.key, entry.settled.secret)
        except Exception as error:
            logger.warning("run %s: what %s has begun may go on: %s", log.run_id, name, message_of(error))


def _settle_abandoned(log: RunLog) -> None:
    """Journal an end for abandoned effects."""
    for intended in _abandoned(log):
        error = r.Failure(
            type="Cancelled", message="cancelled while it was under way", node=intended.node, path=intended.path
        )
        stamp = log.of(intended)
        entry = log.machine.ledger.entry(intended.key)
        unknown = intended.effect == "irreversible" or (entry is not None and _goes_on(log, entry))
        key, began = intended.key, intended.ts
        log.put(
            r.EffectSettled(**stamp, key=key, ok=False, error=error, started=began, ended=stamp["ts"], unknown=unknown)
        )


class Resumption(Struct, frozen=True):
    """Content of the next record `resumed` of a run, except who drives it."""

    changes: tuple[str, ...] | None = None
    """Changes of the graph's content or the tools since the run was last driven; None if there are none."""
    tools: dict[str, str] | None = None
    """Current tools, if they changed."""
    stops: tuple[tuple[str, ...] | None, tuple[str, ...] | None] | None = None
    """Nodes before and after which the run pauses from now on, if they change."""
    refs: JsonObject | None = None
    """References to the code that the run continues with, if they change."""
    by: str = ""
    """Person or program that requested it."""

    @property
    def changes_run(self) -> bool:
        """Return True if it has to be journaled even if nothing is left to do in the run."""
        return self.changes is not None or self.stops is not None or self.refs is not None


NO_RESUMPTION = Resumption()
"""A resumption without changes."""


class Drive:
    """Runs the steps of one run, until it ends, pauses or is interrupted."""

    def __init__(
        self,
        machine: RunState,
        lease: LeaseHandle,
        shared: Shared,
        clock: DriveClock,
        resources: Resources,
        *,
        kept: Kept,
        chain: Chain | None = None,
        due_of: Callable[[RunState], float | None] | None = None,
        on_durable: Callable[[Sequence[r.Record]], None] | None = None,
        context: object = None,
        resumption: Resumption | None = None,
    ) -> None:
        """
        Args:
            machine, lease, shared, clock, chain, due_of, on_durable, context: see `RunLog`.
            resources: the resources of its steps.
            kept: the last snapshot of the run.
            resumption: content of the record `resumed`.
        """
        self.snapshots = SnapshotPolicy(kept, packs=getattr(shared.store, "packs_snapshots", True))
        self.log = log = RunLog(
            machine,
            lease,
            shared,
            clock,
            self,
            snapshot_of=self.snapshots.at_rest,
            chain=chain,
            due_of=due_of,
            on_durable=on_durable,
            context=context,
        )
        self.resources = resources
        self.run_id = log.run_id
        self.seen: set[int] = set()
        """Ids of handled inbox messages; they stay in the inbox until their records are stored."""
        self.resumption = resumption or NO_RESUMPTION
        """Content of the next record `resumed`."""
        self.fault: BaseException | None = None
        """The error that stopped the drive."""
        self.done = Signal()
        """Set when the lease is released."""
        self._workers = StepTasks(log, resources, shared.yield_budget)
        self._timers = Timers(log)
        self._tasks: TaskGroup | None = None

    @property
    def machine(self) -> RunState:
        """Return the state of the run."""
        return self.log.machine

    @property
    def begun(self) -> bool:
        """Return True once its steps have been started."""
        return self._tasks is not None

    # -- scheduler of the log ------------------------------------------------------------------------------------

    @property
    def works(self) -> bool:
        """Return True while steps run."""
        return self._workers.active > 0

    def add(self, activation: Activation) -> None:
        """Start an activation."""
        self._workers.add(activation)

    def cancel(self, activation: Activation) -> None:
        """Stop an activation that is no longer part of the run."""
        self._workers.cancel(activation)

    def hurry(self) -> None:
        """Start writing buffered records, without waiting."""
        if self._tasks is not None and not self.log.closing:
            self._tasks.start_soon(self._write)

    async def _write(self) -> None:
        try:
            with contained():
                await self.log.durable()
        except Exception as error:
            self.fail(error)

    def stored(self) -> None:
        """Called when records have become durable."""
        if self.snapshots.due(self.log.journal.stored) and self._tasks is not None and not self.log.closing:
            self.snapshots.busy = True
            self._tasks.start_soon(self._snapshot)

    async def _snapshot(self) -> None:
        """Store a snapshot, so that the next executor need not fold the run from the start."""
        log = self.log
        try:
            seq, data = log.machine.head, self.snapshots.take(log.machine)
            if data is not None:
                await self._write()  # never ahead of the journal
                if log.journal.stored >= seq:
                    await store_snapshot(log.journal.store, log.run_id, seq, data)
        finally:
            self.snapshots.busy = False

    # -- the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Drive the run until it ends or pauses.

        Raises:
            RunConflict: another executor continued the run.
            RunUnknown: the run, or its store's file, was removed.
            StoreError: the journal could not be written.
            GraphUnknown: the executor lacks code, a model or a tool that the run needs.
            ReplayMismatch: changed code would drop an irreversible effect.
        """
        log, pauses = self.log, False
        try:
            await self._run()
            pauses = self.fault is None and log.machine.status == "paused"
        except BaseExceptionGroup as group:
            self.fault = find_exception(group, (KeyboardInterrupt, SystemExit)) or as_error(unwrap_single(group))
            raise self.fault from None
        finally:
            log.closing = True
            if log.journal.released and log.run_id not in log.holdings:
                self._over()  # nothing is left to wait for
            else:
                with anyio.CancelScope(shield=True):
                    await (log.holdings.rest if pauses else log.holdings.release)(log.run_id)
                    await self.release()
        if self.fault is not None:
            raise self.fault

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                with contained() as (self.log.task, self.log.cancels):
                    self._workers.open(tasks, self)
                    self._timers.open(tasks)
                    await self._until_quiet()
            except Exception as error:
                self.fail(error)
            finally:
                self.log.closing = True  # also if it is cancelled: a step may swallow that, and is then the last one
            if self._timers.waits or self.snapshots.busy:  # only these do not end by themselves
                tasks.cancel_scope.cancel()

    async def _until_quiet(self) -> None:
        log = self.log
        while True:
            await self._workers.quiet()
            if log.replay is not None:
                steps.apply_outside_at_rest(log, log.replay)
            await self.end_if_over()
            head = log.journal.head
            await log.durable()
            if log.machine.ended is None:
                await self.take_messages()
            if not self._workers.active and log.journal.head == head:
                return  # something else happened, and may already be over

    async def take_messages(self) -> None:
        """Handle the run's inbox: commands from other processes for the process that drives it.

        Raises:
            EncryptionKeyMissing: this executor cannot read a message. The run is left to an executor that has the key.
        """
        store = self.log.journal.store
        messages = await store.inbox([self.run_id])
        for message in messages:
            text = encoded_in(message.body)
            if text is not None:
                raise EncryptionKeyMissing(f"a message for run {self.run_id!r}", key_of(text))
        dropped = [message.id for message in messages if not self.take(message)]
        if dropped:
            await store.discard(dropped)

    def take(self, message: Message) -> bool:
        """Apply an inbox message. Returns False if it no longer fits and is to be dropped."""
        log, body = self.log, message.body
        if body.get("type") == NOTICE or MARK in body:
            return True  # it is for observers, or for an executor that has its key
        if message.id in self.seen or (log.closing and self.machine.ended is None):
            return True
        self.seen.add(message.id)
        try:
            command = Spend.of(body) or command_of(body)
            if command is None or self.machine.ended is not None:
                return False
            command = command.checked(self.machine, self.resources.tools_for_answers, self.resources.clock.now())
            return command.apply(log, message.id)
        except (RunError, InvalidValue, ValidationError) as error:
            logger.info("run %s: message %d is dropped: %s", message.run_id, message.id, error)
            return False

    def land(self, record: r.Record) -> list[Activation]:
        """Journal the record with which an attempt ends, and return the activations that it started."""
        if record.type == "step_done":  # the most common case
            return self.log.put(record).started
        if record.type == "asked":
            return self._wait(record, record.question.id)
        if record.type == "timer_set":
            return self._wait(record, record.name)
        started = self.log.put(record).started
        if record.type == "graph_opened":
            left = time_left_inside(self.machine, record.activation)
            if left is not None:
                self._timers.look_before(self.machine.updated + left)
        return started

    def _wait(self, record: r.Asked | r.TimerSet, name: str) -> list[Activation]:
        log = self.log
        started = log.put(record).started
        question = log.machine.questions.get(name)
        if question is None:
            return started  # an earlier event answers it
        log.clock.asked(question)
        asker = log.machine.askers.get(question.id)
        if log.replay is not None and asker is not None and steps.answer_as_recorded(log, log.replay, asker, question):
            return started
        due = log.clock.due(log.machine, question)
        answer = by_policy(log.machine, question, log.clock.now(), due)
        if answer is not None:
            started += log.put(answered_by_rule(log, question, answer, about(question))).started
        elif due is not None:
            self._timers.look_before(due)
        return started

    def change(self, stops: tuple[tuple[str, ...] | None, tuple[str, ...] | None] | None, by: str) -> None:
        """Change the breakpoints; the next `resumed` record contains them."""
        self.resumption = structs.replace(self.resumption, stops=stops, by=by)

    def answer_by_policy(self) -> None:
        """Journal the answers given by policies and passed deadlines."""
        log = self.log
        for question, answer in policy_answers(log.machine, log.clock.now(), log.clock.due):
            log.push(answered_by_rule(log, question, answer, about(question)))

    async def end_if_over(self) -> None:
        """Journal the end of the run, if nothing else is left to do."""
        await end_if_over(self.log, self.resources.tools)

    # -- end of the drive ----------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Stop the drive with an error: all workers are stopped."""
        if self.fault is None:
            self.fault = error
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    def wind_down(self) -> None:
        """Interrupt the run when the steps that run now have ended: no other step starts."""
        self.log.closing = True

    def stop(self) -> None:
        """Stop the drive like a cancellation: the journal is flushed, and the run can be resumed."""
        self.log.closing = True
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def release(self) -> None:
        """Flush the journal, release the lease and wake all waiters."""
        log = self.log
        if log.journal.fault is None and log.journal.stored < log.journal.head:
            with anyio.move_on_after(LAST_FLUSH):
                try:
                    await log.durable()
                except Exception as error:
                    self.fault = self.fault or error
        if not log.journal.released:
            with anyio.move_on_after(LAST_FLUSH):
                await give_back(log.journal.store, log.run_id, log.lease.token, fault_of(self.fault))
        self._over()

    def _over(self) -> None:
        given_back(self.log.lease.token)
        for watcher in tuple(self.log.watchers):
            watcher.close()
        self._tasks = None
        self._workers.close()
        self.log.close()
        self.done.set()
