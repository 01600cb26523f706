"""Builds the drawing of a graph, optionally with a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from orchestrator.graph.edges import Edge
from orchestrator.graph.model import Asked, GraphDefinition, Node
from orchestrator.graph.topology import ANY, END, IF_NAMED, RESERVED, START, STOP, Topology
from orchestrator.render.drawing import LONGEST_DOES, NOTHING, ClusterMark, Drawing, EdgeMark, Look, NodeMark
from orchestrator.render.overlaid import Mark, RunLike, edge_mark, node_mark, overlay_of, status_mark
from orchestrator.views.overlay import Overlay
from orchestrator.views.safe_text import plain, told

MOST_NODES = 5_000
"""Subgraphs that would exceed it are drawn closed, as one node: nesting can multiply the nodes without limit."""

_LOOKS_OF_ASKED: dict[Asked, Look] = {"model": "model", "person": "human"}
_TERMINALS: dict[str, Look] = {START: "start", END: "end", STOP: "stop", ANY: "any"}
_TELLING = ("outcomes", "model", "tools", "reads", "writes", "retry", "timeout", "effect", "cache", "version")
_PLAIN = {"outcomes": "done", "effect": "idempotent"}
"""Default settings, which are not shown."""


def draw(graph: GraphDefinition, run: RunLike | None = None, *, closed: bool | Collection[str] = ()) -> Drawing:
    """Make the drawing of a graph, with the progress of a run if given.

    Args:
        graph: The graph; subgraphs are drawn open as long as the picture has at most `MOST_NODES` nodes.
        run: Anything with `.overlay()`, such as a `Run`, or an `Overlay`.
        closed: Paths of the subgraph nodes that are drawn as one node (`look`, `look/deep`); or True for all.
    """
    return _Builder(overlay_of(run), closed).build(graph)


class _Builder:
    def __init__(self, run: Overlay | None, closed: bool | Collection[str]) -> None:
        self.run, self.closed = run, closed
        self.nodes: list[NodeMark] = []
        self.edges: list[EdgeMark] = []
        self.clusters: list[ClusterMark] = []
        self.by_key: dict[str, NodeMark] = {}
        self.ids: set[str] = set()
        self.counted = 0

    def build(self, graph: GraphDefinition) -> Drawing:
        self.counted = len(graph.nodes)
        self._frame(graph, "", None)
        name = plain(graph.name, 80)
        status = NOTHING if self.run is None else status_mark(self.run)
        about = f"Graph {name}: {_count(len(graph.nodes), 'node')}, {_count(len(graph.edges), 'edge')}"
        if self.run is not None:
            steps = sum(count for (path, _), count in self.run.visits.items() if not path)
            about += f"; run {status.texts['status']}".rstrip() + f", {_count(steps, 'step')}"
        return Drawing(
            name=name,
            nodes=tuple(self.nodes),
            edges=tuple(self.edges),
            clusters=tuple(self.clusters),
            run=self.run is not None,
            status=status,
            planned=() if self.run is None else self.run.planned,
            about=f"{about}.",
            by_key=self.by_key,
        )

    def _frame(self, graph: GraphDefinition, path: str, cluster: str | None) -> dict[str, str]:
        """Add the nodes and edges of a graph; return the keys of its nodes by name."""
        topology = graph.topology
        items = per_item(topology)
        keys: dict[str, str] = {}
        used = {name for edge in graph.edges for name in (edge.source, edge.target)}
        for name in (START, *graph.nodes, END, STOP, ANY):
            if name in graph.nodes:
                keys[name] = self._node(name, graph.nodes[name], path, cluster, name in items)
            elif name in used:
                keys[name] = self._terminal(name, path, cluster)
        forked = _forked(topology, graph.nodes)
        for index, edge in enumerate(graph.edges):
            if edge.source in keys and edge.target in keys:
                source = graph.nodes.get(edge.source)
                optional = RESERVED if source is None else (*RESERVED, *source.if_named)
                self._edge(index, edge, path, keys, index in forked, reserved=edge.outcome in optional)
        return keys

    def _node(self, name: str, node: Node, path: str, cluster: str | None, per_item: bool) -> str:
        inner = node.subgraph
        place = f"{path}/{name}" if path else name
        closed = self.closed is True or (self.closed is not False and place in self.closed)
        opened = inner is not None and not closed and self.counted + len(inner.nodes) <= MOST_NODES
        label, asks = plain(name), node._asks
        mark = NodeMark(
            key=f"n{len(self.by_key)}",
            id=self._id(f"node-{_prefix(path)}{label}"),
            name=label,
            path=path,
            look=_look(node),
            kind=_kind(node),
            does=_does(node, label),
            tooltip="\n".join(self._told(label, node, per_item)),
            join=_join(node),
            pool="" if node.pool is None else f"pool {plain(node.pool, 40)}",
            per_item=per_item,
            cluster=cluster,
            closed=inner is not None and not opened,
            asks=asks,
            mark=NOTHING if self.run is None else node_mark(self.run, path, name, asks),
        )
        self.by_key[mark.key] = mark
        if inner is None or not opened:
            self.nodes.append(mark)
            return mark.key
        self.counted += len(inner.nodes)
        number = len(self.clusters)
        self.clusters.append(ClusterMark(mark, "", ""))
        keys = self._frame(inner, place, mark.key)
        leaves = keys.get(END) or keys.get(STOP) or keys[START]
        self.clusters[number] = ClusterMark(mark, keys[START], leaves)
        return mark.key

    def _terminal(self, name: str, path: str, cluster: str | None) -> str:
        told = {START: "where a run starts", END: "where branches end", STOP: "ends the graph at once"}
        mark = NodeMark(
            key=f"n{len(self.by_key)}",
            id=self._id(f"node-{_prefix(path)}{name}"),
            name=name,
            path=path,
            look=_TERMINALS[name],
            kind=name,
            tooltip=f"{name}: {told.get(name, 'any node')}",
            cluster=cluster,
        )
        self.by_key[mark.key] = mark
        self.nodes.append(mark)
        return mark.key

    def _edge(self, index: int, edge: Edge, path: str, keys: dict[str, str], forked: bool, *, reserved: bool) -> None:
        source, target = plain(edge.source), plain(edge.target)
        outcome, each = plain(edge.outcome or ""), plain(edge.each or "")
        mark = EdgeMark(
            key=f"e{len(self.edges)}",
            id=self._id(f"edge-{_prefix(path)}{source}--{target}"),
            index=index,
            path=path,
            source=keys[edge.source],
            target=keys[edge.target],
            names=(source, target),
            label=" ".join(filter(None, (outcome, f"each {each}" if each else ""))),
            outcome=outcome,
            mapped=bool(each),
            forked=forked,
            reserved=reserved,
            mark=NOTHING if self.run is None else edge_mark(self.run, path, index),
        )
        self.edges.append(mark)
        if mark.taken:
            self._reached(mark)

    def _reached(self, edge: EdgeMark) -> None:
        """Mark the terminals of an edge that was taken as visited: they have no activations."""
        for key in (edge.source, edge.target):
            mark = self.by_key[key]
            if mark.terminal and not mark.states:
                reached = replace(mark, mark=Mark(("visited",)))
                self.by_key[key] = reached
                self.nodes[self.nodes.index(mark)] = reached

    def _told(self, label: str, node: Node, per_item: bool) -> Iterator[str]:
        yield f"{label} ({_kind(node)})"
        for text in (_setting(node, "prompt"), _setting(node, "description"), _doc(node)):
            if isinstance(text, str) and text.strip():
                yield told(text, 160)
        if node.join is not None:
            yield f"join: {node.join}" + (", the rest runs" if node.rest == "run" else "")
        if node.pool is not None:
            yield f"pool: {node.pool}"
        if per_item:
            yield "runs once per item"
        for field in _TELLING:
            value = _words(_setting(node, field))
            if value and value != _PLAIN.get(field):
                yield f"{field}: {told(value, 120)}"

    def _id(self, wanted: str) -> str:
        found, number = wanted, 1
        while found in self.ids:
            number += 1
            found = f"{wanted}--{number}"
        self.ids.add(found)
        return found


def per_item(topology: Topology) -> frozenset[str]:
    """Return the nodes that run once per item of a map: from its target to a join, or to the end without a join."""
    found: set[str] = set()
    for fork, fans in topology.fans.items():
        for fan in fans:
            if fan.field is not None:
                found |= topology.per_item(fork, fan)
    return frozenset(found & topology.nodes.keys())


def _forked(topology: Topology, names: Iterable[str]) -> frozenset[int]:
    """Return the numbers of the edges that open parallel branches."""
    found: set[int] = set()
    for name in (START, *names):
        outcomes = (*topology.nodes[name].outcomes, *IF_NAMED) if name in topology.nodes else ("done",)
        for outcome in outcomes:
            routes = topology.routes(name, outcome)
            if len(routes) > 1:
                found.update(route.index for route in routes)
    return frozenset(found)


def _look(node: Node) -> Look:
    if node.subgraph is not None:
        return "graph"
    asked, original = node._asks, _original(node)
    if asked is not None:
        return _LOOKS_OF_ASKED[asked]
    look = node._look or "custom"
    declared = _setting(node, "model") is not None  # user code that calls a model; the library's kinds declare it
    return "model" if declared and (look == "custom" or original == "function") else look


def _does(node: Node, label: str) -> str:
    """Describe the work of a node; for a subgraph, the graph that it runs, unless the node has the same name."""
    inner = node.subgraph
    said = node.does if inner is None or inner.name == label else f"runs {inner.name}"
    return plain(said, LONGEST_DOES) if said else ""


def _kind(node: Node) -> str:
    return plain(_original(node).replace("_", " "), 40)


def _join(node: Node) -> str:
    if node.join is None:
        return ""
    return f"join {node.join}" + (", rest runs" if node.rest == "run" else "")


def _original(node: Node) -> str:
    """Return the original kind, also of a node whose code is not loaded: its picture is the same."""
    return str(getattr(node, "original", None) or node.kind)


def _setting(node: Node, name: str) -> object:
    value = getattr(node, name, None)
    stored = getattr(node, "stored", None)
    return stored.get(name) if value is None and isinstance(stored, Mapping) else value


def _doc(node: Node) -> str:
    """Return the first line of the function's docstring."""
    return str(getattr(getattr(node, "fn", None), "__doc__", None) or "").strip().split("\n")[0]


def _words(value: object) -> str:
    """Return a node's setting in words; empty if it is not set."""
    if value is None or value == () or value == frozenset():
        return ""
    if isinstance(value, tuple | frozenset | set | list):
        return ", ".join(sorted(map(str, value)) if isinstance(value, frozenset | set) else map(str, value))
    attempts = value.get("attempts") if isinstance(value, Mapping) else getattr(value, "attempts", None)
    return f"{attempts} attempts" if attempts is not None else str(value)


def _prefix(path: str) -> str:
    return f"{path.replace('/', '.')}." if path else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"
