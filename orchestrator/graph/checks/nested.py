"""C1: what goes into a subgraph and comes out of it.

A subgraph's `inputs` and `outputs` read like assignments, target first: `inputs` maps fields of the inner state to
fields of ours, `outputs` fields of ours to fields of the inner state. Ours are ports, and checked as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.graph.checks.words import mend_name
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.node import ITEM
from orchestrator.problem import Problem

MOST_DEEP = 50
"""How deep graphs may be inside each other, the outermost counted: what is written as JSON has to be read again."""


def nested_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Fields that the inner state does not have, and those of it that nothing fills."""
    for name, node in graph.nodes.items():
        inner = node.subgraph
        if inner is None:
            continue
        if inner.depth >= MOST_DEEP:
            fault = f"the graph inside {name} has graphs nested {inner.depth} deep"
            yield Problem("C1.nested", f"{fault}, and the limit is {MOST_DEEP}: combine some of them", (name,))
            continue
        schema = inner.schema
        inputs, outputs = _mapping(node, "inputs"), _mapping(node, "outputs")
        for what, fields in (("inputs", inputs.keys()), ("outputs", outputs.values())):
            for field in fields:
                if field not in schema.fields:
                    mend = mend_name(str(field), schema.fields, "add the field, or name another")
                    no = f"and state {schema.name} of its graph {inner.name} has no such field"
                    yield Problem("C1.field", f"{what} of {name} name {field!r}, {no}: {mend}", (name,))
        for field in schema.fields:
            if schema.field(field).required and field not in inputs:
                fault = f"{name} gives its graph {inner.name} no {field!r}, which has no default"
                yield Problem("C1.field", f"{fault}: add it to inputs=", (name,))


def mapping_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Fields of ours that a subgraph's `inputs` and `outputs` use although its `reads` and `writes` leave them out."""
    for name, node in graph.nodes.items():
        if node.subgraph is None:
            continue
        used = (
            ("inputs", "reads", (field for field in _mapping(node, "inputs").values() if field != ITEM), node.reads),
            ("outputs", "writes", _mapping(node, "outputs"), node.writes),
        )
        for what, verb, fields, allowed in used:
            for field in fields:
                if allowed is not None and field not in allowed:
                    fault = f"{what} of {name} use {field!r}, which its {verb}= leaves out"
                    yield Problem("C1.field", f"{fault}: add {field!r} to {verb}=", (name,))


def _mapping(node: object, attribute: str) -> Mapping[str, object]:
    found = getattr(node, attribute, None)
    return found if isinstance(found, Mapping) else {}
