"""A graph as the YAML text that `graph.save` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.graph.definition import GraphDefinition


def to_yaml(graph: GraphDefinition) -> str:
    """The graph's YAML text; `Graph.load` reads it back.

    Raises:
        NotSerialisable: A node is a closure; the message names it.
    """
    return graph.to_yaml()
