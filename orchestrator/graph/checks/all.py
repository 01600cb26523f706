"""Runs all checks of a graph, with the most fundamental problems first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.errors import Problem
from orchestrator.graph.checks.lost_proofs import unconfirmed
from orchestrator.graph.checks.parts import (
    cache_problems,
    edge_problems,
    entry_problems,
    failure_problems,
    field_problems,
    interrupt_problems,
    kind_problems,
    look_alike_problems,
    mapping_problems,
    name_problems,
    nested_problems,
    pool_problems,
    unnamed_pools,
    write_problems,
)
from orchestrator.graph.checks.shape import reach_problems, shape_problems
from orchestrator.graph.model import GraphDefinition

if TYPE_CHECKING:
    from orchestrator.graph.refs import NodeTool
    from orchestrator.graph.report import CheckReport


def problems_of(graph: GraphDefinition, *, stored: bool = False) -> list[Problem]:
    """Return every problem of a graph, each with a suggested fix; empty for a sound graph.

    The shape (C2 to C7) is checked only if all names are valid and every node can be reached.

    Args:
        stored: True if the graph comes from a store, which may contain graphs that earlier versions accepted.
    """
    found = [*name_problems(graph, stored=stored), *edge_problems(graph)]
    if not found:
        found += reach_problems(graph)
    found += [*field_problems(graph), *nested_problems(graph), *pool_problems(graph, stored=stored)]
    if not stored:
        found += [*failure_problems(graph), *mapping_problems(graph), *entry_problems(graph), *kind_problems(graph)]
        found += [*cache_problems(graph), *look_alike_problems(graph)]
    if not found:
        found += shape_problems(graph.topology)
    if not found and not stored:
        found += interrupt_problems(graph)
    if not found:
        found += write_problems(graph)
    return found


def report_of(graph: GraphDefinition, *, prove: bool = False, tools: Sequence[NodeTool] | None = None) -> CheckReport:
    """Return the results of the checks as data. `prove` adds proofs, with a witness for each that fails.

    Args:
        graph: the graph.
        prove: True to prove claims about the graph. Nothing is proved about a graph with problems.
        tools: the tools of nodes that name none of their own; None if not known.
    """
    from orchestrator.graph.proofs import prove as proofs_of
    from orchestrator.graph.report import CheckReport

    notes = (*graph.topology.notes(), *unnamed_pools(graph), *unconfirmed(graph))
    problems = tuple(problems_of(graph))
    proofs = tuple(proofs_of(graph, tools)) if prove and not problems else ()
    return CheckReport(problems, notes, proofs)
