"""C1: START reaches every node, and every node reaches an end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from orchestrator.graph.checks.words import listed
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.topology import ANY, END, START, STOP, reached
from orchestrator.problem import Problem


def reach_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Wants edges that checked out. An edge from `*` is a way from every node; STOP is an end like END."""
    ways = [(edge.source, edge.target) for edge in graph.edges]
    if any(edge.source == ANY for edge in graph.edges):
        ways += [(name, ANY) for name in graph.nodes]  # one vertex between keeps this linear
    reached = _reached(ways, START)
    lost = tuple(name for name in graph.nodes if name not in reached)
    if lost:
        mend = "add an edge to it, or remove it" if len(lost) == 1 else "add edges to them, or remove them"
        yield Problem("C1.reach", f"no path leads from START to {listed(lost)}: {mend}", lost)
    back = [(target, source) for source, target in ways]
    ending = _reached(back, END, STOP)
    caught = tuple(name for name in graph.nodes if name in reached and name not in ending)
    if caught:
        one = f"let {'it' if len(caught) == 1 else 'one of them'} lead to END"
        yield Problem("C1.reach", f"no path leads from {listed(caught)} to END or STOP: {one}", caught)


def _reached(ways: Iterable[tuple[str, str]], *starts: str) -> set[str]:
    """Every vertex that some way leads to. By hand: every graph is checked so, also one that is only looked at, and
    to load networkx takes longer than all the rest of that."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in ways:
        following[source].append(target)
    return reached(following, starts)
