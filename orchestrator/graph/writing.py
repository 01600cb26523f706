"""Graphs as YAML and JSON files for people."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import JsonValue

from orchestrator.errors import GraphError, NotSerialisable
from orchestrator.graph.edges import format_edges
from orchestrator.graph.function import FunctionNode, function_node
from orchestrator.graph.model import GraphDefinition, Node, is_shipped, node_data, tools_data
from orchestrator.graph.reading import UnresolvedNode
from orchestrator.graph.refs import find
from orchestrator.graph.state import StateSchema
from orchestrator.graph.text.types import shipped_name

# -- Graphs as YAML and JSON files for people ------------------------------------------------------------------
# The form is `Graph.data()`, with `module:attr` in place of state classes and functions.


SCHEMA_FILE = "graph.schema.json"
"""Name of the file with the JSON Schema of graph files, which `orchestrator schema -o` writes."""


def editor_line(path: Path) -> str:
    """Return a first line for a YAML file: it tells editors where the JSON Schema of graph files is.

    Empty if there is no `SCHEMA_FILE` in the file's folder or a folder above it.
    """
    folder = path.absolute().parent
    for levels, place in enumerate((folder, *folder.parents)):
        if (place / SCHEMA_FILE).is_file():
            return f"# yaml-language-server: $schema={'../' * levels}{SCHEMA_FILE}\n"
    return ""


def save(graph: GraphDefinition, path: Path) -> None:
    """See `Graph.save`."""
    if path.suffix == ".json":
        text = json.dumps(file_form(graph), indent=2, ensure_ascii=False) + "\n"
    elif path.suffix in (".yaml", ".yml"):
        text = editor_line(path) + to_yaml(graph)
    else:
        raise GraphError(f"{path.name}: save a graph as .yaml, .yml or .json")
    path.write_text(text, encoding="utf-8")


def to_yaml(graph: GraphDefinition) -> str:
    """See `Graph.to_yaml`."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return str(yaml.dump(file_form(graph), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110))


def file_form(graph: GraphDefinition) -> dict[str, Any]:
    """Return a graph in the form of a graph file.

    Raises:
        NotSerialisable: part of the graph is code that no file can name.
    """
    data = dict(graph.data())
    form: dict[str, object] = {"name": graph.name}
    for key in ("version", "description"):
        if data[key]:
            form[key] = data[key]
    form["state"] = _state_form(graph)
    for key in ("input", "output", "limits", "pools"):
        if data.get(key) not in (None, {}):
            form[key] = data[key]
    form["nodes"] = {name: _node_form(name, node) for name, node in graph.nodes.items()}
    form["edges"] = f"{format_edges(graph.edges, lists=True)}\n"
    return form


def _state_form(graph: GraphDefinition) -> object:
    schema = graph.schema
    if schema.inline is not None:
        return schema.inline
    if schema.ref is None or schema.ref.startswith("__main__:") or (schema.cls and find(schema.ref) is not schema.cls):
        raise NotSerialisable(
            f"state {schema.name} of graph {graph.name!r} is a class that a file cannot refer to: "
            "move it to the top of a module"
        )
    return schema.ref


def _node_form(name: str, node: Node) -> object:
    tools = tools_data(node, file_form)
    for tool in tools or ():
        if isinstance(tool, str) and tool.startswith((":", "__main__:")):
            raise NotSerialisable(
                f"node {name!r} has its own tool that a file cannot refer to ({tool.rpartition(':')[2]}): move its "
                "function to the top of a module, or give the tool to the executor and the node its name"
            )
    if isinstance(node, FunctionNode):
        return _function_form(name, node)
    data = dict(node_data(node))
    if isinstance(node, UnresolvedNode):
        return data
    if not is_shipped(type(node)):
        ref = data["class"]
        if not isinstance(ref, str) or ref.startswith("__main__:") or find(ref) is not type(node):
            raise NotSerialisable(
                f"node {name!r} is of a kind that a file cannot refer to ({type(node).__qualname__}): "
                "move its class to the top of a module"
            )
    del data["outcomes"]
    if node.outcomes_field is not None and getattr(node, node.outcomes_field):
        data["outcomes"] = list(getattr(node, node.outcomes_field))
    defaults = {key: info.default for key, info in type(node).model_fields.items()}
    data = {key: value for key, value in data.items() if value is not None or defaults.get(key) is not None}
    own = getattr(node, node.class_field, None) if node.class_field is not None else None
    if isinstance(own, type) and (not isinstance(ref := data[str(node.class_field)], str) or find(ref) is not own):
        raise NotSerialisable(
            f"node {name!r} has a class that a file cannot refer to ({own.__qualname__}): "
            "move it to the top of a module"
        )
    if tools is not None:
        data["tools"] = tools
    for key in node.in_order:
        data[key] = dict(getattr(node, key))
    if node.subgraph is not None and "graph" in data:
        data["graph"] = file_form(node.subgraph)
    return data


def _function_form(name: str, node: FunctionNode[..., Any]) -> Any:
    ref = node.ref
    if ref is None or ref.startswith("__main__:"):
        raise NotSerialisable(
            f"node {name!r} is a function that a file cannot refer to ({node.name}, a closure, a lambda or typed in): "
            "move it to the top of a module"
        )
    found = find(ref)
    plain = found if isinstance(found, FunctionNode) else function_node(node.fn)
    changed = [key for key in Node.model_fields if getattr(node, key) != getattr(plain, key)]
    if not changed and node.outcomes == plain.outcomes:
        return ref
    form: dict[str, Any] = {"kind": "function", "ref": ref}
    if node.outcomes != plain.outcomes:
        form["outcomes"] = list(node.outcomes)
    dumped = node.model_dump(mode="json", include=set(changed))
    if node.tools is not None:
        dumped["tools"] = tools_data(node, file_form)
    return {**form, **{key: dumped[key] for key in changed}}


# -- Python graphs as YAML that needs no Python: with the state's fields, and without default values -----------


_WIDTH = 110


class _Flow(dict[str, Any]):
    """A mapping on one line, if it fits."""


def to_plain_yaml(graph: GraphDefinition) -> str:
    """Return the text of a graph file that contains the fields of the state and leaves out default values.

    Raises:
        NotSerialisable: part of the graph is code that no file can name, or a field has a type that none can name.
    """
    return dumped(plain_form(graph))


def node_text(data: Mapping[str, Any]) -> str:
    """Return a node's data as YAML, without its name: on one line if it fits."""
    return dumped(_Flow(data))


def dumped(form: object) -> str:
    """Return plain data as YAML for people: short mappings and lists on one line, texts of several lines as blocks."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def flow(dumper: yaml.SafeDumper, data: _Flow) -> yaml.Node:
        short = len(json.dumps(data)) < _WIDTH - 20
        return dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=short)

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    def row(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
        short = all(isinstance(one, str | int | float) for one in value) and len(json.dumps(value)) < _WIDTH - 20
        return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=short)

    Dumper.add_representer(_Flow, flow)
    Dumper.add_representer(list, row)
    Dumper.add_representer(str, text)
    return str(yaml.dump(form, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))


def plain_form(graph: GraphDefinition) -> dict[str, Any]:
    """Return a graph as data that contains its state's fields, not a reference to the class."""
    form = dict(file_form(graph))
    form["state"] = _state(graph.schema)
    form["nodes"] = {name: _node(node, form["nodes"][name]) for name, node in graph.nodes.items()}
    edges = format_edges(graph.edges, lists=True)
    form["edges"] = edges if "\n" not in edges else f"{edges}\n"
    return form


def _state(schema: StateSchema) -> dict[str, Any]:
    if schema.inline is None:
        return {"name": schema.name, "fields": _fields(schema)}
    fields: Any = schema.inline["fields"]
    written = {name: _Flow(spec) if isinstance(spec, Mapping) else spec for name, spec in fields.items()}
    return {**schema.inline, "fields": written}


def _fields(schema: StateSchema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    initial = schema.cls.model_fields if schema.cls is not None else {}
    for name in schema.fields:
        field = schema.field(name)
        spec: dict[str, Any] = {"type": type_text(field.annotation)}
        if field.local:
            spec["reducer"] = "local"
        elif field.reducer:
            spec["reducer"] = field.reducer
        if not initial[name].is_required():
            spec["default"] = field.codec.dump(field.default())
        found[name] = spec["type"] if len(spec) == 1 else _Flow(spec)
    return found


def _node(node: Node, form: Any) -> Any:
    if isinstance(form, str) or isinstance(node, FunctionNode | UnresolvedNode):
        return form
    found: dict[str, Any] = {key: form[key] for key in ("kind", "class") if key in form}
    fields = type(node).model_fields
    for name in (
        name for name in fields if name in node.model_fields_set and getattr(node, name) != fields[name].default
    ):
        key = fields[name].alias or name
        if key in form and name != "graph":
            found[key] = _Flow(_as_set(getattr(node, name), form[key])) if isinstance(form[key], Mapping) else form[key]
    if node.subgraph is not None:
        return {**found, "graph": plain_form(node.subgraph)}
    own = {key: found[key] for key in form if key in found and key not in Node.model_fields}
    return _Flow({"kind": node.kind, **own, **found})


def _as_set(value: object, form: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the data of a node inside a field of another, with the fields that were set."""
    return {key: form[key] for key in form if key in value.model_fields_set} if isinstance(value, Node) else form


def type_name(annotation: Any) -> str:
    """Return a type's name as a person reads it, even if no file can name the type; empty if it has no name."""
    try:
        return type_text(annotation)
    except NotSerialisable:
        return str(getattr(annotation, "__name__", ""))


def type_text(annotation: Any) -> str:
    """Return a type's name as a graph file writes it.

    Raises:
        NotSerialisable: no file can name it.
    """
    origin, inside = get_origin(annotation), get_args(annotation)
    if annotation is Any or annotation is JsonValue:
        return "any"
    if hasattr(annotation, "__metadata__"):
        return type_text(annotation.__origin__)
    if annotation is type(None):
        return "None"
    if origin in (Union, types.UnionType):
        return " | ".join(type_text(one) for one in inside)
    if origin is Literal:
        return f"Literal[{', '.join(repr(one) for one in inside)}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(type_text(one) for one in inside)}]"
    if annotation in (str, int, float, bool, list, dict, set):
        return str(annotation.__name__)
    name = shipped_name(annotation)
    if name is None:
        raise NotSerialisable(
            f"{annotation!r} is a type that a graph file cannot name: keep the reference to the state"
        )
    return name
