"""All checks of a graph, in the order in which their problems are worth reading."""

from __future__ import annotations

from orchestrator.graph.checks.edges import edge_problems
from orchestrator.graph.checks.failures import failure_problems
from orchestrator.graph.checks.fields import field_problems
from orchestrator.graph.checks.interrupts import interrupt_problems
from orchestrator.graph.checks.names import name_problems
from orchestrator.graph.checks.nested import entry_problems, mapping_problems, nested_problems
from orchestrator.graph.checks.proofs import proofs_of, unconfirmed, unproved
from orchestrator.graph.checks.reach import reach_problems
from orchestrator.graph.checks.shape import shape_problems
from orchestrator.graph.checks.writes import write_problems
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.report import CheckReport
from orchestrator.problem import Problem


def problems_of(graph: GraphDefinition, *, stored: bool = False) -> list[Problem]:
    """Every problem of a graph, each with a suggested fix; empty for a sound one.

    The shape (C2 to C6) can be judged only where all names checked out and every node can be reached.

    Args:
        stored: the graph comes from a store, where earlier versions kept graphs that only today's checks refuse.
    """
    found = [*name_problems(graph), *edge_problems(graph)]
    if not found:
        found += reach_problems(graph)
    found += [*field_problems(graph), *nested_problems(graph)]
    if not stored:
        found += [*failure_problems(graph), *mapping_problems(graph), *entry_problems(graph)]
    if not found:
        found += shape_problems(graph.topology)
    if not found and not stored:
        found += interrupt_problems(graph)
    if not found:
        found += write_problems(graph)
    return found


def report_of(graph: GraphDefinition, *, prove: bool = False) -> CheckReport:
    """The checks as data; `prove` adds what the shape alone proves, each with a witness where it fails."""
    notes = (*graph.topology.notes(), *unconfirmed(graph))
    if not prove:
        return CheckReport(tuple(problems_of(graph)), notes)
    return CheckReport(tuple(problems_of(graph)), (*notes, *unproved(graph)), tuple(proofs_of(graph)))
