"""C1: what goes into a subgraph and comes out of it.

`inputs` says of each field of the inner state where it comes from, `outputs` where it goes to: both are mappings
from names of the inner state to names of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from orchestrator.graph.checks.words import mend_name
from orchestrator.graph.node import ITEM
from orchestrator.graph.problem import Problem

if TYPE_CHECKING:
    from orchestrator.graph.graph import Graph
    from orchestrator.graph.state import StateSchema


def nested_problems(graph: Graph) -> Iterator[Problem]:
    """Fields that one of the two states does not have, and inner fields that nothing fills."""
    for name, node in graph.nodes.items():
        inner = node.subgraph
        if inner is None:
            continue
        inputs, outputs = _mapping(node, "inputs"), _mapping(node, "outputs")
        for what, pairs in (("inputs", inputs), ("outputs", outputs)):
            for theirs, ours in pairs.items():
                yield from _missing(name, what, theirs, inner.schema)
                if isinstance(ours, str) and ours != ITEM:
                    yield from _missing(name, what, ours, graph.schema)
        for field in inner.schema.fields:
            if inner.schema.field(field).required and field not in inputs:
                yield Problem(
                    "C1.field",
                    f"{name} gives its graph {inner.name} no {field!r}, which has no default: add it to inputs",
                    (name,),
                )


def _mapping(node: object, attribute: str) -> Mapping[str, object]:
    found = getattr(node, attribute, None)
    return found if isinstance(found, Mapping) else {}


def _missing(name: str, what: str, field: str, schema: StateSchema) -> Iterator[Problem]:
    if field not in schema.fields:
        mend = mend_name(field, schema.fields, "add the field, or name another")
        message = f"{what} of {name} name {field!r}, and state {schema.name} has no such field: {mend}"
        yield Problem("C1.field", message, (name,))
