"""JSON Schema of graph files, for editors: derived from the node kinds, `Limits` and `Retry`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from orchestrator.graph.limits import Limits, Retry
from orchestrator.graph.model import Node, is_shipped
from orchestrator.graph.names import RULE
from orchestrator.graph.reading import GRAPH_KEYS
from orchestrator.graph.reducers import BUILTIN
from orchestrator.graph.state import FIELD_KEYS, STATE_KEYS, PlainSchema
from orchestrator.graph.text.types import SHIPPED_TYPES, TYPE_NAMES
from orchestrator.nodes import Decide, catalog

_PART = r"[^\s!-,./:-@\[-^`{-~]"
"""A character of a name, in the syntax of Python and JavaScript: letters of any script, digits, `_` and `-`."""
_NAME: Mapping[str, object] = {
    "pattern": rf"^(?!(?:START|END|STOP)$)(?![0-9-]){_PART}+$",
    "patternErrorMessage": f"{RULE}; START, END and STOP have a meaning in edges",
}
_FIELD: Mapping[str, object] = {"pattern": r"^(?![0-9_])[^\s!-/:-@\[-^`{-~]+$"}
_TEXT: Mapping[str, object] = {"type": "string"}
_TEXTS: Mapping[str, object] = {"type": "array", "items": _TEXT}
_REF: Mapping[str, object] = {"type": "string", "pattern": r"^[^:\s]+:[^:\s]+$", "description": "module:name"}
_EDGES = "SOURCE -> TARGET : outcome; several targets are branches; `: each FIELD` is a branch for each item"
_ARROWS: Mapping[str, object] = {
    **_TEXT,
    "pattern": r"^(?:[ \t]*(?:#[^\n]*)?(?:\n|$)|(?![ \t]*#)[^\n]*->[^\n]*(?:\n|$))*$",
    "patternErrorMessage": "write one statement per line: SOURCE -> TARGET : outcome",
}
_DEFAULTS: Mapping[str, str] = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
"""Type of a field -> the type of its default in JSON Schema."""
_KEYS: Mapping[str, str] = {
    "name": "the name of the graph",
    "version": "a version of the graph, as text",
    "description": "what the graph does, for people",
    "state": "the state: its fields, or module:Class",
    "input": "the state field, or fields, that an input sets; without it, any",
    "output": "the state field, or fields, that are the output; without it, all",
    "limits": "limits of each run",
    "pools": "name -> how many steps of the nodes with `pool: NAME` may run at the same time",
    "nodes": "name -> node: its kind and the fields of the kind, or module:function",
    "edges": _EDGES,
}
assert _KEYS.keys() == {*GRAPH_KEYS}


def file_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of graph files, with all node kinds that are defined in this process."""
    own = {kind: cls for kind, cls in Node.kinds.items() if not is_shipped(cls)}
    classes = {**catalog.kinds(), **dict(sorted(own.items()))}
    defs: dict[str, Any] = {"Node": _object(_properties(Node)), "function": _function()}
    for kind, cls in classes.items():
        defs[kind] = _kind(kind, cls, defs)
    limits = _of_model(Limits, defs)
    defs |= {"graph": _graph(limits), "state": _state(), "node": _node([*classes, "function"]), "tool": _tool(limits)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Graph file of agent-graph-orchestrator",
        "$ref": "#/$defs/graph",
        "$defs": defs,
    }


def _object(properties: Mapping[str, object], required: tuple[str, ...] = (), **more: object) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        **({"required": [*required]} if required else {}),
        "additionalProperties": False,
        **more,
    }


def _mapping(names: Mapping[str, object], values: object) -> dict[str, Any]:
    return {"type": "object", "propertyNames": names, "additionalProperties": values}


def _graph(limits: Mapping[str, object]) -> dict[str, Any]:
    names = {"anyOf": [_TEXT, _TEXTS, {"type": "null"}]}
    forms: dict[str, Mapping[str, object]] = {
        "name": {**_TEXT, **_NAME},
        "version": {"type": ["string", "null"]},
        "description": _TEXT,
        "state": {"$ref": "#/$defs/state"},
        "input": names,
        "output": names,
        "limits": limits,
        "pools": _mapping(_NAME, {"type": ["integer", "null"], "minimum": 1}),
        "nodes": {**_mapping(_NAME, {"$ref": "#/$defs/node"}), "minProperties": 1},
        "edges": {"anyOf": [_ARROWS, {"type": "array", "items": _ARROWS}]},
    }
    properties = {key: {**form, "description": _KEYS[key]} for key, form in forms.items()}
    return _object(properties, ("name", "state", "nodes", "edges"))


def _state() -> dict[str, Any]:
    kind = {**_TEXT, "examples": [*TYPE_NAMES, "list[str]", "dict[str, any]", *SHIPPED_TYPES]}
    reducer = {"anyOf": [{"enum": [*BUILTIN, "local"]}, _REF]}
    keys: dict[str, Mapping[str, object]] = {"type": kind, "reducer": reducer, "default": {}, "description": _TEXT}
    spec = {key: {**form, "description": FIELD_KEYS[key]} for key, form in keys.items()}
    plain = {key: one for key, one in spec.items() if key != "reducer"}
    rules = [
        {"if": {"properties": {"type": {"const": name}}}, "then": {"properties": {"default": {"type": form}}}}
        for name, form in _DEFAULTS.items()
    ]
    fields, of_model = ({"anyOf": [kind, _object(one, ("type",), allOf=rules)]} for one in (spec, plain))
    forms = {
        "name": _TEXT,
        "fields": _mapping(_FIELD, fields),
        "types": _mapping(_FIELD, _mapping(_FIELD, of_model)),
    }
    properties = {key: {**form, "description": STATE_KEYS[key]} for key, form in forms.items()}
    return {"anyOf": [_REF, _object(properties, ("fields",))]}


def _node(kinds: list[str]) -> dict[str, Any]:
    """Return the schema of any node: the fields are those of its kind, unless it has a class of its own."""
    named = {"required": ["kind"], "not": {"required": ["class"]}}
    fields = [
        {"if": {"properties": {"kind": {"const": kind}}, **named}, "then": {"$ref": f"#/$defs/{kind}"}}
        for kind in kinds
    ]
    known = {"if": {"not": {"required": ["class"]}}, "then": {"properties": {"kind": {"enum": kinds}}}}
    either = {"properties": {"kind": _TEXT, "class": _REF}}
    return {"type": ["object", "string"], "pattern": ":", "required": ["kind"], **either, "allOf": [known, *fields]}


def _function() -> dict[str, Any]:
    properties = {"kind": {"const": "function"}, "ref": _REF, "outcomes": _TEXTS, "name": _TEXT}
    return _object({**properties, **_common()}, ("kind", "ref"), description="Call a function with @node.")


def _common() -> dict[str, Any]:
    return {name: {"$ref": f"#/$defs/Node/properties/{name}"} for name in Node.model_fields}


def _kind(kind: str, cls: type[Node], defs: dict[str, Any]) -> dict[str, Any]:
    described = re.sub(r"(?<!\n)\n(?!\n)", " ", catalog.description(cls))
    properties = {"kind": {"const": kind, "description": described}, **_properties(cls, defs)}
    required = [info.alias or name for name, info in cls.model_fields.items() if info.is_required()]
    return _object(
        {**properties, **_common(), "outcomes": _TEXTS, **properties}, ("kind", *required), description=described
    )


def _properties(cls: type[Node], defs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schemas of the fields that a kind adds or changes, by their names in files."""
    found = _of_model(cls, {} if defs is None else defs)["properties"]
    facts = {one.name: one for one in catalog.fields(cls)}
    names = {info.alias or name: name for name, info in cls.model_fields.items()}
    base = {} if cls is Node else Node.model_fields
    made: dict[str, Any] = {}
    for key, name in names.items():
        info = cls.model_fields[name]
        if name in base and info.default == base[name].default and info.annotation == base[name].annotation:
            continue
        meaning = " ".join(filter(None, (facts[key].meaning, info.description)))
        port = f" ({facts[key].port.replace('`', '')})" if facts[key].port else ""
        made[key] = {**_form(cls, name, found[key]), **({"description": meaning + port} if meaning or port else {})}
        if isinstance(info.default, str | int | float) and len(str(info.default)) <= 40:
            made[key]["default"] = info.default
    return made


def _form(cls: type[Node], name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field as files have it, from that of its values."""
    if name == "graph":
        return {"anyOf": [_REF, {"$ref": "#/$defs/graph"}]}
    if name == "tools":
        return {"anyOf": [{"type": "array", "items": {"anyOf": [_TEXT, {"$ref": "#/$defs/tool"}]}}, {"type": "null"}]}
    if name == "join":
        counted = {"type": "integer", "minimum": 1}
        return {"anyOf": [{"enum": ["all", "each"]}, counted, {**_TEXT, **_FIELD}, {"type": "null"}]}
    if name == cls.class_field:
        return {"anyOf": [_REF, {"type": ["object", "null"]}]}
    if name == cls.calls_code:
        return dict(_REF)
    if name in cls.in_order:
        return {"anyOf": [found, {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}}]}
    return found


def _tool(limits: Mapping[str, object]) -> dict[str, Any]:
    graph = {"anyOf": [_REF, {"$ref": "#/$defs/graph"}]}
    risk = {"enum": ["none", "read", "write", "dangerous"]}
    called = {"name": _TEXT, "description": _TEXT, "risk": risk, "depth": {"type": "integer", "minimum": 1}}
    agent = _object({"graph": graph, "limits": limits, **called}, ("graph", "name", "description"))
    handoff = _object({"handoff": _TEXT, "name": _TEXT, "description": _TEXT}, ("handoff", "description"))
    return {"anyOf": [agent, handoff], "description": "a graph as a tool, or a handoff"}


def _of_model(model: type[BaseModel], defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a model without titles; the models inside it are added to `defs`."""
    found: dict[str, Any] = _untitled(model.model_json_schema(schema_generator=PlainSchema))
    inner = found.pop("$defs", {})
    for name, cls in _SHARED.items():
        if name in inner:
            defs[name] = _described(cls, inner[name])
    return _described(model, found)


_SHARED: Mapping[str, type] = {"Decide": Decide, "JsonValue": object, "Retry": Retry}
"""Models inside fields of nodes. Graphs and tools have schemas of their own."""


def _described(cls: type, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a class with the texts below its fields as descriptions."""
    for name, text in catalog.meanings(cls).items():
        if name in schema.get("properties", {}):
            schema["properties"][name]["description"] = text
    return schema


def _untitled(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_untitled(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _untitled(one) for key, one in schema.items() if key != "title" or not isinstance(one, str)}
