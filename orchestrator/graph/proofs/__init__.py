"""Proofs of claims by the shape of a graph, each with a path that breaks the claim where it does not hold.

The claims are about every run that the rules of `docs/kernel.md` allow: whatever outcomes nodes take of those that they
declare, however long the lists of maps are, in whatever order steps end, and wherever a limit is spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.graph.proofs.approvals import confirmed
from orchestrator.graph.proofs.ends import bounded, ending, firing
from orchestrator.graph.proofs.places import Place, places_of
from orchestrator.graph.proofs.writes import separate

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.graph.refs import NodeTool
    from orchestrator.graph.report import Proof

__all__ = ["Place", "places_of", "prove"]


def prove(graph: GraphDefinition, tools: Sequence[NodeTool] | None = None) -> Iterator[Proof]:
    """All claims about a graph that has no problems, and about the graphs inside it.

    Args:
        graph: the graph.
        tools: the tools that nodes may call that name none of their own; None: not known.
    """
    places = places_of(graph, tools)
    yield from confirmed(places, tools)
    yield from bounded(places)
    yield from firing(places)
    yield from ending(places)
    yield from separate(places)
