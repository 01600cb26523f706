"""The two digests of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.errors import InvalidValue
from orchestrator.graph.edge import Edge
from orchestrator.graph.state import StateSchema
from orchestrator.jsontypes import JsonObject, digest
from orchestrator.values import fault_in

_LEVELS = 800
"""Levels of a graph's data, which holds the data of the graphs inside it."""
_SAYS_NOTHING = ("title", "description", "examples", "default", "deprecated")


def structure_digest(
    nodes: JsonObject, edges: Sequence[Edge], schema: StateSchema, pools: Mapping[str, int | None], joins: Sequence[str]
) -> str:
    """Of what a run sits on: edges, the state's types and reducers, nodes, pools, and the order of joins.

    Args:
        nodes: name -> outcomes, join, the digest of the graph inside, and the pool, if it names one.
        edges: the edges.
        schema: the state.
        pools: pool -> its size.
        joins: the result of `join_order`.
    """
    arrows: list[object] = [[edge.source, edge.target, edge.outcome, edge.each] for edge in edges]
    shape: JsonObject = {"nodes": nodes, "edges": arrows, "state": state_shape(schema)}
    if pools:
        shape = {**shape, "pools": dict(pools)}
    return content_digest({**shape, "join_order": list(joins)} if joins else shape)


def join_order(joins: Sequence[str], edges: Sequence[Edge]) -> Sequence[str]:
    """The joins of a graph in the order in which it declares them, if the digests have to say so.

    This order decides which of several joins fires first (R8), and digests do not contain the order of keys. The
    order in which edges name the joins is in them anyway, so nothing is said of graphs that declare them in that one:
    those keep the digests of the versions of the library that left the order out.

    Args:
        joins: the joins, in the order of the nodes.
        edges: the edges.
    """
    named = dict.fromkeys(end for edge in edges for end in (edge.source, edge.target))
    return () if [name for name in named if name in joins] == [*joins] else joins


def content_digest(data: JsonObject) -> str:
    """Of everything: prompts, parameters, versions and references to code too.

    Raises:
        InvalidValue: a text or a number in it has no JSON form, so that no run of the graph could be stored.
    """
    try:
        return digest(data)
    except (ValueError, RecursionError) as error:  # a UnicodeEncodeError is a ValueError
        raise InvalidValue(f"a graph's data: {fault_in(data, _LEVELS) or error}", where="graph") from None


def state_shape(schema: StateSchema) -> JsonObject:
    """Of a state only what its values depend on."""
    if schema.inline is not None and schema.cls is not None:
        from orchestrator.graph.statedata import class_data

        data = class_data(schema)
    else:
        data = schema.data()
    fields = data["fields"]
    assert isinstance(fields, Mapping)
    shape: dict[str, object] = {}
    for name, spec in fields.items():
        assert isinstance(spec, Mapping)
        shape[name] = [_bare(spec.get("schema")), spec.get("reducer", ""), spec.get("local", False)]
    return {"fields": shape, "$defs": _bare(data.get("$defs"))}


def _bare(schema: object) -> object:
    """A JSON schema without its words."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, object] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, Mapping):
            # Here the keys are names of the user's, which may be `title` too.
            found[key] = {name: _bare(inner) for name, inner in value.items()}
        elif key not in _SAYS_NOTHING:
            found[key] = _bare(value)
    return found
