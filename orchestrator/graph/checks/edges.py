"""Checks of names, edges, and reach."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from orchestrator.errors import Problem
from orchestrator.graph.edges import Edge
from orchestrator.graph.faults import close_to
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.names import RULE, is_name, look_alikes
from orchestrator.graph.topology import ANY, END, RESERVED, START, STOP, reached

# -- Words that the messages of several checks share -----------------------------------------------------------


def listed(names: Iterable[str]) -> str:
    """Names in a row, at most ten of them."""
    names = list(names)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def mend_name(name: str, known: Iterable[str], otherwise: str) -> str:
    """The most likely correction of an unknown name."""
    close = close_to(name, known)
    return f"did you mean {close!r}?" if close else otherwise


# -- C1: names of the graph, its nodes and their outcomes ------------------------------------------------------


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


# -- C1: edges between nodes that there are, for outcomes that they declare, and no outcome without an edge ----


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


# -- C1: START reaches every node, and every node reaches an end -----------------------------------------------


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
