"""What a version of a graph must not lose: confirmations before nodes that act, and limits of cycles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.graph.topology import DONE, IF_NAMED, START

if TYPE_CHECKING:
    import networkx as nx

    from orchestrator.graph.definition import GraphDefinition
    from orchestrator.graph.node import Node

CONFIRM, APPROVED = "confirm", "approved"
HARMLESS = ("none", "read")
"""Risks of tools that change nothing."""


def ways_of(graph: GraphDefinition, *, past_approval: bool = True) -> nx.DiGraph[str]:
    """All ways in the graph; without `past_approval` those only that no confirm has approved."""
    import networkx as nx

    ways: nx.DiGraph[str] = nx.DiGraph()
    ways.add_nodes_from((START, *graph.nodes))
    ways.add_edges_from((START, route.target) for route in graph.topology.routes(START, DONE))
    emergency = graph.topology.exhausted_target
    for name, node in graph.nodes.items():
        for outcome in (*node.outcomes, *IF_NAMED):
            if past_approval or node.kind != CONFIRM or outcome != APPROVED:
                ways.add_edges_from((name, route.target) for route in graph.topology.routes(name, outcome))
        if emergency is not None:
            ways.add_edge(name, emergency)
    return ways


def _unconfirmed_ways(graph: GraphDefinition) -> Iterator[tuple[str, ...]]:
    """Ways to nodes that act which pass no approval, one for each node."""
    import networkx as nx

    acting = [name for name, node in graph.nodes.items() if acts(node)]
    if not acting:
        return
    ways = ways_of(graph, past_approval=False)
    for name in acting:
        if nx.has_path(ways, START, name):
            yield tuple(nx.shortest_path(ways, START, name))


def unconfirmed(graph: GraphDefinition) -> Iterator[str]:
    """A note on each node that calls tools and can be reached without an approval."""
    calling = {name for name, node in graph.nodes.items() if _calls_tools(node)}
    for way in _unconfirmed_ways(graph) if calling else ():
        if way[-1] in calling:
            yield f"{way[-1]} calls tools without a confirmation before it: {' -> '.join(way)}"


def _calls_tools(node: Node) -> bool:
    inner = node.subgraph
    return node.kind == "execute" if inner is None else any(map(_calls_tools, inner.nodes.values()))


def acts(node: Node) -> bool:
    """Whether a node may change the world: it calls tools, says that it is irreversible, or holds a node that does
    and is not confirmed inside."""
    inner = node.subgraph
    if inner is not None:
        return any(True for _ in _unconfirmed_ways(inner))
    return node.effect == "irreversible" or (node.calls_tools and not _harmless(node))


def _harmless(node: Node) -> bool:
    """Whether all tools of a node are known here and none of them changes anything."""
    toolset = node.toolset
    return toolset is not None and all(not isinstance(one, str) and one.risk in HARMLESS for one in toolset)


def unbounded(graph: GraphDefinition) -> tuple[str, ...]:
    """The nodes of a cycle that spends no limit; empty if there is none."""
    import networkx as nx

    if graph.limits.steps is not None:
        return ()
    ways = ways_of(graph)
    ways.remove_nodes_from(graph.limits.visits)
    try:
        cycle = [source for source, _ in nx.find_cycle(ways)]
    except nx.NetworkXNoCycle:
        return ()
    return (*cycle, cycle[0])
