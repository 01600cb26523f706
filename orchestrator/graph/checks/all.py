"""All checks of a graph, in the order in which their problems are worth reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.graph.problem import Problem

if TYPE_CHECKING:
    from orchestrator.graph.graph import Graph


def problems_of(graph: Graph) -> list[Problem]:
    """Every problem of a graph, with its mend; empty for a sound one."""
    return []
