"""The routes of a graph: which edges an outcome takes, which of them open a fork, and what can be reached.

Nothing here depends on a run. The numbers of the rules (R1 to R18, C1 to C7) are those of `docs/kernel.md`.

A *vertex* is a node, START, END, STOP, or a map that shares its outcome with other edges: such a map is a fork of its
own (R1), so it gets a vertex of its own between the two nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, TypeGuard, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    import networkx as nx

START = "START"
END = "END"
STOP = "STOP"
ANY = "*"
DONE = "done"
RESERVED = ("error", "timeout", "exhausted")
FAILED = "failed"
"""The outcome for a failed tool, in nodes that call tools: taken only if an edge names it."""
TOO_LONG = "too_long"
"""The outcome for a request that is longer than the model accepts, in nodes that ask with a conversation: taken only if
an edge names it."""
IF_NAMED = (*RESERVED, FAILED, TOO_LONG)
"""Outcomes that an edge without an outcome does not cover: the reserved ones of every node, `failed` and `too_long`."""

V = TypeVar("V")
Join: TypeAlias = int | str | None
"""`all`, `each`, a number of branches, or the name of the state field with that number."""
Rest: TypeAlias = Literal["drop", "run"]
"""What happens to the branches that a join did not wait for."""


def counts(join: Join) -> bool:
    """Return whether a join waits for a number of branches, given or in a state field.

    Args:
        join: the join as a node declares it.
    """
    return join not in (None, "all", "each")


def is_count(number: object) -> TypeGuard[int]:
    """Return whether a value is a number of branches that a join can wait for.

    Args:
        number: a value of the state.
    """
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


class NodeShape(NamedTuple):
    """The properties of a node that its graph's shape depends on."""

    outcomes: tuple[str, ...] = (DONE,)
    join: Join = None
    rest: Rest = "drop"

    @property
    def lets_run(self) -> bool:
        """True if branches that it did not wait for continue."""
        return self.rest == "run"


class EdgeLike(Protocol):
    """The attributes of an edge that the topology uses."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def outcome(self) -> str | None: ...
    @property
    def each(self) -> str | None: ...


class FanOut(Struct, frozen=True):
    """The branches that one outcome of a fork opens, or a map."""

    targets: tuple[str, ...]
    """Vertices, in the order of the edges."""
    field: str | None = None
    """The state field that a map takes its items from."""


class Route(Struct, frozen=True):
    """An edge to take: its number in the graph's text, and the map's own vertex if it has one."""

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
        barred: vertices that the search does not enter.

    Returns:
        The vertices found, including the starts.
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
    """The vertices of one graph and the ways between them. Names and edges must have been checked.

    Args:
        nodes: every node's outcomes and join.
        edges: the edges in order; edges from `*` are expanded here.
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
        """(node, outcome) -> the edge of the outcome, for nodes that are not forks, if the edge leads to a node."""
        return {
            (node, outcome): routes[0]
            for (node, outcome), routes in self._routes.items()
            if node in self.nodes and node not in self.fans and routes[0].target in self.nodes
        }

    @cached_property
    def certain(self) -> frozenset[tuple[str, str]]:
        """The pairs (node, outcome) with exactly one edge, which is not a map: they can be taken in any state."""
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
        """Outcome -> edge numbers. An unlabelled edge covers the outcomes that no labelled one names."""
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
        """Vertex -> its immediate dominator on the ways from START (or from the target of `* : exhausted`)."""
        if not self.fans:
            return {}
        import networkx as nx

        graph = digraph(self.successors)
        found = dict(nx.immediate_dominators(graph, START))
        target = self.exhausted_target
        if target is not None and target in self.successors and target not in found:
            # Vertices reached only by the exhausted edge have no open forks but their own (R14).
            for vertex, dominator in nx.immediate_dominators(graph, target).items():
                found.setdefault(vertex, dominator)
        return {vertex: dominator for vertex, dominator in found.items() if dominator not in (None, vertex)}


# -- Joins: which join belongs to which fork, and which joins a token can reach ---------------------------------
# Nothing here depends on a run. The numbers of the rules (R1 to R18, C1 to C7) are those of `docs/kernel.md`.


class _Table(dict[str, tuple[str, ...]]):
    """Vertex -> joins. Vertices without joins are not stored."""

    def __missing__(self, vertex: str) -> tuple[str, ...]:
        return ()


class ForkScope:
    """The joins of one fork that each token can reach, given the forks that were opened before it (R4).

    `active[node]` and `waiting[node]` are the joins of the fork that a token running (or about to run) at the node, or
    waiting at that join, can still reach. `passed` are joins that have fired and that no token of the branches can pass
    any more (R8).
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
    """The static analysis of one graph: its routes, and the joins of its forks. All names in edges must be known.

    Args:
        nodes: every node's outcomes and join.
        edges: the edges in order.
    """

    def __init__(self, nodes: Mapping[str, NodeShape], edges: Sequence[EdgeLike]) -> None:
        super().__init__(nodes, edges)
        self.joins = tuple(name for name, shape in nodes.items() if shape.join not in (None, "each"))
        self._scopes: dict[tuple[str, frozenset[str], frozenset[str]], ForkScope] = {}
        self._entries: dict[tuple[str, frozenset[str]], frozenset[str]] = {}
        self._empty: dict[tuple[str, str, frozenset[str]], str | None] = {}

    # -- joins and their forks --------------------------------------------------------------------------------

    @cached_property
    def match(self) -> dict[str, str | None]:
        """Join -> the fork that it belongs to (R2); None if no branches meet at it (C5)."""
        found: dict[str, str | None] = {}
        for join in self.joins:
            self._match(join, found)
        return found

    def _match(self, join: str, found: dict[str, str | None]) -> str | None:
        if join in found:
            return found[join]
        # Two joins of different forks can each lie on the other's ways. The one examined first then does not count; any
        # rule based on the order of the nodes would do.
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
        """Return the vertices on all ways from the starts to the goal."""
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
        """Join -> the joins of its fork on every way from it to END or STOP."""
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
        """Return `entries` for a token that cannot pass some joins until it has left their forks by another one."""
        free = self.entries(join, below)
        left = {self.match[other] for other in passed}
        ways_out = {
            other
            for other, closing in self.closes.items()
            if closing and other not in passed and other in free and self.match[other] in left - {self.match[join]}
        }
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

    def empty_target(self, fork: str, mapped: str, outer: frozenset[str]) -> str | None:
        """Return the join to which a map without items sends its only token (R11).

        Args:
            fork: the fork's vertex.
            mapped: the target of the map's edge.
            outer: the forks that were open before.

        Returns:
            The join; None for END.
        """
        key = (fork, mapped, outer)
        if key not in self._empty:
            self._empty[key] = self._find_empty_target(*key)
        return self._empty[key]

    def _find_empty_target(self, fork: str, mapped: str, outer: frozenset[str]) -> str | None:
        distance = {mapped: 0}
        queue = deque((mapped,))
        while queue:
            vertex = queue.popleft()
            for following in self.successors[vertex]:
                if following not in distance and following != fork:
                    distance[following] = distance[vertex] + 1
                    queue.append(following)
        joins = [j for j in self.joins if j in distance and (self.match[j] == fork or self.match[j] in outer)]
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
        """Return the vertices that run once per item of a map: those before a join of the map or of an enclosing fork.

        Args:
            fork: the map's vertex.
            fan: the map.
        """
        inside = self.reachable(fan.targets, (fork, *self.joins_of(fork)))
        merging = [join for join, owner in self.match.items() if owner is not None and owner not in inside]
        return self.reachable(fan.targets, (fork, *merging))

    def notes(self) -> list[str]:
        """Return notes on legal but often unintended parts: maps without a join, after which all runs once per item."""
        found: list[str] = []
        for fork, fans in self.fans.items():
            for fan in fans:
                if fan.field is not None and not self.joins_of(fork):
                    nodes = sorted(self.per_item(fork, fan) & self.nodes.keys())
                    found.append(f"the map over {fan.field!r} has no join: {', '.join(nodes)} run once per item")
        return found
