"""C1: START reaches every node, and every node reaches an end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.graph.checks.words import listed
from orchestrator.graph.problem import Problem
from orchestrator.graph.topology import ANY, END, START, STOP

if TYPE_CHECKING:
    from orchestrator.graph.graph import Graph


def reach_problems(graph: Graph) -> Iterator[Problem]:
    """Wants edges that checked out. An edge from `*` is a way from every node; STOP is an end like END."""
    import networkx as nx

    ways: nx.DiGraph[str] = nx.DiGraph()
    ways.add_nodes_from((START, ANY, END, STOP, *graph.nodes))
    ways.add_edges_from((edge.source, edge.target) for edge in graph.edges)
    if any(edge.source == ANY for edge in graph.edges):
        ways.add_edges_from((name, ANY) for name in graph.nodes)  # one vertex between keeps this linear
    reached = nx.descendants(ways, START)
    lost = tuple(name for name in graph.nodes if name not in reached)
    if lost:
        mend = "add an edge to it, or remove it" if len(lost) == 1 else "add edges to them, or remove them"
        yield Problem("C1.reach", f"no way leads from START to {listed(lost)}: {mend}", lost)
    ending = nx.ancestors(ways, END) | nx.ancestors(ways, STOP)
    caught = tuple(name for name in graph.nodes if name in reached and name not in ending)
    if caught:
        one = f"let {'it' if len(caught) == 1 else 'one of them'} lead to END"
        yield Problem("C1.reach", f"no way leads from {listed(caught)} to END or STOP: {one}", caught)
