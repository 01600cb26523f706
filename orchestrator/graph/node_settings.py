"""Graphs with a setting of some nodes changed: other tools, another model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.graph.model import GraphDefinition, Node


def with_model(graph: GraphDefinition, model: str) -> GraphDefinition:
    """Return the graph with a model for the nodes that ask one and name none, also inside their graphs."""
    nodes = nodes_with(graph.nodes, lambda node: node.asks_model and node.model is None, "model", model)
    return graph.model_copy(update={"nodes": nodes})


def nodes_with(
    nodes: Mapping[str, Node], wanted: Callable[[Node], bool], setting: str, value: object
) -> dict[str, Node]:
    """Return the nodes with one setting changed where it is wanted, also inside their graphs."""
    return {name: _with_setting(node, wanted, setting, value) for name, node in nodes.items()}


def _with_setting(node: Node, wanted: Callable[[Node], bool], setting: str, value: object) -> Node:
    inner = node.subgraph
    if inner is None:
        return node.with_(**{setting: value}) if wanted(node) else node
    if "graph" not in type(node).model_fields:  # a stored node without its code
        return node
    return node.with_(graph=inner.model_copy(update={"nodes": nodes_with(inner.nodes, wanted, setting, value)}))
