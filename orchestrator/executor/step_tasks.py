"""The tasks that run a run's steps: one for each step that waits, and one more.

A worker runs an activation, lands it (the kernel folds the record, the journal buffers it) and continues with the first
activation that this started. The others wait for a free task. While anything is queued, as many new workers are
scheduled as steps wait, and one more; each starts when those before it wait. So a thousand steps that wait for a model
run in a thousand tasks after ten turns of the event loop, and a thousand steps that never wait run in one task. There
is no barrier between steps, and no central task.

Steps that share a task share nothing else: each starts with the context variables of the start of the drive.
`run_step` runs one attempt of one step, and returns the record of its end.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from orchestrator._lazy import lazy_modules
from orchestrator.errors import GraphUnknown, ModelError, ReplayMismatch, StepError, StepTimeout
from orchestrator.executor.calls.effect import Attempt
from orchestrator.executor.concurrency import YieldBudget
from orchestrator.executor.failures import (
    Lost,
    Refused,
    Suspend,
    TimedOut,
    enter_step_task,
    failure_of,
    find_exception,
    traceback_of,
    unwrap_single,
)
from orchestrator.executor.journal import MOST
from orchestrator.executor.node_call import call_node, subgraph_step
from orchestrator.executor.node_result import landed
from orchestrator.executor.resources import Resources
from orchestrator.executor.retries import GiveUp, TryAgain, decide, why_not_retried
from orchestrator.executor.run_log import RunLog
from orchestrator.executor.step_context import StepContext
from orchestrator.graph.limits import Retry
from orchestrator.graph.model import Node
from orchestrator.graph.outcome import TOO_LONG, Failing, Guarded
from orchestrator.json import JsonObject
from orchestrator.kernel.queries import reduced_values
from orchestrator.kernel.records import Asked, Failure, Record, StepDone, StepFailed, StepRetried, TimerSet
from orchestrator.kernel.state import Activation
from orchestrator.redaction import redact
from orchestrator.user_code import as_error, flatten, is_cancelled, native_task, outside, take_back_cancels
from orchestrator.visible import shown

if TYPE_CHECKING:
    from orchestrator.executor.replay import steps as replayed_steps
else:
    (replayed_steps,) = lazy_modules("orchestrator.executor.replay", "steps")


logger = logging.getLogger("orchestrator.steps")


async def run_step(log: RunLog, resources: Resources, activation: Activation) -> Record | None:
    """Run an admitted activation until it ends, suspends or fails. The record still has to be journaled.

    Returns None if a limit suspended the activation, so that it does not land.

    Raises:
        GraphUnknown: the executor lacks code, a model or a tool.
        ReplayMismatch: see `Context.effect`.
        RunConflict, StoreError: the journal cannot be written. After all of these the run is interrupted, not failed.
    """
    machine, plan = log.machine, activation.frame.plan
    if activation.fault is not None:
        return _faulted(log, activation, activation.fault)
    spec = log.node_of(activation)
    until = activation.not_before
    if until is not None and (log.replay is None or log.replay.is_live(activation)):
        left = log.clock.left(until, activation.backoff)  # a replay does not wait if it makes no calls
        if left > 0:
            await anyio.sleep(left)
    if activation.node in plan.sub:
        return _subgraph(log, activation, spec)
    if spec.effect != "pure":
        await log.durable()
        if not log.lease.fresh:
            await log.ensure_held()
    started = log.clock.now()
    schema = plan.schema
    attempt = Attempt(log, resources, activation, spec)
    context = StepContext(attempt)
    if log.watchers:
        attempt.tell("step_started", attempt=activation.attempt)
        if activation.attempt > 1:  # live output of the previous attempt is no longer valid
            attempt.tell("reset", attempt=activation.attempt)
    try:
        if activation.merged:
            schema.check(activation.values)
        state = schema.view(activation.values, spec.reads)
        if spec.timeout is None:
            result = await call_node(attempt, context, state)
        else:
            result = None
            with anyio.move_on_after(spec.timeout) as scope:
                attempt.scope = scope
                result = await call_node(attempt, context, state)
            if attempt.timed_out:  # whatever the node returned: its result comes too late
                raise _timeout(attempt)
        if attempt.signal is not None:
            raise attempt.signal
        outcome, values, ops = landed(attempt, result)
        if activation.key in machine.ledger:
            # Also for a node that makes no more calls: an earlier effect of it must not be dropped.
            context.stop_reading(will_resume=False)
            context.effects.check()
            await context.close_readers()
        return _done(attempt, result, outcome, values, ops, started)
    except BaseException as raised:
        try:
            return _not_done(attempt, context, raised, started)
        finally:
            context.stop_reading(will_resume=True)
            await context.close_readers()


def _waiting(log: RunLog, activation: Activation, signal: Suspend) -> Asked | TimerSet:
    """Return the record for an attempt that waits."""
    question = signal.question
    if question.kind == "timer" and question.deadline is not None:
        return TimerSet(**log.at(activation), name=question.id, at=question.deadline)
    return Asked(**log.at(activation), question=question)


def _done(
    attempt: Attempt, result: object, outcome: str, values: JsonObject, ops: dict[str, str], started: float
) -> StepDone:
    """Return the record for an attempt that ended with an outcome."""
    activation, schema = attempt.activation, attempt.activation.frame.plan.schema
    more: dict[str, Any] = {}
    if ops:
        more["ops"] = ops
    if activation.attempt > 1:
        more["attempt"] = activation.attempt
    if attempt.cached:
        more["cached"] = True
    failed = attempt.failed_calls
    if isinstance(result, Guarded):
        more["guards"] = {**result.guards}
    elif isinstance(result, Failing):
        failed = failed or 1
        if result.name == outcome:  # an edge takes it
            error = attempt.failure(result.error)
            more["error"] = error.model_copy(update={"traceback": traceback_of(result.error)})
            more["uncounted"] = outcome == TOO_LONG and activation.node in activation.frame.limits.visits
    if failed:
        more["failed"] = failed
    if schema.coded or schema.summed:
        reduced = reduced_values(activation, values, ops)
        if reduced is not None:
            more["reduced"] = dict(reduced)
    record = attempt.log.done(activation, outcome, values, started)
    return structs.replace(record, **more) if more else record


def _timeout(attempt: Attempt) -> StepTimeout:
    return StepTimeout(f"{attempt.activation.node} took longer than {attempt.spec.timeout} s")


def _not_done(attempt: Attempt, context: StepContext, error: BaseException, started: float) -> Record | None:
    """Return the record for an attempt that ended without an outcome; None if a spent limit forbade its next call.

    Raises errors that the step did not cause.
    """
    log, activation = attempt.log, attempt.activation
    log.check()
    signal: BaseException | None = find_exception(error, (Suspend, Refused, Lost, TimedOut))
    stop = outside(error, log.task, log.cancels)
    if signal is None and (stop is None or isinstance(stop, GeneratorExit)):
        signal = attempt.signal  # the node raised another error instead
        if signal is None and attempt.timed_out:
            signal = TimedOut()
    if isinstance(signal, Suspend):
        return _waiting(log, activation, signal)
    if isinstance(signal, Lost):
        raise signal.error
    if isinstance(signal, Refused):
        return None
    wrong = find_exception(error, (ReplayMismatch, GraphUnknown))
    if wrong is not None:
        raise wrong
    if isinstance(signal, TimedOut):
        error = _timeout(attempt)
    elif stop is not None:
        raise stop
    causes = [one for one in flatten(error) if isinstance(one, ModelError) and one.resumable]
    if len(causes) == len(flatten(error)) and not any(_is_handled(log, activation, one) for one in causes):
        # The graph is not at fault: once the environment works again, the run continues at these calls.
        reopened = context.reopen(causes)
        if reopened:
            raise causes[0]
    context.stop_reading(will_resume=False)
    return _raised(log, activation, error, attempt.spec.retry, started)


# -- failures -------------------------------------------------------------------------------------------------------


def _subgraph(log: RunLog, activation: Activation, node: Node) -> Record:
    """Return the record for an activation whose node contains a graph."""
    started, retry = log.clock.now(), node.retry
    try:
        ended = subgraph_step(log, activation, node)
    except (StepError, AttributeError, KeyError, TypeError, ValueError) as error:
        return _raised(log, activation, error, retry, started)
    if not isinstance(ended, Failure):
        return ended
    irreversible = activation.child is not None and bool(activation.child.irreversible)
    again = None if retry is None else decide(retry, ended, activation.attempt, 0.5, irreversible=irreversible)
    if isinstance(again, TryAgain):
        return _retried(log, activation, ended, started, again.wait)
    if isinstance(again, GiveUp) and again.why == "irreversible":
        words = f"{ended.message} (not tried again: what was done inside cannot be undone)"
        ended = ended.model_copy(update={"message": words})
    return _failed(log, activation, ended, started, again, timeout=ended.type == "StepTimeout")


def _raised(log: RunLog, activation: Activation, error: BaseException, retry: Retry | None, started: float) -> Record:
    """Log the error of an attempt, and return the record for it."""
    cause = unwrap_single(error)
    failure = failure_of(cause, activation).model_copy(update={"traceback": traceback_of(cause)})
    again = None if retry is None else decide(retry, cause, activation.attempt, random.random())
    if isinstance(again, TryAgain):
        _report(log, activation, failure, logging.WARNING, f"failed, and is retried in {again.wait:.3g} s")
        return _retried(log, activation, failure, started, again.wait)
    record = _failed(log, activation, failure, started, again, timeout=isinstance(cause, StepTimeout))
    if isinstance(record, StepDone):
        _report(log, activation, failure, logging.INFO, f"failed, and takes its edge for {record.outcome!r}")
    else:
        _report(log, activation, record.error, logging.ERROR, "failed")
    return record


def _report(log: RunLog, activation: Activation, failure: Failure, level: int, what: str) -> None:
    """Log a failed attempt, with secrets blanked and control characters escaped: a terminal may show it."""
    if not logger.isEnabledFor(level):
        return
    place = f"{activation.path}/{activation.node}" if activation.path else activation.node
    words = f"run {log.run_id}: {place} (attempt {activation.attempt}) {what}: {failure}\n{failure.traceback}"
    about = {
        "run_id": log.run_id,
        "node": activation.node,
        "path": activation.path,
        "attempt": activation.attempt,
        "error_type": failure.type,
    }
    logger.log(level, "%s", shown(redact(words)).rstrip(), extra=about)


def _is_handled(log: RunLog, activation: Activation, error: BaseException) -> bool:
    """Return True if the graph handles this failure: by an edge or a retry, of the step or of an enclosing subgraph."""
    at: Activation | None = activation
    irreversible = False
    while at is not None:
        if at.frame.plan.topology.has_route(at.node, "error"):
            return True
        retry = log.node_of(at).retry
        if retry is not None:
            again = decide(retry, error, at.attempt, 0.5, irreversible=irreversible)
            if isinstance(again, TryAgain):
                return True
        irreversible = bool(at.frame.irreversible)
        at = at.frame.parent
    return False


def _failed(
    log: RunLog, activation: Activation, failure: Failure, started: float, again: GiveUp | None, *, timeout: bool
) -> StepDone | StepFailed:
    """Return the record for a failure after which no attempt follows: an edge takes it, else the graph fails."""
    stamp, topology = log.at(activation), activation.frame.plan.topology
    attempt, ended = activation.attempt, stamp["ts"]
    for outcome in ("timeout", "error") if timeout else ("error",):
        if topology.has_route(activation.node, outcome):
            return StepDone(**stamp, outcome=outcome, attempt=attempt, started=started, ended=ended, error=failure)
    retry = log.node_of(activation).retry
    if retry is not None and again == GiveUp("error"):
        words = f"{failure.message} ({why_not_retried(retry, failure.type)})".strip()
        failure = failure.model_copy(update={"message": words})
    return StepFailed(**stamp, attempt=attempt, started=started, ended=ended, error=failure)


def _retried(log: RunLog, activation: Activation, failure: Failure, started: float, wait: float) -> StepRetried:
    """Return the record for an attempt that another one follows after `wait` seconds."""
    stamp = log.at(activation)
    now = stamp["ts"]
    return StepRetried(
        **stamp, attempt=activation.attempt, started=started, ended=now, error=failure, next_at=now + wait
    )


def _faulted(log: RunLog, activation: Activation, fault: Failure) -> StepFailed:
    """Return the record for an activation whose node cannot run at all, for example because its branches conflict."""
    stamp = log.at(activation)
    now, error = stamp["ts"], fault.model_copy(update={"node": activation.node, "path": activation.path})
    return StepFailed(**stamp, attempt=activation.attempt, started=now, ended=now, error=error)


class Steps(Protocol):
    """A drive, which journals the records of steps."""

    def land(self, record: Record) -> list[Activation]:
        """Journal the record with which an attempt ends, and return the activations that it started."""
        ...

    def fail(self, error: BaseException) -> None:
        """Stop the drive with an error."""


class StepTasks:
    """The workers of one run that this process drives."""

    def __init__(self, log: RunLog, resources: Resources, budget: YieldBudget) -> None:
        self.active = 0
        """Number of workers, including those about to start."""
        self._log, self._budget = log, budget
        step, tracing = partial(run_step, log, resources), resources.tracing
        self._step = step if tracing is None else partial(tracing.step, log, step)
        self._tasks: TaskGroup | None = None
        self._steps: Steps | None = None
        self._queue: deque[Activation] = deque()
        self._held: list[Activation] = []
        self._scopes: dict[str, anyio.CancelScope] = {}
        """Running activation -> the scope of its worker."""
        self._coming = 0
        """Number of workers about to start."""
        self._context = Context()
        self._quiet: anyio.Event | None = None

    def open(self, tasks: TaskGroup, steps: Steps) -> None:
        """Start the workers, in a task group, with all activations that run."""
        self._tasks, self._steps, self._context = tasks, steps, copy_context()
        self._begin(list(self._log.machine.running.values()))

    def close(self) -> None:
        """Called when the task group, and so every worker, has ended."""
        self._tasks = self._steps = None

    def _begin(self, stopped: list[Activation]) -> None:
        """Run the activations that were in progress when the run was last driven; in a fork, once it is started."""
        self._held = stopped if self._log.machine.is_held else []
        for activation in () if self._held else stopped:
            self.add(activation)

    def add(self, activation: Activation) -> None:
        """Queue an activation."""
        if self._tasks is None or self._log.closing:
            return  # the next drive starts the activations that run by the journal
        self._queue.append(activation)
        self._call()

    def cancel(self, activation: Activation) -> None:
        """Stop an activation that is no longer part of the run."""
        scope = self._scopes.get(activation.key)
        if scope is not None:
            scope.cancel()

    async def quiet(self) -> None:
        """Wait until nothing runs any more."""
        self._begin(self._held)
        while self.active:  # an activation may have been added since
            self._quiet = anyio.Event()
            await self._quiet.wait()

    def _call(self) -> None:
        """Start more workers, if activations wait for them.

        Called before any wait, so that whenever a task waits, or is stopped, a worker is scheduled for the queue.
        """
        if self._coming > len(self._scopes) or self._tasks is None or self._steps is None or self._log.closing:
            return  # the usual case: the maximum number of workers is scheduled
        for _ in range(min(len(self._queue), 1 + len(self._scopes)) - self._coming):
            self._coming += 1
            self.active += 1
            self._context.copy().run(self._tasks.start_soon, self._work, self._steps)

    async def _work(self, steps: Steps) -> None:
        self._coming -= 1
        enter_step_task()
        try:
            scope = anyio.CancelScope()
            with scope:
                await self._run(scope, steps)
        except BaseException as error:
            stop = outside(error, self._log.task, self._log.cancels)
            if stop is not None and not isinstance(stop, SystemExit):
                raise
            steps.fail(stop or as_error(error))  # raised from here, SystemExit would stop asyncio's loop at once
        finally:
            self.active -= 1
            if not self.active and self._quiet is not None:
                self._quiet.set()

    async def _run(self, scope: anyio.CancelScope, steps: Steps) -> None:
        log, queue, scopes, budget, step = self._log, self._queue, self._scopes, self._budget, self._step
        running, journal = log.machine.running, log.journal
        task = None if log.task is None else native_task()
        context = copy_context()
        activation: Activation | None = None
        last = False
        while True:
            if activation is None:
                if not queue or last or log.closing:
                    return
                activation = queue.popleft()
            key = activation.key
            if key not in running:
                activation = None
                continue
            if queue:
                self._call()
            scopes[key] = scope
            try:
                record = await step(activation)
                if task is not None and task.cancelling() and not is_cancelled(log.task, log.cancels):
                    await take_back_cancels(task)
                if log.replay is not None and record is not None:
                    record = await replayed_steps.wait_to_land(log, log.replay, activation, record)
            finally:
                scopes.pop(key, None)
            # Context variables that a node leaves behind must not reach the next step, which then starts in another
            # task.
            last = scope.cancel_called or not _same(context)
            if record is None:
                started = []
            else:
                started = steps.land(record)
                if record.type == "step_retried":
                    started.insert(0, activation)
            activation = started.pop(0) if started and not last and not log.closing else None
            for other in started:
                self.add(other)
            if len(journal.buffer) >= MOST:
                await log.durable()
            if budget.due and (activation is not None or (queue and not last)):
                await budget.give_way()


def _same(context: Context) -> bool:
    """Return True if the context variables of this task are unchanged."""
    try:
        return copy_context() == context
    except Exception:  # the two values cannot be compared
        return False
