"""Differences between two versions of a graph: in structure, and in content (prompts, parameters, code)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.versions import Renames, inside, state_shape, without_looks
from orchestrator.json import JsonObject

ChangeKind: TypeAlias = Literal[
    "node_gone", "node_new", "outcomes", "join", "graph_inside", "edges", "order", "join_order", "field_gone",
    "field_new", "field_type", "field_reducer", "pool", "pool_size",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """A difference of structure."""

    kind: ChangeKind
    place: str
    """Path of the graph in the old version: names of the subgraph nodes around it, joined by `/`; empty at the top."""
    name: str
    """The node, state field or pool, under its old name if it has one; for edges the node that they start from."""
    text: str
    """The difference in words."""
    others: tuple[str, ...] = ()
    """For a change in the order of joins: the joins that are now declared after this one."""

    @property
    def path(self) -> str:
        """The path of the node or the field."""
        return inside(self.place, self.name)


def content_changes(old: JsonObject, new: JsonObject) -> tuple[str, ...]:
    """Return the differences in content between two versions of a graph, node by node."""
    old, new = without_looks(old), without_looks(new)
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


def structure_changes(
    old: GraphDefinition, new: GraphDefinition, names: Renames | None = None, place: str = ""
) -> Iterator[Change]:
    """Yield the structural differences between two versions of a graph, including the graphs inside them.

    Args:
        old: the old version.
        new: the new version.
        names: the renames; a renamed node or field counts as neither removed nor added.
        place: path of the graph in the old version.
    """
    names = names or Renames()
    where = f" in {place!r}" if place else ""
    known = {names.node(place, name) for name in old.nodes}
    for name, node in old.nodes.items():
        now = new.nodes.get(names.node(place, name))
        if now is None:
            yield Change("node_gone", place, name, f"node {name!r}{where} is gone")
            continue
        if now.outcomes != node.outcomes:
            before, after = ", ".join(node.outcomes), ", ".join(now.outcomes)
            yield Change("outcomes", place, name, f"node {name!r}{where} has outcomes {after}, it had {before}")
        if now.join != node.join:
            yield Change(
                "join", place, name, f"node {name!r}{where} says join={now.join!r}, it said join={node.join!r}"
            )
        if now.rest != node.rest:
            yield Change(
                "join", place, name, f"node {name!r}{where} says rest={now.rest!r}, it said rest={node.rest!r}"
            )
        if now.pool != node.pool:
            words = f"names pool {now.pool!r}" if now.pool else "names no pool"
            yield Change("pool", place, name, f"node {name!r}{where} {words}, it named {node.pool or 'none'}")
        if (node.subgraph is None) != (now.subgraph is None):
            has = "has a graph inside" if now.subgraph else "has no graph inside any more"
            yield Change("graph_inside", place, name, f"node {name!r}{where} {has}")
    for name in new.nodes:
        if name not in known:
            yield Change("node_new", place, name, f"node {name!r}{where} is new")
    for pool in {**old.pools, **new.pools}:
        before, after = (str(one.pools.get(pool) or "any number of") for one in (old, new))
        if (pool in old.pools, before) != (pool in new.pools, after):
            yield Change("pool_size", place, pool, f"pool {pool!r}{where} has {after} places, it had {before}")
    yield from _edge_changes(old, new, names, place)
    yield from _order_changes(old, new, names, place)
    yield from _state_changes(old, new, names, place)
    for name, node in old.nodes.items():
        now = new.nodes.get(names.node(place, name))
        if node.subgraph is not None and now is not None and now.subgraph is not None:
            yield from structure_changes(node.subgraph, now.subgraph, names, inside(place, name))


def _edge_changes(old: GraphDefinition, new: GraphDefinition, names: Renames, place: str) -> Iterator[Change]:
    where = f" in {place!r}" if place else ""
    after: dict[str, list[str]] = {}
    for edge in new.edges:
        after.setdefault(edge.source, []).append(str(edge))
    before: dict[str, list[tuple[str, str]]] = {}
    sources: dict[str, str] = {}
    for edge in old.edges:
        each = None if edge.each is None else names.state_field(place, edge.each)
        source = names.node(place, edge.source)
        moved = replace(edge, source=source, target=names.node(place, edge.target), each=each)
        before.setdefault(source, []).append((str(moved), str(edge)))
        sources[source] = edge.source
    for source in dict.fromkeys((*before, *after)):
        was, now = before.get(source, []), after.get(source, [])
        named, source_name = [moved_text for moved_text, _ in was], sources.get(source, source)
        for moved_text, text in was:
            if moved_text not in now:
                yield Change("edges", place, source_name, f"edge {text}{where} is gone")
        for text in now:
            if text not in named:
                yield Change("edges", place, source_name, f"edge {text}{where} is new")
        if named != now and sorted(named) == sorted(now):
            text = f"the edges of {source_name!r}{where} are in another order, and so are its branches"
            yield Change("order", place, source_name, text)


def _order_changes(old: GraphDefinition, new: GraphDefinition, names: Renames, place: str) -> Iterator[Change]:
    """Yield joins that moved before others in the order of declaration, which decides which of them fires first."""
    where = f" in {place!r}" if place else ""
    now = {name: number for number, name in enumerate(new.topology.joins)}
    was = [(name, now[names.node(place, name)]) for name in old.topology.joins if names.node(place, name) in now]
    for count, (name, number) in enumerate(was):
        passed = tuple(other for other, there in was[:count] if there > number)
        if passed:
            text = f"join {name!r}{where} is declared before {', '.join(map(repr, passed))} now, so it fires first"
            yield Change("join_order", place, name, text, passed)


def _state_changes(old: GraphDefinition, new: GraphDefinition, names: Renames, place: str) -> Iterator[Change]:
    where = f" in {place!r}" if place else ""
    before, after = state_shape(old.schema), state_shape(new.schema)
    was, now = _mapping(before.get("fields")), _mapping(after.get("fields"))
    types = _changed_types(before.get("$defs"), after.get("$defs"))
    moved = {name: names.state_field(place, name) for name in was}
    for name in was:
        field = f"state field {name!r}{where}"
        spec, there = was[name], now.get(moved[name])
        if there is None:
            yield Change("field_gone", place, name, f"{field} is gone")
            continue
        assert isinstance(spec, list)
        assert isinstance(there, list)
        used = types & _types_in(there[0])
        if spec[0] != there[0]:
            yield Change("field_type", place, name, f"{field} has another type")
        elif used:
            yield Change("field_type", place, name, f"{field} has another type: {', '.join(sorted(used))} changed")
        if spec[1:] != there[1:]:
            yield Change("field_reducer", place, name, f"{field} has {_reducer(there)}, it had {_reducer(spec)}")
    for name in now:
        if name not in moved.values():
            yield Change("field_new", place, name, f"state field {name!r}{where} is new")


def _reducer(spec: list[object]) -> str:
    parts = [f"the reducer {spec[1]}" if spec[1] else "", "its own value in each branch" if spec[2] else ""]
    return " and ".join(filter(None, parts)) or "no reducer"


def _changed_types(before: object, after: object) -> frozenset[str]:
    """Return the names of the types that a state uses and that changed, directly or through a type that they use."""
    was, now = _mapping(before), _mapping(after)
    changed = {name for name in {**was, **now} if was.get(name) != now.get(name)}
    while more := {name for name, spec in now.items() if name not in changed and changed & _types_in(spec)}:
        changed |= more
    return frozenset(changed)


def _types_in(schema: object) -> frozenset[str]:
    """Return the names of the types that a JSON schema refers to."""
    if isinstance(schema, list):
        return frozenset().union(*map(_types_in, schema))
    if not isinstance(schema, Mapping):
        return frozenset()
    ref = schema.get("$ref")
    own = {str(ref).rpartition("/")[2]} if ref is not None else set()
    return frozenset(own).union(*map(_types_in, schema.values()))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
