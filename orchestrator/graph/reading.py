"""Reading of graphs and nodes from files and stored data."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from orchestrator._lazy import above
from orchestrator.errors import GraphError, GraphUnknown, InvalidGraph, UntrustedCode
from orchestrator.graph.codec import explain
from orchestrator.graph.edges import Edge, parse_edges
from orchestrator.graph.faults import (
    BOOLEANS,
    Fault,
    Faults,
    PlacedFault,
    booleans_for_numbers,
    explain_data,
    explain_detail,
    place_of,
)
from orchestrator.graph.function import function_node
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import DRAWN, LOOKS, Asked, GraphDefinition, Node, NodeLook
from orchestrator.graph.refs import Trust, Trusted, code_refs, node_tools, refuse_impossible
from orchestrator.graph.state import StateSchema
from orchestrator.graph.text.source import located, read_source
from orchestrator.graph.topology import DONE, END, FAILED, IF_NAMED, START, STOP, TOO_LONG
from orchestrator.json import JsonObject
from orchestrator.spelling import close_to, unknown_field

# -- Nodes from data -------------------------------------------------------------------------------------------


class UnresolvedNode(Node, kind="unresolved"):
    """Represents a stored node whose code is not loaded, so that old runs can be drawn and folded."""

    original: str
    """The kind of the node that it represents."""
    stored: Mapping[str, Any]
    """The node's data, as stored."""
    if_named = (FAILED, TOO_LONG)
    declared: tuple[str, ...] = (DONE,)

    @property
    def outcomes(self) -> tuple[str, ...]:
        return self.declared

    @property
    def calls_tools(self) -> bool:
        return bool(self.tools)

    def _receives(self, name: str) -> None:
        """See `Node._receives`: its code is not loaded."""

    @property
    def takes_tools(self) -> bool:
        return False

    @property
    def asks_model(self) -> bool:
        return False

    @property
    def _asks(self) -> Asked | None:
        if self._kind_class is not None:
            return self._kind_class.asks
        asks = self._drawn.get("asks")
        return asks if asks in ("model", "person") else None

    @cached_property
    def _kind_class(self) -> type[Node] | None:
        """Return the class of a kind of the library."""
        shipped = None if "class" in self.stored else _shipped_kinds().get(self.original)
        found: type[Node] | None = None if shipped is None else getattr(above("nodes"), shipped)
        return found

    @property
    def _drawn(self) -> JsonObject:
        drawn = self.stored.get(DRAWN)
        return drawn if isinstance(drawn, Mapping) else {}

    @property
    def _look(self) -> NodeLook | None:
        if self.original == "function":
            return "code"
        look = self._drawn.get("look") if self._kind_class is None else self._kind_class.look
        return look if look in LOOKS else None

    def _as_data(self) -> JsonObject:
        return {key: value for key, value in self.stored.items() if key != DRAWN}

    @property
    def does(self) -> str:
        """See `Node.does`. A function has the same description as when it is loaded."""
        if self.original != "function":
            does = self._drawn.get("does")
            return does if isinstance(does, str) else ""
        if self.model is not None or self.stored.get("model") is not None:
            return "asks a model, calls tools" if self.calls_tools else "asks a model"
        return "calls tools" if self.calls_tools else "runs code"

    @cached_property
    def _inner(self) -> GraphDefinition | None:
        data = self.stored.get("graph")
        return stored_graph(data) if isinstance(data, Mapping) else None

    @property
    def subgraph(self) -> GraphDefinition | None:
        return self._inner

    async def run(self, state: Any, ctx: Any) -> object:
        """See `Node.run`. Always fails, because the node's code is not loaded.

        Raises:
            GraphUnknown: always.
        """
        ref = self.stored.get("ref") or self.stored.get("class")
        what = f"{self.original} {ref}" if ref else f"kind {self.original}"
        raise GraphUnknown(f"the code of a node ({what}) is not loaded: give its graph to Executor(graphs=[...])")


_COMMON = frozenset(Node.model_fields)
_OF_A_FUNCTION = frozenset({"kind", "ref", "outcomes", "name"}) | _COMMON


def _resolved(data: JsonObject, trust: Trust | None) -> object:
    """Return the tools in a node's data, with references resolved and tools made from their data.

    Raises:
        GraphError: an entry is neither text nor the data of a tool.
        GraphUnknown: a reference leads nowhere, or the tool had no reference when it was written.
        UntrustedCode: a reference leads to untrusted code, or to something that is not a tool.
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
    """Make the tool that a mapping describes: a graph as a tool, or a handoff."""
    fields = dict(data)
    graph, outcome = fields.pop("graph", None), fields.pop("handoff", None)
    fault = "a tool written as data is {graph, name, description} or {handoff, description}"
    if (graph is None) == (outcome is None):
        raise GraphError(f"{fault}, and this is {', '.join(map(str, data)) or 'empty'}")
    try:
        if outcome is not None:
            return node_tools().handoff(str(outcome), **fields)
        if isinstance(graph, str) and trust is not None:
            graph = trust.follow(graph, "graph")
        elif isinstance(graph, Mapping):
            graph = stored_graph(graph, trust)
        if "limits" in fields:
            fields["limits"] = Limits.model_validate(fields["limits"])
        as_tool = getattr(graph, "as_tool", None)
        if as_tool is None:
            raise GraphError(f"{fault}; 'graph' must be a mapping, or module:attr")
        return as_tool(**fields)
    except (TypeError, ValueError) as error:
        if isinstance(error, GraphError):
            raise
        words = explain(error) if isinstance(error, ValidationError) else str(error)
        raise GraphError(f"{fault}: {words}") from None


def node_from_data(data: JsonObject, *, resolve: bool | Trust = False, strict: bool = False) -> Node:
    """Make a node from JSON.

    Kinds of this library need no code. A function, or a kind of another package, is imported only if `resolve` is true;
    otherwise the node becomes an `UnresolvedNode`. So does a node of this library that another version stored and that
    no longer fits its kind, unless `strict` or `resolve` is true.

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
        raise GraphError(f"field name {odd[0]!r} is not a string; {BOOLEANS}")
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
    about = (
        {"kind", "class", DRAWN}
        if cls.outcomes_field is not None
        else {"kind", "class", DRAWN, "outcomes"} - {*cls.model_fields}
    )
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
        if isinstance(graph, Mapping):
            fields["graph"] = stored_graph(graph, trust)
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
        raise GraphError(f"node of kind {cls.kind!r} has no outcome {unknown[0]!r}, only {has}: remove 'outcomes'")
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
        fix = f"did you mean {close!r}?" if close else f"the kinds are {', '.join(known)}."
        raise GraphUnknown(f"there is no node kind {kind!r}; {fix} Your own kind needs class: module:Class")
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
    kinds: Mapping[str, str] = above("nodes").KINDS  # checks references without importing them
    return kinds


# -- Graphs from YAML, JSON and stored data; `writing` writes them ---------------------------------------------


GraphT = TypeVar("GraphT", bound="GraphDefinition")

_JOIN_ORDER = "join_order"
"""Key of the order of joins in stored data, if digests depend on it. In a file, the nodes' order decides."""
GRAPH_KEYS = ("name", "version", "description", "state", "input", "output", "limits", "pools", "nodes", "edges")


def stored_graph(data: JsonObject, trust: Trust | None = None) -> GraphDefinition:
    """Return the `Graph` of some data. See `Graph.from_data`.

    Args:
        trust: the references to follow; None to follow none and refuse none.
    """
    return graph_from_data(graph_class(), data, trust)


def graph_class() -> type[GraphDefinition]:
    """Return `Graph`, the class of every graph."""
    made: type[GraphDefinition] = above("Graph")
    return made


def graph_from_data(cls: type[GraphT], data: JsonObject, trust: Trust | None) -> GraphT:
    """Return the graph of some data, following only trusted references. See `Graph.from_data`.

    Args:
        trust: the references to follow; None to follow none and refuse none.

    Raises:
        GraphError: the data has faults; they are collected into one error.
    """
    options = graph_keys(data)
    faults, nodes = Faults(), {}
    vague: set[str] = set()
    before = len(faults.found)
    with faults.at("state"):
        options["state"] = _state(options["state"], trust)
    if len(faults.found) > before and isinstance(options["state"], Mapping):
        found = faults.found[before:]
        vague, options["state"] = _state_without_faults(options["state"], trust)
        if any(fault.place == ("state",) for fault in found) and not vague:
            options["state"] = None  # without the state, its fields are not known
    for name, spec in options["nodes"].items():
        with faults.at("nodes", str(name)):
            try:
                nodes[node_name(name)] = _node(name, spec, trust)
            except GraphError:
                missing = _shown_and_missing(spec, options["state"])
                for field in missing:
                    with faults.at("nodes", str(name), "show"):
                        raise GraphError(f"node {name!r} shows {field!r}, and the state has no such field") from None
                if not missing:
                    raise
                _node(name, {**spec, "show": [field for field in spec["show"] if field not in missing]}, trust)
    with faults.at("edges"):
        options["edges"] = parse_edges(options["edges"])
    wrong = [] if trust is None else list(_wrong_options(cls, options, faults))
    if faults.found:
        _add_problems(cls, {key: one for key, one in options.items() if key not in wrong}, nodes, vague, faults)
    faults.raise_any()
    options["nodes"] = nodes
    return built(cls, options, restored=trust is None)


def _with_joins(nodes: Mapping[str, object], order: object) -> Mapping[str, object]:
    """Return the nodes of some data with the joins in the given order, even if the order of keys was lost.

    Raises:
        GraphError: it names no nodes of the graph.
    """
    if not isinstance(order, list | tuple) or not all(isinstance(name, str) and name in nodes for name in order):
        raise GraphError(f"{_JOIN_ORDER!r} must be a list of joins in the order of the nodes, not {order!r:.60}")
    joins = iter(dict.fromkeys(order))
    names = [next(joins) if name in order else name for name in nodes]
    return {name: nodes[name] for name in names}


def _shown_and_missing(spec: object, state: object) -> list[str]:
    """Return the fields that a faulty node shows and its state lacks, so that prompts cannot name them."""
    shown = spec.get("show") if isinstance(spec, Mapping) else None
    if not isinstance(state, StateSchema) or not isinstance(shown, list):
        return []
    return [field for field in shown if isinstance(field, str) and field not in state.fields]


def _state_without_faults(data: Mapping[str, Any], trust: Trust | None) -> tuple[set[str], StateSchema | None]:
    """Return a state's faulty fields, and the state with fields of type `Any` in their place, if it can be made."""
    fields = data.get("fields")
    wrong: set[str] = set()
    for name, spec in fields.items() if isinstance(fields, Mapping) else ():
        try:
            StateSchema.from_data({**data, "fields": {name: spec}}, resolve=trust or False)
        except GraphError:
            wrong.add(str(name))
    if not wrong or not isinstance(fields, Mapping):
        return set(), None
    kept = {name: "any" if str(name) in wrong else spec for name, spec in fields.items()}
    try:
        return wrong, StateSchema.from_data({**data, "fields": kept}, resolve=trust or False)
    except GraphError:
        return wrong, None


def _wrong_options(cls: type[GraphDefinition], options: Mapping[str, Any], faults: Faults) -> Iterator[str]:
    """Yield the keys other than state, nodes and edges whose values have a wrong form, adding their faults."""
    for key in ("limits", "pools"):
        if options.get(key) is None:
            continue
        info = cls.model_fields[key]
        booleans = list(booleans_for_numbers(cls, {key: options[key]}))
        for fault in booleans:
            with faults.at(*fault.partition(":")[0].split(".")):
                raise GraphError(f"graph {options['name']!r}: {fault}")
        try:
            TypeAdapter(info.rebuild_annotation()).validate_python(options[key])
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                detail["loc"] = (key, *detail["loc"])
                with faults.at(*(str(part) for part in detail["loc"])):
                    raise GraphError(f"graph {options['name']!r}: {explain_detail(detail, GraphDefinition)}") from None
            yield key
        else:
            yield from (key for _ in booleans[:1])


def _add_problems(
    cls: type[GraphDefinition],
    options: Mapping[str, Any],
    nodes: Mapping[str, Node],
    vague: Collection[str],
    faults: Faults,
) -> None:
    """Find further problems: in place of faulty nodes, nodes with the outcomes that edges name are checked.

    Args:
        cls: the class of the graph.
        options: its valid values.
        nodes: its valid nodes.
        vague: faulty fields of its state, which are not reported again.
        faults: the faults found; extended.
    """
    edges = any(fault.place[:1] == ("edges",) for fault in faults.found)
    if edges or options["state"] is None or not all(isinstance(key, str) for key in options["nodes"]):
        return
    about = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in vague)) if vague else None
    wrong = options["nodes"].keys() - nodes.keys()
    try:
        stand_ins = {name: nodes.get(name) or _stand_in(name, options["edges"]) for name in options["nodes"]}
        built(cls, {**options, "nodes": stand_ins}, restored=True)
    except InvalidGraph as error:
        for problem in error.problems:
            ends = {end for text in problem.edges for edge in parse_edges(text) for end in (edge.source, edge.target)}
            named = {*problem.nodes, *ends}
            unknown = ends - options["nodes"].keys() - {START, END, STOP}  # wrong, whatever the faulty nodes are
            if (unknown or wrong.isdisjoint(named)) and (about is None or not about.search(problem.message)):
                faults.found.append(Fault(place_of(problem), GraphError(str(problem))))
    except GraphError:
        return


def _stand_in(name: str, edges: Iterable[Edge]) -> Node:
    labels = dict.fromkeys(edge.outcome for edge in edges if edge.source == name)
    outcomes = tuple(label for label in labels if label is not None and label not in IF_NAMED)
    return UnresolvedNode(original="?", stored={}, declared=outcomes or (DONE,))


def built(cls: type[GraphT], options: Mapping[str, Any], *, restored: bool = False) -> GraphT:
    """Make the graph from its parts. `restored`: it was checked when it was stored.

    Raises:
        GraphError: a part has the wrong type.
        InvalidGraph: the checks found problems.
    """
    faults = Faults()
    for fault in () if restored else booleans_for_numbers(cls, options):
        with faults.at(*fault.partition(":")[0].split(".")):
            raise GraphError(f"graph {options['name']!r}: {fault}")
    faults.raise_any()
    try:
        return cls._restored(**options) if restored else cls(**options)
    except ValidationError as error:
        raise _placed(options["name"], error) from None


def _placed(name: object, error: ValidationError) -> GraphError:
    """Return faults of parts of a graph, each with its place, as one error."""
    faults = Faults()
    for detail in error.errors(include_url=False):
        place = tuple(str(part) for part in detail["loc"])
        with faults.at(*place):
            raise GraphError(f"graph {name!r}: {explain_detail(detail, GraphDefinition)}")
    try:
        faults.raise_any()
    except GraphError as found:
        return found
    return GraphError(f"graph {name!r}: {error}")


def graph_keys(data: object) -> dict[str, Any]:
    """Return the value of each key of a graph's data.

    Raises:
        GraphError: the data is not that of a graph.
    """
    if not isinstance(data, Mapping):
        found = "empty" if data is None else f"{data!r:.60}"
        wanted = f"a graph must be a mapping with {', '.join(GRAPH_KEYS)}"
        raise PlacedFault(Fault((), GraphError(f"{wanted}, and this is {found}: begin with 'name: NAME'")))
    faults = Faults()
    missing = [key for key in ("name", "state", "nodes", "edges") if key not in data]
    for key in data:
        if key not in (*GRAPH_KEYS, _JOIN_ORDER):
            with faults.at(str(key)):
                raise GraphError(f"a graph written as data {_misplaced(key, data[key])}")
            missing = [name for name in missing if close_to(str(key), GRAPH_KEYS) != name]
    for key in missing:
        with faults.at():
            raise GraphError(f"a graph written as data needs {key!r}: it has {', '.join(GRAPH_KEYS)}")
    if not isinstance(data.get("nodes", {}), Mapping):
        with faults.at("nodes"):
            raise GraphError("'nodes' must be a mapping from name to node, such as draft: {kind: complete}")
    faults.raise_any()
    kept = {key: data[key] for key in GRAPH_KEYS if key in data}
    if _JOIN_ORDER in data:
        kept["nodes"] = _with_joins(data["nodes"], data[_JOIN_ORDER])
    return kept


def _misplaced(key: object, value: object) -> str:
    """Return the fault for a key that graphs do not have."""
    if isinstance(value, Mapping) and "kind" in value:
        return f"has no {key!r}: it is a node, so indent it below 'nodes'"
    if key in ("fields", "types"):
        return f"has no {key!r}: indent it below 'state'"
    return unknown_field(key, GRAPH_KEYS)


def node_name(name: object) -> str:
    """Return a node's name. Raises `GraphError` if it is not a string."""
    if not isinstance(name, str):
        raise GraphError(
            f"node name {name!r} is not a string (YAML reads yes, no, on and off as booleans): quote or rename it"
        )
    return name


def _state(data: object, trust: Trust | None) -> StateSchema | type[object]:
    if isinstance(data, str):
        if ":" not in data:
            raise GraphError(
                f"state {data!r} does not have the form 'module:Class': name the module, or write the fields below "
                "'state'"
            )
        if trust is None:
            raise GraphUnknown(f"state {data!r} is code, which is not imported here: use Graph.load")
        found: type[object] = trust.follow(data, "state")
        return found
    if not isinstance(data, Mapping):
        raise GraphError("'state' is 'module:Class', or a mapping with name and fields: write 'fields:' below it")
    return StateSchema.from_data(data, resolve=trust or False)


def _node(name: str, spec: object, trust: Trust | None) -> Node:
    try:
        if isinstance(spec, Mapping):
            return node_from_data(spec, resolve=trust or False)
        if not isinstance(spec, str):
            raise GraphError("write a mapping with a kind, such as {kind: complete}, or 'module:function'")
        if ":" not in spec:
            raise GraphError(f"{spec!r} does not have the form 'module:function': write a kind as {{kind: {spec:.40}}}")
        found = trust.follow(spec, "node") if trust is not None else None
        if isinstance(found, Node):
            return found
        return node_from_data({"kind": "function", "ref": spec}, resolve=trust or False)
    except GraphUnknown as error:
        raise GraphUnknown(f"node {name!r}: {error}") from None
    except GraphError as error:
        if type(error) is not GraphError:
            raise
        raise GraphError(f"node {name!r}: {error}") from None


def load(cls: type[GraphT], path: Path, trusted: Trusted = None) -> GraphT:
    """See `Graph.load`."""
    source = read_source(path)
    data, trust = source.data, Trust.of(trusted)
    refuse_untrusted(data, trust)
    with located(path, source.text):
        return graph_from_data(cls, data, trust)


def refuse_untrusted(data: object, trust: Trust) -> None:
    """Raise `UntrustedCode`, which names all untrusted references, if there are any."""
    found = list(code_refs(data))
    for one in found:
        try:
            refuse_impossible(one.ref, one.role)
        except UntrustedCode as error:
            raise UntrustedCode([], f"{one.place}: {error}") from None
    refused = [one.ref for one in found if trust.refuses(one.ref, one.role)]
    if refused:
        raise UntrustedCode(refused)
