"""Limits of a run: which one is spent, what is left of each, what a call reserves, and when time runs out."""

from __future__ import annotations

from orchestrator.graph.limits import Limits, LimitsLeft, Reserve, Usage
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameState

NO_USAGE = Usage()

_ROUNDING = 1e-9
"""The largest rounding error of a sum of costs."""

# -- calls under limits -----------------------------------------------------------------------------------------


def exceeded_limit(activation: Activation, more: Usage = NO_USAGE) -> tuple[str, str] | None:
    """Return the limit (name, path of its graph) that forbids another call of an activation; None if none does.

    Args:
        activation: the step.
        more: usage that is not in the journal yet.
    """
    for frame in activation.frame.line:
        if frame.after_limit:
            continue
        limits = frame.limits
        if limits.calls is not None and frame.calls + more.calls >= limits.calls:
            return "calls", frame.path
        if limits.tokens is not None and frame.tokens + more.tokens >= limits.tokens:
            return "tokens", frame.path
        if limits.cost is not None and frame.cost + more.cost >= limits.cost:
            return "cost", frame.path
    return None


def must_reserve(activation: Activation) -> bool:
    """Return True if an activation's calls reserve: tokens or cost are limited in a graph around it."""
    return any(
        not frame.after_limit and (frame.limits.tokens is not None or frame.limits.cost is not None)
        for frame in activation.frame.line
    )


def must_wait(activation: Activation, reserve: Reserve) -> bool:
    """Return True if a call must wait because the calls in progress reserve too much of a limit.

    It never waits if no other call is in progress: until the limit is spent, one call can be made.
    """
    for frame in activation.frame.line:
        if frame.after_limit or not frame.reserved_calls:
            continue
        limits = frame.limits
        tokens = frame.tokens + frame.reserved_tokens + reserve.tokens
        cost = frame.cost + frame.reserved_cost + reserve.cost
        if (limits.tokens is not None and tokens > limits.tokens) or (
            limits.cost is not None and cost > limits.cost + _ROUNDING
        ):
            return True
    return False


def reserve_of(run: RunState, key: str) -> Reserve:
    """Return the reservation of a call in progress."""
    return run.reserves.get(key) or Reserve()


def total_reserve(run: RunState) -> Reserve:
    """Return the sum of the reservations of all calls in progress."""
    return sum(run.reserves.values(), Reserve())


def limits_left(run: RunState, activation: Activation) -> LimitsLeft:
    """Return the limits left for an activation: for each limit, the least of all graphs around it."""
    left: dict[str, float] = {}

    def note(name: str, most: float | None, spent: float) -> None:
        if most is not None:
            left[name] = min(left.get(name, most), max(0, most - spent))

    for frame in activation.frame.line:
        limits = frame.limits
        note("steps", limits.steps, frame.steps)
        note("seconds", limits.seconds, run.seconds - frame.began)
        note("tokens", limits.tokens, frame.tokens)
        note("cost", limits.cost, frame.cost)
        note("calls", limits.calls, frame.calls)
    return LimitsLeft.model_validate(left)


def spent_limit(run: RunState, limits: Limits) -> tuple[str, float, float, str] | None:
    """Return the limit that ended an exhausted run, if it is also spent under other limits.

    Args:
        run: the ended run.
        limits: the limits that its graph would have from now on.

    Returns:
        Its name, the limit, the usage, and for `visits` the node.
    """
    frame = run.root
    if frame is None or not frame.spent_name or frame.spent_name == "nested":
        return None
    name, used, node = frame.spent_name, 0.0, ""
    most: float | None = None
    if name == "visits":
        node = "" if frame.spent_limit is None else frame.spent_limit.node
        most, used = limits.visits.get(node), frame.visits.get(node, 0)
    elif name in ("steps", "tokens", "cost", "calls"):
        most, used = getattr(limits, name), getattr(frame, name)
    elif name == "seconds":
        most, used = limits.seconds, run.seconds - frame.began
    return None if most is None or used < most else (name, most, used, node)


# -- time alive, in seconds ------------------------------------------------------------------------------------


def seconds_left(run: RunState) -> list[tuple[str, float]]:
    """Return path and seconds left of each graph with a limit of seconds that is not spent."""
    found = []
    for frame in run.frames():
        most = frame.limits.seconds
        if most is not None and not frame.after_limit and frame.exhausting is None and frame.result is None:
            found.append((frame.path, most - (run.seconds - frame.began)))
    return found


def time_left(run: RunState, frame: FrameState) -> float | None:
    """Return the seconds until the subgraph node around a graph times out; None if it never does."""
    parent = frame.parent
    graph = None if parent is None else parent.frame.plan.graph
    if parent is None or graph is None or frame.result is not None:
        return None
    timeout = graph.nodes[parent.node].timeout
    return None if timeout is None else timeout - (run.seconds - frame.timed_from)


def time_left_inside(run: RunState, activation: str) -> float | None:
    """Return the seconds left for the graph inside an activation, by timeout or limit; None if neither bounds it."""
    frame = run.inner_frames.get(activation)
    if frame is None:
        return None
    most, left = frame.limits.seconds, time_left(run, frame)
    found = [] if left is None else [left]
    if most is not None:
        found.append(most - (run.seconds - frame.began))
    return min(found, default=None)


def timeouts(run: RunState) -> list[tuple[Activation, float]]:
    """Return the activations of subgraph nodes with a timeout, each with the seconds left, the outermost first."""
    found = []
    for frame in run.frames():
        left = time_left(run, frame)
        if left is not None and frame.parent is not None:
            found.append((frame.parent, left))
    return found
