"""Checks of state fields: their names and types in nodes, and writes of parallel branches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from orchestrator.errors import Problem
from orchestrator.graph.checks.edges import mend_name
from orchestrator.graph.edges import Edge
from orchestrator.graph.fields import holds
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.graph.topology import END, FanOut, counts

# -- C1: the state has every field that the graph, its edges and its nodes name --------------------------------


def field_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Fields that are not there, or not of the kind that is needed."""
    for what, names in (("input", graph.input), ("output", graph.output)):
        for name in (names,) if isinstance(names, str) else names or ():
            yield from _missing(graph, f"{what} of the graph is", name)
    for edge in dict.fromkeys(graph.edges):
        if edge.each is not None:
            yield from _map_problems(graph, edge, edge.each)
    for name, node in graph.nodes.items():
        yield from _node_problems(graph, name, node)


def _missing(
    graph: GraphDefinition, use: str, field: str, nodes: tuple[str, ...] = (), edges: tuple[str, ...] = ()
) -> Iterator[Problem]:
    known = graph.schema.fields
    if field not in known:
        mend = mend_name(field, known, "add the field, or name another")
        message = f"{use} {field!r}, and state {graph.schema.name} has no such field: {mend}"
        yield Problem("C1.field", message, nodes, edges)


def _map_problems(graph: GraphDefinition, edge: Edge, field: str) -> Iterator[Problem]:
    yield from _missing(graph, f"edge {edge} maps over", field, edges=(str(edge),))
    if field in graph.schema.fields and not graph.schema.is_list(field):
        message = f"edge {edge} maps over {field!r}, which is not a list: make it a list, or name another field"
        yield Problem("C1.field", message, (), (str(edge),))


def _node_problems(graph: GraphDefinition, name: str, node: Node) -> Iterator[Problem]:
    for port, field in node.ports().items():
        wanted = node.port_type(port)
        if field not in graph.schema.fields:
            yield from _missing(graph, f"port {port!r} of {name} is", field, (name,))
        elif wanted is not None and not holds(graph.schema.field(field).annotation, wanted):
            no = f"which is not a {getattr(wanted, '__name__', wanted)}"
            message = f"port {port!r} of {name} is {field!r}, {no}: make it one, or name another field"
            yield Problem("C1.field", message, (name,))
    yield from _join_problems(graph, name, node)
    for verb, fields in (("reads", node.reads), ("writes", node.writes)):
        for field in sorted(fields or ()):
            yield from _missing(graph, f"{name} {verb}", field, (name,))


def _join_problems(graph: GraphDefinition, name: str, node: Node) -> Iterator[Problem]:
    """The field that a join takes its number of branches from."""
    fields, join = graph.schema.fields, node.join
    if not isinstance(join, str):
        return
    if not counts(join):
        if join in fields and holds(graph.schema.field(join).annotation, int):
            message = f"{name} says join={join!r}, and the state has a field of that name: give the field another one"
            yield Problem("C1.field", message, (name,))
    elif join not in fields:
        mend = mend_name(join, [*fields, "all", "each"], "add the field, or say join='all' or a number")
        message = f"{name} says join={join!r}, and state {graph.schema.name} has no such field: {mend}"
        yield Problem("C1.field", message, (name,))
    elif not holds(graph.schema.field(join).annotation, int):
        message = f"{name} says join={join!r}, which is not an int: make it one, or name another field"
        yield Problem("C1.field", message, (name,))


# -- Plain fields that branches of one fork write, where no join can bring the branches together ---------------
# Their updates meet when the graph ends, and are then in conflict for certain. Only what nodes declare with
# `writes=` is known here.


def write_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Wants a shape that checked out."""
    writers = {name: _plain_writes(graph, name) for name in graph.nodes}
    if not any(writers.values()):
        return
    topology = graph.topology
    seen: set[tuple[str, ...]] = set()
    for fork, fans in topology.fans.items():
        if topology.joins_of(fork):
            continue
        place = fork.partition("*")[0]
        for fan in fans:
            for problem in _fan_problems(graph, fork, place, fan, writers):
                if problem.nodes not in seen:
                    seen.add(problem.nodes)
                    yield problem


def _fan_problems(
    graph: GraphDefinition, fork: str, place: str, fan: FanOut, writers: dict[str, frozenset[str]]
) -> Iterator[Problem]:
    topology = graph.topology
    regions = []
    for target in fan.targets:
        region = topology.reachable((target,), (fork,))
        # What can only STOP is never merged with anything.
        regions.append([n for n in graph.nodes if n in region and writers[n] and END in topology.reachable((n,))])
    if fan.field is not None:
        for name in regions[0]:
            field = min(writers[name])
            fault = f"{name} runs once per item of {fan.field!r} and writes {field!r}, with no join after it"
            yield Problem("writes", f"{fault}: give {field!r} a reducer, or join the map", (name,))
        return
    for (one, first), (other, second) in combinations(zip(fan.targets, regions, strict=True), 2):
        for left in first:
            for right in second:
                both = writers[left] & writers[right]
                if both and left != right and left not in second and right not in first:
                    field = min(both)
                    where = f"in branches {one} and {other} of fork {place} that never join"
                    fault = f"{left} and {right} both write {field!r}, {where}"
                    yield Problem("writes", f"{fault}: give {field!r} a reducer, or join them", (left, right))


def _plain_writes(graph: GraphDefinition, name: str) -> frozenset[str]:
    writes = graph.nodes[name].writes or frozenset()
    fields = graph.schema.fields
    return frozenset(f for f in writes if f in fields and fields[f].plain and not fields[f].local)
