"""C1: edges between nodes that there are, for outcomes that they declare, and no outcome without an edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from orchestrator.graph.checks.words import listed, mend_name
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.edge import Edge
from orchestrator.graph.topology import ANY, END, RESERVED, START, STOP
from orchestrator.problem import Problem


def edge_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Faults of single edges, then outcomes that no edge takes, then edges that no outcome takes."""
    for edge in dict.fromkeys(graph.edges):
        yield from _end_problems(graph, edge)
        yield from _label_problems(graph, edge)
    for edge, count in Counter(graph.edges).items():
        if count > 1:
            yield _problem(edge, f"edge {edge} is there {count} times: keep one")
    if not any(edge.source == START for edge in graph.edges):
        yield Problem("C1.edge", "nothing follows START: add 'START -> NODE'")
    exhausted = [edge for edge in graph.edges if edge.source == ANY and edge.outcome == "exhausted"]
    if len({edge.target for edge in exhausted}) > 1:
        targets = listed(edge.target for edge in exhausted)
        yield Problem("C1.edge", f"'* : exhausted' leads to {targets}: it is taken once, so keep one of them")
    yield from _coverage_problems(graph)


def _problem(edge: Edge, message: str) -> Problem:
    return Problem("C1.edge", message, (), (str(edge),))


def _end_problems(graph: GraphDefinition, edge: Edge) -> Iterator[Problem]:
    if edge.source not in graph.nodes and edge.source not in (START, ANY):
        if edge.source in (END, STOP):
            yield _problem(edge, f"edge {edge} starts at {edge.source}, where no edge can start: remove it")
        else:
            mend = mend_name(edge.source, (*graph.nodes, START), "add the node, or remove the edge")
            yield _problem(edge, f"edge {edge} starts at {edge.source!r}, which is not a node: {mend}")
    if edge.target not in graph.nodes and edge.target not in (END, STOP):
        if edge.target in (START, ANY):
            yield _problem(edge, f"edge {edge} leads to {edge.target}, which is not a target: name a node")
        else:
            mend = mend_name(edge.target, (*graph.nodes, END, STOP), "add the node, or remove the edge")
            yield _problem(edge, f"edge {edge} leads to {edge.target!r}, which is not a node: {mend}")


def _label_problems(graph: GraphDefinition, edge: Edge) -> Iterator[Problem]:
    if edge.source == ANY:
        if edge.outcome not in RESERVED:
            yield _problem(edge, f"edge {edge}: '*' takes only a reserved outcome ({listed(RESERVED)}): name one")
        if edge.each is not None:
            yield _problem(edge, f"edge {edge}: '*' cannot map: remove 'each {edge.each}'")
    elif edge.source == START:
        if edge.outcome is not None:
            yield _problem(edge, f"edge {edge}: START has no outcomes: remove {edge.outcome!r}")
    elif edge.source in graph.nodes and edge.outcome is not None and edge.outcome not in RESERVED:
        declared = graph.nodes[edge.source].outcomes
        if edge.outcome not in (*declared, *graph.nodes[edge.source].if_named):
            mend = mend_name(edge.outcome, declared, "declare it, or remove the edge")
            but = f"{edge.source} declares {listed(declared)} only"
            yield _problem(edge, f"edge {edge} is for outcome {edge.outcome!r}, and {but}: {mend}")


def _coverage_problems(graph: GraphDefinition) -> Iterator[Problem]:
    labels: dict[str, set[str]] = {name: set() for name in graph.nodes}
    general: dict[str, Edge] = {}
    for edge in graph.edges:
        if edge.source in labels:
            if edge.outcome is None:
                general.setdefault(edge.source, edge)
            else:
                labels[edge.source].add(edge.outcome)
    for name, node in graph.nodes.items():
        left = [outcome for outcome in node.outcomes if outcome not in labels[name]]
        if name not in general:
            for outcome in left:
                label = "" if node.outcomes == ("done",) else f" : {outcome}"
                fault = f"outcome {outcome!r} of {name} has no edge"
                yield Problem("C1.outcome", f"{fault}: add '{name} -> NODE{label}'", (name,))
        elif not left and node.outcomes:
            edge = general[name]
            why = f"every outcome of {name} has its own edge"
            yield _problem(edge, f"edge {edge} is never taken: {why}; remove it, or name one")
