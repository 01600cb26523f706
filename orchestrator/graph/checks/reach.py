"""Check C1.reach: no node is unreachable from START, and no cycle or dead end keeps a run from an end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from orchestrator.errors import Problem
from orchestrator.graph.faults import listed_names
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.topology import ANY, END, START, STOP, reached


def reach_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield nodes that cannot be reached, or reach no end (END or STOP). Edges must be valid."""
    ways = [(edge.source, edge.target) for edge in graph.edges]
    if any(edge.source == ANY for edge in graph.edges):
        ways += [(name, ANY) for name in graph.nodes]  # one vertex between sources and targets keeps this linear
    reached = _reached(ways, START)
    lost = tuple(name for name in graph.nodes if name not in reached)
    if lost:
        fix = "add an edge to it, or remove it" if len(lost) == 1 else "add edges to them, or remove them"
        yield Problem("C1.reach", f"no path leads from START to {listed_names(lost)}: {fix}", lost)
    back = [(target, source) for source, target in ways]
    ending = _reached(back, END, STOP)
    caught = tuple(name for name in graph.nodes if name in reached and name not in ending)
    if caught:
        one = f"let {'it' if len(caught) == 1 else 'one of them'} lead to END"
        yield Problem("C1.reach", f"no path leads from {listed_names(caught)} to END or STOP: {one}", caught)


def _reached(ways: Iterable[tuple[str, str]], *starts: str) -> set[str]:
    """Return every vertex that can be reached. Avoids networkx, whose import takes longer than all other checks."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in ways:
        following[source].append(target)
    return reached(following, starts)
