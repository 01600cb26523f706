"""The shape of a graph file whose code is not imported: enough to check its edges and to draw it.

Facts that only the code contains are assumed so that they cause no faults: a state class has every field that is named,
a function has the outcomes that its edges name, and branches meet at joins. `Outline.skipped` lists what could not be
checked for that reason. An outline cannot be run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import GraphError, InvalidGraph, Problem, UntrustedCode
from orchestrator.graph.edges import Edge, parse_edges
from orchestrator.graph.faults import Faults
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.graph.reading import UnresolvedNode, built, graph_class, graph_keys, node_from_data, node_name
from orchestrator.graph.refs import CodeRef, code_refs, refuse_impossible
from orchestrator.graph.state import StateSchema, named_fields
from orchestrator.graph.topology import DONE, RESERVED

_LEFT_OUT = {
    "state": "the fields, types and reducers of the state",
    "reducer": "the reducer of {place}",
    "node": "outcomes and join of {place}",
    "kind": "fields, outcomes and join of {place}",
    "tool": "{place}",
    "graph": "{place}",
    "function": "whether {place} can call it",
}


@dataclass(frozen=True, slots=True)
class Outline:
    """The part of a graph that its file alone describes."""

    graph: GraphDefinition
    skipped: tuple[str, ...]
    """The parts that were not checked, each with the reference that a check would have to follow."""


def outline(data: object) -> Outline:
    """Make the outline of a graph defined as data. Imports nothing but this library.

    Raises:
        GraphError: the data is not that of a graph, or a reference cannot name what its place needs.
        InvalidGraph: the checks found problems.
    """
    refs = list(code_refs(data))
    problems = [problem for one in refs if (problem := _impossible(one)) is not None]
    if problems:
        raise InvalidGraph(str(graph_keys(data)["name"]), problems)
    skipped = (f"{_LEFT_OUT[one.role].format(place=one.place)}: {one.ref}" for one in refs)
    return Outline(_graph(data), tuple(dict.fromkeys(skipped)))


def _impossible(one: CodeRef) -> Problem | None:
    try:
        refuse_impossible(one.ref, one.role)
    except UntrustedCode as error:
        return Problem("C1.code", f"{one.place}: {error}")
    return None


def _graph(data: object, named: Collection[str] = ()) -> GraphDefinition:
    """Return the graph of some data. `named`: fields of the state that an enclosing graph names."""
    options = graph_keys(data)
    faults = Faults()
    nodes: dict[str, Node] = {}
    edges: tuple[Edge, ...] = ()
    with faults.at("edges"):
        edges = parse_edges(options["edges"])
    for name, spec in options["nodes"].items():
        with faults.at("nodes", str(name)):
            nodes[node_name(name)] = _node(str(name), spec, edges)
    with faults.at("state"):
        options["state"] = _state(options["state"], lambda: (*named, *_named(options, edges, nodes)))
    faults.raise_any()
    try:
        return built(graph_class(), {**options, "nodes": nodes, "edges": edges})
    except InvalidGraph as error:
        # Where branches meet at a function, the function may declare a join.
        met = {name for one in error.problems if one.code == "C2" for name in one.nodes if _may_join(nodes.get(name))}
        if not met:
            raise
        joined = {name: node.with_(join="all") if name in met else node for name, node in nodes.items()}
    return built(graph_class(), {**options, "nodes": joined, "edges": edges})


def _may_join(node: Node | None) -> bool:
    return isinstance(node, UnresolvedNode) and node.join is None


def _state(data: object, named: Any) -> StateSchema:
    if isinstance(data, str):
        data = {"name": data.rpartition(":")[2], "ref": data, "fields": {}}
    if not isinstance(data, Mapping):
        raise GraphError("'state' is 'module:Class', or a mapping with name and fields")
    return named_fields(data, named()) if isinstance(data.get("ref"), str) else StateSchema.from_data(data)


def _named(options: Mapping[str, object], edges: Collection[Edge], nodes: Mapping[str, Node]) -> Iterator[str]:
    """Yield the state fields that a graph names."""
    for names in (options.get("input"), options.get("output")):
        yield from (names,) if isinstance(names, str) else names if isinstance(names, list) else ()
    yield from (edge.each for edge in edges if edge.each is not None)
    for node in nodes.values():
        yield from node.ports().values()
        yield from (*(node.reads or ()), *(node.writes or ()))


def _node(name: str, spec: object, edges: Collection[Edge]) -> Node:
    if isinstance(spec, str) and ":" in spec:
        spec = {"kind": "function", "ref": spec}
    if not isinstance(spec, Mapping):
        raise GraphError(f"node {name!r}: write a mapping, such as {{kind: complete}}, or 'module:function'")
    inner = spec.get("graph")
    if isinstance(inner, Mapping):
        taken = (spec.get("inputs"), spec.get("outputs"))
        inputs, outputs = (one if isinstance(one, Mapping) else {} for one in taken)
        spec = {**spec, "graph": _graph(inner, (*map(str, inputs), *map(str, outputs.values())))}
    elif "outcomes" not in spec and (spec.get("kind") == "function" or "class" in spec):
        spec = {**spec, "outcomes": _outcomes(name, edges)}
    try:
        return node_from_data(spec, strict=True)
    except GraphError as error:
        if type(error) is not GraphError:
            raise
        raise GraphError(f"node {name!r}: {error}") from None


def _outcomes(name: str, edges: Collection[Edge]) -> list[str]:
    """Return the outcomes of a node, assuming that all its edges are right."""
    said = dict.fromkeys(edge.outcome for edge in edges if edge.source == name and edge.outcome not in RESERVED)
    return list(dict.fromkeys(DONE if outcome is None else outcome for outcome in said)) or [DONE]
