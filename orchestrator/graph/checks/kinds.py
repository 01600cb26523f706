"""C1: what kinds of nodes check themselves."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.graph.definition import GraphDefinition
from orchestrator.problem import Problem


def kind_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """The faults that nodes find in themselves, see `Node.problems_in`."""
    for name, node in graph.nodes.items():
        for fault in node.problems_in(name, graph):
            yield Problem("C1.node", fault, (name,))
