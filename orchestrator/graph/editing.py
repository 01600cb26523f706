"""Edits of a graph's edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.errors import GraphError
from orchestrator.graph.edge import Edge
from orchestrator.graph.outcome import DONE


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
