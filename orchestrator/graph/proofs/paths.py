"""The paths that a token can take through one graph under the kernel's rules, without a run.

A *spot* is a node at which a token arrives, with the forks that are open around it (R3). A graph that passed its checks
has at most `MOST_PAIRS` of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from orchestrator.graph.checks.parts import can_time_out
from orchestrator.graph.topology import DONE, END, IF_NAMED, START, STOP, counts, digraph

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition, Node
    from orchestrator.graph.topology import Route

ENDS = frozenset({END, STOP})
LIMIT_SPENT = "a limit is spent"


class Spot(NamedTuple):
    """A place where a token arrives, with the forks open around it, outermost first."""

    vertex: str
    forks: tuple[str, ...] = ()
    spent: bool = False
    """True if the graph's limit is spent and its edge for that case was taken: each node runs at most once (R14)."""
    blocked: frozenset[str] = frozenset()
    """Joins that never fire for the token, because a concurrent branch can reach them as long as the graph runs."""
    stopped: frozenset[str] = frozenset()
    """Those of `blocked` for which such a branch can enter STOP. At the others the token waits forever."""


class Move(NamedTuple):
    """A possible next step from a spot."""

    outcome: str
    target: Spot
    note: str = ""
    """A further condition for the move: an empty list."""
    each: bool = False
    """True for a map: as many tokens as the list has items."""
    edge: int = 0
    """The number of the edge in the graph's text."""
    firing: tuple[str, ...] = ()
    """Joins that fire at once through the other edges of this fork, and drop what could still reach them."""


class Paths:
    """The spots of a graph and the moves between them.

    Args:
        graph: the graph.
        True if it runs inside another graph. Such a graph has fixed limits, which only enough steps can spend, while an
        outermost run can be started with any limits.
    """

    def __init__(self, graph: GraphDefinition, *, inside: bool = False) -> None:
        self.graph, self.topology, self.inner = graph, graph.topology, inside
        self._moves: dict[Spot, tuple[Move, ...]] = {}
        self._endless: dict[str, set[Spot]] = {}
        self._stopping: set[Spot] = set()
        self._off: dict[str, set[Spot]] = {}
        stops = any(edge.target == STOP for edge in graph.edges)
        may_jump = any(target.spent for _, target in self.jumps)  # catches failures; joins may still wait
        if self.topology.joins and (stops or may_jump or self.caught()):
            self._find_endless()

    @property
    def start(self) -> Spot:
        return Spot(START)

    @cached_property
    def jumps(self) -> tuple[tuple[str, Spot], ...]:
        """The spots at which all tokens continue together from wherever they are, each with the reason."""
        found: list[tuple[str, Spot]] = []
        target = self.topology.exhausted_target
        if target is not None and target not in ENDS and (not self.inner or may_run_out(self.graph)):
            found.append((LIMIT_SPENT, Spot(target, (), True)))
        for name, node in self.graph.nodes.items():
            if getattr(node, "on_busy", None) == "interrupt":
                found.append((f"a message for {name} interrupts", Spot(name)))
        return tuple(found)

    def jumps_from(self, spot: Spot) -> tuple[tuple[str, Spot], ...]:
        """Return the jumps that are possible while a token is at a spot."""
        if spot.vertex in ENDS or spot.vertex == START:
            return ()
        return tuple((why, target) for why, target in self.jumps if not (spot.spent and target.spent))

    def outcomes(self, vertex: str) -> Iterator[str]:
        """Yield the outcomes of a node that lead anywhere."""
        if vertex == START:
            yield DONE
            return
        node = self.graph.nodes[vertex]
        for outcome in dict.fromkeys((*node.outcomes, *IF_NAMED)):
            if self.topology.has_route(vertex, outcome) and can_take(node, outcome):
                yield outcome

    def waits(self, spot: Spot) -> bool:
        """Return True if a token that arrives at the spot waits at a join."""
        fork = self.topology.match.get(spot.vertex)
        return fork is not None and fork in spot.forks

    def runs(self, spot: Spot) -> bool:
        """Return True if the node of a spot can run there; a blocked join never fires."""
        return spot.vertex not in ENDS and not (spot.vertex in spot.blocked and self.waits(spot))

    def inside(self, spot: Spot) -> tuple[str, ...]:
        """Return the forks open around a running node: at a join, those that it has not closed (R5)."""
        vertex, forks = spot.vertex, spot.forks
        fork = self.topology.match.get(vertex)
        if fork is None or fork not in forks:
            return forks
        place = forks.index(fork)
        return forks[:place] if self.topology.closes[vertex] else forks[: place + 1]

    # -- moves ------------------------------------------------------------------------------------------------

    def moves(self, spot: Spot) -> tuple[Move, ...]:
        """Return all moves from a spot along edges."""
        found = self._moves.get(spot)
        if found is None:
            found = self._moves[spot] = tuple(self._find_moves(spot)) if self.runs(spot) else ()
        return found

    def _find_moves(self, spot: Spot) -> Iterator[Move]:
        vertex = spot.vertex
        forks = self.inside(spot)
        if vertex in self.topology.fans and vertex not in forks:
            forks = (*forks, vertex)
        for outcome in self.outcomes(vertex):
            routes = self.topology.routes(vertex, outcome)
            stops = [route for route in routes if route.target == STOP and route.each is None]
            if stops:  # the graph ends before another branch starts
                yield Move(outcome, Spot(STOP, forks, spot.spent), edge=stops[0].index)
                continue
            if spot.spent and any(route.each is None and self._has_run(spot, route.target) for route in routes):
                yield Move(outcome, Spot(END, forks, spot.spent), "a node would run twice", edge=routes[0].index)
                continue
            ways = [list(self._along(spot, forks, outcome, route)) for route in routes]
            for number, way in enumerate(ways):
                others = ways[:number] + ways[number + 1 :]
                firing = self._at_once(others)
                for move in way:
                    if not any(self.can_reach(move.target, join) for join in firing):  # otherwise the branch is dropped
                        yield move._replace(target=self._beside(spot, move.target, others), firing=firing)

    def _has_run(self, spot: Spot, target: str) -> bool:
        """Return True if a node surely ran after a spent limit, so that another token's arrival ends the run (R14)."""
        return target in (spot.vertex, self.topology.exhausted_target) and not self.waits(Spot(target, spot.forks))

    def _along(self, spot: Spot, forks: tuple[str, ...], outcome: str, route: Route) -> Iterator[Move]:
        if route.each is None:
            yield Move(outcome, Spot(route.target, forks, spot.spent), edge=route.index)
            return
        fork = route.map_vertex or spot.vertex
        inner = forks if fork in forks else (*forks, fork)
        yield Move(outcome, Spot(route.target, inner, spot.spent), each=True, edge=route.index)
        empty = self.topology.empty_target(fork, route.target, frozenset(inner) - {fork}) or END
        yield Move(outcome, Spot(empty, inner, spot.spent), f"{route.each} is empty", edge=route.index)

    def _at_once(self, ways: Sequence[Sequence[Move]]) -> tuple[str, ...]:
        """Return the joins that fire as soon as these edges of a fork are taken, and drop other branches."""
        arrived = Counter(filter(None, map(self.joins_at_once, ways)))
        return tuple(join for join, count in arrived.items() if self.topology.nodes[join].join in range(1, count + 1))

    def joins_at_once(self, way: Sequence[Move]) -> str | None:
        """Return the join at which the branch of an edge waits at once, if the join takes a number and drops the rest.

        A branch with another fork around it does not count: a join of that fork may drop it.
        """
        joins = {move.target.vertex if self._waits_for_number(move.target) else None for move in way}
        join = joins.pop()
        return None if joins else join

    def _waits_for_number(self, spot: Spot) -> bool:
        node = self.topology.nodes.get(spot.vertex)
        if node is None or node.lets_run or not isinstance(node.join, int) or not self.waits(spot):
            return False
        return node.join == 1 or spot.forks[-1] == self.topology.match[spot.vertex]

    def can_reach(self, spot: Spot, join: str) -> bool:
        """Return True if a token that arrives at a spot can still reach a join of a fork that it is in (R4)."""
        fork = self.topology.match[join]
        if fork is None or fork not in spot.forks or spot.vertex in ENDS:
            return False
        scope = self.topology.scope(fork, frozenset(spot.forks[: spot.forks.index(fork)]))
        if self.waits(spot):
            return spot.vertex == join or join in scope.waiting[spot.vertex]
        return join in scope.active[spot.vertex]

    def _beside(self, spot: Spot, target: Spot, others: Sequence[Sequence[Move]]) -> Spot:
        """Return the spot that a token reaches, with the joins that concurrent branches block."""
        if not self._endless:
            return target
        blocked, stopped = set(spot.blocked), set(spot.stopped)
        for join, endless in self._endless.items():
            for way in others:
                if all(move.target in endless for move in way):
                    blocked.add(join)
                    if any(move.target in self._stopping for move in way):
                        stopped.add(join)
        kept = frozenset(join for join in blocked if self.topology.match[join] in target.forks)
        return target._replace(blocked=kept, stopped=kept & stopped)

    @property
    def spots(self) -> dict[Spot, tuple[Spot, str, str] | None]:
        """Every spot at which a token can arrive -> the previous spot, the outcome there, and a note."""
        if self._spots is None:
            self._spots = self._find_spots()
        return self._spots

    _spots: dict[Spot, tuple[Spot, str, str] | None] | None = None

    def _find_spots(self) -> dict[Spot, tuple[Spot, str, str] | None]:
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

    # -- ends -------------------------------------------------------------------------------------------------

    def caught(self) -> list[Spot]:
        """Return the spots from which no choice of outcomes leads all branches to END, or one of them to STOP.

        After a spent limit no node runs twice, so everything ends (R14). A branch at a join that never fires ends if a
        concurrent one can enter STOP.
        """
        before = self._before()
        stopping = _leading_to(before, [spot for spot in self.spots if spot.vertex == STOP])
        stopping |= {spot for spot in self.spots if spot.vertex in spot.stopped and not self.runs(spot)}
        ends = {spot for spot in self.spots if spot.spent or spot.vertex == END or spot in stopping}
        ends |= {spot for spot in self.spots if any(target.spent for _, target in self.jumps_from(spot))}
        free = self._led(before, ends)
        return [spot for spot in self.spots if spot not in free]

    def keeping_off(self, join: str) -> set[Spot]:
        """Return the spots from which some choice of outcomes leads no branch to a join."""
        found = self._off.get(join)
        if found is None:
            goals = {spot for spot in self.spots if not self.can_reach(spot, join)}
            found = self._off[join] = self._led(self._before(), goals, past=join)
        return found

    def _before(self) -> _Before:
        found: _Before = {spot: [] for spot in self.spots}
        for spot in self.spots:
            for move in self.moves(spot):
                found[move.target].append((spot, move.outcome, move.edge))
        return found

    def _led(self, before: _Before, goals: set[Spot], past: str = "") -> set[Spot]:
        """Return the spots from which some choice of outcomes leads all branches to the goals, none through `past`."""
        missing: dict[tuple[Spot, str], set[int]] = {}
        for spot in self.spots:
            for move in self.moves(spot):
                missing.setdefault((spot, move.outcome), set()).add(move.edge)
        found, ahead = set(goals), list(goals)
        while ahead:
            for spot, outcome, edge in before[ahead.pop()]:
                left = missing[spot, outcome]
                left.discard(edge)
                if not left and spot not in found and spot.vertex != past:
                    found.add(spot)
                    ahead.append(spot)
        return found

    def _find_endless(self) -> None:
        """Find, for each join, the spots from which branches can reach it as long as the graph runs.

        No choice of outcomes leads all of these branches elsewhere, and STOP ends the graph before the join fires. The
        search is repeated with the spots found.

        A join that waits for only some of the branches does not need the others.
        """
        before = self._before()
        self._stopping = _leading_to(before, [spot for spot in self.spots if spot.vertex == STOP])
        for join in self.topology.joins:
            if counts(self.topology.nodes[join].join):
                continue
            there = {spot for spot in self.spots if spot.vertex == join}
            goals = {spot for spot in self.spots if spot.spent or not self.can_reach(spot, join)}
            free = self._led(before, {spot for spot in goals | there if spot.vertex != STOP})
            endless = {spot for spot in self.spots if spot not in free and spot.vertex != STOP}
            if endless:
                self._endless[join] = endless
        self._moves.clear()
        self._spots = None


_Before: TypeAlias = dict[Spot, list[tuple[Spot, str, int]]]
"""Spot -> the spots that lead to it, with outcome and edge."""


def _leading_to(before: _Before, goals: Sequence[Spot]) -> set[Spot]:
    found, ahead = set(goals), list(goals)
    while ahead:
        for spot, _, _ in before[ahead.pop()]:
            if spot not in found:
                found.add(spot)
                ahead.append(spot)
    return found


def can_take(node: Node, outcome: str) -> bool:
    """Return True if a node can end with a reserved outcome: without a timeout it never takes `timeout`."""
    if outcome == "timeout":
        return node.kind == "unresolved" or can_time_out(node)
    return outcome != "exhausted" or node.subgraph is not None


def may_run_out(graph: GraphDefinition) -> bool:
    """Return True if a graph may spend limits of its own before it reaches its end."""
    limits = graph.limits
    if any(value is not None for value in (limits.seconds, limits.tokens, limits.cost, limits.calls)):
        return True
    if limits.steps is None and not limits.visits:
        return False
    inner = any(node.subgraph is not None for node in graph.nodes.values())
    few = limits.steps is not None and limits.steps < len(graph.nodes)
    return few or inner or bool(graph.topology.fans) or _has_cycle(graph)


def _has_cycle(graph: GraphDefinition) -> bool:
    import networkx as nx

    return not nx.is_directed_acyclic_graph(digraph(graph.topology.successors))
