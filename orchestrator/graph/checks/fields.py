"""C1: the state has every field that the graph, its edges and its nodes name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.graph.checks.words import mend_name
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.fields import holds
from orchestrator.graph.node import Node
from orchestrator.problem import Problem


def field_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Fields that are not there, or not of the kind that is needed."""
    for what, names in (("input", graph.input), ("output", graph.output)):
        for name in (names,) if isinstance(names, str) else names or ():
            yield from _missing(graph, name, f"{what} of the graph", ())
    yield from _map_problems(graph)
    for name, node in graph.nodes.items():
        yield from _node_problems(graph, name, node)


def _missing(graph: GraphDefinition, field: str, what: str, nodes: tuple[str, ...]) -> Iterator[Problem]:
    known = graph.schema.fields
    if field not in known:
        mend = mend_name(field, known, "add the field, or name another")
        message = f"{what} is {field!r}, and state {graph.schema.name} has no such field: {mend}"
        yield Problem("C1.field", message, nodes)


def _map_problems(graph: GraphDefinition) -> Iterator[Problem]:
    for edge in dict.fromkeys(graph.edges):
        if edge.each is None:
            continue
        if edge.each not in graph.schema.fields:
            mend = mend_name(edge.each, graph.schema.fields, "add the field, or name another")
            message = f"edge {edge} maps over {edge.each!r}, and state {graph.schema.name} has no such field: {mend}"
            yield Problem("C1.field", message, (), (str(edge),))
        elif not graph.schema.is_list(edge.each):
            message = f"edge {edge} maps over {edge.each!r}, which is not a list: make it a list, or name another field"
            yield Problem("C1.field", message, (), (str(edge),))


def _node_problems(graph: GraphDefinition, name: str, node: Node) -> Iterator[Problem]:
    for port, field in node.ports().items():
        wanted = node.port_types()[port.partition("[")[0]].type
        if field not in graph.schema.fields:
            yield from _missing(graph, field, f"port {port!r} of {name}", (name,))
        elif wanted is not None and not holds(graph.schema.field(field).annotation, wanted):
            no = f"which is not a {getattr(wanted, '__name__', wanted)}"
            message = f"port {port!r} of {name} is {field!r}, {no}: make it one, or name another field"
            yield Problem("C1.field", message, (name,))
    for verb, fields in (("reads", node.reads), ("writes", node.writes)):
        yield from _access_problems(graph, name, verb, fields or ())


def _access_problems(graph: GraphDefinition, name: str, verb: str, fields: Iterable[str]) -> Iterator[Problem]:
    for field in sorted(fields):
        if field not in graph.schema.fields:
            mend = mend_name(field, graph.schema.fields, "add the field, or name another")
            message = f"{name} {verb} {field!r}, and state {graph.schema.name} has no such field: {mend}"
            yield Problem("C1.field", message, (name,))
