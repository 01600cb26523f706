"""C1: the state has every field that the graph, its edges and its nodes name."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.graph.checks.words import mend_name
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.edge import Edge
from orchestrator.graph.fields import holds
from orchestrator.graph.node import Node
from orchestrator.graph.topology import counts
from orchestrator.problem import Problem


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
