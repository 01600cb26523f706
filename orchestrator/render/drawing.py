"""What a picture of a graph shows, whatever it is drawn with: nodes, edges, clusters; plain data.

All texts are clean already (`words`), yet they are data: each format still escapes them in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Look: TypeAlias = Literal["start", "end", "stop", "any", "code", "model", "tool", "human", "graph", "custom"]
"""What a node is drawn as. `any` stands for the sources of the `*` edges."""

STATES = ("visited", "running", "waiting", "failed")
"""The classes that a run gives to nodes; `current` comes with the middle two. Edges get `taken`."""

_DOES: dict[Look, str] = {
    "human": "asks a person",
    "model": "asks a model",
    "tool": "calls tools",
    "code": "runs code",
    "graph": "runs a graph",
}


@dataclass(frozen=True, slots=True)
class NodeMark:
    """A node, or a terminal."""

    key: str
    """`n0`, `n1`, ...: safe in any format."""
    id: str
    """`node-<name>`, inside a subgraph `node-<subgraph>.<name>`: stable, for styles and scripts."""
    name: str
    path: str
    """Names of the subgraph nodes around it, joined by `/`."""
    look: Look
    kind: str
    """The node's kind in words, `choose tool`; of a terminal its name."""
    tooltip: str = ""
    join: str = ""
    """`join all`, `join 2`, `join each`, or nothing."""
    per_item: bool = False
    """Runs once per item of a map."""
    cluster: str | None = None
    visits: int = 0
    states: tuple[str, ...] = ()

    @property
    def terminal(self) -> bool:
        """Whether it stands for where runs start and end, or for `*`, and not for a node."""
        return self.look in ("start", "end", "stop", "any")

    @property
    def detail(self) -> str:
        """The small line: kind and join. A name that says the kind already is followed by what the kind does."""
        said = self.kind if self.name.replace("_", " ") != self.kind else _DOES.get(self.look, self.kind)
        return f"{said} · {self.join}" if self.join else said


@dataclass(frozen=True, slots=True)
class ClusterMark:
    """A subgraph node with the graph that it holds."""

    node: NodeMark
    """The node itself; its key is not among the drawing's nodes."""
    graph: str
    """The inner graph's name."""
    enters: str
    """Key of the inner node where edges to the cluster lead (its START)."""
    leaves: str
    """Key of the inner node where edges from it begin (its END, else STOP, else START)."""

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
    """Its number in its graph's `edges`."""
    path: str
    source: str
    target: str
    names: tuple[str, str]
    label: str = ""
    """Outcome and `each FIELD`, as the arrow text has them."""
    outcome: str = ""
    mapped: bool = False
    forked: bool = False
    """One of several edges that the same outcome takes."""
    reserved: bool = False
    """Takes an error, a time-out or a spent limit."""
    taken: int = 0

    @property
    def tooltip(self) -> str:
        """The edge as arrow text, and how often it was taken."""
        text = f"{self.names[0]} -> {self.names[1]}{f' : {self.label}' if self.label else ''}"
        return f"{text}\ntaken {times(self.taken)}" if self.taken else text


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph, and what a run did in it."""

    name: str
    nodes: tuple[NodeMark, ...]
    edges: tuple[EdgeMark, ...]
    clusters: tuple[ClusterMark, ...] = ()
    run: bool = False
    """Whether a run is laid over it."""
    status: str = ""
    """The run's status."""
    about: str = ""
    """One sentence for those who cannot see the picture."""
    by_key: dict[str, NodeMark] = field(default_factory=dict, repr=False, compare=False)
    """Nodes and clusters' nodes."""

    def levels(self) -> dict[str | None, Level]:
        """Cluster (None: the top) -> what is directly in it."""
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
    """What is directly in a cluster, or at the top."""

    nodes: list[NodeMark]
    clusters: list[ClusterMark]
    edges: list[EdgeMark]


def times(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count:,} times"


def short(count: int) -> str:
    """A count in at most four characters: `7`, `950`, `12k`, `3M`."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size * 10 or (unit == "M" and count >= size):
            return f"{count // size}{unit}"
    return str(count)
