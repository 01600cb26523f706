"""Adds and removes a graph's live tokens, and counts for each open fork and join how many can still reach it (R4).

A join is examined only when one of these counts, or its queue, changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from orchestrator.graph.limits import Usage
from orchestrator.graph.topology import ForkScope
from orchestrator.kernel.records import SetAside
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameState, MapItem, OpenFork, Phase
from orchestrator.kernel.version import Version, order_among


def place(run: RunState, token: Activation) -> None:
    """Put a new token where it waits: at its join, or in the queue. It ends at a join that did not wait for it."""
    frame, node = token.frame, token.node
    fork = frame.plan.topology.match.get(node) if token.forks else None
    if fork is not None:
        for entry in token.forks:
            if entry.fork == fork:
                if node in entry.passed:
                    absorb(frame, token, entry)
                    return
                token.phase = Phase.WAITING
                entry.arrivals.setdefault(node, []).append(token)
                waits_on = entry.reach[node] and frame.plan.topology.nodes[node].join == "all"
                if not waits_on:
                    frame.touched_joins[id(entry), node] = (entry, node)
                add(run, token)
                return
    token.phase = Phase.QUEUED
    frame.queue.append(token)
    add(run, token)


def enqueue(run: RunState, token: Activation) -> None:
    """Add a token that may run as soon as limits allow."""
    token.phase = Phase.QUEUED
    token.frame.queue.append(token)
    add(run, token)


def enqueue_all(run: RunState, branches: Sequence[Activation]) -> None:
    """Add the branches of a map that may run. They can all reach the same joins, which are counted once."""
    first = branches[0]
    first.frame.queue.extend(branches)
    for token in branches:
        _enter(run, token)
    _count(first.frame, first, len(branches))


def add(run: RunState, token: Activation) -> None:
    """Add a token to the live ones. Its phase must be set."""
    _enter(run, token)
    if token.forks:
        _count(token.frame, token, 1)


def _enter(run: RunState, token: Activation) -> None:
    frame = token.frame
    if run.forks and run.forks[-1].set_aside:
        _begin_behind(run, token, run.forks[-1].set_aside)
    for observer in run.observers:
        observer.added(token)
    frame.live[token.key] = token
    for item in token.map_items:
        frame.touched_items[id(item)] = item
        if _is_settled(frame, token, item):
            item.waiting[token.key] = token
        else:
            item.open += 1


def _begin_behind(run: RunState, token: Activation, set_aside: Mapping[str, SetAside]) -> None:
    """Make a step of a replay start after the attempts that the replayed run set aside."""
    aside = set_aside.get(token.key)
    if aside is not None and token.attempt <= aside.attempts:  # an item that waits for others is added again
        token.attempt = aside.attempts + 1
        charge(run, token.frame.line, aside.usage)


def count_tokens(run: RunState, usage: Usage) -> None:
    """Count the tokens of a call, and their cost."""
    run.input_tokens += usage.input_tokens
    run.output_tokens += usage.output_tokens
    run.cached_tokens += usage.cached_tokens
    run.written_tokens += usage.written_tokens
    run.cache_savings += usage.cache_savings
    run.cost += usage.cost


def charge(run: RunState, line: Iterable[FrameState], usage: Usage) -> None:
    """Count usage of the replayed run that the replay did not spend at this step.

    Args:
        run: the replay.
        line: the graphs around the step.
        usage: the usage of the replayed run.
    """
    run.calls += usage.calls
    count_tokens(run, usage)
    run.saved += usage
    for frame in line:
        frame.calls += usage.calls
        frame.tokens += usage.tokens
        frame.cost += usage.cost


def remove(token: Activation) -> None:
    """Remove a token from the live ones. Its phase must be the same as when it was added."""
    _leave(token)
    if token.forks:
        _count(token.frame, token, -1)


def remove_all(frame: FrameState, waiting: Sequence[Activation]) -> None:
    """Remove the tokens that wait at one join. What those with the same forks could reach is counted once."""
    forks = waiting[0].forks
    if any(token.forks != forks for token in waiting):
        for token in waiting:
            remove(token)
        return
    for token in waiting:
        _leave(token)
    _count(frame, waiting[0], -len(waiting))


def _leave(token: Activation) -> None:
    frame = token.frame
    del frame.live[token.key]
    for item in token.map_items:
        frame.touched_items[id(item)] = item
        if item.waiting.pop(token.key, None) is None:
            item.open -= 1


def withdraw(token: Activation) -> None:
    """Remove a token from the live ones and from the queue, join or map where it waits. Not for queues of pools."""
    if token.phase is Phase.WAITING:
        for entry in token.forks:
            waiting = entry.arrivals.get(token.node)
            if waiting is not None and token in waiting:
                waiting.remove(token)
    elif token.phase is Phase.QUEUED:
        token.frame.queue.remove(token)
    elif token.phase is Phase.PENDING:
        item = token.map_items[-1]
        item.ordered_map.pending.pop(item.index, None)
    remove(token)


def _count(frame: FrameState, token: Activation, step: int) -> None:
    phase, node = token.phase, token.node
    for entry in token.forks:
        entry.live += step
        scope = scope_of(frame, token, entry) if frame.passes else entry.scope
        if phase is Phase.WAITING:
            joins: Iterable[str] = scope.waiting[node]
        elif phase is Phase.PENDING and node in frame.plan.topology.match:
            joins = ({node, *scope.waiting[node]} & entry.reach.keys()) - scope.passed
        else:
            joins = scope.active[node]
        if joins:
            reach = entry.reach
            for join in joins:
                left = reach[join] = reach[join] + step
                if not left:
                    frame.touched_joins[id(entry), join] = (entry, join)


def scope_of(frame: FrameState, token: Activation, entry: OpenFork) -> ForkScope:
    """Return the scope of an open fork for one of its tokens: it cannot pass joins that let it run (R8)."""
    passed = [join for one in token.forks[token.forks.index(entry) :] for join in one.passed]
    if not passed:
        return entry.scope
    return frame.plan.topology.scope(entry.fork, entry.scope.below, frozenset(passed))


def pass_by(frame: FrameState, entry: OpenFork, join: str, merged: frozenset[str]) -> None:
    """Note that a join fired for an open fork and lets its other branches run."""
    others = [token for token in frame.live.values() if entry in token.forks]
    for token in others:
        _count(frame, token, -1)
    entry.passed[join] = merged
    frame.passes = True
    for token in others:
        _count(frame, token, 1)


def _is_settled(frame: FrameState, token: Activation, item: MapItem) -> bool:
    """Return True if the token waits at a join of the item's map, or of a fork that was open when the map opened."""
    if token.phase is not Phase.WAITING:
        return False
    fork = frame.plan.topology.match[token.node]
    return any(entry.fork == fork and entry in item.ordered_map.forks for entry in token.forks)


def in_order(frame: FrameState, tokens: Collection[Activation]) -> list[Activation]:
    """Return the tokens in the order of their branches (R6)."""
    return sorted(tokens, key=order_among(tokens))


def plain_fields(frame: FrameState, versions: Iterable[Version], since: Version) -> frozenset[str]:
    """Return the fields without a reducer that were updated, and those whose whole value was replaced.

    Args:
        frame: the graph.
        versions: the versions that are merged.
        since: the version that all of them come from; earlier updates do not count.
    """
    fields = frame.plan.schema.fields
    found: set[str] = set()
    known = {id(since)}
    ahead = list(versions)
    while ahead:
        version = ahead.pop()
        if id(version) in known:
            continue
        known.add(id(version))
        ops = version.ops or {}
        found.update(name for name in version.update or () if fields[name].plain or ops.get(name) == "replace")
        ahead.extend(version.parents)
    return frozenset(found)


def absorb(frame: FrameState, token: Activation, entry: OpenFork) -> None:
    """End a token at a join that fired without it. Its updates are merged when the graph ends, as at END.

    For the fields that the join merged, the branch's updates do not count.

    Args:
        frame: the graph.
        token: the token, which is not among the live ones yet.
        entry: the open fork that the join belongs to.
    """
    version, hidden = token.version, entry.passed[token.node]
    if hidden:
        before = entry.version.values
        values = {**version.values, **{name: before[name] for name in hidden if name in before}}
        version = Version(values, parents=(version,), key=token.key, hidden=hidden)
    frame.ended_versions.append(version)
    for one in token.forks:
        one.left = True
    for item in token.map_items:
        # Items that need it continue as if it waited: they see its updates.
        (item.late if entry in item.ordered_map.forks else item.ended).append(token.version)
        frame.touched_items[id(item)] = item
