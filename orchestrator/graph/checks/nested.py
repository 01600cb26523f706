"""C1: what goes into a subgraph and comes out of it.

A subgraph's `inputs` and `outputs` read like assignments, target first: `inputs` maps fields of the inner state to
fields of ours, `outputs` fields of ours to fields of the inner state. Ours are ports, and checked as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.graph.checks.words import listed, mend_name
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.node import ITEM
from orchestrator.graph.topology import DONE, END, IF_NAMED, START, STOP
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


def entry_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Outcomes of a subgraph by which END of its graph is never entered, and those that it leaves out."""
    for name, node in graph.nodes.items():
        inner = node.subgraph
        if inner is None or node.outcomes_field is None or not getattr(node, node.outcomes_field):
            continue
        ways = _entries(inner)
        for outcome in node.outcomes:
            if outcome not in ways and outcome != DONE:
                mend = mend_name(outcome, ways, "add an edge to END for it, or leave it out")
                fault = f"{name} declares outcome {outcome!r}, by which END of its graph {inner.name} is never entered"
                yield Problem("C1.outcome", f"{fault}: {mend}", (name,))
        left = [way for way in ways if way not in node.outcomes]
        if left and DONE not in node.outcomes:
            fault = f"END of graph {inner.name} is entered by {listed(left)}, which outcomes= of {name} leaves out"
            yield Problem("C1.outcome", f"{fault}: add it, or 'done' for all others", (name,))


def _entries(graph: GraphDefinition) -> list[str]:
    """The outcomes by which END or STOP of a graph can be entered."""
    topology = graph.topology
    found: dict[str, None] = {}
    for source, node in ((START, None), *graph.nodes.items()):
        for outcome in (DONE,) if node is None else (*node.outcomes, *IF_NAMED):
            if any(route.target in (END, STOP) for route in topology.routes(source, outcome)):
                found[outcome] = None
    return list(found)


def _mapping(node: object, attribute: str) -> Mapping[str, object]:
    found = getattr(node, attribute, None)
    return found if isinstance(found, Mapping) else {}
