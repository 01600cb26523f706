"""The work of one attempt: running the node inline, in a thread or as an effect; or opening and landing a subgraph."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio.to_thread

from orchestrator.errors import GraphUnknown, InvalidOutcome, InvalidUpdate, StepError
from orchestrator.executor.concurrency import Place
from orchestrator.executor.effects.effect import Effect
from orchestrator.executor.retry import PATIENCE, mends_named
from orchestrator.executor.step.outcome import encoded, ended_badly, failed, recorded, retried
from orchestrator.fence import current_fence, pass_fence, pass_fence_in_thread, waits_at_fence
from orchestrator.kernel.queries import reduced_values, validate_outcome
from orchestrator.kernel.records import Failure, GraphOpened, Record, StepDone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.executor.run_log import RunLog
    from orchestrator.executor.step.context import StepContext
    from orchestrator.graph.node import Node
    from orchestrator.kernel.state import Activation, FrameResult


def work(context: StepContext, state: object) -> Awaitable[object]:
    """What a node returns; of an irreversible one maybe what the journal says that it returned.

    No coroutine itself: each one around a node's own would cost every step that waits.
    """
    gate = context.live.resources.gate
    if gate is not None:
        return _in_place(context, state, Place(gate))
    return _run_node(context, state)


async def _in_place(context: StepContext, state: object, place: Place) -> object:
    context.place = place
    async with place:
        if context.spec.effect != "pure" and not context.held:
            await context.ensure_held()
        return await _run_node(context, state)


def _run_node(context: StepContext, state: object) -> Awaitable[object]:
    if context.spec.effect == "irreversible":
        return _once(context, state)
    return _plainly(context, state)


async def _once(context: StepContext, state: object) -> object:
    async def run(key: str) -> object:
        if context.spec.sync_fn is None:
            await pass_fence()
        else:
            waits_at_fence(key)
        return await _plainly(context, state)

    def encode(result: object) -> object:
        outcome, values, ops = encoded(context, result)
        return {"outcome": outcome, "update": values, "ops": ops}

    def taken(found: object) -> object:
        said = recorded(found)
        schema = context.activation.frame.plan.schema
        values, ops = schema.encode_update(said.update)
        fault = validate_outcome(context.activation, said.outcome, values, ops)
        if fault is not None:
            raise InvalidOutcome(fault.message)
        return {"outcome": said.outcome, "update": values, "ops": {**said.ops, **ops}}

    effect = Effect[object](
        kind="effect", name=context.node, effect="irreversible", request={}, run=run, encode=encode,
        decode=recorded, taken=taken,
    )  # fmt: skip
    return await context.ledger.perform(effect)


def _plainly(context: StepContext, state: object) -> Awaitable[object]:
    spec = context.spec
    function = spec.sync_fn
    if function is None:
        return spec._begin(state, context)
    if spec.effect == "pure":
        return _here(context, function, state)
    threads = context.live.resources.threads
    return anyio.to_thread.run_sync(_in_thread, context, function, state, abandon_on_cancel=True, limiter=threads)


def _in_thread(context: StepContext, function: Callable[[Any, Any], object], state: object) -> object:
    """Run a node's function. While it waited for this thread, the run may have been taken over."""
    pass_fence_in_thread(current_fence.get() if context.spec.effect == "irreversible" else context)
    return function(state, context)


async def _here(context: StepContext, function: Callable[[Any, Any], object], state: object) -> object:
    return function(state, context)


# -- subgraphs --------------------------------------------------------------------------------------------------------


class Maps(Protocol):
    """What a node with a graph inside gives beside the graph."""

    def inner_input(self, state: object, item: object) -> Mapping[str, object]:
        """The inner graph's input, from the state and the item of the map that the node runs in."""
        ...

    def outer_update(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """The node's update, from the inner graph's last values."""
        ...


def _maps(node: Node) -> Maps:
    if not callable(getattr(node, "inner_input", None)) or not callable(getattr(node, "outer_update", None)):
        raise GraphUnknown(f"node kind {node.kind!r} has a graph inside: define inner_input and outer_update")
    return cast(Maps, node)


def subgraph_step(live: RunLog, activation: Activation, node: Node) -> Record:
    """The record for an activation of a subgraph's node: its graph begins, or has ended."""
    now = time.time()
    try:
        if activation.child is None:
            return _opened(live, activation, node)
        return _landed(live, activation, node, activation.child)
    except (StepError, AttributeError, KeyError, TypeError, ValueError) as error:
        return ended_badly(live, activation, error, node.retry, now)


def _opened(live: RunLog, activation: Activation, node: Node) -> Record:
    plan = activation.frame.plan
    if activation.merged:
        plan.schema.check(activation.values)
    state = plan.schema.view(activation.values, node.reads)
    given = _maps(node).inner_input(state, activation.item)
    return GraphOpened(
        seq=live.machine.head + 1,
        ts=time.time(),
        activation=activation.key,
        path=activation.path,
        node=activation.node,
        attempt=activation.attempt,
        values=dict(plan.sub[activation.node].schema.initial(given)),
    )


def _landed(live: RunLog, activation: Activation, node: Node, child: FrameResult) -> Record:
    plan = activation.frame.plan
    inner = plan.sub[activation.node]
    now = time.time()
    failure = child.error
    if child.status == "failed":
        failure = failure or Failure(type="StepError", message="it failed", node=activation.node, path=activation.path)
        retry = node.retry
        again = retry is not None and activation.attempt < retry.attempts and mends_named(retry, failure.type)
        if again and child.irreversible:
            # Another attempt runs the whole graph anew, and would do again what cannot be undone.
            words = f"{failure.message} (not tried again: what was done inside cannot be undone)"
            failure = failure.model_copy(update={"message": words})
        elif retry is not None and again:
            wait = max(retry.delay(activation.attempt, 0.5), min(failure.retry_after or 0.0, PATIENCE))
            return retried(live, activation, failure, now, wait)
        return failed(live, activation, failure, now, timeout=failure.type == "StepTimeout")
    if child.status == "completed":
        inner.schema.check(child.values)
    update = _maps(node).outer_update(child.values)
    if node.writes is not None and not node.writes.issuperset(update):
        raise InvalidUpdate(f"{activation.node} updates more than it says that it writes: {', '.join(update)}")
    values, ops = plan.schema.encode_update(update)
    exhausted = child.status == "exhausted"
    # A graph that spent its own limits leaves those around it alone, and what it made is not lost. An edge may tell
    # the cases apart; else the record, and `ctx.error` behind the node, say what was spent.
    outcome = "exhausted" if exhausted and plan.topology.has_route(activation.node, "exhausted") else "done"
    fault = validate_outcome(activation, outcome, values, ops)
    if fault is not None:
        raise InvalidOutcome(fault.message)
    reduced = reduced_values(activation, values, ops)
    return StepDone(
        seq=live.machine.head + 1,
        ts=now,
        activation=activation.key,
        path=activation.path,
        node=activation.node,
        outcome=outcome,
        update=dict(values),
        ops=ops,
        reduced=None if reduced is None else dict(reduced),
        attempt=activation.attempt,
        started=now,
        ended=now,
        error=failure if exhausted else None,
    )
