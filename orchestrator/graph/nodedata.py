"""Nodes as data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from orchestrator.errors import GraphError, GraphUnknown, NotSerialisable
from orchestrator.graph.codec import explain
from orchestrator.graph.faults import BOOLEANS, booleans_for_numbers, close_to, explain_data
from orchestrator.graph.function import FunctionNode, function_node
from orchestrator.graph.limits import Limits
from orchestrator.graph.node import Node, UnresolvedNode, is_shipped
from orchestrator.graph.node_tools import node_tools
from orchestrator.graph.outcome import DONE
from orchestrator.graph.refs import Trust, find, ref_of
from orchestrator.jsontypes import JsonObject
from orchestrator.upward import above

_COMMON = frozenset(Node.model_fields)
_OF_A_FUNCTION = frozenset({"kind", "ref", "outcomes", "name"}) | _COMMON


MOST_TOOLS_DEEP = 5
"""How deep graphs that are tools may be inside each other in data: each node that has a tool has all of it."""


def node_data(node: Node) -> JsonObject:
    """Return a whole node as JSON. A function is stored as its `ref`, or null if it cannot be imported.

    Args:
        node: the node.

    Returns:
        Data for `node_from_data`.

    Raises:
        NotSerialisable: a field of the node has no JSON form.
    """
    if isinstance(node, UnresolvedNode):
        return node.stored
    data: dict[str, object] = {"kind": node.kind}
    if isinstance(node, FunctionNode):
        data["ref"] = node.ref
        if node.ref is None:
            data["name"] = node.name
        own: set[str] = set()
    else:
        if not is_shipped(type(node)):
            data["class"] = ref_of(type(node))
        own = set(type(node).model_fields) - _COMMON - {node.outcomes_field}
    data["outcomes"] = list(node.outcomes)
    common = {name for name in _COMMON if getattr(node, name) != Node.model_fields[name].default}
    try:
        fields = node.model_dump(mode="json", include=own | common)
    except PydanticSerializationError as error:
        raise NotSerialisable(f"node of kind {node.kind!r} cannot be written as data: {error}") from None
    for name in (*type(node).model_fields,):
        if name in fields:
            data[name] = tools_data(node) if name == "tools" else fields[name]
    for name in node.in_order:
        data[name] = [[key, value] for key, value in fields[name].items()]
    return data


def tools_data(node: Node, *, in_file: bool = False) -> list[str | JsonObject] | None:
    """The tools that a node gets: names, `module:attr` for those that are its own, data for graphs and handoffs.

    One of its own that is neither data nor found by a reference (a closure, a renamed tool) is its name behind a colon.

    Args:
        node: the node.
        in_file: whether graphs are written in the form of files.
    """
    if node.tools is None or node.tools_as_given is None:
        return None
    given = zip(node.tools, node.tools_as_given, strict=True)
    return [one if isinstance(one, str) else tool_ref(one) or _tool_data(one, name, in_file) for name, one in given]


def _tools_deep(graph: object) -> int:
    """How deep graphs are inside each other there as tools of nodes: 0 without any; counted up to the bound."""
    ahead, deep = [graph], -1
    while ahead and deep < MOST_TOOLS_DEEP:
        deep += 1
        inside: dict[int, object] = {}
        for one in ahead:
            for node in getattr(one, "nodes", {}).values():
                for given in node.tools_as_given or ():
                    inner = getattr(given, "graph", None)
                    if inner is not None:
                        inside[id(inner)] = inner
        ahead = [*inside.values()]
    return deep


def _tool_data(given: object, name: str, in_file: bool) -> str | JsonObject:
    as_data = getattr(given, "as_data", None)
    data: JsonObject | None = None if as_data is None else as_data()
    if data is None:
        return f":{name}"
    graph = data.get("graph")
    if graph is None:
        return data
    from orchestrator.graph.definition import GraphDefinition
    from orchestrator.graph.file_form import file_form

    assert isinstance(graph, GraphDefinition)
    if _tools_deep(graph) >= MOST_TOOLS_DEEP:
        return f":{name}"
    return {**data, "graph": file_form(graph) if in_file else graph.data()}


def tool_ref(given: object) -> str | None:
    """`module:attr` of a tool or function that just this leads to."""
    ref = ref_of(getattr(given, "function", given))
    return ref if ref is not None and find(ref) is given else None


def _resolved(data: JsonObject, trust: Trust | None) -> object:
    """The tools of a node's data, references followed, and tools that are data made.

    Raises:
        GraphError: one is neither text nor the data of a tool.
        GraphUnknown: one leads nowhere, or there was none to write.
        UntrustedCode: one leads to what is not trusted, or is no tool.
    """
    names = data.get("tools")
    if not isinstance(names, list | tuple):
        return names
    found: list[object] = []
    for name in names:
        if isinstance(name, Mapping):
            found.append(_tool_of_data(name, trust))
            continue
        if trust is not None and isinstance(name, str) and name.startswith(":"):
            raise GraphUnknown(f"tool {name[1:]!r} has no reference: it was a closure, or changed where it was given")
        follow = trust is not None and isinstance(name, str) and ":" in name
        found.append(trust.follow(name, "tool") if trust is not None and follow else name)
    return found


def _tool_of_data(data: JsonObject, trust: Trust | None) -> object:
    """The tool that a mapping describes: a graph as a tool, or a handoff."""
    fields = dict(data)
    graph, outcome = fields.pop("graph", None), fields.pop("handoff", None)
    fault = "a tool written as data is {graph, name, description} or {handoff, description}"
    if (graph is None) == (outcome is None):
        raise GraphError(f"{fault}, and this is {', '.join(map(str, data)) or 'empty'}")
    try:
        if outcome is not None:
            return node_tools().handoff(str(outcome), **fields)
        from orchestrator.graph.definition import GraphDefinition

        if isinstance(graph, str) and trust is not None:
            graph = trust.follow(graph, "graph")
        elif isinstance(graph, Mapping):
            graph = GraphDefinition.from_data(graph, resolve=trust or False)
        if "limits" in fields:
            fields["limits"] = Limits.model_validate(fields["limits"])
        as_tool = getattr(graph, "as_tool", None)
        if as_tool is None:
            raise GraphError(f"{fault}; 'graph' is a mapping, or module:attr")
        return as_tool(**fields)
    except (TypeError, ValueError) as error:
        if isinstance(error, GraphError):
            raise
        words = explain(error) if isinstance(error, ValidationError) else str(error)
        raise GraphError(f"{fault}: {words}") from None


def node_from_data(data: JsonObject, *, resolve: bool | Trust = False, strict: bool = False) -> Node:
    """Make a node from JSON.

    Kinds of this library need no code. A function, or a kind of another package, is imported only if `resolve` is true
    and becomes an `UnresolvedNode` otherwise. So does a node of this library that another version stored and that does
    not fit its kind any more, unless `strict` or `resolve` is true.

    Args:
        data: the result of `node_data`.
        resolve: whether to follow references; a `Trust` decides for each of them.
        strict: raise if the data does not fit its kind.

    Returns:
        The node.

    Raises:
        GraphError: the data does not fit its kind.
        GraphUnknown: `resolve` is true, and the code or the kind is missing.
        UntrustedCode: `resolve` is a `Trust` that refuses a reference.
    """
    trust = Trust.of(resolve) if resolve else None
    return _from_data(data, trust, strict)


def _from_data(data: JsonObject, trust: Trust | None, strict: bool) -> Node:
    odd = [key for key in data if not isinstance(key, str)]
    if odd:
        raise GraphError(f"field name {odd[0]!r} is not a text; {BOOLEANS}")
    kind = data.get("kind")
    if not isinstance(kind, str):
        meant = data.get("type")
        close = close_to(meant, _shipped_kinds()) if isinstance(meant, str) else None
        raise GraphError(f"a node written as data needs a 'kind', such as kind: {close or 'complete'}")
    if kind == "function":
        return _function(data, data.get("ref"), trust) if trust is not None else _unresolved(kind, data)
    if "class" not in data:
        shipped = _shipped_kinds().get(kind)
        if shipped is not None:
            return _of_kind(getattr(above("nodes"), shipped), data, trust, strict or trust is not None)
    if trust is None:
        return _unresolved(kind, data)
    return _of_kind(_kind_of_a_user(kind, data.get("class"), trust), data, trust, True)


def _of_kind(cls: type[Node], data: JsonObject, trust: Trust | None, strict: bool) -> Node:
    about = {"kind", "class"} if cls.outcomes_field is not None else {"kind", "class", "outcomes"} - {*cls.model_fields}
    fields: dict[str, Any] = {key: value for key, value in data.items() if key not in about}
    calls = data.get(cls.calls_code) if cls.calls_code is not None else None
    if isinstance(calls, str):
        if trust is not None and not trust.everything:
            trust.follow(calls, "function")
        elif trust is None and not strict:
            return _unresolved(cls.kind, data)
    named = fields.get(cls.class_field or "")
    if isinstance(named, str):
        if trust is None:
            return _unresolved(cls.kind, data)
        fields[str(cls.class_field)] = trust.follow(named, "state")
    graph = fields.get("graph")
    if "graph" in cls.model_fields:
        from orchestrator.graph.definition import GraphDefinition

        if isinstance(graph, Mapping):
            fields["graph"] = GraphDefinition.from_data(graph, resolve=trust or False)
        elif isinstance(graph, str) and ":" not in graph and strict:
            fault = f"graph {graph!r} is neither 'module:attr' nor a mapping: write the graph here"
            raise GraphError(f"node of kind {cls.kind!r}: {fault}")
        elif isinstance(graph, str) and trust is not None:
            fields["graph"] = trust.follow(graph, "graph")
        elif isinstance(graph, str):
            return _unresolved(cls.kind, data)
    if trust is not None and "tools" in fields:
        fields["tools"] = _resolved(data, trust)
    if strict and (wrong := [*booleans_for_numbers(cls, fields)]):
        raise GraphError(f"node of kind {cls.kind!r}: {'; '.join(wrong)}")
    try:
        if trust is None and "tools" in fields:
            fields["tools"] = _resolved(data, None)
        node = cls(**fields)
    except (ValidationError, GraphError) as error:
        if not strict:
            return _unresolved(cls.kind, data)
        fault = explain_data(error, cls) if isinstance(error, ValidationError) else str(error)
        said = " " if fault.startswith("has no ") else ": "
        raise GraphError(f"node of kind {cls.kind!r}{said}{fault}") from None
    stored = data.get("outcomes")
    unknown = [one for one in stored if one not in node.outcomes] if isinstance(stored, list) and strict else []
    if unknown:
        has = ", ".join(node.outcomes)
        raise GraphError(f"node of kind {cls.kind!r} has no outcome {unknown[0]!r}, it has {has}: remove 'outcomes'")
    if stored is not None and list(node.outcomes) != stored and not strict:
        return _unresolved(cls.kind, data)  # the kind has changed since; the run was drawn with the old one
    return node


def _function(data: JsonObject, ref: object, trust: Trust) -> Node:
    unknown = sorted(set(data) - _OF_A_FUNCTION)
    if unknown:
        raise GraphError(f"a function node has no {unknown[0]!r}: it has {', '.join(sorted(_OF_A_FUNCTION))}")
    if not isinstance(ref, str):
        raise GraphUnknown(f"function {data.get('name', '')!r} has no reference: it was a closure or a lambda")
    found = trust.follow(ref, "node")
    options: dict[str, Any] = {key: data[key] for key in _COMMON if key in data}
    if "tools" in options:
        options["tools"] = _resolved(data, trust)
    outcomes = data.get("outcomes")
    declared = None if outcomes is None else tuple(str(name) for name in cast(list[object], outcomes))
    try:
        return function_node(found, outcomes=declared, **options)
    except ValidationError as error:
        raise GraphError(f"function node {ref!r}: {explain(error)}") from None


def _kind_of_a_user(kind: str, ref: object, trust: Trust) -> type[Node]:
    found = trust.follow(ref, "kind") if isinstance(ref, str) else trust.kinds(Node.kinds).get(kind)
    if not isinstance(found, type) or not issubclass(found, Node):
        known = ["function", *sorted(_shipped_kinds())]
        close = close_to(kind, known)
        mend = f"did you mean {close!r}?" if close else f"the kinds are {', '.join(known)}."
        raise GraphUnknown(f"there is no node kind {kind!r}; {mend} Your own kind needs class: module:Class")
    return found


def _unresolved(kind: str, data: JsonObject) -> UnresolvedNode:
    outcomes = data.get("outcomes")
    declared = tuple(str(name) for name in outcomes) if isinstance(outcomes, list | tuple) else (DONE,)
    common: dict[str, Any] = {key: value for key, value in data.items() if key in _COMMON}
    if isinstance(common.get("tools"), list | tuple):
        common["tools"] = [_tool_name(one) for one in common["tools"]]
    try:
        return UnresolvedNode(original=kind, stored=dict(data), declared=declared, **common)
    except ValidationError as error:
        raise GraphError(f"node of kind {kind!r}: {explain(error)}") from None


def _tool_name(entry: object) -> object:
    if not isinstance(entry, Mapping):
        return entry
    return entry.get("name") or f"transfer_to_{entry.get('handoff')}"


def _shipped_kinds() -> Mapping[str, str]:
    kinds: Mapping[str, str] = above("nodes").KINDS  # without importing them
    return kinds
