"""Joins: when they fire, and what they merge (R4, R5, R8)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from orchestrator.errors import StepError
from orchestrator.graph.topology import counts, is_count
from orchestrator.kernel import endings, tokens
from orchestrator.kernel.merge import merged
from orchestrator.kernel.records import Failure
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameState, OpenFork, Phase, hash_id
from orchestrator.kernel.tokens import absorb, plain_fields
from orchestrator.kernel.version import Rank


class Due:
    """A join that may fire. Due joins are ordered as the graph declares them (R8)."""

    __slots__ = ("entry", "join", "number")

    def __init__(self, number: int, entry: OpenFork, join: str) -> None:
        self.number, self.entry, self.join = number, entry, join

    def __lt__(self, other: Due) -> bool:
        if self.number != other.number:
            return self.number < other.number
        return self.entry.rank < other.entry.rank


def next_touched(frame: FrameState, due: list[Due]) -> tuple[OpenFork, str] | None:
    """Remove and return the next join to examine, if any. `due` is a heap of touched joins not yet examined."""
    if not due and len(frame.touched_joins) == 1:
        return frame.touched_joins.popitem()[1]
    for entry, join in frame.touched_joins.values():
        if entry.arrivals.get(join):
            heapq.heappush(due, Due(frame.plan.topology.joins.index(join), entry, join))
    frame.touched_joins.clear()
    if not due:
        return None
    first = heapq.heappop(due)
    return first.entry, first.join


def fire_if_ready(run: RunState, frame: FrameState, entry: OpenFork, join: str) -> None:
    """Fire a join of an open fork if enough tokens wait at it, or no further one can reach it."""
    arrivals = entry.arrivals.get(join)
    if not arrivals:
        return
    count = _count_of(frame, entry, join)
    if not entry.reach[join] or (count is not None and len(arrivals) >= count):
        _fire(run, frame, entry, join, count)


def _count_of(frame: FrameState, entry: OpenFork, join: str) -> int | None:
    """Return the number of tokens that a join of an open fork waits for; None if it waits for all that can reach it."""
    wanted = frame.plan.topology.nodes[join].join
    if not counts(wanted):
        return None
    number = entry.version.values.get(wanted) if isinstance(wanted, str) else wanted
    return number if is_count(number) else None


def _fire(run: RunState, frame: FrameState, entry: OpenFork, join: str, count: int | None) -> None:
    arrivals = entry.arrivals.pop(join)
    for observer in run.observers:
        observer.joining(join, arrivals[:count])
    late: list[Activation] = []
    if count is not None:
        late, arrivals = arrivals[count:], arrivals[:count]
        if not frame.plan.topology.nodes[join].lets_run:
            _drop_losers(run, frame, entry, join, late)
            late = []
    arrivals = tokens.in_order(frame, arrivals)
    first = arrivals[0]
    position = first.forks.index(entry)
    closes = frame.plan.topology.closes[join]
    forks = first.forks[: position if closes else position + 1]
    outer = {e.fork for e in first.forks[:position]}
    key = hash_id(*(token.key for token in arrivals), join)
    fault: Failure | None = None
    try:
        version = merged(frame, [token.version for token in arrivals], key, entry.version)
    except StepError as error:
        version = entry.version  # the last state that the branches have in common
        fault = Failure(type=type(error).__name__, message=str(error), node=join)
    tokens.remove_all(frame, (*arrivals, *late))
    if frame.plan.topology.nodes[join].lets_run:
        merged_fields = plain_fields(frame, [token.version for token in arrivals], entry.version)
        tokens.pass_by(frame, entry, join, merged_fields)
        for token in late:
            absorb(frame, token, entry)
    rank = _rank_after(entry, first) if closes else first.rank
    for token in arrivals:
        for closed in token.forks[len(forks) :]:
            closed.left = True
    stack = tuple(binding for binding in first.stack if binding[0] in outer)
    kept = {id(e) for e in first.forks[:position]}
    items = tuple(item for item in first.map_items if id(item.fork) in kept)
    fired = Activation(frame, key, join, version, rank, forks, stack, items)
    fired.merged = True
    fired.fault = fault or _miscounted(frame, entry, join)
    if not closes or frame.plan.topology.nodes[join].lets_run:
        entry.trunk = version
    tokens.enqueue(run, fired)
    for observer in run.observers:
        observer.done()


def _miscounted(frame: FrameState, entry: OpenFork, join: str) -> Failure | None:
    """Return the failure of a join whose number, read from the state, is no number of branches; None if it is one."""
    wanted = frame.plan.topology.nodes[join].join
    if not isinstance(wanted, str) or not counts(wanted) or is_count(number := entry.version.values.get(wanted)):
        return None
    found = f"the state at {entry.fork} has {number!r} there"
    message = f"{join} waits for {wanted!r} branches, and {found}: it must be 1 or more"
    return Failure(type="InvalidOutcome", message=message, node=join)


def _rank_after(entry: OpenFork, lowest: Activation) -> Rank:
    """Return the rank of a closing join's token: at the fork's path, after the lowest branch that it merged (R6).

    A round of a loop that merged all of its branches leaves no branch against which a later one must be ordered, so it
    adds no item to the list: the item of the previous round distinguishes all later tokens from other branches.
    """
    whole = not entry.live and not entry.left
    return entry.rank if whole and entry.rank.closed else Rank(entry.rank.path, lowest.rank, closed=True)


def _drop_losers(run: RunState, frame: FrameState, entry: OpenFork, join: str, late: Sequence[Activation]) -> None:
    """Drop the tokens that arrived too late, and all others that can reach the join."""
    losers = {token.key: token for token in late}
    for token in frame.live.values():
        if entry not in token.forks or token.key in losers:
            continue
        scope = tokens.scope_of(frame, token, entry)
        if token.phase is Phase.WAITING:
            reaches = join in scope.waiting[token.node]
        elif token.phase is Phase.PENDING:
            reaches = join == token.node or join in scope.active[token.node]
        else:
            reaches = join in scope.active[token.node]
        if reaches:
            losers[token.key] = token
    for token in losers.values():
        endings.drop(run, token)
