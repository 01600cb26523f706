"""Migration of a run to a new version of its graph: the record of the migration, or the error.

`planned` decides; nothing is journaled here. The record is applied to a copy of the run first, so that a migration to a
state that does not fit is refused as a whole. The migrations that a graph declares for runs of its earlier versions are
tried: its own, and those of the graphs inside it.

If a run is refused, `remedies` suggests migrations: for each change that needs one, its likely meaning. A suggestion is
only a guess, so it is tried on a copy of the run before it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

from orchestrator.errors import GraphChanged, InvalidMigration, InvalidUpdate, OrchestratorError, message_of
from orchestrator.executor.versions.comparison import Comparison, Grade, GradedChange, graph_at, highest
from orchestrator.graph.diff import Change
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.graph.reducers import replace as replace_value
from orchestrator.graph.versions import (
    NO_MIGRATION,
    Migration,
    Renames,
    StateFunction,
    StateMapping,
    inside,
    state_shape,
)
from orchestrator.kernel.endings import kept_frames
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Approve
from orchestrator.kernel.records import Migrated
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, Phase

STATE = "state."
"""Prefix of a state field's name in `--rename`, `--set` and `--drop`."""
_SAMPLES: tuple[object, ...] = ("", 0, 0.0, False, [], {}, None)
"""Candidate values for a field without a default."""


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
    """True if there are also changes to accept."""
    guesses: tuple[str, ...] = ()
    """Assumptions that no user has confirmed, one a line."""

    @property
    def migration(self) -> Migration:
        """Return the migration."""
        return Migration(
            nodes=self.nodes,
            state=mapping_of(self.fields, self.given) if self.fields or self.given else None,
            joins=self.joins,
            drop=self.drop,
        )

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of `orchestrator resume RUN`."""
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
        """Return the arguments of `executor.resume(run_id, ...)`."""
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
    """Return a mapping of the state, from renamed fields and from values."""
    found: dict[str, str | Callable[[dict[str, Any]], Any]] = {new: old for old, new in fields.items()}
    for name, value in given.items():
        found[name] = _constant(value)
    return found


def _constant(value: object) -> Callable[[dict[str, Any]], Any]:
    return lambda old: value


def remedies(comparison: Comparison) -> Iterator[Remedy]:
    """Yield possible migrations, the likeliest first."""
    said = comparison.migration
    if callable(said.state) or any(callable(source) for source in (said.state or {}).values()):
        return  # no option of a command can express a function
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
    """Return the removed state fields that may have become one of several new fields, with these."""
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
    """Return the names of new fields with the type of a removed one, if the migration does not mention them."""
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
    """Yield possible new names of a removed node: new nodes that are like it, then those that came after it."""
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
    """Return the similarity of a node of the new version to one of the old version."""
    now = new.nodes[other]
    return (
        now.outcomes == node.outcomes,
        (now.kind == node.kind) + (now.join == node.join),
        len(_around(old, name) & _around(new, other)),
    )


def _around(graph: GraphDefinition, name: str) -> set[tuple[str, str | None]]:
    """Return the targets of a node's edges, and the sources of the edges to it."""
    after = {(edge.target, edge.outcome) for edge in graph.edges if edge.source == name}
    return after | {(edge.source, edge.outcome) for edge in graph.edges if edge.target == name}


def _join(comparison: Comparison, one: GradedChange) -> dict[str, str | None]:
    """Return the join of the new version that may replace one of an open fork."""
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
    if comparison.names.node(place, name) in new.nodes:  # the join exists, but joins nothing of this fork any more
        return {inside(place, name): None}
    free = [join for join in joins if join not in old.nodes]
    there = comparison.names.place(place)
    return {inside(place, name): inside(there, (free or list(joins))[0]) if joins else None}


def _fields(
    comparison: Comparison, needed: list[GradedChange]
) -> tuple[dict[str, str], dict[str, object], tuple[str, ...]]:
    """Return renamed fields, values of fields without a default, and dropped fields."""
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
    """Return True if the values of a field fit its new type."""
    for frame in comparison.frames.get(place, ()):
        for token in frame.live.values():
            value = frame.plan.schema.dump({name: token.values[name]})[name] if name in token.values else None
            if not _is_value(new, comparison.names.state_field(place, name), value):
                return False
    return True


def _is_value(graph: GraphDefinition, name: str, value: object) -> bool:
    try:
        graph.schema.encode_update({name: replace_value(value)})
    except InvalidUpdate:
        return False
    return True


_MOST = 30
"""Maximum number of combinations of migrations that are tried for one run."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A migration of a whole graph, from the declarations of it and of the graphs inside it."""

    migration: Migration
    accepts: frozenset[str] = frozenset()
    """Old paths of the graphs whose changes ahead of the run are accepted."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A migration declared by one of the graphs, and the path of that graph."""

    migration: Migration
    old: str
    new: str


def declared(old: GraphDefinition, new: GraphDefinition) -> Iterator[Declared]:
    """Yield the migrations from one version of a graph to another that the new version declares.

    Args:
        old: the old version.
        new: the new version.
    """
    for parts in islice(_choices(old, new, "", ""), _MOST):
        if parts and (merged := _merged(parts)) is not None:
            yield merged


def _choices(old: GraphDefinition, new: GraphDefinition, old_place: str, new_place: str) -> Iterator[tuple[_Part, ...]]:
    """Yield the choices of a migration for a graph and for each graph inside it; none for unchanged graphs."""
    if old.structure == new.structure:
        yield ()
        return
    own: list[Migration | None] = [one for one in new.migrations if _applies(one, old, new, old_place)]
    for migration in (*own, None):
        names = Renames(dict(migration.nodes)) if migration is not None else Renames()
        inner: list[list[tuple[_Part, ...]]] = []
        for name, node in old.nodes.items():
            target = names.node("", name)
            now = new.nodes.get(target)
            if node.subgraph is not None and now is not None and now.subgraph is not None:
                places = inside(old_place, name), inside(new_place, target)
                inner.append(list(islice(_choices(node.subgraph, now.subgraph, *places), _MOST)))
        head = () if migration is None else (_Part(migration, old_place, new_place),)
        for choice in product(*inner):
            yield (*head, *(part for parts in choice for part in parts))


def _applies(migration: Migration, old: GraphDefinition, new: GraphDefinition, place: str) -> bool:
    """Return True if both versions have the nodes that it names. A function of the state needs the whole graph."""
    if callable(migration.state) and place:
        return False
    names = Renames(dict(migration.nodes))
    for path, target in (*migration.nodes.items(), *migration.forks.items()):
        around, _, name = path.rpartition("/")
        before, after = graph_at(old, around), graph_at(new, names.place(around))
        if before is None or name not in before.nodes:
            return False
        if after is None or target.rpartition("/")[2] not in after.nodes:
            return False
    return True


def _merged(parts: Sequence[_Part]) -> Declared | None:
    """Return the migration of the whole graph; None if their changes of the state cannot be combined."""
    functions = [part.migration.state for part in parts if callable(part.migration.state)]
    mappings = [_state_of(part) for part in parts]
    state: StateFunction | StateMapping | None = {name: one for mapping in mappings for name, one in mapping.items()}
    if functions and state:
        return None
    nodes = {
        inside(part.old, path): target if "/" in path and "/" not in target else inside(part.new, target)
        for part in parts
        for path, target in part.migration.nodes.items()
    }
    forks = {inside(part.old, path): target for part in parts for path, target in part.migration.forks.items()}
    joins = {inside(part.old, path): target for part in parts for path, target in part.migration.joins.items()}
    drop = tuple(inside(part.old, name) for part in parts for name in part.migration.drop)
    accepts = frozenset(part.old for part in parts if part.migration.accept)
    migration = Migration(
        nodes=nodes, state=functions[0] if functions else state or None, joins=joins, drop=drop, forks=forks
    )
    return Declared(migration, accepts)


def _state_of(part: _Part) -> StateMapping:
    """Return entries of a migration about fields, with their paths in the whole graph."""
    state = part.migration.state
    if not isinstance(state, Mapping) or not part.old:
        return state if isinstance(state, Mapping) else {}
    return {
        inside(part.new, name): _source(part, name, source) if isinstance(source, str) else source
        for name, source in state.items()
    }


def _source(part: _Part, name: str, source: str) -> str:
    around = "" if "/" in source else name.rpartition("/")[0]
    return inside(part.old, inside(around, source))


_TRIES = 30
"""Maximum number of suggestions tried for one error."""


@dataclass(frozen=True, slots=True)
class PlannedMigration:
    """A migration that fits."""

    record: Migrated
    """The record to journal, with the number and time of the run when it was planned."""
    trial: RunState
    """The run after the migration, without observers."""
    changes: Sequence[GradedChange] = ()
    """Every difference."""


def planned(
    machine: RunState,
    old: GraphDefinition,
    new: GraphDefinition,
    *,
    migration: Migration | None = None,
    accept: bool = False,
    strict: bool = False,
) -> PlannedMigration:
    """Plan the migration of a run to a new version of its graph.

    Args:
        machine: the run. It is not changed.
        old: the graph that it has; code is not needed.
        new: the new version.
        migration: the decisions of a user. None: if the run does not fit the new version, it continues by the first
            migration that the new version declares and that it fits.
        accept: whether the user accepts changes ahead of the run.
        strict: whether compatible changes, and those of declared migrations, also have to be accepted.

    Raises:
        GraphChanged: the run cannot continue without a decision, or without another migration; the message contains
            every difference with its grade, and the command that continues the run.
        InvalidMigration: the migration does not fit the run, or the new version.
    """
    comparison = Comparison(machine, old, new, migration or NO_MIGRATION)
    if migration is not None or comparison.grade == "compatible":
        if not _refused(comparison, accept=accept, strict=strict):
            return _tried(comparison)
        raise _refusal(comparison, accept=accept, strict=strict)
    tries = _Declared(comparison)
    found = tries.planned(accept=accept, strict=strict)
    if found is not None:
        return found
    if not _refused(comparison, accept=accept, strict=strict):
        return _tried(comparison)
    raise _refusal(comparison, accept=accept, strict=strict, tries=tries)


class _Declared:
    """The migrations that the new version of a graph declares, for one run."""

    def __init__(self, plain: Comparison) -> None:
        self.faults: list[str] = []
        """Why the run does not fit them, one reason a line."""
        self.acceptable: Comparison | None = None
        """The first one that fits once a user accepts its changes."""
        self._fit: list[tuple[Comparison, PlannedMigration]] = []
        machine, old, new = plain.machine, plain.old, plain.new
        for one in declared(old, new):
            try:
                found = Comparison(machine, old, new, one.migration, one.accepts)
                if found.grade == "migration":
                    needed = (one for one in found.changes if one.grade == "migration" and not one.settled)
                    self.faults.append(next(needed).text)
                    continue
                self._fit.append((found, _tried(found)))
            except InvalidMigration as error:
                self.faults.append(error.fault)

    def planned(self, *, accept: bool, strict: bool) -> PlannedMigration | None:
        """Return the first migration that the run fits; None if none fits without a decision."""
        for comparison, found in self._fit:
            if not _refused(comparison, accept=accept, strict=strict):
                return found
            self.acceptable = self.acceptable or comparison
        return None


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a run needs to migrate to a new version of its graph."""

    grade: Grade
    changes: Sequence[GradedChange]
    """Every difference."""
    remedy: Remedy | None = None
    """A way to continue, if the grade is not compatible; None if none is known."""
    undecided: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """See `GraphChanged.undecided`."""


def assess(machine: RunState, old: GraphDefinition, new: GraphDefinition) -> Assessment:
    """Assess the migration of a run.

    Args:
        machine: the run. It is not changed.
        old: the graph that it has.
        new: the new version.
    """
    comparison = Comparison(machine, old, new)
    grade = comparison.grade
    if grade == "compatible":
        try:
            _tried(comparison)
        except InvalidMigration as error:
            return Assessment("migration", (*comparison.changes, GradedChange("migration", error.fault)))
        return Assessment(grade, comparison.changes)
    tries = _Declared(comparison)
    found = tries.planned(accept=False, strict=False)
    if found is not None:
        return Assessment("compatible", found.changes)
    if tries.acceptable is not None:
        return Assessment("decision", tries.acceptable.changes, Remedy(accept=True))
    return Assessment(grade, comparison.changes, _remedy(comparison), undecided(comparison))


def _refused(comparison: Comparison, *, accept: bool, strict: bool) -> bool:
    if comparison.grade == "migration":
        return True
    return not accept and (comparison.undecided or (strict and not _is_same(comparison)))


def _is_same(comparison: Comparison) -> bool:
    """Return True if only the digests differ: earlier versions of the library left the order of joins out of them."""
    old, new = comparison.old, comparison.new
    return (old.structure, old.content) == (new.structure, new.content)


def _tried(comparison: Comparison) -> PlannedMigration:
    """Apply the migration to a copy of the run.

    Raises:
        InvalidMigration: the run would not fit the new version.
    """
    machine, new = comparison.machine, comparison.new
    record = _record(comparison)
    trial = machine.copy()
    trial.later[new.content] = Plan.of(new)
    try:
        apply(trial, record)
        for token in trial.live_tokens():
            token.frame.plan.schema.check(token.values)
    except (OrchestratorError, LookupError, TypeError, ValueError, StopIteration) as error:
        said = str(error) if isinstance(error, OrchestratorError) else f"{type(error).__name__}: {message_of(error)}"
        raise InvalidMigration(f"run {machine.run_id!r} does not fit the new version of its graph: {said}") from error
    return PlannedMigration(record, trial, comparison.changes)


def _record(comparison: Comparison) -> Migrated:
    machine, names = comparison.machine, comparison.names
    values: dict[str, object] = {}
    inside: dict[str, dict[str, object]] = {}
    for frame in machine.frames():
        given = comparison.values[frame.key].given if frame.key in comparison.values else {}
        if frame.parent is None:
            values = given
        elif given:
            inside[frame.parent.key] = given
    for frame in kept_frames(machine):
        given = comparison.values_beside(frame)
        if given and frame.parent is not None:
            inside[frame.parent.key] = given
    return Migrated(
        seq=machine.head + 1,
        ts=machine.updated,
        structure=comparison.new.structure,
        content=comparison.new.content,
        structure_before=machine.structure,
        content_before=machine.content,
        nodes=dict(names.nodes),
        fields=dict(names.fields),
        forks=dict(names.forks),
        values=values or None,
        inside=inside,
        joins=dict(comparison.migration.joins),
        withdrawn=tuple(token.key for token in machine.live_tokens() if _asks_again(comparison, token)),
        grade=highest(one.grade for one in comparison.changes),
        changes=tuple(map(str, comparison.changes)),
    )


def _asks_again(comparison: Comparison, token: Activation) -> bool:
    """Return True if a step asks again: its node changed, and it waits for an answer, or has an unused approval."""
    asking = token.phase is Phase.ASKING
    approved = [answer.seq for answer in token.answers.values() if isinstance(answer.answer, Approve)]
    if not asking and not approved:
        return False
    calls = comparison.machine.ledger.of(token.key)
    used = any(call.settled is not None and call.settled.seq > min(approved, default=0) for call in calls)
    return (asking or not used) and comparison.touched(token)


# -- refusals ---------------------------------------------------------------------------------------------------------


def _refusal(comparison: Comparison, *, accept: bool, strict: bool, tries: _Declared | None = None) -> GraphChanged:
    machine, new = comparison.machine, comparison.new
    acceptable = None if tries is None else tries.acceptable
    at = sorted({token.node for token in machine.root.live.values()}) if machine.root is not None else []
    lines = "\n".join(f"  - {one}" for one in (acceptable or comparison).changes)
    fault = (
        f"run {machine.run_id!r} is at {', '.join(at) or 'its end'}, and graph {new.name!r} changed:\n"
        f"{lines or '  - the structure is another one'}"
    )
    if tries is not None and acceptable is None:
        faults = dict.fromkeys(tries.faults)
        fault += "".join(f"\nIt does not fit a migration that the graph declares: {one}" for one in faults)
    remedy = _remedy(comparison, strict=strict) if acceptable is None else Remedy(accept=True)
    if remedy is None:
        return GraphChanged(fault, run_id=machine.run_id, undecided=undecided(comparison))
    return GraphChanged(fault, run_id=machine.run_id, options=remedy.options, call=remedy.call, guesses=remedy.guesses)


def _remedy(comparison: Comparison, *, strict: bool = False) -> Remedy | None:
    """Return a way to continue that was tried on a copy of the run; None if none of the first tries fits."""
    tries = 0
    todo: list[tuple[Comparison, tuple[str, ...]]] = [(comparison, ())]
    while todo:
        unfit, guessed = todo.pop(0)
        for remedy in remedies(unfit):
            guesses = (*guessed, *remedy.guesses)
            tries += 1
            if tries > _TRIES:
                return None
            try:
                better = Comparison(comparison.machine, comparison.old, comparison.new, remedy.migration)
                if better.grade == "migration":
                    todo.append((better, guesses))  # the content of a renamed subgraph can be compared now
                    continue
                _tried(better)
            except InvalidMigration:
                continue
            return replace(remedy, accept=better.grade == "decision" or strict, guesses=guesses)
    return None
