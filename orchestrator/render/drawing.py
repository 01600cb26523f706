"""A picture of a graph as plain data, for every format: nodes, edges, clusters, and which edges lead back.

All texts are already cleaned (`words`), but each format still escapes them in its own way. A layout draws forward edges
down the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from orchestrator.graph.model import Asked
from orchestrator.graph.topology import reached
from orchestrator.render.overlaid import Mark
from orchestrator.views.overlay import Planned

Look: TypeAlias = Literal[
    "start", "end", "stop", "any", "code", "model", "tool", "human", "time", "event", "graph", "custom"
]
"""The look of a node. `any` stands for the sources of the `*` edges."""

NOTHING = Mark()
LONGEST_DOES = 40

_DOES: dict[Look, str] = {
    "human": "asks a person",
    "model": "asks a model",
    "tool": "calls tools",
    "time": "waits for a time",
    "event": "waits for an event",
    "code": "runs code",
    "graph": "runs a graph",
}
"""Work of kinds without `Node.does`."""
_CUSTOM = "runs code of its own"
"""Description of a node that has the name of its kind, if the kind is the user's."""


@dataclass(frozen=True, slots=True)
class NodeMark:
    """A node, or a terminal."""

    key: str
    """`n0`, `n1`, ...: safe in every format."""
    id: str
    """`node-<name>`, inside a subgraph `node-<subgraph>.<name>`: stable, for styles and scripts."""
    name: str
    path: str
    """Names of the enclosing subgraph nodes, joined by `/`."""
    look: Look
    kind: str
    """The node's kind in words, such as `choose tool`; for a terminal, its name."""
    tooltip: str = ""
    does: str = ""
    """Its work (`Node.does`), at most `LONGEST_DOES` characters."""
    join: str = ""
    """`join all`, `join 2`, `join each`, or empty."""
    pool: str = ""
    """`pool printer`, or empty."""
    per_item: bool = False
    """Runs once per item of a map."""
    cluster: str | None = None
    closed: bool = False
    """A subgraph that is drawn as one node."""
    asks: Asked | None = None
    """`Node.asks` of its kind: room is left for the number of questions or model calls."""
    mark: Mark = NOTHING
    """Marks of a run."""

    @property
    def states(self) -> tuple[str, ...]:
        """The classes that the run adds."""
        return self.mark.classes

    @property
    def count(self) -> str:
        """Number of its visits, or of completed items; empty for zero or one."""
        return self.mark.texts.get("count", "")

    @property
    def asked(self) -> str:
        """Number of times its steps asked a model or a person, if it differs from the count."""
        return self.mark.texts.get("asked", "")

    @property
    def told(self) -> str:
        """The tooltip, including the run's marks."""
        texts, counted = self.mark.texts, self.count
        said = [self.tooltip]
        if counted:
            said.append(f"visited {counted.removeprefix('×')} times" if counted[0] == "×" else f"{counted} items done")
        elif "visited" in self.states and not self.terminal:
            said.append("visited once")
        said += [self.asked] if self.asked else []
        said += [state for state in self.states if state in ("running", "waiting", "failed", "queued", "interrupted")]
        if "took" in texts:
            said.append(f"took {texts['took']}")
        return "\n".join(filter(None, (*said, texts.get("told", ""))))

    @property
    def terminal(self) -> bool:
        """True if it is the start or end of runs, or `*`, rather than a node."""
        return self.look in ("start", "end", "stop", "any")

    @property
    def detail(self) -> str:
        """The small line: work, join, pool. A user's kind without `Node.does` is named."""
        named = self.name.replace("_", " ") == self.kind
        said = self.does or _DOES.get(self.look) or (_CUSTOM if named else self.kind)
        return " · ".join(filter(None, (said, self.join, self.pool)))


@dataclass(frozen=True, slots=True)
class ClusterMark:
    """A subgraph node with its graph."""

    node: NodeMark
    """The node itself; its key is not among the nodes of the drawing."""
    enters: str
    """Key of the inner node that edges to the cluster lead to (its START)."""
    leaves: str
    """Key of the inner node that edges from it start at (its END, else STOP, else START)."""

    @property
    def key(self) -> str:
        """The cluster's key."""
        return self.node.key


@dataclass(frozen=True, slots=True)
class EdgeMark:
    """An edge. Source and target are keys of nodes or clusters."""

    key: str
    id: str
    """`edge-<source>--<target>`; a second edge between the same two has `--2` at its end."""
    index: int
    """Its index in its graph's `edges`."""
    path: str
    source: str
    target: str
    names: tuple[str, str]
    label: str = ""
    """Outcome and `each FIELD`, as in the arrow notation."""
    outcome: str = ""
    mapped: bool = False
    forked: bool = False
    """True if it is one of several edges for the same outcome."""
    reserved: bool = False
    """True if it takes an error, a time-out or a spent limit."""
    mark: Mark = NOTHING

    @property
    def taken(self) -> bool:
        """True if the run took the edge."""
        return "taken" in self.mark.classes

    @property
    def times(self) -> str:
        """Number of times it was taken, as `×3`; empty for zero or one."""
        return self.mark.texts.get("times", "")

    @property
    def counted(self) -> str:
        """Number of times it was taken, as `×3`, also for one; for drawings without another sign of it."""
        return self.times or ("×1" if self.taken else "")

    @property
    def tooltip(self) -> str:
        """The edge in arrow notation, and the number of times it was taken."""
        text = f"{self.names[0]} -> {self.names[1]}{f' : {self.label}' if self.label else ''}"
        if not self.taken:
            return text
        return f"{text}\ntaken {self.times.removeprefix('×')} times" if self.times else f"{text}\ntaken once"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph, and the marks of a run in it."""

    name: str
    nodes: tuple[NodeMark, ...]
    edges: tuple[EdgeMark, ...]
    clusters: tuple[ClusterMark, ...] = ()
    run: bool = False
    """True if it includes a run."""
    status: Mark = NOTHING
    """The run's status."""
    planned: Sequence[Planned] = ()
    """Plans that the run made itself."""
    about: str = ""
    """A sentence for readers who cannot see the picture."""
    by_key: dict[str, NodeMark] = field(default_factory=dict, repr=False, compare=False)
    """Nodes, including those of clusters."""

    def levels(self) -> dict[str | None, Level]:
        """Cluster (None: the top) -> its direct contents."""
        found: dict[str | None, Level] = {None: Level([], [], [])}
        for cluster in self.clusters:
            found[cluster.key] = Level([], [], [])
        for node in self.nodes:
            found[node.cluster].nodes.append(node)
        for cluster in self.clusters:
            found[cluster.node.cluster].clusters.append(cluster)
        for edge in self.edges:
            found[self.by_key[edge.source].cluster].edges.append(edge)
        return found


class Level(NamedTuple):
    """The nodes, clusters and edges directly in a cluster, or at the top."""

    nodes: list[NodeMark]
    clusters: list[ClusterMark]
    edges: list[EdgeMark]

    @property
    def keys(self) -> list[str]:
        """Keys of the nodes, and then of the clusters."""
        return [*(node.key for node in self.nodes), *(cluster.key for cluster in self.clusters)]


def backward(level: Level) -> frozenset[str]:
    """Return the keys of the edges that close a cycle, as seen from START."""
    return ordered(level.keys, level.edges)[1]


def ordered(keys: Iterable[str], edges: Iterable[EdgeMark]) -> tuple[list[str], frozenset[str]]:
    """Return the nodes in an order in which only edges that close a cycle lead back, and the keys of those edges.

    Depth first from the first node, in the order of the edges.
    """
    following: dict[str, list[EdgeMark]] = {key: [] for key in keys}
    for edge in edges:
        following[edge.source].append(edge)
    finished: list[str] = []
    back: set[str] = set()
    done: dict[str, bool] = {}  # False while it is on the current path
    for root in following:
        if root not in done:
            _walk(root, following, done, finished, back)
    return finished[::-1], frozenset(back)


def ranks(level: Level) -> dict[str, int]:
    """Return the rank of each node: the length of the longest path to it, without edges that close cycles."""
    in_order, back = ordered(level.keys, level.edges)
    found = dict.fromkeys(in_order, 0)
    following: dict[str, list[str]] = {key: [] for key in in_order}
    for edge in level.edges:
        if edge.key not in back:
            following[edge.source].append(edge.target)
    for key in in_order:
        for target in following[key]:
            found[target] = max(found[target], found[key] + 1)
    return found


def _walk(
    root: str, following: Mapping[str, list[EdgeMark]], done: dict[str, bool], finished: list[str], back: set[str]
) -> None:
    done[root] = False
    stack = [(root, iter(following[root]))]
    while stack:
        key, rest = stack[-1]
        for edge in rest:
            if edge.target not in done:
                done[edge.target] = False
                stack.append((edge.target, iter(following[edge.target])))
                break
            if not done[edge.target]:
                back.add(edge.key)
        else:
            done[key] = True
            finished.append(key)
            stack.pop()


def dominators(keys: Iterable[str], edges: Iterable[EdgeMark]) -> dict[str, str | None]:
    """Return the nodes in order, each with its immediate dominator (on every path from its root); None for roots.

    Roots are the first node, and each node that is not reachable from an earlier root. Cooper, Harvey and Kennedy, "A
    Simple, Fast Dominance Algorithm" (2001).
    """
    keys, edges = list(keys), list(edges)
    owner = _owners(keys, edges)
    inner = [edge for edge in edges if owner[edge.source] == owner[edge.target]]
    rank = {key: number for number, key in enumerate(ordered(keys, inner)[0])}
    before: dict[str, list[str]] = {key: [] for key in keys}
    for edge in inner:
        before[edge.target].append(edge.source)
    found: dict[str, str | None] = {key: key if owner[key] == key else None for key in rank}
    changed = True
    while changed:
        changed = False
        for key in rank:
            if owner[key] == key:
                continue
            known = [source for source in before[key] if found[source] is not None]
            nearest = known[0]
            for other in known[1:]:
                nearest = _meet(nearest, other, found, rank)
            if found[key] != nearest:
                found[key], changed = nearest, True
    return {key: None if owner[key] == key else found[key] for key in rank}


def _owners(keys: list[str], edges: list[EdgeMark]) -> dict[str, str]:
    """Node -> the first root from which it is reachable."""
    following: dict[str, list[str]] = {key: [] for key in keys}
    for edge in edges:
        following[edge.source].append(edge.target)
    owner: dict[str, str] = {}
    for root in keys:
        if root not in owner:
            owner.update(dict.fromkeys(reached(following, [root], owner), root))
    return owner


def _meet(one: str, other: str, found: Mapping[str, str | None], rank: Mapping[str, int]) -> str:
    while one != other:
        while rank[one] > rank[other]:
            one = found[one] or one
        while rank[other] > rank[one]:
            other = found[other] or other
    return one
