"""Steps that run no node: opening the graph inside a subgraph node, and landing what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, cast

from orchestrator.errors import GraphUnknown, InvalidOutcome, InvalidUpdate, StepError
from orchestrator.executor.step.failure import PATIENCE, ended_badly, failed, mends_named, retried
from orchestrator.kernel.records import Failure, GraphOpened, Record, StepDone, StepFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.executor.run_log import RunLog
    from orchestrator.graph.node import Node
    from orchestrator.kernel.frame import FrameResult
    from orchestrator.kernel.token import Activation


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


def faulted(live: RunLog, activation: Activation, fault: Failure) -> Record:
    """The record for an activation whose node cannot run at all, such as one whose branches are in conflict."""
    now = time.time()
    return StepFailed(
        seq=live.machine.head + 1,
        ts=now,
        activation=activation.key,
        path=activation.path,
        node=activation.node,
        attempt=activation.attempt,
        started=now,
        ended=now,
        error=fault.model_copy(update={"node": activation.node, "path": activation.path}),
    )


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
        if again and child.lasting:
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
    fault = live.machine.probe(activation, outcome, values, ops)
    if fault is not None:
        raise InvalidOutcome(fault.message)
    reduced = live.machine.reduced_for(activation, values, ops)
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
