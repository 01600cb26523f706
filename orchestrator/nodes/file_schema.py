"""JSON Schema of graph files, for editors: derived from the node kinds, `Limits` and `Retry`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from orchestrator.graph.limits import Limits, Retry
from orchestrator.graph.model import Node, is_shipped
from orchestrator.graph.names import RULE
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
_ARROWS: Mapping[str, object] = {
    **_TEXT,
    "pattern": r"^(?:[ \t]*(?:#[^\n]*)?(?:\n|$)|(?![ \t]*#)[^\n]*->[^\n]*(?:\n|$))*$",
    "patternErrorMessage": "write one statement per line: SOURCE -> TARGET : outcome",
}
_DEFAULTS: Mapping[str, str] = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
"""Type of a field -> the type of its default in JSON Schema."""
_EDGES = "SOURCE -> TARGET : outcome; several targets are branches; `: each FIELD` is a branch for each item"
_GRAPH: Mapping[str, object] = {"anyOf": [_REF, {"$ref": "#/$defs/graph"}]}
_COMMON = {name: {"$ref": f"#/$defs/Node/properties/{name}"} for name in Node.model_fields}


class _Schema(PlainSchema):
    """Generates a JSON schema without titles of fields, which only repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def file_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of graph files, with all node kinds that are defined in this process."""
    defs: dict[str, Any] = {"JsonValue": {}}
    defs["Node"] = _object(_properties(Node, defs))
    defs["Retry"] = _of_model(Retry, defs)
    defs["Decide"] = _object(_COMMON | _properties(Decide, defs))
    own = {kind: cls for kind, cls in sorted(Node.kinds.items()) if not is_shipped(cls)}
    kinds = {kind: _kind(kind, cls, defs) for kind, cls in {**catalog.kinds(), **own}.items()}
    called = {"kind": {"const": "function"}, "ref": _REF, "outcomes": _TEXTS, "name": _TEXT}
    kinds["function"] = _object({**called, **_COMMON}, "kind ref", description="Call a function with @node.")
    limits = _of_model(Limits, defs)
    defs |= {"graph": _graph(limits), "state": _state(), "node": _node([*kinds]), "tool": _tool(limits), **kinds}
    draft, title = "https://json-schema.org/draft/2020-12/schema", "Graph file of agent-graph-orchestrator"
    return {"$schema": draft, "title": title, "$ref": "#/$defs/graph", "$defs": defs}


def _object(properties: Mapping[str, object], required: str = "", **more: object) -> dict[str, Any]:
    """Return the schema of a mapping with exactly these keys; `required`: those that it needs, in one text."""
    closed = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**closed, "required": required.split(), **more}


def _mapping(names: Mapping[str, object], values: object) -> dict[str, Any]:
    return {"type": "object", "propertyNames": names, "additionalProperties": values}


def _graph(limits: Mapping[str, object]) -> dict[str, Any]:
    names = {"anyOf": [_TEXT, _TEXTS, {"type": "null"}]}
    pools = _mapping(_NAME, {"type": ["integer", "null"], "minimum": 1})
    nodes = _mapping(_NAME, {"$ref": "#/$defs/node"})
    keys: dict[str, tuple[Mapping[str, object], str]] = {
        "name": ({**_TEXT, **_NAME}, "the name of the graph"),
        "version": ({"type": ["string", "null"]}, "a version of the graph, as text"),
        "description": (_TEXT, "what the graph does, for people"),
        "state": ({"$ref": "#/$defs/state"}, "the state: its fields, or module:Class"),
        "input": (names, "the state field, or fields, that an input sets; without it, any"),
        "output": (names, "the state field, or fields, that are the output; without it, all"),
        "limits": (limits, "limits of each run"),
        "pools": (pools, "name -> how many steps of nodes with `pool: NAME` may run at the same time"),
        "nodes": (
            {**nodes, "minProperties": 1},
            "name -> node: its kind and the fields of the kind, or module:function",
        ),
        "edges": ({"anyOf": [_ARROWS, {"type": "array", "items": _ARROWS}]}, _EDGES),
    }
    return _object(_explained(keys), "name state nodes edges")


def _explained(keys: Mapping[str, tuple[Mapping[str, object], str]]) -> dict[str, Any]:
    return {key: {**form, "description": text} for key, (form, text) in keys.items()}


def _state() -> dict[str, Any]:
    kind = {**_TEXT, "examples": [*TYPE_NAMES, "list[str]", "dict[str, any]", *SHIPPED_TYPES]}
    reducer = {"anyOf": [{"enum": [*BUILTIN, "local"]}, _REF]}
    keys: dict[str, Mapping[str, object]] = {"type": kind, "reducer": reducer, "default": {}, "description": _TEXT}
    spec = _explained({key: (form, FIELD_KEYS[key]) for key, form in keys.items()})
    rules = [
        {"if": {"properties": {"type": {"const": name}}}, "then": {"properties": {"default": {"type": form}}}}
        for name, form in _DEFAULTS.items()
    ]
    plain = {key: one for key, one in spec.items() if key != "reducer"}
    field, of_model = ({"anyOf": [kind, _object(one, "type", allOf=rules)]} for one in (spec, plain))
    fields, types = _mapping(_FIELD, field), _mapping(_FIELD, _mapping(_FIELD, of_model))
    forms = {"name": _TEXT, "fields": fields, "types": types}
    inline = _object(_explained({key: (form, STATE_KEYS[key]) for key, form in forms.items()}), "fields")
    return {"anyOf": [_REF, inline]}


def _node(kinds: list[str]) -> dict[str, Any]:
    """Return the schema of any node: the fields are those of its kind, unless it has a class of its own."""
    named = {"required": ["kind"], "not": {"required": ["class"]}}
    ours = [
        {"if": {"properties": {"kind": {"const": one}}, **named}, "then": {"$ref": f"#/$defs/{one}"}} for one in kinds
    ]
    known = {"if": {"not": {"required": ["class"]}}, "then": {"properties": {"kind": {"enum": kinds}}}}
    properties = {"kind": _TEXT, "class": _REF}
    form = {"type": ["object", "string"], "pattern": ":", "required": ["kind"], "properties": properties}
    return {**form, "allOf": [known, *ours]}


def _tool(limits: Mapping[str, object]) -> dict[str, Any]:
    risk = {"enum": ["none", "read", "write", "dangerous"]}
    called = {"name": _TEXT, "description": _TEXT, "risk": risk, "depth": {"type": "integer", "minimum": 1}}
    agent = _object({"graph": _GRAPH, "limits": limits, **called}, "graph name description")
    handoff = _object({"handoff": _TEXT, "name": _TEXT, "description": _TEXT}, "handoff description")
    return {"anyOf": [agent, handoff], "description": "a graph as a tool, or a handoff"}


def _kind(kind: str, cls: type[Node], defs: dict[str, Any]) -> dict[str, Any]:
    described = re.sub(r"(?<!\n)\n(?!\n)", " ", catalog.description(cls))
    properties = {"kind": {"const": kind, "description": described}, **_properties(cls, defs)}
    if not is_shipped(cls):
        properties["class"] = _REF
    required = [info.alias or name for name, info in cls.model_fields.items() if info.is_required()]
    properties = {**properties, **_COMMON, "outcomes": _TEXTS, **properties}
    return _object(properties, " ".join(("kind", *required)), description=described)


def _properties(cls: type[Node], defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of the fields that a kind adds or changes, by their names in files."""
    found = _of_model(cls, defs)["properties"]
    base = {} if cls is Node else Node.model_fields
    made: dict[str, Any] = {}
    for (name, info), facts in zip(cls.model_fields.items(), catalog.fields(cls), strict=True):
        if name in base and info.default == base[name].default and info.annotation == base[name].annotation:
            continue
        port = f"({facts.port.replace('`', '')})" if facts.port else ""
        said = " ".join(filter(None, (facts.meaning, info.description, port)))
        made[facts.name] = {**_form(cls, name, found[facts.name]), **({"description": said} if said else {})}
        if isinstance(info.default, str | int | float) and len(str(info.default)) <= 40:
            made[facts.name]["default"] = info.default
    return made


def _form(cls: type[Node], name: str, found: dict[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a field as files have it, from that of its values."""
    if name == "tools":
        return {"anyOf": [{"type": "array", "items": {"anyOf": [_TEXT, {"$ref": "#/$defs/tool"}]}}, {"type": "null"}]}
    if name == "join":
        number = {"type": "integer", "minimum": 1}
        return {"anyOf": [{"enum": ["all", "each"]}, number, {**_TEXT, **_FIELD}, {"type": "null"}]}
    if name == cls.class_field:
        return {"anyOf": [_REF, {"type": ["object", "null"]}]}
    if name in cls.in_order:
        return {"anyOf": [found, {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}}]}
    return _GRAPH if name == "graph" else _REF if name == cls.calls_code else found


def _of_model(model: type[BaseModel], defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a model. The models inside it are added to `defs`, except those of graphs."""
    found: dict[str, Any] = model.model_json_schema(schema_generator=_Schema)
    inner = found.pop("$defs", {})
    if "graph" not in found["properties"]:
        defs |= {name: one for name, one in inner.items() if name not in defs}
    for name, text in catalog.meanings(model).items():
        found["properties"].get(name, {})["description"] = text
    return found
