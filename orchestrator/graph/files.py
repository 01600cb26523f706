"""Graphs read from YAML and JSON files, and from stored data; `file_form` writes them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import GraphError, GraphUnknown, InvalidGraph, UntrustedCode
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.edges import Edge, parse_edges
from orchestrator.graph.faults import (
    Fault,
    Faults,
    PlacedFault,
    booleans_for_numbers,
    close_to,
    explain_detail,
    place_of,
    unknown_field,
)
from orchestrator.graph.node import Node, UnresolvedNode
from orchestrator.graph.nodedata import node_from_data
from orchestrator.graph.refs import Trust, Trusted, code_refs, refuse_impossible
from orchestrator.graph.state import StateSchema
from orchestrator.graph.text.places import located
from orchestrator.graph.text.source import read_source
from orchestrator.graph.topology import DONE, IF_NAMED
from orchestrator.jsontypes import JsonObject

GraphT = TypeVar("GraphT", bound="GraphDefinition")

_JOIN_ORDER = "join_order"
"""Stored data says the order of joins where digests depend on it; in a file the order of the nodes says it."""
GRAPH_KEYS = ("name", "version", "description", "state", "input", "output", "limits", "pools", "nodes", "edges")


def graph_from_data(cls: type[GraphT], data: JsonObject, trust: Trust | None) -> GraphT:
    """The graph of some data; of references only those are followed that are trusted. See `Graph.from_data`.

    Args:
        trust: None: none are followed, and none refused.
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
            options["state"] = None  # it is not known which fields there are
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
    """The nodes of some data with the joins in this order, whatever became of the order of keys.

    Raises:
        GraphError: it names no nodes of the graph.
    """
    if not isinstance(order, list | tuple) or not all(isinstance(name, str) and name in nodes for name in order):
        raise GraphError(f"{_JOIN_ORDER!r} is a list of joins in the order of the nodes, not {order!r:.60}")
    joins = iter(dict.fromkeys(order))
    names = [next(joins) if name in order else name for name in nodes]
    return {name: nodes[name] for name in names}


def _shown_and_missing(spec: object, state: object) -> list[str]:
    """The fields that a node which is wrong shows and its state does not have: no prompt can name them."""
    shown = spec.get("show") if isinstance(spec, Mapping) else None
    if not isinstance(state, StateSchema) or not isinstance(shown, list):
        return []
    return [field for field in shown if isinstance(field, str) and field not in state.fields]


def _state_without_faults(data: Mapping[str, Any], trust: Trust | None) -> tuple[set[str], StateSchema | None]:
    """The fields of a state that are wrong, and the state with fields of any type in their place, if there is one."""
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
    """The keys beside state, nodes and edges whose values are of another form; their faults are added."""
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
    """Find what else is wrong: nodes with the outcomes that edges name stand in for those that are wrong.

    Args:
        cls: the class of the graph.
        options: its values; without those that are wrong.
        nodes: its nodes that are right.
        vague: fields of its state that are wrong, of which nothing more is said.
        faults: what is wrong; grows.
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
            if wrong.isdisjoint(named) and (about is None or not about.search(problem.message)):
                faults.found.append(Fault(place_of(problem), GraphError(problem.message)))
    except GraphError:
        return


def _stand_in(name: str, edges: Iterable[Edge]) -> Node:
    labels = dict.fromkeys(edge.outcome for edge in edges if edge.source == name)
    outcomes = tuple(label for label in labels if label is not None and label not in IF_NAMED)
    return UnresolvedNode(original="?", stored={}, declared=outcomes or (DONE,))


def built(cls: type[GraphT], options: Mapping[str, Any], *, restored: bool = False) -> GraphT:
    """The graph of what its data says; `restored`: it was stored, after its checks.

    Raises:
        GraphError: a part is of the wrong type.
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
    """What is wrong with parts of a graph, each with its place."""
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
    """What a graph's data says of each of its keys.

    Raises:
        GraphError: it is no graph's.
    """
    if not isinstance(data, Mapping):
        found = "empty" if data is None else f"{data!r:.60}"
        wanted = f"a graph is a mapping with {', '.join(GRAPH_KEYS)}"
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
            raise GraphError("'nodes' is a mapping from name to node, such as draft: {kind: complete}")
    faults.raise_any()
    kept = {key: data[key] for key in GRAPH_KEYS if key in data}
    if _JOIN_ORDER in data:
        kept["nodes"] = _with_joins(data["nodes"], data[_JOIN_ORDER])
    return kept


def _misplaced(key: object, value: object) -> str:
    """What is wrong with a key that no graph has."""
    if isinstance(value, Mapping) and "kind" in value:
        return f"has no {key!r}: it is a node, so indent it below 'nodes'"
    if key in ("fields", "types"):
        return f"has no {key!r}: indent it below 'state'"
    return unknown_field(key, GRAPH_KEYS)


def node_name(name: object) -> str:
    """
    Raises:
        GraphError: it is no text.
    """
    if not isinstance(name, str):
        raise GraphError(
            f"node name {name!r} is not a text (YAML reads yes, no, on and off as booleans): quote or rename it"
        )
    return name


def _state(data: object, trust: Trust | None) -> StateSchema | type[object]:
    if isinstance(data, str):
        if ":" not in data:
            raise GraphError(f"state {data!r} is no 'module:Class': name the module, or write the fields below 'state'")
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
            raise GraphError(f"{spec!r} is no 'module:function': write a kind as {{kind: {spec:.40}}}")
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
    """
    Raises:
        UntrustedCode: names all references that are not trusted.
    """
    found = list(code_refs(data))
    for one in found:
        try:
            refuse_impossible(one.ref, one.role)
        except UntrustedCode as error:
            raise UntrustedCode([], f"{one.place}: {error}") from None
    refused = [one.ref for one in found if trust.refuses(one.ref, one.role)]
    if refused:
        raise UntrustedCode(refused)
