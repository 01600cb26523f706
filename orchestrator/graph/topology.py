"""What the shape of a graph alone decides: which join belongs to which fork, and which joins a token can reach.

Nothing here looks at a run. The rules' numbers (R1 to R15, C1 to C7) are those of `docs/kernel.md`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from orchestrator.graph.routes import (
    ANY,
    DONE,
    END,
    FAILED,
    IF_NAMED,
    RESERVED,
    START,
    STOP,
    EdgeLike,
    FanOut,
    Join,
    NodeShape,
    Rest,
    Route,
    Routes,
    counts,
    digraph,
    is_count,
    reached,
)

__all__ = [
    "ANY", "DONE", "END", "FAILED", "IF_NAMED", "RESERVED", "START", "STOP", "EdgeLike", "FanOut", "ForkScope", "Join",
    "NodeShape", "Rest", "Route", "Topology", "counts", "digraph", "is_count", "reached",
]  # fmt: skip


class _Table(dict[str, tuple[str, ...]]):
    """Vertex -> joins; for most vertices there are none, and nothing is kept."""

    def __missing__(self, vertex: str) -> tuple[str, ...]:
        return ()


class ForkScope:
    """Who can reach which join of one fork, given the forks that were opened before it (R4).

    `active[node]` and `waiting[node]` are the joins of the fork that a token running (or about to run) at the
    node, or waiting at that join, can still reach. `passed` are joins that have fired and that no token of the branches
    can pass any more (R8).
    """

    __slots__ = ("active", "below", "fork", "joins", "passed", "waiting")

    def __init__(
        self, topology: Topology, fork: str, below: frozenset[str], passed: frozenset[str] = frozenset()
    ) -> None:
        self.fork, self.below, self.passed = fork, below, passed
        self.joins = topology.joins_of(fork)
        active: dict[str, dict[str, None]] = {}
        waiting: dict[str, list[str]] = {}
        for join in self.joins:
            if join in passed:
                continue
            for vertex in topology.entries(join, below, passed):
                for before in topology.predecessors[vertex]:
                    active.setdefault(before, {})[join] = None
                if vertex != join and vertex in topology.match:
                    waiting.setdefault(vertex, []).append(join)
        self.active = _Table({vertex: tuple(joins) for vertex, joins in active.items()})
        self.waiting = _Table({vertex: tuple(joins) for vertex, joins in waiting.items()})

    def __deepcopy__(self, memo: object) -> ForkScope:
        return self  # tables of the graph, shared by all runs


class Topology(Routes):
    """The static analysis of one graph: its routes, and the joins of its forks. Wants edges whose names are all known.

    Args:
        nodes: every node's outcomes and join.
        edges: the edges in order.
    """

    def __init__(self, nodes: Mapping[str, NodeShape], edges: Sequence[EdgeLike]) -> None:
        super().__init__(nodes, edges)
        self.joins = tuple(name for name, shape in nodes.items() if shape.join not in (None, "each"))
        self._scopes: dict[tuple[str, frozenset[str], frozenset[str]], ForkScope] = {}
        self._entries: dict[tuple[str, frozenset[str]], frozenset[str]] = {}
        self._empty: dict[tuple[str, str, frozenset[str], bool], str | None] = {}

    # -- joins and their forks --------------------------------------------------------------------------------

    @cached_property
    def match(self) -> dict[str, str | None]:
        """Join -> the fork that it belongs to (R2); None where no branches meet at it (C5)."""
        found: dict[str, str | None] = {}
        for join in self.joins:
            self._match(join, found)
        return found

    def _match(self, join: str, found: dict[str, str | None]) -> str | None:
        if join in found:
            return found[join]
        # Two joins can each lie on the other's ways, from different forks. The one asked first does not count
        # then: any rule will do that the order of the nodes decides.
        found[join] = None
        fork = self.dominators.get(join)
        while fork is not None:
            if any(self._belongs(join, fork, fan, found) for fan in self.fans.get(fork, ())):
                found[join] = fork
                break
            fork = self.dominators.get(fork)
        return fork

    def _belongs(self, join: str, fork: str, fan: FanOut, found: dict[str, str | None]) -> bool:
        leading = reached(self.predecessors, [join], {fork})
        starts = [target for target in fan.targets if target in leading]
        others = [other for other in self.joins if other != join and other in leading] if starts else []
        passed = self._on_every_way(starts, join, leading) if others else ()
        return bool(starts) and not any(o in passed and self._match(o, found) == fork for o in others)

    def _on_every_way(self, starts: Iterable[str], goal: str, within: set[str]) -> set[str]:
        """Vertices that all ways from the starts to the goal lead through."""
        import networkx as nx

        ways: dict[str, Iterable[str]] = {"": starts}  # no vertex has an empty name
        ways |= {vertex: within.intersection(self.successors[vertex]) for vertex in within}
        dominators = nx.immediate_dominators(digraph(ways), "")
        passed: set[str] = set()
        vertex = dominators[goal]
        while vertex:
            passed.add(vertex)
            vertex = dominators[vertex]
        return passed

    @cached_property
    def _by_fork(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for join, fork in self.match.items():
            if fork is not None:
                found[fork] = (*found.get(fork, ()), join)
        return found

    def joins_of(self, fork: str) -> tuple[str, ...]:
        """Return the joins that belong to a fork.

        Args:
            fork: the fork's vertex.

        Returns:
            The names of the joins; empty if there are none.
        """
        return self._by_fork.get(fork, ())

    @cached_property
    def closes(self) -> dict[str, bool]:
        """Join -> whether its token leaves the fork (R5)."""
        found: dict[str, bool] = {}
        for join, fork in self.match.items():
            if fork is None:
                found[join] = True
            else:
                beyond = self.reachable(self.successors[join], (fork,))
                found[join] = beyond.isdisjoint(self.joins_of(fork))
        return found

    @cached_property
    def _on_every_way_out(self) -> dict[str, frozenset[str]]:
        """Join -> the joins of its fork that every way from it to END or STOP leads through."""
        found: dict[str, frozenset[str]] = {}
        for join, fork in self.match.items():
            passed = [
                other
                for other in (self.joins_of(fork) if fork is not None else ())
                if other != join and {END, STOP}.isdisjoint(self.reachable(self.successors[join], (other,)))
            ]
            found[join] = frozenset(passed)
        return found

    def entries(self, join: str, below: frozenset[str], passed: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the vertices from which a token that is about to enter can reach `join` inside its fork (R4).

        Args:
            join: the join.
            below: the forks that are open around the join's fork.
            passed: joins of this fork, and of forks opened inside it, that the token cannot pass.

        Returns:
            The vertices.
        """
        if passed:
            return self._entries_beside(join, below, passed)
        known = self._entries.get((join, below))
        if known is not None:
            return known
        fork = self.match[join]
        out = self._on_every_way_out[join]
        barred = {
            other
            for other in self.joins
            if other != join
            and (self.match[other] in below or (self.match[other] == fork and (self.closes[other] or other in out)))
        }
        found = self._entries[join, below] = frozenset(reached(self.predecessors, [join], barred))
        return found

    def _entries_beside(self, join: str, below: frozenset[str], passed: frozenset[str]) -> frozenset[str]:
        """As `entries`, for a token that cannot pass some joins until it has left their forks by another one."""
        free = self.entries(join, below)
        left = {self.match[other] for other in passed}
        ways_out = {
            other for other, closing in self.closes.items()
            if closing and other not in passed and other in free and self.match[other] in left - {self.match[join]}
        }  # fmt: skip
        barred = (self.successors.keys() - free) | passed
        return frozenset(reached(self.predecessors, [join, *ways_out], barred))

    def scope(self, fork: str, below: frozenset[str], passed: frozenset[str] = frozenset()) -> ForkScope:
        """Return the tables for a fork that was opened inside other forks.

        Args:
            fork: the fork's vertex.
            below: the forks that were open before.
            passed: joins that have fired and let the other branches run; these cannot pass them any more.

        Returns:
            The tables, made once for each combination.
        """
        found = self._scopes.get((fork, below, passed))
        if found is None:
            found = self._scopes[fork, below, passed] = ForkScope(self, fork, below, passed)
        return found

    def empty_target(self, fork: str, mapped: str, outer: frozenset[str], *, declared: bool = True) -> str | None:
        """Return the join that a map without items sends its one token to (R11).

        Args:
            fork: the fork's vertex.
            mapped: the target of the map's edge.
            outer: the forks that were open before.
            declared: of several equally near joins take the one declared first; if false, the first by name.

        Returns:
            The join; None for END.
        """
        key = (fork, mapped, outer, declared)
        if key not in self._empty:
            self._empty[key] = self._find_empty_target(*key)
        return self._empty[key]

    def _find_empty_target(self, fork: str, mapped: str, outer: frozenset[str], declared: bool) -> str | None:
        distance = {mapped: 0}
        queue = deque((mapped,))
        while queue:
            vertex = queue.popleft()
            for following in self.successors[vertex]:
                if following not in distance and following != fork:
                    distance[following] = distance[vertex] + 1
                    queue.append(following)
        joins = [j for j in self.joins if j in distance and (self.match[j] == fork or self.match[j] in outer)]
        if not declared:
            joins.sort()
        joins.sort(key=distance.__getitem__)
        for join in joins:
            past = self.reachable((mapped,), (fork, join))
            if past.isdisjoint(joins):
                return join
        for join in joins:
            if all(join in self.reachable(self.successors[other]) for other in joins if other != join):
                return join
        return None

    def per_item(self, fork: str, fan: FanOut) -> set[str]:
        """Return the vertices that run once per item of a map: those before a join of it, or of a fork around it.

        Args:
            fork: the map's vertex.
            fan: the map.
        """
        inside = self.reachable(fan.targets, (fork, *self.joins_of(fork)))
        merging = [join for join, owner in self.match.items() if owner is not None and owner not in inside]
        return self.reachable(fan.targets, (fork, *merging))

    def notes(self) -> list[str]:
        """What is legal and often not meant: maps without a join, after which all runs once per item."""
        found: list[str] = []
        for fork, fans in self.fans.items():
            for fan in fans:
                if fan.field is not None and not self.joins_of(fork):
                    nodes = sorted(self.per_item(fork, fan) & self.nodes.keys())
                    found.append(f"the map over {fan.field!r} has no join: {', '.join(nodes)} run once per item")
        return found
