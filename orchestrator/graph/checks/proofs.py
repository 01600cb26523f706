"""What the shape of a graph alone proves, each claim with a way that breaks it where it does not hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.graph.checks.words import listed
from orchestrator.graph.node import is_shipped
from orchestrator.graph.report import Proof
from orchestrator.graph.topology import DONE, IF_NAMED, START

if TYPE_CHECKING:
    import networkx as nx

    from orchestrator.graph.definition import GraphDefinition
    from orchestrator.graph.node import Node

CONFIRM, APPROVED = "confirm", "approved"
HARMLESS = ("none", "read")
"""Risks of tools that change nothing."""


def proofs_of(graph: GraphDefinition) -> Iterator[Proof]:
    """All claims that make sense for the graph."""
    yield from _confirmed(graph)
    yield bounded(graph)


def unproved(graph: GraphDefinition) -> Iterator[str]:
    """Notes on what the claims leave out: nodes whose own code may call any tool that the executor has."""
    names = [
        name for name, node in graph.nodes.items() if _has_own_code(node) and node.sees_tools and node.tools is None
    ]
    if names:
        yield f"{listed(names)} may call any tool, so no proof covers it: name its tools, tools=[...]"


def _has_own_code(node: Node) -> bool:
    return node.subgraph is None and (node.kind in ("function", "unresolved") or not is_shipped(type(node)))


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


def _confirmed(graph: GraphDefinition) -> Iterator[Proof]:
    """Every way to a node that acts passes an approval."""
    import networkx as nx

    acting = [name for name, node in graph.nodes.items() if acts(node)]
    if not acting:
        return
    ways = ways_of(graph, past_approval=False)
    for name in acting:
        claim = f"every path to {name} passes a confirmation"
        if nx.has_path(ways, START, name):
            yield Proof(claim, False, tuple(nx.shortest_path(ways, START, name)))
        else:
            yield Proof(claim, True)


def unconfirmed(graph: GraphDefinition) -> Iterator[str]:
    """A note on each node that calls tools and can be reached without an approval."""
    calling = {name for name, node in graph.nodes.items() if _calls_tools(node)}
    for proof in _confirmed(graph) if calling else ():
        if not proof.holds and proof.witness[-1] in calling:
            yield f"{proof.witness[-1]} calls tools without a confirmation before it: {' -> '.join(proof.witness)}"


def _calls_tools(node: Node) -> bool:
    inner = node.subgraph
    return node.kind == "execute" if inner is None else any(map(_calls_tools, inner.nodes.values()))


def acts(node: Node) -> bool:
    """Whether a node may change the world: it calls tools, says that it is irreversible, or holds a node that does
    and is not confirmed inside."""
    inner = node.subgraph
    if inner is not None:
        return any(not proof.holds for proof in _confirmed(inner))
    return node.effect == "irreversible" or (node.calls_tools and not _harmless(node))


def _harmless(node: Node) -> bool:
    """Whether all tools of a node are known here and none of them changes anything."""
    toolset = node.toolset
    return toolset is not None and all(not isinstance(one, str) and one.risk in HARMLESS for one in toolset)


def bounded(graph: GraphDefinition) -> Proof:
    """Every cycle spends a limit."""
    import networkx as nx

    claim = "every cycle spends a limit"
    if graph.limits.steps is not None:
        return Proof(claim, True)
    ways = ways_of(graph)
    ways.remove_nodes_from(graph.limits.visits)
    try:
        cycle = [source for source, _ in nx.find_cycle(ways)]
    except nx.NetworkXNoCycle:
        return Proof(claim, True)
    return Proof(claim, False, (*cycle, cycle[0]))
