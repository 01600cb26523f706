"""C1: names of the graph, its nodes and their outcomes."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.graph.checks.words import mend_name
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.names import RULE, is_name, look_alikes
from orchestrator.graph.topology import ANY, END, RESERVED, START, STOP
from orchestrator.problem import Problem


def name_problems(graph: GraphDefinition, *, stored: bool = False) -> Iterator[Problem]:
    """Names that the arrow text cannot say, or that mean something else in it.

    Args:
        graph: the graph.
        stored: it comes from a store: earlier versions had another rule for names.
    """
    if not (stored or is_name(graph.name)):
        yield Problem("C1.name", f"graph name {graph.name!r} is not a valid name: {RULE}")
    if not graph.nodes:
        yield Problem("C1.name", "the graph has no nodes: add one")
    for name in graph.nodes:
        if name in (START, END, STOP, ANY):
            yield Problem("C1.name", f"node name {name!r} has a special meaning in edges: rename the node", (name,))
        elif not (stored or is_name(name)):
            yield Problem("C1.name", f"node name {name!r} is not a valid name: {RULE}", (name,))
    for name, node in graph.nodes.items():
        yield from _outcome_problems(name, node.outcomes, stored=stored)
    for name in graph.limits.visits:
        if name not in graph.nodes:
            mend = mend_name(name, graph.nodes, "name a node, or remove the limit")
            yield Problem("C1.name", f"limits.visits names {name!r}, which is not a node: {mend}")


def _outcome_problems(name: str, outcomes: tuple[str, ...], *, stored: bool) -> Iterator[Problem]:
    if not outcomes:
        yield Problem("C1.outcome", f"{name} declares no outcome: declare one, such as 'done'", (name,))
    for place, outcome in enumerate(outcomes):
        said = f"{name} declares outcome {outcome!r}"
        if outcome in RESERVED:
            why = "which every node has: remove it; edges can use it anyway"
            yield Problem("C1.outcome", f"{said}, {why}", (name,))
        elif outcome == "each" or not (stored or is_name(outcome)) or outcome in (START, END, STOP):
            yield Problem("C1.outcome", f"{said}, which no edge can name: rename it", (name,))
        elif outcome in outcomes[:place]:
            yield Problem("C1.outcome", f"{said} twice: remove one", (name,))


def look_alike_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Names of one kind that look alike because they mix letters of several scripts."""
    ends = [end for edge in graph.edges for end in (edge.source, edge.target)]
    outcomes = [outcome for node in graph.nodes.values() for outcome in node.outcomes]
    labels = [edge.outcome for edge in graph.edges if edge.outcome is not None]
    for what, names in (("nodes", [*graph.nodes, *ends]), ("outcomes", [*outcomes, *labels]), ("pools", graph.pools)):
        for first, name, letter in look_alikes(names):
            told = f"{what} {first!r} and {name!r} look alike, but the second has a {letter}"
            yield Problem("C1.name", f"{told}: write them with the same letters, or rename one")
