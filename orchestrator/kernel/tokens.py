"""Adds and removes a graph's live tokens, and counts for each open fork and join how many can still reach it (R4).

A join is looked at only when one of these counts, or its queue, changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.kernel.rank import order_by
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameState, MapItem, Phase


def place(run: RunState, token: Activation) -> None:
    """Put a new token where it waits: at its join, or in the queue."""
    frame, node = token.frame, token.node
    fork = frame.plan.topology.match.get(node) if token.forks else None
    if fork is not None:
        for entry in token.forks:
            if entry.fork == fork:
                token.phase = Phase.WAITING
                entry.arrivals.setdefault(node, []).append(token)
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


def add(run: RunState, token: Activation) -> None:
    """Add a token to the live ones. Its phase must be set."""
    frame = token.frame
    for observer in run.observers:
        observer.added(token)
    frame.live[token.key] = token
    if token.forks:
        _count(frame, token, 1)
    for item in token.map_items:
        frame.touched_items[id(item)] = item
        if _is_settled(frame, token, item):
            item.waiting[token.key] = token
        else:
            item.open += 1


def remove(token: Activation) -> None:
    """Remove a token from the live ones. Its phase must still be the one it was added with."""
    frame = token.frame
    del frame.live[token.key]
    if token.forks:
        _count(frame, token, -1)
    for item in token.map_items:
        frame.touched_items[id(item)] = item
        if item.waiting.pop(token.key, None) is None:
            item.open -= 1


def withdraw(token: Activation) -> None:
    """Remove a token from the live ones and from the queue, join or map in which it waits."""
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
    waiting = token.phase is Phase.WAITING
    for entry in token.forks:
        entry.live += step
        scope = entry.scope
        if waiting:
            joins: Iterable[str] = scope.waiting[token.node]
        elif token.phase is Phase.PENDING and token.node in frame.plan.topology.match:
            joins = {token.node, *scope.waiting[token.node]} & entry.reach.keys()
        else:
            joins = scope.active[token.node]
        for join in joins:
            entry.reach[join] += step
            if not entry.reach[join]:
                frame.touched_joins[id(entry), join] = (entry, join)


def _is_settled(frame: FrameState, token: Activation, item: MapItem) -> bool:
    """Whether the token waits at a join of the item's map, or of a fork that was open when the map opened."""
    if token.phase is not Phase.WAITING:
        return False
    fork = frame.plan.topology.match[token.node]
    return any(entry.fork == fork and entry in item.ordered_map.forks for entry in token.forks)


def in_order(frame: FrameState, tokens: Iterable[Activation]) -> list[Activation]:
    """Tokens in the order of their branches (R6)."""
    return sorted(tokens, key=order_by(frame.rules))
