"""Limited resources that running steps and their calls occupy: places in pools (R18), tokens, cost and calls (R14).

A step keeps its place in a pool from its admission until it ends or is dropped: also while it asks, waits for a timer
or its next attempt, and while the graph inside it runs. Frozen graphs keep their places, because they may continue. A
call in progress reserves tokens, cost and one call in the graphs around it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from orchestrator.graph.limits import Reserve
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameState, FrozenTokens, Phase


def has_place(run: RunState, token: Activation, pool: str) -> bool:
    """Return True if a step has a place, or can have one without overtaking others that wait for it."""
    if token.key in run.places.get(pool, ()):
        return True
    return pool not in run.lines and is_free(run, pool)


def is_free(run: RunState, pool: str) -> bool:
    """Return True if a pool has a free place."""
    size = run.plan.pools.get(pool)
    return size is None or len(run.places.get(pool, ())) < size


def hold(run: RunState, token: Activation) -> None:
    """Give a step a place, if its node names a pool."""
    pool = token.frame.plan.pooled.get(token.node)
    if pool is not None:
        run.places.setdefault(pool, set()).add(token.key)


def line_up(run: RunState, token: Activation, pool: str) -> None:
    """Make a step wait for a place, after all that already wait."""
    token.phase = Phase.IN_LINE
    run.lines.setdefault(pool, OrderedDict())[token.key] = token


def leave_line(run: RunState, token: Activation) -> None:
    """Remove a step from the queue of its pool."""
    pool = token.frame.plan.pooled[token.node]
    del run.lines[pool][token.key]
    if not run.lines[pool]:
        del run.lines[pool]


def give_up(run: RunState, token: Activation) -> None:
    """Release the place of a step, if it has one."""
    pool = token.frame.plan.pooled.get(token.node)
    holders = None if pool is None else run.places.get(pool)
    if pool is not None and holders is not None:
        holders.discard(token.key)
        if not holders:
            del run.places[pool]


def give_up_all(run: RunState, frozen: FrozenTokens) -> None:
    """Release the places of tokens that were set aside, and of the graphs inside them."""
    for token in frozen.live.values():
        give_up(run, token)
        if token.kept is not None and token.kept.frozen is not None:
            give_up_all(run, token.kept.frozen)


def dissolve_lines(run: RunState) -> list[list[str]]:
    """Put all tokens that wait for a place back into their graphs' queues; return the pools' queues, as activations."""
    lines = [list(line) for line in run.lines.values()]
    for frame in run.frames():
        rejoin_queue(run, frame)
    return lines


def rejoin_queue(run: RunState, frame: FrameState) -> None:
    """Put a graph's tokens that wait for a place at the front of its queue."""
    for token in list(in_line(run, frame))[::-1]:
        leave_line(run, token)
        token.phase = Phase.QUEUED
        frame.queue.appendleft(token)


def in_line(run: RunState, frame: FrameState) -> Iterator[Activation]:
    """Yield the tokens of a graph that wait for a place, pool by pool, in the order in which they will get one."""
    for line in run.lines.values():
        yield from (token for token in line.values() if token.frame is frame)


_NOTHING = Reserve()


def reserve(run: RunState, key: str, line: tuple[FrameState, ...], amount: Reserve | None) -> None:
    """Reserve tokens, cost and calls for a call in progress, in place of its previous reservation.

    Args:
        run: the run.
        key: key of the call.
        line: the graphs around it. Empty if its step is gone: then nothing is reserved, so that its graphs do not wait
            for the run that the call started.
        amount: None ends the reservation.
    """
    before = run.reserves.pop(key, None) or _NOTHING
    now = amount if amount is not None and line else _NOTHING
    if now != _NOTHING:
        run.reserves[key] = now
    for frame in line:
        frame.reserved_calls += now.calls - before.calls
        frame.reserved_tokens += now.tokens - before.tokens
        frame.reserved_cost += now.cost - before.cost


def release(run: RunState, activation: Activation) -> None:
    """End the reservations of an activation's calls."""
    for entry in run.ledger.of(activation.key):
        if entry.intended.key in run.reserves:
            reserve(run, entry.intended.key, activation.frame.line, None)


def release_all(run: RunState) -> None:
    """End all reservations: when a new drive starts, no call of the last one is in progress."""
    run.reserves.clear()
    for frame in run.frames():
        frame.reserved_calls = frame.reserved_tokens = 0
        frame.reserved_cost = 0.0
