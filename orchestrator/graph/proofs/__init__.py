"""Proofs of claims from the shape of a graph, each with a counterexample if the claim is false.

The claims concern every run that the rules of `docs/kernel.md` allow: for any declared outcomes, any lengths of mapped
lists, any order in which steps end, and any moment at which a limit is spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.graph.proofs.approvals import confirmed
from orchestrator.graph.proofs.ends import bounded, ending, firing
from orchestrator.graph.proofs.guards import guarded
from orchestrator.graph.proofs.places import Place, places_of
from orchestrator.graph.proofs.writes import separate

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.graph.refs import NodeTool
    from orchestrator.graph.report import Proof

__all__ = ["Place", "places_of", "prove"]


def prove(graph: GraphDefinition, tools: Sequence[NodeTool] | None = None) -> Iterator[Proof]:
    """Prove all claims about a graph without problems, and about the graphs inside it.

    Args:
        graph: the graph.
        tools: the tools that nodes may call if they name none of their own; None if not known.
    """
    places = places_of(graph, tools)
    yield from confirmed(places, tools)
    yield from guarded(places, tools)
    yield from bounded(places)
    yield from firing(places)
    yield from ending(places)
    yield from separate(places)
