"""Nodes that work in pairs: one writes what the other reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition


def unwritten(graph: GraphDefinition, name: str, field: str, writer: str) -> Iterator[str]:
    """Yield a problem if no other node of a graph can write a field that a node reads.

    Args:
        graph: the graph.
        name: the node that reads the field.
        field: the field.
        writer: the node that should write it, as the message shows it.
    """
    others = (node for other, node in graph.nodes.items() if other != name)
    if not any(node.updates is None or field in node.updates for node in others):
        yield f"{name} reads {field!r}, which no other node writes: place a {writer} before it"
