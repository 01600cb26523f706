"""The paths that a token can take through one graph: what the kernel does with it, without a run.

A *spot* is a node that a token arrives at, with the forks that are open around it (R3). A graph that passed its checks
has at most `MOST_PAIRS` of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.graph.checks.failures import can_time_out
from orchestrator.graph.topology import DONE, END, IF_NAMED, START, STOP

if TYPE_CHECKING:
    from orchestrator.graph.definition import GraphDefinition
    from orchestrator.graph.node import Node

ENDS = frozenset({END, STOP})
LIMIT_SPENT = "a limit is spent"


class Spot(NamedTuple):
    """Where a token arrives, with the forks open around it, outermost first."""

    vertex: str
    forks: tuple[str, ...] = ()
    spent: bool = False
    """Whether the graph's limit is spent, and its edge for that was taken: each node runs at most once (R14)."""


class Move(NamedTuple):
    """One way on from a spot."""

    outcome: str
    target: Spot
    note: str = ""
    """What else makes a token take it: an empty list."""
    each: bool = False
    """Whether it is a map: as many tokens as the list has items."""


class Paths:
    """The spots of a graph, and the moves between them."""

    def __init__(self, graph: GraphDefinition) -> None:
        self.graph, self.topology = graph, graph.topology
        self._moves: dict[Spot, tuple[Move, ...]] = {}

    @property
    def start(self) -> Spot:
        return Spot(START)

    @cached_property
    def jumps(self) -> tuple[tuple[str, Spot], ...]:
        """Where all tokens together go on from wherever they are, and why."""
        found: list[tuple[str, Spot]] = []
        target = self.topology.exhausted_target
        if target is not None and target not in ENDS:
            found.append((LIMIT_SPENT, Spot(target, (), True)))
        for name, node in self.graph.nodes.items():
            if getattr(node, "on_busy", None) == "interrupt":
                found.append((f"a message for {name} interrupts", Spot(name)))
        return tuple(found)

    def jumps_from(self, spot: Spot) -> tuple[tuple[str, Spot], ...]:
        """Those that are possible at a spot."""
        if spot.vertex in ENDS:
            return ()
        return tuple((why, target) for why, target in self.jumps if not (spot.spent and target.spent))

    def outcomes(self, vertex: str) -> Iterator[str]:
        """The outcomes of a node that lead anywhere."""
        if vertex == START:
            yield DONE
            return
        node = self.graph.nodes[vertex]
        for outcome in dict.fromkeys((*node.outcomes, *IF_NAMED)):
            if self.topology.has_route(vertex, outcome) and can_take(node, outcome):
                yield outcome

    def inside(self, spot: Spot) -> tuple[str, ...]:
        """The forks open around a node that runs: at a join, those that it has not closed (R5)."""
        vertex, forks, _ = spot
        fork = self.topology.match.get(vertex)
        if fork is None or fork not in forks:
            return forks
        place = forks.index(fork)
        return forks[:place] if self.topology.closes[vertex] else forks[: place + 1]

    def moves(self, spot: Spot) -> tuple[Move, ...]:
        """All ways on from a spot along edges."""
        found = self._moves.get(spot)
        if found is None:
            found = self._moves[spot] = tuple(self._find_moves(spot)) if spot.vertex not in ENDS else ()
        return found

    def _find_moves(self, spot: Spot) -> Iterator[Move]:
        vertex, spent = spot.vertex, spot.spent
        forks = self.inside(spot)
        if vertex in self.topology.fans and vertex not in forks:
            forks = (*forks, vertex)
        for outcome in self.outcomes(vertex):
            for route in self.topology.routes(vertex, outcome):
                if route.each is None:
                    yield Move(outcome, Spot(route.target, forks, spent))
                    continue
                fork = route.map_vertex or vertex
                inner = forks if fork in forks else (*forks, fork)
                yield Move(outcome, Spot(route.target, inner, spent), each=True)
                outer = frozenset(inner) - {fork}
                empty = self.topology.empty_target(fork, route.target, outer) or END
                yield Move(outcome, Spot(empty, inner, spent), f"{route.each} is empty")

    @cached_property
    def spots(self) -> dict[Spot, tuple[Spot, str, str] | None]:
        """Every spot that a token can arrive at, with the spot before it, the outcome there, and a note."""
        found: dict[Spot, tuple[Spot, str, str] | None] = {self.start: None}
        ahead = [self.start]
        for spot in ahead:
            following = [(move.target, move.outcome, move.note) for move in self.moves(spot)]
            following += [(target, "", why) for why, target in self.jumps_from(spot)]
            for target, outcome, note in following:
                if target not in found:
                    found[target] = (spot, outcome, note)
                    ahead.append(target)
        return found


def can_take(node: Node, outcome: str) -> bool:
    """Whether a node can end with a reserved outcome: one without a time-out never takes `timeout`."""
    if outcome == "timeout":
        return node.kind == "unresolved" or can_time_out(node)
    return outcome != "exhausted" or node.subgraph is not None
