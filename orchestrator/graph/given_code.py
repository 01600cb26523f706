"""The code that an untrusted graph text may refer to.

A graph text that arrives over the network may refer to the functions, state classes, node kinds and tools of the
program's own graphs, and to the strategies and kinds of this library. References are looked up in a table made from
these graphs, so a text cannot cause an import or a search for modules.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
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


class GivenCode(Trust, frozen=True):
    """Resolves references to the program's own code, and to the strategies and kinds of this library."""

    things: Mapping[tuple[Role, str], object] = {}
    """Role and reference -> the object."""
    own_kinds: Mapping[str, type[Node]] = {}
    """Node kinds from other packages, by name."""
    graphs: tuple[GraphDefinition, ...] = ()
    """The graphs that a reference may name."""

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
    """Return the error for a reference to code that the program does not offer."""
    return UntrustedCode(
        [],
        f"{ref!r} is not part of this program's code: name a tool, function or class of one of its graphs, or a "
        "built-in one",
    )


def given_code(graphs: Iterable[GraphDefinition], tools: Iterable[NodeTool] = ()) -> GivenCode:
    """Return the code that texts may refer to.

    Args:
        graphs: the graphs of the program.
        tools: its tools in addition to those of the graphs' nodes.
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
    """Yield graphs and those inside their nodes and tools, each once."""
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
    """Return True if a reference names a strategy or a node kind of this library. Imports nothing."""
    return module_named(ref.partition(":")[0]) in _shipped_modules()


@cache
def _shipped_modules() -> frozenset[str]:
    """Return the names of the modules that contain the strategies and the node kinds."""
    folders = {f"orchestrator.{name}": _LIBRARY / name for name in ("strategies", "nodes")}
    return frozenset(
        f"{package}.{module.name}"
        for package, folder in folders.items()
        for module in pkgutil.iter_modules([str(folder)])
        if not module.ispkg
    )
