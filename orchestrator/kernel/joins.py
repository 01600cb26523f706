"""Joins, and the items of maps that wait for each other (R4, R5, R8, R12)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from orchestrator.errors import StepError
from orchestrator.kernel.books import Books
from orchestrator.kernel.rank import Rank
from orchestrator.kernel.records import Failure
from orchestrator.kernel.token import Activation, Cell, Group, OpenFork, Phase, mix
from orchestrator.kernel.version import Version

if TYPE_CHECKING:
    from orchestrator.kernel.frame import Frame


class Due:
    """A join that may fire, in the order in which the graph declares joins (R8)."""

    __slots__ = ("entry", "join", "number")

    def __init__(self, number: int, entry: OpenFork, join: str) -> None:
        self.number, self.entry, self.join = number, entry, join

    def __lt__(self, other: Due) -> bool:
        if self.number != other.number:
            return self.number < other.number
        return self.entry.rank < other.entry.rank


class Joins(Books):
    """What happens when tokens wait for each other."""

    __slots__ = ()

    def _next_touched(self, due: list[Due]) -> tuple[OpenFork, str] | None:
        """Take out the join to look at next. `due` is a heap of those taken out of `touched` and not looked at yet."""
        if not self.rules.declared_order or (not due and len(self.touched) == 1):
            return self.touched.popitem()[1]
        for entry, join in self.touched.values():
            if entry.arrivals.get(join):
                heapq.heappush(due, Due(self.plan.topology.joins.index(join), entry, join))
        self.touched.clear()
        if not due:
            return None
        first = heapq.heappop(due)
        return first.entry, first.join

    def _look_at(self, entry: OpenFork, join: str) -> None:
        """Fire a join of an open fork, if it can."""
        arrivals = entry.arrivals.get(join)
        if not arrivals:
            return
        wanted = self.plan.topology.nodes[join].join
        if not entry.reach[join] or (isinstance(wanted, int) and len(arrivals) >= wanted):
            self._fire(entry, join, wanted if isinstance(wanted, int) else None)

    def _fire(self, entry: OpenFork, join: str, wanted: int | None) -> None:
        arrivals = entry.arrivals.pop(join)
        if wanted is not None:
            self._drop_losers(entry, join, arrivals[wanted:])
            arrivals = arrivals[:wanted]
        arrivals = self.in_order(arrivals)
        first = arrivals[0]
        position = first.forks.index(entry)
        closes = self.plan.topology.closes[join]
        forks = first.forks[: position if closes else position + 1]
        outer = {e.fork for e in first.forks[:position]}
        key = mix(*(token.key for token in arrivals), join)
        fault: Failure | None = None
        try:
            version = self.merged([token.version for token in arrivals], key, entry.version)
        except StepError as error:
            version = entry.version  # what all know of each other
            fault = Failure(type=type(error).__name__, message=str(error), node=join)
        for token in arrivals:
            self._remove(token)
        rank = self._rank_after(entry, first) if closes else first.rank
        for token in arrivals:
            for gone in token.forks[len(forks) :]:
                gone.left = True
        stack = tuple(pair for pair in first.stack if pair[0] in outer)
        kept = {id(e) for e in first.forks[:position]}
        cells = tuple(cell for cell in first.cells if id(cell.fork) in kept)
        fired = Activation(cast("Frame", self), key, join, version, rank, forks, stack, cells)
        fired.merged = True
        fired.fault = fault
        if not closes:
            entry.trunk = version
        self.queue.append(fired)
        self._add(fired)

    def _rank_after(self, entry: OpenFork, lowest: Activation) -> Rank:
        """Where the token of a closing join stands: at the fork's path, behind the lowest branch that it merged (R6).

        A round of a loop that merged all of its branches leaves no other branch for a later one to be ordered against,
        so it needs no item of its own in the list: what the round before added tells them apart from all others.
        """
        if not self.rules.ranked:
            return Rank(entry.rank.path)
        whole = not entry.live and not entry.left
        return entry.rank if whole and entry.rank.closed else Rank(entry.rank.path, lowest.rank, closed=True)

    def _drop_losers(self, entry: OpenFork, join: str, late: Sequence[Activation]) -> None:
        losers = {token.key: token for token in late}
        for token in self.live.values():
            if entry not in token.forks or token.key in losers:
                continue
            if token.phase is Phase.WAITING:
                reaches = join in entry.scope.waiting[token.node]
            elif token.phase is Phase.PENDING:
                reaches = join == token.node or join in entry.scope.active[token.node]
            else:
                reaches = join in entry.scope.active[token.node]
            if reaches:
                losers[token.key] = token
        for token in losers.values():
            self.drop(token)

    def _check_cell(self, cell: Cell) -> None:
        if cell.done or cell.open or not cell.started:
            return
        cell.done = True
        cell.versions = [token.version for token in self.in_order(cell.waiting.values())]
        group = cell.group
        for index in group.dependents.get(cell.index, ()):
            dependent = group.cells[index]
            dependent.missing -= 1
            if not dependent.missing:
                self._begin(dependent)

    def _begin(self, cell: Cell) -> None:
        """Start an item, or skip it because an item that it needs ended."""
        group = cell.group
        token = group.pending.pop(cell.index, None)
        if token is None:
            return
        needed = [group.cells[index] for index in cell.needs]
        cell.started = True
        self._remove(token)
        if group.target is not None and any(not other.versions for other in needed):
            self.seen[id(cell)] = cell
            return
        if needed:
            try:
                token.version = self._needed(group, cell, needed)
            except StepError as error:
                token.fault = Failure(type=type(error).__name__, message=str(error), node=token.node)
        if token.fault is not None:
            token.phase = Phase.QUEUED
            self.queue.append(token)
            self._add(token)
        else:
            self._sit(token)

    def _needed(self, group: Group, cell: Cell, needed: Sequence[Cell]) -> Version:
        known = group.merged.get(cell.needs)
        if known is None:
            # Not the fork's own version too: all these come from it, and it may have been cut off (R15).
            versions = [version for other in needed for version in other.versions or other.ended]
            versions = versions or [cell.fork.version]
            key = mix(cell.fork.key, *(str(index) for index in cell.needs))
            known = self.merged(versions, key, cell.fork.version)
            group.merged[cell.needs] = known
        return known
