"""The edges of a run's graph as a page shows them: their texts, and which of them each step took or did not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.graph.edges import Edge
from orchestrator.graph.model import GraphDefinition
from orchestrator.render.drawing import Drawing
from orchestrator.views.causes import Causes, Transition, TransitionEdge
from orchestrator.views.safe_text import plain, told
from orchestrator.views.timeline import TimelineRow


class TransitionEdges:
    """Names the edges of transitions by the ids of their parts in the picture.

    Args:
        graph: the run's graph, as drawn.
        drawing: its drawing.
        causes: why the run went as it did.

    Attributes:
        texts: Id -> text of an edge. Edges that the picture does not have, because only an earlier version of the
            graph did, are named `was-1`, `was-2`, ...
    """

    def __init__(self, graph: GraphDefinition, drawing: Drawing, causes: Causes) -> None:
        self._causes = causes
        drawn = {(edge.path, edge.index): edge.id for edge in drawing.edges}
        self._ids: dict[tuple[str, Edge], str] = {}
        self.texts: dict[str, str] = {}
        for path, index, edge in _edges(graph):
            if (path, index) in drawn:
                name = self._ids[path, edge] = drawn[path, index]
                self.texts[name] = plain(str(edge), 200)

    def of(self, row: TimelineRow) -> dict[str, object]:
        """What a step took: ids of edges, those it did not take, and the values of guards."""
        took = self._causes.transitions.get(row.activation)
        if took is None:
            return {}
        guards = {plain(name, 80): value if isinstance(value, bool) else told(value, 200)
                  for name, value in row.guards.items()}  # fmt: skip
        return {
            "took": [self._id(took, way) for way in took.taken],
            "left": [self._id(took, way) for way in took.not_taken],
            "guards": guards,
        }

    def beginnings(self) -> Mapping[str, list[int]]:
        """Id of an edge -> the records that took it without a step: a graph began, or a limit was spent."""
        found: dict[str, list[int]] = {}
        rows = (took for took in self._causes.transitions.values() if took.node in ("START", "*"))
        for took in rows:
            for way in took.taken:
                found.setdefault(self._id(took, way), []).append(took.seq)
        return found

    def _id(self, took: Transition, way: TransitionEdge) -> str:
        key = took.place, way.edge
        name = self._ids.get(key)
        if name is None:
            name = self._ids[key] = f"was-{len(self.texts) + 1}"
            self.texts[name] = plain(str(way.edge), 200)
        return name


def _edges(graph: GraphDefinition, path: str = "") -> Iterator[tuple[str, int, Edge]]:
    for index, edge in enumerate(graph.edges):
        yield path, index, edge
    for name, node in graph.nodes.items():
        if node.subgraph is not None:
            yield from _edges(node.subgraph, f"{path}/{name}" if path else name)
