"""Moves the tokens of one running graph, from its first one to its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.errors import StepError
from orchestrator.graph.limits import Limits
from orchestrator.graph.topology import END, START, STOP
from orchestrator.kernel import pools, tokens
from orchestrator.kernel.endings import finish, forget, set_aside
from orchestrator.kernel.joins import fire_if_ready, next_touched
from orchestrator.kernel.merge import merged, step_version
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import EndStatus, Failure
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameResult, FrameState, FrozenTokens, Phase, hash_id
from orchestrator.kernel.transitions import send, settle_item, take_edge
from orchestrator.kernel.version import FIRST, Rank, Version, causes

if TYPE_CHECKING:
    from orchestrator.kernel.joins import Due


def new_frame(run: RunState, plan: Plan, key: str, root: Version, parent: Activation | None = None) -> FrameState:
    """Return the state of a running graph, before its first token.

    Args:
        run: the run.
        plan: the graph's plan.
        key: its id within the run.
        root: the state that it starts with.
        parent: the activation of the subgraph's node; None for the run's own graph.
    """
    path = place = ""
    around: tuple[FrameState, ...] = ()
    if parent is not None:
        outer = parent.frame
        around = outer.line
        path = f"{parent.path}/{parent.node}" if parent.path else parent.node
        place = f"{outer.place}/{parent.node}" if outer.place else parent.node
    counters = run.counters[place]
    frame = FrameState(plan, key, root, plan.limits, counters, parent, path, place)
    frame.line = (frame, *around)
    return frame


# -- starting and ending steps ----------------------------------------------------------------------------------


def start(run: RunState, frame: FrameState) -> None:
    """Send the first tokens."""
    source = Activation(frame, frame.key, START, frame.root, FIRST)
    send(run, source, frame.root, "done", None)
    settle(run, frame)


def land(
    run: RunState,
    activation: Activation,
    outcome: str,
    update: Mapping[str, object],
    ops: Mapping[str, str],
    reduced: Mapping[str, object] | None,
    error: Failure | None,
) -> None:
    """End an activation: make its version, take its edges.

    Args:
        run: the run.
        activation: the step that ended.
        outcome: what it ended with.
        update: see `values_after`.
        ops: see `values_after`.
        reduced: see `values_after`.
        error: the failure behind a reserved outcome.
    """
    frame = activation.frame
    alone = len(frame.live) == 1 and not activation.forks and not frame.ended_versions
    version = step_version(activation, update, ops, reduced, alone=alone)
    tokens.remove(activation)
    if run.places:
        pools.give_up(run, activation)
    if outcome == "exhausted" and not frame.plan.topology.has_route(activation.node, outcome):
        # Journals of early versions contain this: there a spent limit of an inner graph also ended the outer graph.
        parked = Activation(frame, activation.key, activation.node, version, activation.rank, activation.forks)
        parked.phase, parked.spent_inside = Phase.PARKED, True
        tokens.add(run, parked)
        exhaust(frame, "nested", activation.node, error)
    else:
        send(run, activation, version, outcome, error)
    settle(run, frame)


# -- joins and items after a move -------------------------------------------------------------------------------


def settle(run: RunState, frame: FrameState) -> None:
    """Fire the joins and start the items that a move enabled; end the graph if no token is left."""
    due: list[Due] = []
    while frame.result is None and (frame.touched_joins or frame.touched_items or due):
        if frame.touched_items:
            items, frame.touched_items = frame.touched_items, {}
            for item in items.values():
                settle_item(run, frame, item)
            continue
        touched = next_touched(frame, due)
        if touched is not None:
            fire_if_ready(run, frame, *touched)
    if frame.result is not None:
        return
    if not frame.live:
        _end(run, frame)
    elif len(frame.live) == 1:
        if frame.may_drop_history:
            _drop_history(frame)
        if run.events.kept and frame is run.root and frame.before_limit is None:
            # All later steps come from this token: an event that it took is never taken again.
            run.events.forget(next(iter(frame.live.values())).version.taken)


def _end(run: RunState, frame: FrameState) -> None:
    """End the graph after its last token: the ended versions become the result (R9)."""
    for observer in run.observers:
        observer.ending(frame)
    status: EndStatus = "exhausted" if frame.after_limit else "completed"
    versions = frame.ended_versions or [frame.root]
    try:
        version = merged(frame, versions, hash_id(frame.key, "END"))
    except StepError as error:
        failure = Failure(type=type(error).__name__, message=str(error), node=END)
        finish(run, frame, FrameResult("failed", frame.root.values, failure))
    else:
        finish(run, frame, FrameResult(status, version.values, frame.spent_limit, taken=version.taken))
    for observer in run.observers:
        observer.done()


def _drop_history(frame: FrameState) -> None:
    """Make the only token's version the first one, if all ended versions are among its causes (R15)."""
    (token,) = frame.live.values()
    if token.version.parents or frame.ended_versions:
        if any(not causes(version, token.version) for version in frame.ended_versions):
            # Such a version never becomes a cause of a live one, so the check need not be repeated.
            frame.may_drop_history = False
            return
        frame.ended_versions.clear()
        if token.version.parents:
            # Paths are kept: the moment of this call depends on timing, and a step's path must not.
            token.version = Version(token.version.values, key=token.version.key, taken=token.version.taken)
            for entry in token.forks:
                entry.version = Version(entry.version.values)
                entry.trunk = Version(entry.trunk.values)
    if token.rank.joined is not None:
        # All later tokens come from this one, so the list has no branches left to order.
        token.rank = Rank(token.rank.path)
        for entry in token.forks:
            entry.rank = Rank(entry.rank.path)


# -- limits (R14) -----------------------------------------------------------------------------------------------


def exhaust(frame: FrameState, limit: str, node: str = "", inside: Failure | None = None) -> None:
    """Record that a limit is spent: no new step starts. `collapse` follows when all running steps have ended.

    Args:
        frame: the graph with the limit.
        limit: its name.
        node: the node that was refused, if any.
        inside: the failure of the graph inside the node, if the limit belongs to that graph.
    """
    if frame.result is None and frame.exhausting is None:
        frame.exhausting = limit
        if frame.spent_limit is None:
            frame.spent_name = limit
            frame.spent_limit = inside or limit_failure(frame.plan.name, frame.limits, limit, node, frame.path)


def collapse(run: RunState, frame: FrameState) -> None:
    """Merge all live and ended tokens into one: at the exhausted target, or where an event interrupted the graph."""
    for observer in run.observers:
        observer.collapsing(frame)
    if frame.exhausting is not None:
        _collapse(run, frame)
    else:
        _go_to(run, frame, frame.interrupting)
    for observer in run.observers:
        observer.done()


def _collapse(run: RunState, frame: FrameState) -> None:
    target = None if frame.after_limit else frame.plan.topology.exhausted_target
    frame.exhausting, frame.interrupting = None, ""
    key = (frame.key, "exhausted", *([str(frame.raised)] if frame.raised else ()))
    found = _all_merged(run, frame, hash_id(*key))
    if found is None:
        return
    version, aside = found
    if frame.parent is None and frame.before_limit is None:
        pools.give_up_all(run, aside)
        frame.before_limit = aside
    else:
        forget(run, aside)
    if target is None or target in (END, STOP):
        finish(run, frame, FrameResult("exhausted", version.values, frame.spent_limit, taken=version.taken))
        return
    frame.after_limit = True
    edges = enumerate(frame.plan.edges)
    take_edge(run, frame, next(i for i, edge in edges if edge.source == "*" and edge.outcome == "exhausted"))
    token = Activation(frame, hash_id(*key, target), target, version, FIRST)
    token.merged = True
    token.error = frame.spent_limit
    tokens.enqueue(run, token)
    settle(run, frame)


def _all_merged(run: RunState, frame: FrameState, key: str) -> tuple[Version, FrozenTokens] | None:
    """Set all tokens aside, and return their merge and them. If the merge fails, end the graph as failed and return
    None.
    """
    live = tokens.in_order(frame, frame.live.values())
    fault = next((token.fault for token in live if token.fault is not None), None)
    if fault is not None:  # a merge failed, and its step will never run to report it
        finish(run, frame, FrameResult("failed", frame.trunk.values, fault))
        return None
    versions = [token.version for token in live] + frame.ended_versions
    aside = set_aside(run, frame)
    frame.entered.clear()  # whatever waits to be examined is merged with all others
    frame.touched_joins.clear()
    frame.touched_items.clear()
    try:
        return merged(frame, versions, key), aside
    except StepError as error:
        failure = Failure(type=type(error).__name__, message=str(error))
        finish(run, frame, FrameResult("failed", frame.root.values, failure))
        frame.frozen = aside
        return None


# -- events that interrupt ----------------------------------------------------------------------------------------


def interrupt(frame: FrameState, node: str) -> None:
    """Continue a graph at a node, once all running steps have ended; until then no new step of it starts."""
    if frame.result is None and frame.exhausting is None and node in frame.plan.nodes:
        frame.interrupting = node


def _go_to(run: RunState, frame: FrameState, node: str) -> None:
    """Merge all live and ended tokens into one at a node."""
    key = hash_id(*(token.key for token in tokens.in_order(frame, frame.live.values())), "interrupted", node)
    frame.interrupting = ""
    found = _all_merged(run, frame, key)
    if found is not None:
        version, aside = found
        forget(run, aside)
        token = Activation(frame, key, node, version, FIRST)
        token.merged = True
        tokens.enqueue(run, token)
        settle(run, frame)


SPENT = "LimitSpent"
"""The `type` of the failure for a spent limit."""


def limit_failure(graph: str, limits: Limits, limit: str, node: str, path: str) -> Failure:
    """Return the failure for a spent limit: the error of an exhausted run, and `ctx.error` after the exhausted edge.

    Steps are counted and refused in `kernel.admission`; `executor.timers` enforces `seconds`.

    Args:
        graph: its name.
        limits: its limits.
        limit: a field of `Limits`, or `nested` for an unnamed limit of the graph inside the node.
        node: the node that was refused, if any.
        path: the graph's path in the run.
    """
    if limit == "nested":
        words = f"a limit of the graph inside {node!r} is spent"
    elif limit == "visits":
        words = f"visits={limits.visits.get(node, 1)} of node {node!r} are spent"
    else:
        words = f"{limit}={_number(getattr(limits, limit, None))} are spent"
    if limit not in ("nested", "visits") and node:
        words += f" before {node!r}"
    return Failure(type=SPENT, message=f"{words} in graph {graph!r}", node=node, path=path)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
