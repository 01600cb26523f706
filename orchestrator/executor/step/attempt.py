"""One attempt of one step, and the record that says how it ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import GraphUnknown, InvalidOutcome, ModelError, ReplayMismatch, StepTimeout
from orchestrator.executor.failures import traceback_of
from orchestrator.executor.interrupts import Lost, Refused, Suspend, TimedOut, find_exception, flatten
from orchestrator.executor.step.context import StepContext
from orchestrator.executor.step.node_call import subgraph_step, work
from orchestrator.executor.step.outcome import encoded, ended_badly, faulted, taken_somewhere
from orchestrator.graph.outcome import Failing
from orchestrator.kernel.queries import reduced_values, validate_outcome
from orchestrator.kernel.records import Asked, step_done

if TYPE_CHECKING:
    from orchestrator.executor.run_log import RunLog
    from orchestrator.kernel.records import Failure, Record
    from orchestrator.kernel.state import Activation


async def run_step(live: RunLog, activation: Activation) -> Record | None:
    """Run an admitted activation until it ends, suspends or fails. The record still has to be journaled.

    None: it does not land (a limit set it aside).

    Raises:
        GraphUnknown: the executor lacks code, a model or a tool.
        ReplayMismatch: see `Context.effect`.
        RunConflict, StoreError: the journal cannot go on. After all of these the run is interrupted, not failed.
    """
    machine, plan = live.machine, activation.frame.plan
    if activation.fault is not None:
        return faulted(live, activation, activation.fault)
    spec = live.node_of(activation)
    if activation.not_before is not None and (left := live.clock.left(activation.not_before, activation.backoff)) > 0:
        await anyio.sleep(left)
    if activation.node in plan.sub:
        return subgraph_step(live, activation, spec)
    if spec.effect != "pure":
        await live.durable()
        if not live.lease.fresh:
            await live.ensure_held()
    started = time.time()
    schema = plan.schema
    context = StepContext(live, activation, spec)
    if live.watchers:
        context.tell("step_started", attempt=activation.attempt)
    try:
        if activation.merged:
            schema.check(activation.values)
        state = schema.view(activation.values, spec.reads)
        if spec.timeout is None:
            result = await work(context, state)
        else:
            result = None
            with anyio.move_on_after(spec.timeout) as scope:
                context.scope = scope
                result = await work(context, state)
            if context.timed_out:  # whatever the node made of it: its result comes too late
                raise _too_late(context)
        if context.signal is not None:
            raise context.signal
        outcome, values, ops = encoded(context, result)
        fault = validate_outcome(activation, outcome, values, ops)
        if fault is not None:
            raise InvalidOutcome(fault.message)
        if activation.key in machine.ledger:
            # Also of a node that calls nothing any more: what it did before may not be left behind.
            context.stop_reading(goes_on=False)
            context.ledger.check()
            await context.close_readers()
        error = _taken(context, result.error) if isinstance(result, Failing) and result.name == outcome else None
        reduced = reduced_values(activation, values, ops) if schema.coded else None
    except BaseException as raised:
        try:
            return _not_done(context, raised, started)
        finally:
            context.stop_reading(goes_on=True)
            await context.close_readers()
    now = time.time()
    return step_done(
        seq=machine.head + 1,
        ts=now,
        activation=activation.key,
        path=activation.path,
        node=activation.node,
        outcome=outcome,
        update=dict(values),
        ops=ops,
        reduced=None if reduced is None else dict(reduced),
        attempt=activation.attempt,
        started=started,
        error=error,
        failed=context.failed_calls or int(isinstance(result, Failing)),
    )


def _too_late(context: StepContext) -> StepTimeout:
    return StepTimeout(f"{context.node} took longer than {context.spec.timeout} s")


def _taken(context: StepContext, error: Exception) -> Failure:
    """The failure that an outcome stands for, which an edge takes."""
    return context.failure(error).model_copy(update={"traceback": traceback_of(error)})


def _not_done(context: StepContext, error: BaseException, started: float) -> Record | None:
    """The record for an attempt that did not end with an outcome; raises what is no fault of the step."""
    live, activation = context.live, context.activation
    live.check()
    signal: BaseException | None = find_exception(error, (Suspend, Refused, Lost, TimedOut))
    if signal is None and isinstance(error, Exception | GeneratorExit):
        signal = context.signal  # the node made something else of it
        if signal is None and context.timed_out:
            signal = TimedOut()
    if isinstance(signal, Suspend):
        return Asked(
            seq=live.machine.head + 1,
            ts=time.time(),
            activation=activation.key,
            path=activation.path,
            node=activation.node,
            question=signal.question,
        )
    if isinstance(signal, Lost):
        raise signal.error
    if isinstance(signal, Refused):
        return None
    wrong = find_exception(error, (ReplayMismatch, GraphUnknown))
    if wrong is not None:
        raise wrong
    if isinstance(signal, TimedOut):
        error = _too_late(context)
    if not isinstance(error, Exception):
        raise error
    causes = [one for one in flatten(error) if isinstance(one, ModelError) and one.resumable]
    if len(causes) == len(flatten(error)) and not any(taken_somewhere(live, activation, one) for one in causes):
        # Nothing is wrong with the graph: whoever mends the surroundings, or waits, goes on at these very calls.
        reopened = context.reopen(causes)
        if reopened:
            raise causes[0]
    context.stop_reading(goes_on=False)
    return ended_badly(live, activation, error, context.spec.retry, started)
