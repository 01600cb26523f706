"""Records about steps, and about the graphs inside subgraphs' steps."""

from __future__ import annotations

from orchestrator.kernel import admission, pools
from orchestrator.kernel import records as r
from orchestrator.kernel.endings import finish, forget_kept, stop
from orchestrator.kernel.frame import exhaust, land, new_frame, start
from orchestrator.kernel.merge import values_after
from orchestrator.kernel.records import StepDone
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameResult, FrameState, LoneSteps, Phase, hash_id
from orchestrator.kernel.version import Version


def begin(run: RunState, frame: FrameState) -> None:
    """Send the first tokens of a graph."""
    frame.began = frame.timed_from = run.seconds
    start(run, frame)
    admission.mark(run, frame)


def step_done(run: RunState, record: r.StepDone) -> None:
    """End a step with its outcome. One that was stopped takes its edges when the run is reopened."""
    activation = _take_out(run, record, failed=False)
    run.ledger.forget(record.activation)
    if activation is None:
        activation = run.stopped.pop(record.activation, None)
        if activation is not None:
            activation.frame.plan.schema.check_names(record.update)
            forget_kept(run, activation)
            activation.late = record
    else:
        forget_kept(run, activation)
        if record.uncounted:
            admission.give_back(activation)
        land(run, activation, record.outcome, record.update, record.ops, record.reduced, record.error)
        admission.mark(run, activation.frame)
        admission.pause_after(run, activation)


def step_failed(run: RunState, record: r.StepFailed) -> None:
    """Fail a step, and its graph with it (R13)."""
    running = _take_out(run, record, failed=True)
    activation = running or run.stopped.pop(record.activation, None)
    if activation is None:
        run.ledger.forget(record.activation)
        return
    activation.failed = True
    run.ledger.put_by(activation.key)
    if running is not None:
        frame = running.frame
        finish(run, frame, FrameResult("failed", frame.trunk.values, record.error, taken=running.taken))


def _take_out(run: RunState, record: r.StepDone | r.StepFailed, *, failed: bool) -> Activation | None:
    """Remove a step that ended from the running ones; None if it was dropped before it ended."""
    key, node = record.activation, record.node
    run.steps += 1
    if run.reserves:
        running = run.running.get(key)
        if running is not None:
            pools.release(run, running)
    run.totals.landed(key, node, run.seconds, failed=failed)
    activation = stop(run, key)
    if activation is not None:
        activation.frame.counters.busy[node] += record.ended - record.started
    return activation


def step_retried(run: RunState, record: r.StepRetried) -> None:
    """Prepare a step's next attempt."""
    activation = run.running.get(record.activation) or run.stopped.get(record.activation)
    if activation is not None:
        forget_kept(run, activation)
        activation.attempt = record.attempt + 1
        activation.not_before = record.next_at
        activation.backoff = max(0.0, record.next_at - record.ended)
        activation.child = None
        activation.opened = False


def graph_opened(run: RunState, record: r.GraphOpened) -> None:
    """Start the graph inside a subgraph's step."""
    activation = run.running.get(record.activation)
    plan = None if activation is None else activation.frame.plan.sub.get(activation.node)
    if activation is None or plan is None:
        return
    stop(run, activation.key)
    activation.phase, activation.opened = Phase.INSIDE, True
    key = hash_id(activation.key, str(activation.attempt), "inside")
    root = Version(plan.schema.decode(record.values), key=key, taken=activation.taken)
    frame = run.inner_frames[activation.key] = new_frame(run, plan, key, root, activation)
    begin(run, frame)


def timed_out(run: RunState, record: r.TimerFired) -> None:
    """Fail the graph inside a step that timed out: its steps are stopped, its questions withdrawn."""
    frame = run.inner_frames.get(record.activation)
    if record.name == r.TIMEOUT and frame is not None:
        finish(run, frame, FrameResult("failed", frame.trunk.values, record.error))


def limit_spent(run: RunState, record: r.LimitSpent) -> None:
    """Exhaust a graph. Running steps end first, unless the limit is one of time (R14)."""
    refused = run.running.get(record.activation) if record.activation is not None else None
    frames = refused.frame.line if refused is not None else run.frames()
    frame = next((f for f in frames if f.path == record.frame), None)
    if frame is None or frame.result is not None:
        return
    if refused is not None:
        _park(run, refused)
    elif record.limit == "seconds":
        for activation in [a for a in run.running.values() if frame in a.frame.line]:
            _park(run, activation)
            run.delta.cancelled.append(activation)
    exhaust(frame, record.limit, "" if refused is None else refused.node)
    run.exhausting_frames.append(frame)


def _park(run: RunState, activation: Activation) -> None:
    stop(run, activation.key)
    activation.phase = Phase.PARKED
    run.stopped[activation.key] = activation


def go_straight(run: RunState, record: StepDone) -> bool:
    """End a step and start the next one, if nothing else can follow, as for most steps.

    The step is its graph's only token, and one edge leads it to the next step. The general path (`step_done`, `frame`,
    `transitions`, `tokens`, `admission`) reaches the same state, by determining which forks, joins, items and waiting
    steps a move affects. Here it is certain that it affects none.

    Returns:
        False if the step needs the general path; then nothing has changed.
    """
    key, running = record.activation, run.running
    step = running.get(key)
    if step is None:
        return False
    frame = step.frame
    route = frame.plan.topology.single_routes.get((step.node, record.outcome))
    if route is None or run.observers:
        return False
    lone = run.lone
    if lone is None or lone.step is not step:
        if not _is_alone(run, step):
            return False
        if lone is not None:
            lone.end()
        lone = run.lone = LoneSteps.begin(step)
    if lone.count >= lone.room:
        return False
    update, node, version, taken = record.update, record.node, step.version, step.taken
    if update or record.reduced:
        version = Version(values_after(step, update, record.ops, record.reduced), key=key, taken=taken)
    elif taken != version.taken:
        version = Version(version.values, key=key, taken=taken)
    target, counters, live = route.target, frame.counters, frame.live
    run.steps += 1
    run.ledger.forget(key)
    counters.busy[node] += record.ended - record.started
    counters.taken[route.index] += 1
    counters.visits[target] += 1
    lone.count += 1
    del running[key], live[key]
    following = hash_id(key, target, "0")
    token = Activation(frame, following, target, version, step.rank)
    token.phase, token.counted = Phase.RUNNING, True
    if (error := record.error) is not None:
        token.error = error
    live[following] = running[following] = lone.step = token
    run.totals.passed(key, node, token, run.seconds)
    run.delta.started.append(token)
    return True


def _is_alone(run: RunState, step: Activation) -> bool:
    """Return True if only the step's successor can follow: no branch or history, nothing waits, nothing is held back.

    It then holds for the steps that follow, too, until there is another record than their ends; `run.lone` keeps it.
    """
    frame = step.frame
    if len(frame.live) > 1 or frame.ended_versions or frame.plan.pooled or frame.limits.visits:
        return False
    if step.forks or step.version.parents or step.rank.joined is not None or step.kept is not None:
        return False
    if run.ready_frames or run.exhausting_frames or run.lines or run.reserves or run.events.kept or run.forks:
        return False
    if run.paused or run.breakpoints is not None:
        return False
    for outer in frame.line:
        most = outer.limits.concurrency
        if outer.after_limit or (most is not None and outer.active > most):
            return False
    return True
