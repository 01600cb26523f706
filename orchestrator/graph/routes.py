"""The routes of a graph: which edges an outcome takes, which of them open a fork, and what can be reached.

Nothing here looks at a run. The rules' numbers (R1 to R15, C1 to C7) are those of `docs/kernel.md`.

A *vertex* is a node, START, END, STOP, or a map that stands beside other edges of the same outcome: such a map
is a fork of its own (R1), so it gets a vertex of its own between the two nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, TypeGuard, TypeVar

if TYPE_CHECKING:
    import networkx as nx

START = "START"
END = "END"
STOP = "STOP"
ANY = "*"
DONE = "done"
RESERVED = ("error", "timeout", "exhausted")
FAILED = "failed"
"""The outcome of nodes that call tools, where a tool failed: taken only if an edge names it."""
IF_NAMED = (*RESERVED, FAILED)
"""Outcomes that no edge without an outcome stands for: those that every node has, and those that some kinds have."""

V = TypeVar("V")
Join: TypeAlias = int | str | None
"""`all`, `each`, a number of branches, or the name of the state field with that number."""
Rest: TypeAlias = Literal["drop", "run"]
"""What becomes of the branches that a join did not wait for."""


def counts(join: Join) -> bool:
    """Return whether a join waits for a number of branches, given or in a state field.

    Args:
        join: as a node declares it.
    """
    return join not in (None, "all", "each")


def is_count(number: object) -> TypeGuard[int]:
    """Return whether a join can wait for as many branches.

    Args:
        number: a value of the state.
    """
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


class NodeShape(NamedTuple):
    """All of a node that its graph's shape depends on."""

    outcomes: tuple[str, ...] = (DONE,)
    join: Join = None
    rest: Rest = "drop"

    @property
    def lets_run(self) -> bool:
        """Whether branches that it did not wait for go on."""
        return self.rest == "run"


class EdgeLike(Protocol):
    """An edge, as far as topology cares."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def outcome(self) -> str | None: ...
    @property
    def each(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class FanOut:
    """The branches that one outcome of a fork opens, or a map."""

    targets: tuple[str, ...]
    """Vertices, in the order of the edges."""
    field: str | None = None
    """The state field that a map takes its items from."""


@dataclass(frozen=True, slots=True)
class Route:
    """One edge to take: its number in the graph's text, and the vertex of its own fork if it is such a map."""

    index: int
    target: str
    each: str | None
    map_vertex: str | None


def reached(
    following: Mapping[str, Iterable[str]], starts: Iterable[str], barred: Collection[str] = frozenset()
) -> set[str]:
    """Find every vertex that can be reached.

    Args:
        following: the successors of each vertex, or its predecessors to search backwards.
        starts: the vertices to begin at.
        barred: vertices that are not entered.

    Returns:
        The vertices found, the starts included.
    """
    seen = set(starts)
    ahead = list(seen)
    while ahead:
        for vertex in following[ahead.pop()]:
            if vertex not in seen and vertex not in barred:
                seen.add(vertex)
                ahead.append(vertex)
    return seen


def digraph(following: Mapping[V, Iterable[V]]) -> nx.DiGraph[V]:
    """Make a networkx graph.

    Args:
        following: the successors of each vertex.

    Returns:
        A new graph with these vertices and edges, in this order.
    """
    import networkx as nx

    graph: nx.DiGraph[V] = nx.DiGraph()
    graph.add_nodes_from(following)
    graph.add_edges_from((vertex, target) for vertex, targets in following.items() for target in targets)
    return graph


class Routes:
    """The vertices of one graph and the ways between them. Wants names and edges that checked out (every name known).

    Args:
        nodes: every node's outcomes and join.
        edges: the edges in order; `*` sources are expanded here.
    """

    def __init__(self, nodes: Mapping[str, NodeShape], edges: Sequence[EdgeLike]) -> None:
        self.nodes = dict(nodes)
        self.edges = tuple(edges)
        self.exhausted_target: str | None = None
        self._routes: dict[tuple[str, str], tuple[Route, ...]] = {}
        self.fans: dict[str, tuple[FanOut, ...]] = {}
        self.successors: dict[str, tuple[str, ...]] = {}
        self._lay_out()

    # -- routes and forks -------------------------------------------------------------------------------------

    def routes(self, node: str, outcome: str) -> tuple[Route, ...]:
        """Return the edges that an outcome takes.

        Args:
            node: the node's name.
            outcome: the outcome.

        Returns:
            The edges, in the order of the text; empty if there are none.
        """
        return self._routes.get((node, outcome), ())

    def has_route(self, node: str, outcome: str) -> bool:
        """Return whether an edge takes this outcome of this node.

        Args:
            node: the node's name.
            outcome: the outcome.

        Returns:
            True if there is such an edge.
        """
        return (node, outcome) in self._routes

    @cached_property
    def single_routes(self) -> dict[tuple[str, str], Route]:
        """(node, outcome) -> its only edge, if that leads to a node, and the node is no fork."""
        return {
            (node, outcome): routes[0]
            for (node, outcome), routes in self._routes.items()
            if node in self.nodes and node not in self.fans and routes[0].target in self.nodes
        }

    @cached_property
    def certain(self) -> frozenset[tuple[str, str]]:
        """(node, outcome) of those with one edge that is no map: they open nothing that a state may not fit."""
        return frozenset(taken for taken, routes in self._routes.items() if len(routes) == 1 and routes[0].each is None)

    def _lay_out(self) -> None:
        out: dict[str, list[int]] = {name: [] for name in (START, *self.nodes)}
        wild: list[int] = []
        for index, edge in enumerate(self.edges):
            if edge.source == ANY:
                if edge.outcome == "exhausted":
                    self.exhausted_target = edge.target
                else:
                    wild.append(index)
            elif edge.source in out:
                out[edge.source].append(index)
        following: dict[str, dict[str, None]] = {name: {} for name in (*out, END, STOP)}
        for name, numbers in out.items():
            for outcome, taken in self._taken(name, numbers, wild).items():
                self._add_routes(name, outcome, taken, following)
        self.successors = {name: tuple(targets) for name, targets in following.items()}

    def _taken(self, name: str, numbers: Sequence[int], wild: Iterable[int]) -> dict[str, list[int]]:
        """Outcome -> edge numbers. An unlabelled edge stands for the outcomes that no labelled one names."""
        outcomes = (DONE,) if name == START else self.nodes[name].outcomes
        labels = {self.edges[i].outcome for i in numbers}
        taken: dict[str, list[int]] = {}
        for outcome in (*outcomes, *(o for o in IF_NAMED if o in labels and o not in outcomes)):
            named = outcome in labels
            chosen = [i for i in numbers if self.edges[i].outcome == (outcome if named else None)]
            if chosen and (named or outcome not in RESERVED):
                taken[outcome] = chosen
        if name != START:
            for i in wild:
                edge = self.edges[i]
                if edge.outcome in RESERVED and edge.outcome not in labels and edge.target != name:
                    taken.setdefault(edge.outcome, []).append(i)
        return taken

    def _add_routes(
        self, name: str, outcome: str, numbers: Sequence[int], following: dict[str, dict[str, None]]
    ) -> None:
        routes: list[Route] = []
        branches: list[str] = []
        for i in numbers:
            edge = self.edges[i]
            vertex = None
            if edge.each is not None and len(numbers) > 1:
                vertex = f"{name}*{edge.target}:{edge.each}"
                following.setdefault(vertex, {})[edge.target] = None
                self._add_fan(vertex, FanOut((edge.target,), edge.each))
            branch = vertex or edge.target
            following[name][branch] = None
            branches.append(branch)
            routes.append(Route(i, edge.target, edge.each, vertex))
        if len(numbers) > 1:
            self._add_fan(name, FanOut(tuple(branches)))
        elif routes[0].each is not None:
            self._add_fan(name, FanOut(tuple(branches), routes[0].each))
        self._routes[name, outcome] = tuple(routes)

    def _add_fan(self, vertex: str, fan: FanOut) -> None:
        known = self.fans.get(vertex, ())
        if fan not in known:
            self.fans[vertex] = (*known, fan)

    # -- walking ----------------------------------------------------------------------------------------------

    def reachable(self, sources: Iterable[str], avoid: Iterable[str] = ()) -> set[str]:
        """Return the vertices that can be reached from the sources without passing any of `avoid`.

        Args:
            sources: the vertices to begin at.
            avoid: the vertices that a path must not contain.

        Returns:
            The vertices, including the sources.
        """
        barred = set(avoid)
        return reached(self.successors, [source for source in sources if source not in barred], barred)

    @cached_property
    def predecessors(self) -> dict[str, tuple[str, ...]]:
        """Vertex -> the vertices that lead to it."""
        found: dict[str, list[str]] = {vertex: [] for vertex in self.successors}
        for vertex, targets in self.successors.items():
            for target in targets:
                found[target].append(vertex)
        return {vertex: tuple(sources) for vertex, sources in found.items()}

    @cached_property
    def dominators(self) -> dict[str, str]:
        """Vertex -> its immediate dominator on the ways from START (or from the `* : exhausted` target)."""
        if not self.fans:
            return {}
        import networkx as nx

        graph = digraph(self.successors)
        found = dict(nx.immediate_dominators(graph, START))
        target = self.exhausted_target
        if target is not None and target in self.successors and target not in found:
            # What only the exhausted edge leads to has no forks open but its own (R14).
            for vertex, dominator in nx.immediate_dominators(graph, target).items():
                found.setdefault(vertex, dominator)
        return {vertex: dominator for vertex, dominator in found.items() if dominator not in (None, vertex)}
