"""The straight path: a graph's only token lands, and one edge leads it to the next step. Most steps are like this.

The general path (`handlers.steps`, `frame`, `transitions`, `tokens`, `admission`) comes to the same state, by asking
which forks, joins, items and waiting steps a move concerns. Here it is known that it concerns none.
"""

from __future__ import annotations

from orchestrator.kernel.ids import hash_id
from orchestrator.kernel.records import StepDone
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, Phase
from orchestrator.kernel.versions import passed_version, step_version


def go_straight(run: RunState, record: StepDone) -> bool:
    """Land a step and begin the next one, if nothing else can follow.

    Returns:
        False if the step needs the general path; then nothing has changed.
    """
    key, running = record.activation, run.running
    step = running.get(key)
    if step is None:
        return False
    frame = step.frame
    live = frame.live
    if len(live) > 1:
        return False
    route = frame.plan.topology.single_routes.get((step.node, record.outcome))
    if route is None or not _is_alone(run, step):
        return False
    update, node = record.update, record.node
    if update or record.reduced:
        version = step_version(step, update, record.ops, record.reduced, alone=True)
    else:
        version = passed_version(step, alone=True)
    target, counters = route.target, frame.counters
    run.steps += 1
    run.totals.landed(key, node, run.seconds, failed=False)
    run.ledger.forget(key)
    counters.busy[node] += record.ended - record.started
    counters.taken[route.index] += 1
    counters.visits[target] += 1
    for outer in frame.line:
        outer.steps += 1
    del running[key], live[key]
    following = hash_id(key, target, "0")
    token = Activation(frame, following, target, version, step.rank)
    token.phase, token.counted = Phase.RUNNING, True
    if (error := record.error) is not None:
        token.error = error
    live[following] = running[following] = token
    run.delta.started.append(token)
    return True


def _is_alone(run: RunState, step: Activation) -> bool:
    """Whether only the step's successor can follow: no branch or history is there, nothing waits, no limit is near."""
    frame = step.frame
    if frame.ended_versions or frame.plan.pooled or frame.limits.visits:
        return False
    if step.forks or step.version.parents or step.rank.joined is not None or step.kept is not None:
        return False
    if run.ready_frames or run.exhausting_frames or run.lines or run.reserves or run.events.kept or run.forks:
        return False
    if run.observers or run.paused or run.breakpoints is not None:
        return False
    for outer in frame.line:
        limits = outer.limits
        if outer.after_limit or (limits.steps is not None and outer.steps >= limits.steps):
            return False
        if limits.concurrency is not None and outer.active > limits.concurrency:
            return False
    return True
