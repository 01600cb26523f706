"""Graphs as YAML and JSON files for people.

The form is `Graph.data()` without what its code says already: a state class and a function are `module:attr`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.errors import GraphError, NotSerialisable
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.edges import format_edges
from orchestrator.graph.function import FunctionNode, function_node
from orchestrator.graph.node import Node, UnresolvedNode, is_shipped
from orchestrator.graph.nodedata import node_data, tools_data
from orchestrator.graph.refs import find


def save(graph: GraphDefinition, path: Path) -> None:
    """See `Graph.save`."""
    if path.suffix == ".json":
        text = json.dumps(file_form(graph), indent=2, ensure_ascii=False) + "\n"
    elif path.suffix in (".yaml", ".yml"):
        text = to_yaml(graph)
    else:
        raise GraphError(f"{path.name}: a graph is saved as .yaml, .yml or .json")
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
    """The graph as a file says it.

    Raises:
        NotSerialisable: something in it is code that no file can name.
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
    tools = tools_data(node, in_file=True)
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
        dumped["tools"] = tools_data(node, in_file=True)
    return {**form, **{key: dumped[key] for key in changed}}
