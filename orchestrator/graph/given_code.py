"""The code that a program was given: what a text from elsewhere may name, and nothing else.

A text that comes over the network may refer to the functions, state classes, kinds of nodes and tools of the graphs
that the program has, and to the strategies and kinds of this library. What it names is looked up in a table that was
made of these graphs, so no module is imported, and nothing is looked for, because a text says so.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import UntrustedCode
from orchestrator.graph.function import FunctionNode
from orchestrator.graph.model import GraphDefinition, Node, is_shipped, tool_ref
from orchestrator.graph.reading import UnresolvedNode
from orchestrator.graph.reducers import is_reducer, reducer_name
from orchestrator.graph.refs import NOTHING, NodeTool, Role, Trust, find, module_named, ref_of

T = TypeVar("T")
_LIBRARY = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class GivenCode(Trust):
    """Follows the references to what is given, and those into the strategies and kinds of this library."""

    things: Mapping[tuple[Role, str], object] = field(default_factory=dict)
    """Role and reference -> what it names."""
    own_kinds: Mapping[str, type[Node]] = field(default_factory=dict)
    """Kinds of nodes of other packages, by name."""
    graphs: tuple[GraphDefinition, ...] = ()
    """The graphs that a reference may lead to."""

    def kinds(self, every: Mapping[str, type[T]]) -> Mapping[str, type[T]]:
        """See `Trust.kinds`."""
        return {name: kind for name, kind in every.items() if self.own_kinds.get(name) is kind}

    def refuses(self, ref: str, role: Role) -> bool:
        """See `Trust.refuses`."""
        if (role, ref) in self.things or (role == "graph" and self._graph(ref) is not None):
            return False
        return not is_of_strategies(ref) or NOTHING.refuses(ref, role)

    def follow(self, ref: str, role: Role) -> Any:
        """See `Trust.follow`."""
        if (role, ref) in self.things:
            return self.things[role, ref]
        graph = self._graph(ref) if role == "graph" else None
        if graph is not None:
            return graph
        if is_of_strategies(ref):
            return NOTHING.follow(ref, role)
        raise refusal(ref)

    def _graph(self, ref: str) -> GraphDefinition | None:
        found = find(ref)
        return next((one for one in self.graphs if one is found), None)


def refusal(ref: str) -> UntrustedCode:
    """The error for a reference to code that is not given."""
    return UntrustedCode(
        [],
        f"{ref!r} is no code of this program: name a tool, function or class of one of its graphs, or a built-in one",
    )


def given_code(graphs: Iterable[GraphDefinition], tools: Iterable[NodeTool] = ()) -> GivenCode:
    """Return the code that texts may refer to.

    Args:
        graphs: the graphs of the program.
        tools: its tools beside those of the graphs' nodes.
    """
    known = [*with_inner([*graphs, *filter(None, (getattr(tool, "graph", None) for tool in tools))])]
    things: dict[tuple[Role, str], object] = {}
    kinds: dict[str, type[Node]] = {}
    for graph in known:
        for role, ref, thing in _of_state(graph):
            things.setdefault((role, ref), thing)
        for node in graph.nodes.values():
            for role, ref, thing in _of_node(node):
                things.setdefault((role, ref), thing)
            if not is_shipped(type(node)):
                kinds.setdefault(node.kind, type(node))
    for tool in tools:
        named = tool_ref(tool)
        if named is not None:
            things.setdefault(("tool", named), tool)
    return GivenCode(things=things, own_kinds=kinds, graphs=tuple(known))


def with_inner(graphs: Iterable[GraphDefinition]) -> Iterator[GraphDefinition]:
    """Graphs, and those inside their nodes and tools, each once."""
    seen: set[int] = set()
    ahead = [*graphs]
    while ahead:
        graph = ahead.pop()
        if id(graph) in seen:
            continue
        seen.add(id(graph))
        yield graph
        for node in graph.nodes.values():
            inner = (node.subgraph, *(getattr(tool, "graph", None) for tool in node.tools_as_given or ()))
            ahead += [one for one in inner if isinstance(one, GraphDefinition)]


def _of_state(graph: GraphDefinition) -> Iterator[tuple[Role, str, object]]:
    schema = graph.schema
    if schema.cls is None:
        return
    if schema.inline is None and schema.ref is not None:
        yield "state", schema.ref, schema.cls
    for info in schema.cls.model_fields.values():
        for extra in info.metadata:
            if is_reducer(extra) and ":" in reducer_name(extra):
                yield "reducer", reducer_name(extra), extra


def _of_node(node: Node) -> Iterator[tuple[Role, str, object]]:
    if isinstance(node, UnresolvedNode):
        return
    if isinstance(node, FunctionNode):
        if node.ref is not None:
            yield "node", node.ref, find(node.ref)
    elif not is_shipped(type(node)):
        ref = ref_of(type(node))
        if ref is not None:
            yield "kind", ref, type(node)
    calls = None if node.calls_code is None else getattr(node, node.calls_code)
    if isinstance(calls, str):
        yield "function", calls, find(calls)
    named = None if node.class_field is None else getattr(node, node.class_field)
    if isinstance(named, type):
        ref = ref_of(named)
        if ref is not None:
            yield "state", ref, named
    for one in node.tools_as_given or ():
        ref = None if isinstance(one, str) else tool_ref(one)
        if ref is not None:
            yield "tool", ref, one


def is_of_strategies(ref: str) -> bool:
    """Return True if a reference leads into a strategy or a kind of node of this library. Imports nothing."""
    return module_named(ref.partition(":")[0]) in _shipped_modules()


@cache
def _shipped_modules() -> frozenset[str]:
    """The modules with the strategies and with the kinds of nodes, by name."""
    folders = {f"orchestrator.{name}": _LIBRARY / name for name in ("strategies", "nodes")}
    return frozenset(
        f"{package}.{module.name}"
        for package, folder in folders.items()
        for module in pkgutil.iter_modules([str(folder)])
        if not module.ispkg
    )
