"""Graphs by chance for proofs, and what holds of their paths by definition."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from orchestrator import Graph, tool
from orchestrator.errors import GraphError, InvalidGraph
from orchestrator.graph.edges import Edge
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import Node
from orchestrator.graph.reducers import local
from orchestrator.graph.topology import counts
from orchestrator.nodes import Confirm, Execute

from .build import names_of, outcomes_of
from .proving import State, Tags
from .sketches import Drawn, Sketch, mutated, settle, structured, unstructured

Path: TypeAlias = tuple[tuple[str, str], ...]
"""Nodes and their outcomes."""


def latest(old: list[int], new: list[int]) -> list[int]:
    """A list that branches may replace without a conflict."""
    return new


class ProvedState(Execute.State):
    """Lists to map over, a call, and two plain fields."""

    xs: Annotated[list[int], latest] = Field(default=[])
    ys: Annotated[list[int], latest] = Field(default=[])
    tasks: Annotated[list[int], latest] = Field(default=[])
    f: str = ""
    g: str = ""
    mine: Annotated[str, local] = ""


class Step(Drawn, kind="proved_step"):
    """A node that calls no tools."""

    @property
    def sees_tools(self) -> bool:
        return False


@tool(risk="dangerous")
def wipe() -> str:
    """Delete everything."""
    return "gone"


def small(seed: int, most: int = 8) -> Sketch | None:
    """A sketch that the checks accept, of few nodes and without graphs inside."""
    sketch = settle((structured, unstructured, mutated)[seed % 3](seed))
    if sketch.inner or len(names_of(tuple(sketch.edges))) > most or any(e.target == "STOP" for e in sketch.edges):
        return None
    dice = random.Random(f"proved {seed}")
    names = names_of(tuple(sketch.edges))
    if dice.random() < 0.3 and any(edge.target == "END" for edge in sketch.edges):
        at = dice.choice([i for i, edge in enumerate(sketch.edges) if edge.target == "END"])
        sketch.edges[at] = replace(sketch.edges[at], target="STOP")
    if dice.random() < 0.3:
        sketch.edges.append(Edge("*", dice.choice(names), "exhausted"))
    return sketch


def _graph(sketch: Sketch, nodes: dict[str, Node], edges: Iterable[Edge], limits: Limits) -> Graph | None:
    try:
        return Graph(name="g", state=ProvedState, nodes=nodes, edges=tuple(edges), limits=limits)
    except InvalidGraph:
        return None


def calling(seed: int, most: int = 8) -> Graph | None:
    """A graph with confirmations and calls."""
    sketch = small(seed, most)
    if sketch is None:
        return None
    dice = random.Random(f"calling {seed}")
    edges = list(sketch.edges)
    nodes: dict[str, Node] = {}
    for name in names_of(tuple(edges)):
        said, join = outcomes_of(tuple(edges), name), sketch.joins.get(name)
        kinds = ["step"]
        if said == ("done",):
            kinds += ["act", "act", "execute", "execute", "writes", "ask", "confirm"]
        elif len(said) == 2:
            kinds += ["ask", "ask", "confirm", "confirm"]
        kind = dice.choice(kinds)
        if kind in ("ask", "confirm") and len(said) == 2:
            renamed = dict(zip(said, ("approved", "denied"), strict=True))
            edges = [
                replace(e, outcome=renamed.get(e.outcome or "", e.outcome)) if e.source == name else e for e in edges
            ]
        made: dict[str, Node] = {
            "step": Step(said=said, writes=frozenset(("xs", "ys", "tasks"))),
            "act": Step(said=said, effect="irreversible", writes=frozenset(("xs", "ys", "tasks"))),
            "writes": Step(said=said, writes=frozenset(("args",))),
            "execute": Execute().with_(tools=(wipe,)),
            "ask": Confirm(tool="tool", args="args"),
            "confirm": Confirm(),
        }
        nodes[name] = made[kind] if join is None else made[kind].with_(join=join)
    graph = _graph(sketch, nodes, edges, Limits(steps=None))
    for name in [] if graph is None else acting(graph):
        if graph is not None and dice.random() < 0.6 and len(graph.nodes) < most:
            kind = Confirm(tool="tool", args="args") if dice.random() < 0.5 else Confirm()
            graph = _confirmed(graph, name, kind)
    return graph


def _confirmed(graph: Graph, name: str, confirm: Confirm) -> Graph:
    """The graph with a confirmation before a node, where the checks take it."""
    try:
        return graph.insert_before(name, f"sure_{name}", confirm)
    except (InvalidGraph, GraphError):
        return graph


def writing(seed: int, most: int = 8) -> Graph | None:
    """A graph whose nodes write plain fields."""
    sketch = small(seed, most)
    if sketch is None:
        return None
    dice = random.Random(f"writing {seed}")
    nodes: dict[str, Node] = {}
    for name in names_of(tuple(sketch.edges)):
        fields = {"xs", "ys", "tasks"} | {field for field in ("f", "g", "mine") if dice.random() < 0.3}
        made = Step(said=outcomes_of(tuple(sketch.edges), name), writes=frozenset(fields))
        join = sketch.joins.get(name)
        if join == "all" and dice.random() < 0.3:
            join = dice.choice((1, 1, 2))
        nodes[name] = made if join is None else made.with_(join=join)
    if dice.random() < 0.5:
        nodes = {name: node.with_(rest="run") if counts(node.join) else node for name, node in nodes.items()}
    return _graph(sketch, nodes, sketch.edges, Limits(steps=None))


def acting(graph: Graph) -> list[str]:
    """The nodes that want a confirmation."""
    return [name for name, node in graph.nodes.items() if node.effect == "irreversible" or node.kind == "execute"]


def is_covered(graph: Graph, path: Sequence[tuple[str, str]], target: str) -> bool:
    """Whether a confirmation on a path covers the run of a node at its end: the page's rules, read backwards."""
    return _by_plain(graph, path, target) or _by_call(graph, path, target)


def _by_plain(graph: Graph, path: Sequence[tuple[str, str]], target: str) -> bool:
    for name, outcome in reversed(path):
        node = graph.nodes.get(name)
        if name == target:
            return False
        if isinstance(node, Confirm) and node.tool is None:
            return outcome == "approved"
    return False


def _by_call(graph: Graph, path: Sequence[tuple[str, str]], target: str) -> bool:
    for name, outcome in reversed(path):
        node = graph.nodes.get(name)
        if name == target or isinstance(node, Execute):
            return False
        if isinstance(node, Confirm) and node.tool is not None:
            return outcome == "approved"
        if isinstance(node, Step) and "args" in (node.writes or ()):
            return False
    return False


def _approval(graph: Graph, path: Sequence[tuple[str, str]]) -> Path:
    """A path up to the confirmation of a call that is its last."""
    for place in range(len(path), 0, -1):
        node = graph.nodes.get(path[place - 1][0])
        if isinstance(node, Confirm) and node.tool is not None:
            return tuple(path[:place])
    return ()


def uses_an_approval_of_another_branch(graph: Graph, paths: Paths, state: State) -> Iterable[str]:
    """Nodes that run behind the confirmation of a call behind which another branch calls, or has called, too."""
    frame = state.run.root
    tokens = [] if frame is None else list(frame.live.values())
    for token, other in permutations(tokens, 2):
        for path, beside in product(state.tags.get(token.key, ()), state.tags.get(other.key, ())):
            approval = _approval(graph, path)
            behind = {other.node, *(name for name, _ in beside[len(approval) :])}
            same = approval and approval == beside[: len(approval)]
            if same and token.node in paths.acting and behind & set(paths.acting):
                yield token.node


class Paths(Tags):
    """Each token's paths from START, as far as they differ in what they cover and in which rounds they made."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.acting = graph, acting(graph)

    def step(self, tag: Any, node: str, outcome: str) -> Iterable[Any]:
        return ((*tag, (node, outcome)),)

    def jump(self, tag: Any, node: str) -> Iterable[Any]:
        return ((*tag, (node, "")),)

    def shown(self, tag: Any) -> object:
        return tuple(is_covered(self.graph, tag, name) for name in self.acting)

    def kept(self, tags: Iterable[Any]) -> frozenset[Any]:
        found: dict[object, Any] = {}
        for tag in sorted(tags, key=lambda path: (len(path), path)):
            found.setdefault(self.shown(tag), tag)
        return frozenset(found.values())
