"""Checks of a graph's shape: nodes that can be reached, forks and joins; and the possible joins of an edge."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from math import inf
from typing import TypeAlias

from msgspec import Struct

from orchestrator.errors import Problem
from orchestrator.graph.faults import listed_names
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.topology import ANY, END, START, STOP, FanOut, Topology, digraph, reached

# -- C1: no node is unreachable from START, and no cycle or dead end keeps a run from an end --------------------


def reach_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield nodes that cannot be reached, or reach no end (END or STOP). Edges must be valid."""
    ways = [(edge.source, edge.target) for edge in graph.edges]
    if any(edge.source == ANY for edge in graph.edges):
        ways += [(name, ANY) for name in graph.nodes]  # one vertex between sources and targets keeps this linear
    begun = _reached(ways, START)
    lost = tuple(name for name in graph.nodes if name not in begun)
    if lost:
        fix = "add an edge to it, or remove it" if len(lost) == 1 else "add edges to them, or remove them"
        yield Problem("C1.reach", f"no path leads from START to {listed_names(lost)}: {fix}", lost)
    back = [(target, source) for source, target in ways]
    ending = _reached(back, END, STOP)
    caught = tuple(name for name in graph.nodes if name in begun and name not in ending)
    if caught:
        one = f"let {'it' if len(caught) == 1 else 'one of them'} lead to END"
        yield Problem("C1.reach", f"no path leads from {listed_names(caught)} to END or STOP: {one}", caught)


def _reached(ways: Iterable[tuple[str, str]], *starts: str) -> set[str]:
    """Return every vertex that can be reached. Avoids networkx, whose import takes longer than all other checks."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in ways:
        following[source].append(target)
    return reached(following, starts)


# -- The checks of a graph's shape, C2 to C7: where branches meet, and joins that could wait forever -----------


MOST_PAIRS = 20_000
"""The most pairs of a node and its open forks. A graph with more pairs is refused as too complex to check."""

_SOURCE = "the fork"


def shape_problems(topology: Topology) -> list[Problem]:
    """Return all faults of the shape, each with a fix. Names must be valid."""
    if not topology.fans:
        return _unmatched(topology)
    found = [*_meetings(topology), *_unmatched(topology), *_too_many(topology), *_walk(topology)]
    return [*found, *_passed_twice(topology)]


# -- C2: branches that meet without a declared join -------------------------------------------------------------


def _meetings(topology: Topology) -> list[Problem]:
    found: dict[str, Problem] = {}
    ways = Counter(target for following in topology.successors.values() for target in set(following))
    left = {name for name, shape in topology.nodes.items() if shape.join is None and ways[name] > 1}
    for fork, fans in topology.fans.items():
        exits = tuple(join for join in topology.joins_of(fork) if not topology.closes[join])
        for fan in fans:
            if not left:
                return list(found.values())
            if len(fan.targets) < 2 and not exits:
                continue
            meetings = cache(partial(_first_meetings, topology, fork, fan.targets))
            for node in meetings(exits).nodes:
                if node not in left:
                    continue
                there = meetings(tuple(j for j in exits if node not in topology.entries(j, frozenset())))
                if node not in there.nodes:
                    continue
                leading = reached(there.before, [node])
                one, other, *_ = [branch for branch in there.branches if branch in leading]
                fault = f"{one} and {other} of fork {fork} meet at {node}"
                found[node] = Problem("C2", f"{fault}: declare join='all' (once) or 'each' (per branch)", (node,))
                left.discard(node)
    return list(found.values())


class _Meetings(Struct, frozen=True):
    """The first places where branches of a fork meet."""

    branches: list[str]
    """The first node of each branch."""
    before: Mapping[str, Iterable[str]]
    """The predecessors of each vertex on the ways of the branches."""
    nodes: list[str]


def _region(topology: Topology, fork: str, targets: Iterable[str], exits: Iterable[str]) -> dict[str, list[str]]:
    """Return the ways of the branches up to the first node that declares `join`, from one virtual source."""
    graph: dict[str, list[str]] = {_SOURCE: [*targets, *(f"the way out of {join}" for join in exits)]}
    for join in exits:
        graph[f"the way out of {join}"] = [t for t in topology.successors[join] if t != fork]
    stack = [vertex for starts in list(graph.values()) for vertex in starts]
    while stack:
        vertex = stack.pop()
        if vertex in graph:
            continue
        shape = topology.nodes.get(vertex)
        ends = vertex == fork or (shape is not None and shape.join is not None)
        graph[vertex] = [] if ends else [t for t in topology.successors[vertex] if t != fork]
        stack.extend(graph[vertex])
    return graph


def _first_meetings(topology: Topology, fork: str, targets: Iterable[str], exits: Iterable[str]) -> _Meetings:
    """Find nodes to which two ways without a common vertex lead (Menger: only the source dominates them)."""
    import networkx as nx

    after = _region(topology, fork, targets, exits)
    graph = digraph(after)
    before: Mapping[str, Iterable[str]] = graph.pred
    met: list[str] = []
    if len(after[_SOURCE]) > 1:
        dominators = nx.immediate_dominators(graph, _SOURCE)
        first = _first_dominators(dominators)
        for vertex, dominator in dominators.items():
            shape = topology.nodes.get(vertex)
            if shape is None or shape.join is not None or dominator != _SOURCE or vertex == fork:
                continue
            # If a direct edge is one way, find out whether there is another that does not start here. It ends with an
            # edge from a vertex that can be reached without this one, and so is not dominated by it.
            if vertex not in after[_SOURCE] or any(first.get(one, vertex) != vertex for one in before[vertex]):
                met.append(vertex)
    return _Meetings(after[_SOURCE], before, met)


def _first_dominators(dominators: Mapping[str, str]) -> dict[str, str]:
    """Return the first dominator of each vertex, after the source; the vertex itself if it has no other."""
    first: dict[str, str] = {}
    for vertex in dominators:
        chain = [vertex]
        while chain[-1] not in first and dominators[chain[-1]] != _SOURCE:
            chain.append(dominators[chain[-1]])
        first |= dict.fromkeys(chain, first.get(chain[-1], chain[-1]))
    return first


# -- C5, C6: joins with nothing, or not enough, to wait for -------------------------------------------------------


def _unmatched(topology: Topology) -> list[Problem]:
    return [
        Problem("C5", f"no branches meet at {join}: remove join", (join,))
        for join, fork in topology.match.items()
        if fork is None
    ]


def _too_many(topology: Topology) -> list[Problem]:
    found = []
    for join, fork in topology.match.items():
        wanted = topology.nodes[join].join
        if fork is None or not isinstance(wanted, int):
            continue
        most = max(most_tokens(topology, fork, join, fan) for fan in topology.fans[fork])
        if wanted > most:
            fault = f"{join} waits for {wanted} branches of fork {fork}, and at most {most:g} can arrive"
            found.append(Problem("C6", f"{fault}: declare join={most:g} or less, or join='all'", (join,)))
    return found


def _passed_twice(topology: Topology) -> list[Problem]:
    """Return violations of C7: joins that let the other branches run and from which a path leads back to them.

    A token on such a path, which stays inside the fork, would end at the join.
    """
    found = []
    for join, fork in topology.match.items():
        if fork is None or not topology.nodes[join].lets_run:
            continue
        if join in topology.reachable(topology.successors[join], (fork,)):
            fault = f"{join} lets the other branches of fork {fork} run, and leads back to itself inside that fork"
            found.append(Problem("C7", f"{fault}: go back to {fork}, or declare rest='drop'", (join,)))
    return found


def most_tokens(topology: Topology, fork: str, join: str, fan: FanOut) -> float:
    """Return an upper bound of the tokens of a fan-out that reach its join; infinite for a map or a fork in a loop."""
    if fan.field is not None or fork in topology.reachable(fan.targets, (join,)):
        return inf
    inner = topology.reachable(fan.targets, (fork, join))
    forks = [vertex for vertex in inner if vertex in topology.fans]
    if not forks:
        return sum(join in topology.reachable((target,), (fork,)) for target in fan.targets)
    if any(inside.field is not None for vertex in forks for inside in topology.fans[vertex]):
        return inf
    import networkx as nx

    region = digraph({vertex: inner.intersection(topology.successors[vertex]) for vertex in inner})
    if not nx.is_directed_acyclic_graph(region):
        return inf
    most: dict[str, int] = {join: 1}
    for vertex in reversed(list(nx.topological_sort(region))):
        ways = [most.get(target, 0) for target in topology.successors[vertex]]
        fans = [sum(most.get(t, 0) for t in inside.targets) for inside in topology.fans.get(vertex, ())]
        most[vertex] = max([*ways, *fans], default=0)
    return sum(most.get(target, 0) for target in fan.targets)


# -- C3, C4: a walk over all (node, open forks) -------------------------------------------------------------------

_Stack = tuple[str, ...]
_State = tuple[str, _Stack]


def _walk(topology: Topology) -> list[Problem]:
    if None in topology.match.values():
        return []
    first: _State = ("START", ())
    came: dict[_State, _State | None] = {first: None}
    seen: dict[_Stack, set[str]] = {(): {"START"}}  # each long tuple is hashed once
    stack: list[_State] = [first]
    lost: dict[str, Problem] = {}
    waits: dict[str, dict[str, None]] = {join: {} for join in topology.joins}
    while stack:
        state = stack.pop()
        vertex, forks = state
        if vertex in topology.match:
            fork = topology.match[vertex]
            if fork not in forks:
                lost.setdefault(vertex, _lost(topology, vertex, state, came))
                continue
            _note_waits(topology, vertex, forks, waits)
            place = forks.index(fork)
            forks = forks[:place] if topology.closes[vertex] else forks[: place + 1]
        if vertex in topology.fans and vertex not in forks:
            forks = (*forks, vertex)
        there = seen.setdefault(forks, set())
        for target in topology.successors[vertex]:
            if target not in there:
                there.add(target)
                came[target, forks] = state
                stack.append((target, forks))
        if len(came) > MOST_PAIRS:
            why = f"its nodes can be reached with more than {MOST_PAIRS:,} different sets of open forks"
            return [Problem("C3", f"the graph is too complex: {why}; put parts of it into subgraphs")]
    return [*lost.values(), *_circles(topology, waits)]


def _note_waits(topology: Topology, at: str, forks: _Stack, waits: dict[str, dict[str, None]]) -> None:
    for place, fork in enumerate(forks):
        for join in topology.scope(fork, frozenset(forks[:place])).waiting[at]:
            waits[join][at] = None


def _lost(topology: Topology, join: str, state: _State, came: dict[_State, _State | None]) -> Problem:
    fork = topology.match[join]
    step: _State | None = state
    after = join
    while step is not None and fork not in step[1]:
        before = came[step]
        if before is not None and fork in before[1]:
            after = step[0]
            fault = f"{before[0]} leads back to {after}, between fork {fork} and its join {join}"
            return Problem("C4", f"{fault}: go back to {fork}, or to a node before it", (before[0], after, join))
        step = before
    return Problem("C4", f"a path reaches {join} without passing its fork {fork}: lead it through {fork}", (join,))


def _circles(topology: Topology, waits: dict[str, dict[str, None]]) -> list[Problem]:
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from((join, other) for join, others in waits.items() for other in others)
    found = []
    for component in nx.strongly_connected_components(graph):
        if len(component) < 2:
            continue
        members = [join for join in topology.joins if join in component]
        circle = [one for one, _ in nx.find_cycle(graph.subgraph(members), members[0])]
        start = min(range(len(circle)), key=lambda i: members.index(circle[i]))
        circle = circle[start:] + circle[:start]
        fault = f"{' and '.join(circle)} wait for each other through {' -> '.join([*circle, circle[0]])}"
        fix = f"let {circle[-1]} go back to fork {topology.match[circle[-1]]}, or end one of the paths"
        found.append(Problem("C3", f"{fault}: {fix}", tuple(circle)))
    return found


# -- Possible places of tokens: every node, with every sequence of forks that can be open around it ------------


Placement: TypeAlias = tuple[str, tuple[str, ...]]
"""A node, and the open forks around it, outermost first."""


class Placements:
    """The placements that a graph allows.

    Attributes:
        arriving: Placements of tokens that arrive at a node, and of tokens that wait at a join.
        fired: Placements of the tokens that joins made.
    """

    def __init__(self, topology: Topology) -> None:
        self.arriving: set[Placement] = set()
        self.fired: set[Placement] = set()
        stack: list[Placement] = [(START, ())]
        if topology.exhausted_target is not None:
            stack.append((topology.exhausted_target, ()))
        self.arriving.update(stack)
        while stack and len(self.arriving) <= MOST_PAIRS:
            vertex, forks = stack.pop()
            fork = topology.match.get(vertex)
            if fork is not None and fork in forks:
                place = forks.index(fork)
                forks = forks[:place] if topology.closes[vertex] else forks[: place + 1]
                self.fired.add((vertex, forks))
            if vertex in topology.fans and vertex not in forks:
                forks = (*forks, vertex)
            for target in topology.successors.get(vertex, ()):
                if (target, forks) not in self.arriving:
                    self.arriving.add((target, forks))
                    stack.append((target, forks))

    def allow(self, node: str, forks: tuple[str, ...], *, fired: bool = False) -> bool:
        """Return True if a token can be at a node with these forks open around it. `fired`: a join at this node made
        the token.
        """
        return (node, forks) in (self.fired if fired else self.arriving)
