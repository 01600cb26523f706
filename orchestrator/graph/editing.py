"""Edits of a graph: of its edges, and of one setting of many nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.errors import GraphError
from orchestrator.graph.edges import Edge
from orchestrator.graph.node import Node
from orchestrator.graph.outcome import DONE

if TYPE_CHECKING:
    from orchestrator.graph.definition import GraphDefinition


def edges_with_node_before(
    edges: Sequence[Edge], node: str, name: str, outcomes: tuple[str, ...], onward: str | None, otherwise: str
) -> tuple[Edge, ...]:
    """The edges with `name` on every way into `node`; its outcomes but `onward` lead to `otherwise`.

    Raises:
        GraphError: it is not clear which outcome goes on, or there is no such outcome.
    """
    if onward is None:
        sure = [outcome for outcome in outcomes if outcome in ("approved", DONE)] or list(outcomes)
        if len(sure) != 1:
            raise GraphError(f"which outcome of {name} leads to {node}? set outcome= to one of {', '.join(outcomes)}")
        onward = sure[0]
    if onward not in outcomes:
        raise GraphError(f"{name} has no outcome {onward!r}: it has {', '.join(outcomes)}")
    moved = [replace(edge, target=name) if edge.target == node else edge for edge in edges]
    if len(outcomes) == 1:
        return (*moved, Edge(name, node))
    added = [Edge(name, node if outcome == onward else otherwise, outcome) for outcome in outcomes]
    return (*moved, *added)


def nodes_with(
    nodes: Mapping[str, Node], wanted: Callable[[Node], bool], setting: str, value: object
) -> dict[str, Node]:
    """The nodes with one setting changed of those that are wanted, also of those in the graphs inside them."""
    return {name: _with_setting(node, wanted, setting, value) for name, node in nodes.items()}


def _with_setting(node: Node, wanted: Callable[[Node], bool], setting: str, value: object) -> Node:
    inner: GraphDefinition | None = node.subgraph
    if inner is None:
        return node.with_(**{setting: value}) if wanted(node) else node
    if "graph" not in type(node).model_fields:  # stored, without its code
        return node
    return node.with_(graph=inner.model_copy(update={"nodes": nodes_with(inner.nodes, wanted, setting, value)}))
