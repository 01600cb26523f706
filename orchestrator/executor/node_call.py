"""The work of one attempt: its node runs inline, in a thread or as an effect, or the graph inside it starts or ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, cast

import anyio.to_thread

from orchestrator.errors import GraphUnknown, InvalidInput, InvalidOutcome, InvalidUpdate
from orchestrator.executor.calls.effect import Attempt, Effect
from orchestrator.executor.concurrency import Slot
from orchestrator.executor.node_result import decided, given_result, landed, recorded, result_schema
from orchestrator.executor.result_cache import cached
from orchestrator.executor.run_log import RunLog
from orchestrator.executor.step_context import StepContext
from orchestrator.graph.isolation import listed
from orchestrator.graph.model import Node
from orchestrator.graph.outcome import Failing
from orchestrator.graph.signatures import is_awaitable
from orchestrator.kernel.queries import reduced_values, start_fault, validate_outcome
from orchestrator.kernel.records import Failure, GraphOpened, StepDone
from orchestrator.kernel.state import Activation, FrameResult
from orchestrator.user_code import call_in_thread, current_fence, pass_fence, pass_fence_in_thread, waits_at_fence


def call_node(attempt: Attempt, context: StepContext, state: object) -> Awaitable[object]:
    """Run a node. The result of an irreversible one may come from an earlier call in the journal.

    Not a coroutine function: another coroutine around a node's own would cost every step that waits.
    """
    spec, resources = attempt.spec, attempt.resources
    if spec._is_bare and resources.gate is None:
        return spec._begin(state, context)
    gates = resources.gates_of(spec.pool)
    if gates:
        return _in_place(attempt, context, state, Slot(*gates))
    return _run_node(attempt, context, state)


async def _in_place(attempt: Attempt, context: StepContext, state: object, place: Slot) -> object:
    attempt.place = place
    async with place:
        if attempt.spec.effect != "pure" and not attempt.held:
            await attempt.ensure_held()
        return await _run_node(attempt, context, state)


def _run_node(attempt: Attempt, context: StepContext, state: object) -> Awaitable[object]:
    if attempt.spec.effect == "irreversible":
        return _as_effect(attempt, context, state)
    if attempt.spec.cache is not None and attempt.resources.memory.cache:
        return cached(attempt, context, partial(_plainly, attempt, context, state))
    return _plainly(attempt, context, state)


async def _as_effect(attempt: Attempt, context: StepContext, state: object) -> object:
    async def run(key: str) -> object:
        if attempt.spec.sync_fn is None:
            await pass_fence()
        else:
            waits_at_fence(key)
        result = await _plainly(attempt, context, state)
        # Checked by type: a proxy may raise when its class is read, and the call has returned.
        return decided(attempt, cast("Failing[Any]", result)) if issubclass(type(result), Failing) else result

    def encode(result: object) -> object:
        outcome, values, ops = landed(attempt, result)
        reduced_values(attempt.activation, values, ops)  # raises what the reducer raises
        return {"outcome": outcome, "update": values, "ops": ops}

    def validate(found: object) -> object:
        return encode(recorded(given_result(attempt.activation.frame.plan.schema, found)))

    effect = Effect[object](
        kind="effect",
        name=attempt.activation.node,
        effect="irreversible",
        request={},
        run=run,
        encode=encode,
        decode=recorded,
        validate=validate,
        returns=partial(result_schema, attempt),
    )
    return await context.effects.perform(effect)


def _plainly(attempt: Attempt, context: StepContext, state: object) -> Awaitable[object]:
    spec = attempt.spec
    function = spec.sync_fn
    if function is None:
        return spec._begin(state, context)
    if spec.effect == "pure":
        return _inline(context, function, state)
    return _threaded(attempt, context, function, state)


async def _threaded(
    attempt: Attempt, context: StepContext, function: Callable[[Any, Any], object], state: object
) -> object:
    (found,) = await anyio.to_thread.run_sync(
        _in_thread, attempt, context, function, state, abandon_on_cancel=True, limiter=attempt.resources.threads
    )
    return await found if is_awaitable(found) else found


def _in_thread(
    attempt: Attempt, context: StepContext, function: Callable[[Any, Any], object], state: object
) -> tuple[object]:
    """Run a node's function in a thread; its result comes in a tuple, as trio refuses coroutines returned from threads.

    While it waited for the thread, another process may have taken over the run.
    """
    pass_fence_in_thread(current_fence.get() if attempt.spec.effect == "irreversible" else attempt)
    return (call_in_thread(function, state, context),)


async def _inline(context: StepContext, function: Callable[[Any, Any], object], state: object) -> object:
    found = function(state, context)
    return await found if is_awaitable(found) else found


# -- subgraphs --------------------------------------------------------------------------------------------------------


class Maps(Protocol):
    """The mappings of input and update of a node that contains a graph."""

    def inner_input(self, state: object, item: object) -> Mapping[str, object]:
        """Return the inner graph's input, from the state and the item of the map that the node runs in."""
        ...

    def outer_update(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return the node's update, from the inner graph's last values."""
        ...


def _maps(node: Node) -> Maps:
    if not callable(getattr(node, "inner_input", None)) or not callable(getattr(node, "outer_update", None)):
        raise GraphUnknown(f"node kind {node.kind!r} contains a graph: define inner_input and outer_update")
    return cast(Maps, node)


def subgraph_step(log: RunLog, activation: Activation, node: Node) -> GraphOpened | StepDone | Failure:
    """Return the record for an activation of a subgraph's node: its graph starts, has ended, or failed."""
    child = activation.child
    if child is None:
        return _opened(log, activation, node)
    if child.status == "failed":
        words = "it failed"
        return child.error or Failure(type="StepError", message=words, node=activation.node, path=activation.path)
    return _landed(log, activation, node, child)


def _opened(log: RunLog, activation: Activation, node: Node) -> GraphOpened:
    plan = activation.frame.plan
    if activation.merged:
        plan.schema.check(activation.values)
    state = plan.schema.view(activation.values, node.reads)
    given = _maps(node).inner_input(state, activation.item)
    inner = plan.sub[activation.node]
    values = dict(inner.schema.initial(given))
    fault = start_fault(inner.topology, values)
    if fault is not None:
        raise InvalidInput(f"input of the graph inside {activation.node}: START {fault}")
    return GraphOpened(**log.at(activation), attempt=activation.attempt, values=values)


def _outcome(node: Node, child: FrameResult) -> str | None:
    """Return the outcome after the graph inside a node; None if the node has none for this ending."""
    decide_outcome = getattr(node, "outer_outcome", None)
    found: str | None = "done" if decide_outcome is None else decide_outcome(child.entered)
    return found


def _landed(log: RunLog, activation: Activation, node: Node, child: FrameResult) -> StepDone | Failure:
    plan = activation.frame.plan
    if child.status == "completed":
        plan.sub[activation.node].schema.check(child.values)
    update = _maps(node).outer_update({name: listed(value) for name, value in child.values.items()})
    if node.writes is not None and not node.writes.issuperset(update):
        raise InvalidUpdate(f"{activation.node} updates fields that it does not declare to write: {', '.join(update)}")
    values, ops = plan.schema.encode_update(update)
    exhausted = child.status == "exhausted"
    # A graph that spent its own limits does not end those around it, and its results are kept. An edge may distinguish
    # the cases; else the record, and `ctx.error` after the node, name the spent limit.
    outcome = "exhausted" if exhausted and plan.topology.has_route(activation.node, "exhausted") else None
    outcome = outcome or _outcome(node, child)
    if outcome is None:
        if exhausted and child.error is not None:
            return child.error
        ways = ", ".join(map(repr, child.entered)) or "no outcome: a map had no items"
        raise InvalidOutcome(
            f"{activation.node}: END of the graph inside was entered by {ways}, and the node declares "
            f"{', '.join(map(repr, node.outcomes))} only: add it, or 'done' for all others"
        )
    fault = validate_outcome(activation, outcome, values, ops)
    if fault is not None:
        raise InvalidOutcome(fault.message)
    reduced = reduced_values(activation, values, ops)
    stamp = log.at(activation)
    return StepDone(
        **stamp,
        outcome=outcome,
        update=dict(values),
        ops=ops,
        reduced=None if reduced is None else dict(reduced),
        attempt=activation.attempt,
        started=stamp["ts"],
        ended=stamp["ts"],
        error=child.error if exhausted else None,
    )
