"""Steps that run no node: opening the graph inside a subgraph node, and landing what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orchestrator.errors import InvalidOutcome, InvalidUpdate, StepError
from orchestrator.executor.failing import ended_badly, failed, mends_named, retried
from orchestrator.kernel.records import Failure, GraphOpened, Record, StepDone, StepFailed

if TYPE_CHECKING:
    from orchestrator.executor.driving import LiveRun
    from orchestrator.kernel.frame import FrameResult
    from orchestrator.kernel.token import Activation
    from orchestrator.nodes.subgraph import Subgraph


def faulted(live: LiveRun, activation: Activation, fault: Failure) -> Record:
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


def subgraph_step(live: LiveRun, activation: Activation, node: Subgraph) -> Record:
    """The record for an activation of a subgraph's node: its graph begins, or has ended."""
    now = time.time()
    try:
        if activation.child is None:
            return _opened(live, activation, node)
        return _landed(live, activation, node, activation.child)
    except (StepError, AttributeError, KeyError, TypeError, ValueError) as error:
        return ended_badly(live, activation, error, node.retry, now)


def _opened(live: LiveRun, activation: Activation, node: Subgraph) -> Record:
    plan = activation.frame.plan
    if activation.merged:
        plan.schema.check(activation.values)
    state = plan.schema.view(activation.values, node.reads)
    given = node.inner_input(state, activation.item)
    return GraphOpened(
        seq=live.machine.head + 1,
        ts=time.time(),
        activation=activation.key,
        path=activation.path,
        node=activation.node,
        attempt=activation.attempt,
        values=dict(plan.sub[activation.node].schema.initial(given)),
    )


def _landed(live: LiveRun, activation: Activation, node: Subgraph, child: FrameResult) -> Record:
    plan = activation.frame.plan
    inner = plan.sub[activation.node]
    now = time.time()
    failure = child.error
    if child.status == "failed":
        failure = failure or Failure(type="StepError", message="it failed", node=activation.node, path=activation.path)
        retry = node.retry
        if retry is not None and activation.attempt < retry.attempts and mends_named(retry, failure.type):
            return retried(live, activation, failure, now, retry.delay(activation.attempt, 0.5))
        return failed(live, activation, failure, now, timeout=failure.type == "StepTimeout")
    if child.status == "completed":
        inner.schema.check(child.values)
    update = node.outer_update(child.values)
    if node.writes is not None and not node.writes.issuperset(update):
        raise InvalidUpdate(f"{activation.node} updates more than it says that it writes: {', '.join(update)}")
    values, ops = plan.schema.encode_update(update)
    outcome = "exhausted" if child.status == "exhausted" else "done"
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
    )
