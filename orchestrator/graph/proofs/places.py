"""All graphs that run when a graph runs: those inside its nodes, and those that its tools run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.proofs.calls import EVERYWHERE, Scope, sees_tools
from orchestrator.graph.proofs.paths import Paths, Spot
from orchestrator.graph.report import WitnessStep

if TYPE_CHECKING:
    from orchestrator.graph.limits import Limits
    from orchestrator.graph.node import Node
    from orchestrator.graph.node_tools import NodeTool


@dataclass(eq=False)
class Place:
    """A graph, and where it runs."""

    graph: GraphDefinition
    paths: Paths
    limits: Limits
    around: Place | None = None
    """The place of the subgraph's node; None for a run of its own."""
    node: str = ""
    """The subgraph's node."""
    tool: str = ""
    """The tool that runs it, or the graph around it."""
    callers: tuple[Limits, ...] = ()
    """The limits of the runs that call it as a tool."""
    scope: Scope = EVERYWHERE
    """What the nodes around it say of tools."""

    @property
    def path(self) -> str:
        """Names of the nodes around it, joined by `/`."""
        if self.around is None:
            return ""
        return f"{self.around.path}/{self.node}" if self.around.path else self.node

    def named(self, node: str) -> str:
        """A node's name with those of the nodes around it."""
        return f"{self.path}/{node}" if self.path else node

    @property
    def where(self) -> str:
        """To be put behind a claim about the graph; empty for the graph that is checked."""
        tool = f" in the graph of tool {self.tool}" if self.tool else ""
        return f" in {self.path}{tool}" if self.path else tool

    @property
    def line(self) -> tuple[Limits, ...]:
        """The limits of this graph and of those around it."""
        return (self.limits, *(() if self.around is None else self.around.line))

    def way_to(self, spot: Spot) -> tuple[WitnessStep, ...]:
        """A path from START of the run to a spot; the spot itself is not on it."""
        steps: list[WitnessStep] = []
        at = spot
        while (before := self.paths.spots[at]) is not None:
            at, outcome, note = before
            steps.append(WitnessStep(self.named(at.vertex), outcome, note))
        return (*self.lead, *reversed(steps))

    @property
    def lead(self) -> tuple[WitnessStep, ...]:
        """A path to the node that the graph is inside of."""
        if self.around is None:
            return ()
        spot = next((spot for spot in self.around.paths.spots if spot.vertex == self.node), None)
        return () if spot is None else self.around.way_to(spot)


def places_of(graph: GraphDefinition, tools: Sequence[NodeTool] | None = None) -> list[Place]:
    """The place of every graph: in each run, that of the graph or of one called as a tool, each graph once.

    A graph in several nodes that give it different tools has a place for each.

    Args:
        graph: the graph that is checked.
        tools: the tools of nodes that name none of their own; None: not known.
    """
    found: list[Place] = []
    runs: dict[int, Place] = {id(graph): Place(graph, Paths(graph), graph.limits)}
    ahead = list(runs.values())
    for run in ahead:
        places: dict[tuple[int, Scope], Place] = {}
        _add(places, run)
        found += places.values()
        for place in places.values():
            for node in place.graph.nodes.values():
                for tool in graph_tools(node, tools, place.scope):
                    called = tool_graph(tool)
                    if called is not None and id(called) not in runs:
                        limits = called.limits.changed(getattr(tool, "limits", None))
                        callers = (*place.line, *place.callers)
                        runs[id(called)] = Place(called, Paths(called), limits, tool=tool.name, callers=callers)
                        ahead.append(runs[id(called)])
    return found


def _add(found: dict[tuple[int, Scope], Place], place: Place) -> None:
    found[id(place.graph), place.scope] = place
    for name, node in place.graph.nodes.items():
        inner = node.subgraph
        scope = place.scope.inside(node)
        if inner is not None and (id(inner), scope) not in found:
            paths = Paths(inner, inside=True)
            _add(found, Place(inner, paths, inner.limits, place, name, place.tool, place.callers, scope))


def graph_tools(node: Node, tools: Sequence[NodeTool] | None, scope: Scope = EVERYWHERE) -> Iterator[NodeTool]:
    """The tools that run a graph, of those that a node may call."""
    if not sees_tools(node) or node.subgraph is not None:
        return
    given = {tool.name: tool for tool in tools or ()}
    toolset = scope.toolset(node)
    for tool in given.values() if toolset is None else toolset:
        known = given.get(tool) if isinstance(tool, str) else tool
        if known is not None and tool_graph(known) is not None:
            yield known


def tool_graph(tool: NodeTool) -> GraphDefinition | None:
    """The graph that a tool runs."""
    found = getattr(tool, "graph", None)
    return found if isinstance(found, GraphDefinition) else None
