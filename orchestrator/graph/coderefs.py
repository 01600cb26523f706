"""The references to code in a graph's data. Reading them imports nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from orchestrator.graph.trust import Role


class CodeRef(NamedTuple):
    """One reference."""

    place: str
    """Where it stands, such as `node 'write'`."""
    ref: str
    """`module:attr`."""
    role: Role


def code_refs(data: object) -> Iterator[CodeRef]:
    """Every reference of a graph that is written as data, in the order in which they stand there."""
    if not isinstance(data, Mapping):
        return
    yield from _of_state(data.get("state"))
    nodes = data.get("nodes")
    for name, spec in nodes.items() if isinstance(nodes, Mapping) else ():
        for found in _of_node(spec):
            yield found._replace(place=f"node {name!r}{found.place and ', '}{found.place}")


def _of_state(state: object) -> Iterator[CodeRef]:
    if isinstance(state, str) and ":" in state:
        yield CodeRef("state", state, "state")
    if not isinstance(state, Mapping):
        return
    if isinstance(state.get("ref"), str):
        yield CodeRef("state", state["ref"], "state")
        return
    fields = state.get("fields")
    for name, spec in fields.items() if isinstance(fields, Mapping) else ():
        reducer = spec.get("reducer") if isinstance(spec, Mapping) else None
        if isinstance(reducer, str) and ":" in reducer:
            yield CodeRef(f"field {name!r}", reducer, "reducer")


def _of_node(spec: object) -> Iterator[CodeRef]:
    if isinstance(spec, str) and ":" in spec:
        yield CodeRef("", spec, "node")
    if not isinstance(spec, Mapping):
        return
    kind, ref = spec.get("kind"), spec.get("ref")
    if isinstance(ref, str) and kind in ("function", "call"):
        yield CodeRef("", ref, "node" if kind == "function" else "function")
    if isinstance(spec.get("class"), str):
        yield CodeRef("", spec["class"], "kind")
    if kind == "complete" and isinstance(spec.get("output"), str):
        yield CodeRef("output", spec["output"], "state")
    tools: object = spec.get("tools")
    for tool in tools if isinstance(tools, list | tuple) else ():
        if isinstance(tool, str) and ":" in tool[1:]:
            yield CodeRef("tools", tool, "tool")
        elif isinstance(tool, Mapping):
            if isinstance(tool.get("graph"), str) and ":" in tool["graph"]:
                yield CodeRef("tools", tool["graph"], "graph")
            yield from code_refs(tool.get("graph"))
    graph = spec.get("graph")
    if isinstance(graph, str) and ":" in graph:
        yield CodeRef("graph", graph, "graph")
    yield from code_refs(graph)
