"""Suggests migrations: for each change that needs one, what a user may mean by it.

Each suggestion is only a guess, so the caller tries it on a copy of the run before it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import InvalidUpdate
from orchestrator.executor.versions.comparison import Comparison, GradedChange
from orchestrator.executor.versions.migrated_state import graph_at
from orchestrator.graph.diff import Change
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.graph.reducers import replace
from orchestrator.graph.versions import Migration, StateMapping, inside, state_shape

STATE = "state."
"""What `--rename`, `--set` and `--drop` put before the name of a state field."""
_SAMPLES: tuple[object, ...] = ("", 0, 0.0, False, [], {}, None)
"""Values that a field without a default may begin with."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A migration that continues a run, as options of a command and as a call."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    """Old path of a field -> the new one."""
    given: Mapping[str, object] = field(default_factory=dict)
    """New field -> a value, plain JSON."""
    joins: Mapping[str, str | None] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    accept: bool = False
    """Whether there are changes to accept, too."""
    guesses: tuple[str, ...] = ()
    """What it takes for granted, and no user has said, line by line."""

    @property
    def migration(self) -> Migration:
        """The migration."""
        return Migration(
            nodes=self.nodes,
            state=mapping_of(self.fields, self.given) if self.fields or self.given else None,
            joins=self.joins,
            drop=self.drop,
        )

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `orchestrator resume RUN`."""
        words: list[str] = []
        for old, new in self.nodes.items():
            words += ["--rename", f"{old}={new}"]
        for old, new in self.fields.items():
            words += ["--rename", f"{STATE}{old}={new}"]
        for name, value in self.given.items():
            words += ["--set", f"{name}={json.dumps(value)}"]
        for old, join in self.joins.items():
            if join is not None and self.nodes.get(old) != join:
                words += ["--rename", f"{old}={join}"]
            elif join is None:
                words += ["--drop", old]
        for name in self.drop:
            words += ["--drop", f"{STATE}{name}"]
        return (*words, *(("--accept-changes",) if self.accept else ()))

    @property
    def call(self) -> str:
        """The arguments of `executor.resume(run_id, ...)`."""
        said = [f"nodes={dict(self.nodes)}"] if self.nodes else []
        if self.fields or self.given:
            state = [f"{new!r}: {old!r}" for old, new in self.fields.items()]
            state += [f"{name!r}: lambda old: {value!r}" for name, value in self.given.items()]
            said.append(f"state={{{', '.join(state)}}}")
        said += [f"joins={dict(self.joins)}"] if self.joins else []
        said += [f"drop={list(self.drop)}"] if self.drop else []
        made = [f"migrate=Migration({', '.join(said)})"] if said else []
        return ", ".join((*made, *(["accept_changes=True"] if self.accept else [])))


def mapping_of(fields: Mapping[str, str], given: Mapping[str, object]) -> StateMapping:
    """A mapping of the state, from renamed fields and from values."""
    found: dict[str, str | Callable[[dict[str, Any]], Any]] = {new: old for old, new in fields.items()}
    for name, value in given.items():
        found[name] = _constant(value)
    return found


def _constant(value: object) -> Callable[[dict[str, Any]], Any]:
    return lambda old: value


def remedies(comparison: Comparison) -> Iterator[Remedy]:
    """What the user may mean, the likeliest first."""
    said = comparison.migration
    if callable(said.state) or any(callable(source) for source in (said.state or {}).values()):
        return  # no command says what a function does
    needed = [one for one in comparison.changes if one.grade == "migration" and not one.settled]
    if undecided(comparison):
        return
    fields, given, dropped = _fields(comparison, needed)
    guessed = [f"state field {old!r} became {new!r}" for old, new in fields.items() if old != new]
    guessed += [f"state field {name!r} begins with {value!r}" for name, value in given.items()]
    guessed += [f"the value of state field {name!r} is given up" for name in dropped]
    fields |= comparison.names.fields
    drop = (*said.drop, *dropped)
    joins: dict[str, str | None] = dict(said.joins)
    for one in needed:
        if one.change is not None and one.change.kind == "join":
            joins |= {old: new for old, new in _join(comparison, one).items() if old not in joins.values()}
    at = dict.fromkeys(one.change.path for one in needed if one.change is not None and one.change.kind == "node_gone")
    nodes = {path: list(_nodes(comparison, path)) for path in at}
    most = max(map(len, nodes.values()), default=1)
    for number in range(most):
        chosen = {path: found[min(number, len(found) - 1)] for path, found in nodes.items() if found}
        if len(chosen) == len(nodes):
            renamed = {
                **said.nodes,
                **chosen,
                **{old: new for old, new in joins.items() if new is not None and new != old},
            }
            moved = [f"node {old!r} became {new!r}" for old, new in chosen.items()]
            moved += [_of_join(old, new) for old, new in joins.items() if old not in said.joins and new != old]
            yield Remedy(renamed, fields, given, joins, drop, guesses=(*moved, *guessed))


def _of_join(old: str, new: str | None) -> str:
    return f"join {old!r} became {new!r}" if new is not None else f"branches end without join {old!r}"


def undecided(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    """State fields that are gone, each with several new ones that it may have become: nothing says which."""
    needed = [one for one in comparison.changes if one.grade == "migration" and not one.settled]
    likes = {
        change.path: _alike(comparison, change) for change in _field_changes(needed) if change.kind == "field_gone"
    }
    return {
        path: like
        for path, like in likes.items()
        if len(like) > 1 or any(set(like) & set(other) for one, other in likes.items() if one != path)
    }


def _field_changes(needed: list[GradedChange]) -> list[Change]:
    return [one.change for one in needed if one.change is not None and one.change.kind.startswith("field")]


def _alike(comparison: Comparison, change: Change) -> tuple[str, ...]:
    """New fields of the type of one that is gone, of which the migration says nothing."""
    there = comparison.names.place(change.place)
    old, new = graph_at(comparison.old, change.place), graph_at(comparison.new, there)
    if old is None or new is None:
        return ()
    said = comparison.migration.state
    taken = {*comparison.names.fields.values(), *(said if isinstance(said, Mapping) else ())}
    return tuple(
        inside(there, other)
        for other in new.schema.fields
        if other not in old.schema.fields
        and inside(there, other) not in taken
        and _shape(old, change.name) == _shape(new, other)
    )


def _nodes(comparison: Comparison, path: str) -> Iterator[str]:
    """What a node that is gone may be called now: new nodes that are like it, then those that came after it."""
    place, _, name = path.rpartition("/")
    old, new = graph_at(comparison.old, place), graph_at(comparison.new, comparison.names.place(place))
    if old is None or new is None or name not in old.nodes:
        return
    there = [one for one in new.nodes if one not in old.nodes]
    there.sort(key=lambda one: _likeness(old, old.nodes[name], name, new, one), reverse=True)
    following: dict[str, None] = {}
    level = [name]
    while level:
        level = [t for one in level for t in old.topology.successors.get(one, ()) if t not in following]
        following.update(dict.fromkeys(level))
    there += [one for one in following if one in new.nodes]
    yield from (inside(comparison.names.place(place), one) for one in dict.fromkeys(there))


def _likeness(old: GraphDefinition, node: Node, name: str, new: GraphDefinition, other: str) -> tuple[bool, int, int]:
    """How much a node of the new version is like one of the old version."""
    now = new.nodes[other]
    return (
        now.outcomes == node.outcomes,
        (now.kind == node.kind) + (now.join == node.join),
        len(_around(old, name) & _around(new, other)),
    )


def _around(graph: GraphDefinition, name: str) -> set[tuple[str, str | None]]:
    """What a node's edges lead to, and where those to it come from."""
    after = {(edge.target, edge.outcome) for edge in graph.edges if edge.source == name}
    return after | {(edge.source, edge.outcome) for edge in graph.edges if edge.target == name}


def _join(comparison: Comparison, one: GradedChange) -> dict[str, str | None]:
    """Which join of the new version may take the place of one of an open fork."""
    assert one.change is not None
    place, name = one.change.place, one.change.name
    new = graph_at(comparison.new, comparison.names.place(place))
    old = graph_at(comparison.old, place)
    if new is None or old is None:
        return {}
    fork = comparison.names.vertex(place, one.fork, old.topology, new.topology)
    joins = new.topology.joins_of(fork)
    if comparison.names.node(place, name) in joins:
        return {inside(place, name): inside(comparison.names.place(place), comparison.names.node(place, name))}
    if comparison.names.node(place, name) in new.nodes:  # it is there, and joins nothing of this fork any more
        return {inside(place, name): None}
    free = [join for join in joins if join not in old.nodes]
    there = comparison.names.place(place)
    return {inside(place, name): inside(there, (free or list(joins))[0]) if joins else None}


def _fields(
    comparison: Comparison, needed: list[GradedChange]
) -> tuple[dict[str, str], dict[str, object], tuple[str, ...]]:
    """Renamed fields, values of fields without a default, and fields that are given up."""
    renamed: dict[str, str] = {}
    given: dict[str, object] = {}
    drop: list[str] = []
    for change in _field_changes(needed):
        place, name = change.place, change.name
        there = comparison.names.place(place)
        old, new = graph_at(comparison.old, place), graph_at(comparison.new, there)
        if old is None or new is None:
            continue
        if change.kind == "field_gone":
            like = _alike(comparison, change)
            if len(like) == 1:
                renamed[change.path] = like[0]
                continue
        if change.kind == "field_type" and _fits(comparison, place, name, new):
            renamed[change.path] = change.path
        elif change.kind == "field_new":
            value = next((one for one in _SAMPLES if _is_value(new, name, one)), None)
            if inside(there, name) not in renamed.values():
                given[inside(there, name)] = value
        else:
            drop.append(change.path)
    given = {name: value for name, value in given.items() if name not in renamed.values()}
    return renamed, given, tuple(drop)


def _shape(graph: GraphDefinition, name: str) -> object:
    shape = state_shape(graph.schema)["fields"]
    assert isinstance(shape, Mapping)
    return shape[name]


def _fits(comparison: Comparison, place: str, name: str, new: GraphDefinition) -> bool:
    """Whether the values of a field fit its new type."""
    for frame in comparison.frames.get(place, ()):
        for token in frame.live.values():
            value = frame.plan.schema.dump({name: token.values[name]})[name] if name in token.values else None
            if not _is_value(new, comparison.names.state_field(place, name), value):
                return False
    return True


def _is_value(graph: GraphDefinition, name: str, value: object) -> bool:
    try:
        graph.schema.encode_update({name: replace(value)})
    except InvalidUpdate:
        return False
    return True
