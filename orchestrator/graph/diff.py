"""How two versions of a graph differ: in structure, and in content (prompts, parameters, code)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.digests import state_shape
from orchestrator.graph.topology import ANY
from orchestrator.jsontypes import JsonObject


@dataclass(slots=True)
class Diff:
    """How two versions of a graph differ in structure."""

    lines: list[str] = field(default_factory=list)
    touched: dict[str, list[str]] = field(default_factory=dict)
    """Node -> the lines that are about it."""
    everywhere: list[str] = field(default_factory=list)
    """Lines that are about the whole graph."""

    def note(self, node: str | None, line: str) -> None:
        """Add a line, about a node or about everything."""
        self.lines.append(line)
        if node is None or node == ANY:
            self.everywhere.append(line)
        else:
            self.touched.setdefault(node, []).append(line)


def content_changes(old: JsonObject, new: JsonObject) -> tuple[str, ...]:
    """Node by node, what of two versions of a graph's data differs."""
    found = [f"{name} changed" for name in sorted({*old, *new} - {"nodes"}) if old.get(name) != new.get(name)]
    before, after = _mapping(old.get("nodes")), _mapping(new.get("nodes"))
    for name in {**before, **after}:
        if name not in after:
            found.append(f"node {name!r} is gone")
        elif name not in before:
            found.append(f"node {name!r} is new")
        elif before[name] != after[name]:
            was, now = _mapping(before[name]), _mapping(after[name])
            parts = [part for part in {**was, **now} if was.get(part) != now.get(part)]
            found.append(f"node {name!r}: {', '.join(parts)} changed")
    return tuple(found)


def structure_diff(old: GraphDefinition, new: GraphDefinition) -> Diff:
    """Node by node, what of two versions of a graph differs in structure."""
    diff = Diff()
    for name, node in old.nodes.items():
        now = new.nodes.get(name)
        if now is None:
            diff.note(name, f"node {name!r} is gone")
            continue
        if now.outcomes != node.outcomes:
            before, after = ", ".join(node.outcomes), ", ".join(now.outcomes)
            diff.note(name, f"node {name!r} has outcomes {after}, it had {before}")
        if now.join != node.join:
            diff.note(name, f"node {name!r} says join={now.join!r}, it said join={node.join!r}")
        if node.subgraph is not None and now.subgraph is not None:
            if node.subgraph.structure != now.subgraph.structure:
                inner = "; ".join(structure_diff(node.subgraph, now.subgraph).lines)
                diff.note(name, f"the graph inside node {name!r} changed: {inner}")
        elif (node.subgraph is None) != (now.subgraph is None):
            diff.note(name, f"node {name!r} {'has a graph inside' if now.subgraph else 'has no graph inside any more'}")
    for name in new.nodes:
        if name not in old.nodes:
            diff.lines.append(f"node {name!r} is new")
    _diff_edges(old, new, diff)
    _diff_state(old, new, diff)
    return diff


def _diff_edges(old: GraphDefinition, new: GraphDefinition, diff: Diff) -> None:
    for source in dict.fromkeys(edge.source for edge in (*old.edges, *new.edges)):
        before = [str(edge) for edge in old.edges if edge.source == source]
        after = [str(edge) for edge in new.edges if edge.source == source]
        for edge in before:
            if edge not in after:
                diff.note(source, f"edge {edge} is gone")
        for edge in after:
            if edge not in before:
                diff.note(source, f"edge {edge} is new")
        if before != after and sorted(before) == sorted(after):
            diff.note(source, f"the edges of {source!r} are in another order, and so are its branches")


def _diff_state(old: GraphDefinition, new: GraphDefinition, diff: Diff) -> None:
    before, after = state_shape(old.schema), state_shape(new.schema)
    was, now = _mapping(before.get("fields")), _mapping(after.get("fields"))
    for name in {**was, **now}:
        if name not in now:
            diff.note(None, f"state field {name!r} is gone")
        elif name not in was:
            diff.note(None, f"state field {name!r} is new")
        elif was[name] != now[name]:
            diff.note(None, f"state field {name!r} has another type or reducer")
    if before.get("$defs") != after.get("$defs"):
        diff.note(None, "a type that the state uses changed")


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
