"""Admits queued activations as far as limits and breakpoints allow, and merges graphs whose limit is spent (R13, R14).

A breakpoint is a node before or after which a run pauses. The fold decides it, so it holds after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from orchestrator.kernel import pools
from orchestrator.kernel.frame import collapse, exhaust
from orchestrator.kernel.question import PAUSE, Question
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, Breakpoints, FrameState, Phase


def mark(run: RunState, frame: FrameState) -> None:
    """Mark a graph in which something changed, so that `admit` examines it."""
    if frame.queue:
        run.ready_frames[frame.key] = frame
    if frame.exhausting is not None or frame.interrupting:
        run.exhausting_frames.append(frame)


def admit(run: RunState) -> None:
    """Start everything that may start, in all marked graphs."""
    while True:
        if not run.paused:
            for pool in tuple(run.lines):
                _serve(run, pool)
            for key, frame in tuple(run.ready_frames.items()):
                queue = frame.queue
                if frame.result is None and not _admit_all(run, frame):
                    while queue and _admit_one(run, frame, queue[0]):
                        pass
                if not queue or frame.result is not None:
                    run.ready_frames.pop(key, None)
                elif run.root is None or _is_full(run.root):
                    break
        if not run.exhausting_frames:
            return
        exhausting, run.exhausting_frames = run.exhausting_frames, []
        for frame in exhausting:
            if frame.result is not None or (frame.exhausting is None and not frame.interrupting):
                continue
            if frame.active:
                run.exhausting_frames.append(frame)
            else:
                collapse(run, frame)
                mark(run, frame)
        if len(run.exhausting_frames) == len(exhausting):
            return


def _admit_all(run: RunState, frame: FrameState) -> bool:
    """Start a whole queue at once, if neither a limit nor anything else can hold back one of its steps.

    Returns:
        False if each step has to be examined; then nothing has changed.
    """
    queue = frame.queue
    if run.observers or run.breakpoints is not None or frame.interrupting or frame.limits.visits or frame.plan.pooled:
        return False
    for outer in frame.line:
        limits = outer.limits
        if (
            limits.concurrency is not None
            or outer.after_limit
            or outer.exhausting is not None
            or outer.result is not None
        ):
            return False
        if limits.steps is not None and outer.steps + len(queue) > limits.steps:
            return False
    running, visits, counted = run.running, frame.counters.visits, 0
    for token in queue:
        if not token.counted:
            token.counted = True
            counted += 1
            visits[token.node] += 1
        token.phase = Phase.RUNNING
        running[token.key] = token
    for outer in frame.line:
        outer.active += len(queue)
        outer.counted_steps += counted
    run.delta.started += queue
    queue.clear()
    return True


def _is_full(frame: FrameState) -> bool:
    most = frame.limits.concurrency
    return most is not None and frame.active >= most


def _serve(run: RunState, pool: str) -> None:
    """Start the steps that wait for a place in a pool, in their order (R18)."""
    while (line := run.lines.get(pool)) and pools.is_free(run, pool):
        activation = next(iter(line.values()))
        if not _has_room(activation.frame) or not _may_begin(run, activation.frame, activation):
            return
        pools.leave_line(run, activation)
        _begin(run, activation)


def _admit_one(run: RunState, frame: FrameState, activation: Activation) -> bool:
    """Start the first step of a queue, or make it wait for its pool; False if it stays in the queue."""
    if not _has_room(frame):
        return False
    pool = frame.plan.pooled.get(activation.node)
    if pool is not None and not pools.has_place(run, activation, pool):
        frame.queue.popleft()
        pools.line_up(run, activation, pool)
        return True
    if not _may_begin(run, frame, activation):
        return False
    frame.queue.popleft()
    _begin(run, activation)
    return True


def _has_room(frame: FrameState) -> bool:
    """Return True if a graph, and those around it, allow another step to start now."""
    if frame.interrupting:
        return False
    for outer in frame.line:
        most = outer.limits.concurrency
        if outer.exhausting is not None or outer.result is not None or (most is not None and outer.active >= most):
            return False
    return True


def _may_begin(run: RunState, frame: FrameState, activation: Activation) -> bool:
    """Return True if neither a breakpoint nor a limit holds a step back; the step is then counted."""
    if run.breakpoints is not None and (run.paused or stops_before(run, frame, activation)):
        return False
    return activation.counted or _count_step(run, frame, activation)


def _begin(run: RunState, activation: Activation) -> None:
    if activation.frame.plan.pooled:
        pools.hold(run, activation)
    activation.phase = Phase.RUNNING
    for outer in activation.frame.line:
        outer.active += 1
    run.running[activation.key] = activation
    run.delta.started.append(activation)


def _count_step(run: RunState, frame: FrameState, activation: Activation) -> bool:
    """Count a step, and a visit of its node, against the limits; False if one is spent."""
    node, visits = activation.node, frame.limits.visits
    if frame.after_limit:
        if node in frame.visited_after_limit:
            return _refuse(run, frame, "visits", node)
        frame.visited_after_limit.add(node)
    elif visits:
        most = visits.get(node)
        if most is not None and frame.visits.get(node, 0) >= most:
            return _refuse(run, frame, "visits", node)
    for outer in frame.line:
        most = outer.limits.steps
        if most is not None and outer.steps >= most and not outer.after_limit:
            return _refuse(run, outer, "steps", node)
    for outer in frame.line:
        if not outer.after_limit:
            outer.counted_steps += 1
    if visits and not frame.after_limit:
        frame.visits[node] = frame.visits.get(node, 0) + 1
    frame.counters.visits[node] += 1
    activation.counted = True
    return True


def give_back(activation: Activation) -> None:
    """Take back that a step was a visit of its node. After a spent limit no node runs twice, so there it stays one."""
    frame, node = activation.frame, activation.node
    if not frame.after_limit and frame.visits.get(node):
        frame.visits[node] -= 1


def _refuse(run: RunState, frame: FrameState, limit: str, node: str) -> bool:
    exhaust(frame, limit, node)
    run.exhausting_frames.append(frame)
    return False


def change_breakpoints(run: RunState, before: Sequence[str] | None, after: Sequence[str] | None) -> None:
    """Set the nodes before and after which the run pauses; None keeps the current ones."""
    stops = run.breakpoints or Breakpoints()
    stops = structs.replace(
        stops,
        before=stops.before if before is None else frozenset(before),
        after=stops.after if after is None else frozenset(after),
    )
    run.breakpoints = None if stops == Breakpoints() else stops


def stops_before(run: RunState, frame: FrameState, activation: Activation) -> bool:
    """Return True if the run pauses before a step that is about to start."""
    stops = run.breakpoints
    if stops is None or activation.counted:  # it started before
        return False
    if activation.key in stops.passed:
        run.breakpoints = structs.replace(stops, passed=stops.passed - {activation.key})
        return False
    place = _place(frame, activation.node)
    if place in stops.before:
        _pause(run, activation, "before", place)
        run.breakpoints = structs.replace(stops, at=place)
        return True
    return False


def pause_after(run: RunState, activation: Activation) -> None:
    """Pause, if the run is to pause after the node of a step that has ended."""
    stops = run.breakpoints
    if stops is None or run.paused or run.result is not None:
        return
    place = _place(activation.frame, activation.node)
    if place in stops.after:
        _pause(run, activation, "after", place)


def let_through(run: RunState) -> None:
    """Continue the run: steps at the node before which it paused may start."""
    stops = run.breakpoints
    if stops is not None and stops.at:
        waiting = {
            token.key
            for frame in run.frames()
            for token in (*frame.queue, *pools.in_line(run, frame))
            if not token.counted and _place(frame, token.node) == stops.at
        }
        run.breakpoints = structs.replace(stops, at="", passed=stops.passed | waiting)


def _pause(run: RunState, activation: Activation, when: str, place: str) -> None:
    run.paused = True
    prompt = f"paused {when} {place}"
    run.questions[PAUSE] = Question(id=PAUSE, kind="pause", node=activation.node, path=activation.path, prompt=prompt)
    run.asked[PAUSE] = run.updated


def _place(frame: FrameState, node: str) -> str:
    return f"{frame.place}/{node}" if frame.place else node
