"""Names of nodes and state fields in one version of a graph, and what they are called in another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.graph.topology import Topology


def inside(place: str, name: str) -> str:
    """The path of a node or a field: its name, behind the names of the subgraph nodes around it."""
    return f"{place}/{name}" if place else name


@dataclass(frozen=True, slots=True)
class Renames:
    """Which nodes and fields have other names in the new version. What is not named keeps its name."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Old path -> new path. A node stays in its graph, so only the last name of the new path counts."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """The same for fields of the state."""
    forks: Mapping[str, str] = field(default_factory=dict)
    """The same for nodes that branches fork at, where another node has taken over the fork."""

    def node(self, place: str, name: str) -> str:
        """The new name of a node.

        Args:
            place: the old path of its graph.
            name: its old name.
        """
        return self.nodes.get(inside(place, name), name).rpartition("/")[2]

    def fork(self, place: str, name: str) -> str:
        """The new name of the node that a fork is at.

        Args:
            place: the old path of its graph.
            name: its old name.
        """
        return self.forks.get(inside(place, name), self.node(place, name)).rpartition("/")[2]

    def state_field(self, place: str, name: str) -> str:
        """The new name of a field of the state of the graph at `place`."""
        return self.fields.get(inside(place, name), name).rpartition("/")[2]

    def place(self, place: str) -> str:
        """The new path of a graph."""
        old, new = "", ""
        for name in place.split("/") if place else ():
            new = inside(new, self.node(old, name))
            old = inside(old, name)
        return new

    def path(self, path: str) -> str:
        """The new path of a node."""
        place, _, name = path.rpartition("/")
        return inside(self.place(place), self.node(place, name)) if path else path

    def vertex(self, place: str, vertex: str, old: Topology, new: Topology) -> str:
        """The new name of a fork: that of a node, or of a map beside other edges, which is a fork of its own.

        Args:
            place: the old path of its graph.
            vertex: its old name.
            old: the topology of its graph.
            new: the same of the new version.
        """
        for edge in old.edges:
            if edge.each is None or vertex not in (edge.source, f"{edge.source}*{edge.target}:{edge.each}"):
                continue
            if vertex == edge.source and any(fan.field is None for fan in old.fans.get(vertex, ())):
                continue  # the branches beside the map, not the map
            source, target = self.fork(place, edge.source), self.node(place, edge.target)
            alone = f"{source}*{target}:{self.state_field(place, edge.each)}"
            return alone if alone in new.fans else source
        return self.fork(place, vertex)
