"""Grades the changes between the graph of a run and a new version of it, by what the run depends on.

A *compatible* change is at a place without tokens on which nothing open depends: the run continues. A *decision* is any
other change ahead of the run: a user must accept it. A *migration* is a change of a node with a token, or of a value, a
join or a fork in use: a user must specify how to migrate it.

`StateMove` determines which values of the state stay, and which are added, mapped or dropped. `Comparison` only
compares: the run, its graph and the new version stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from orchestrator.errors import InvalidInput, InvalidMigration, InvalidUpdate, SecretInState, message_of
from orchestrator.graph.checks.lost_proofs import lost_proofs
from orchestrator.graph.checks.shape import Placements
from orchestrator.graph.diff import Change, structure_changes
from orchestrator.graph.model import GraphDefinition, Node, node_data
from orchestrator.graph.reducers import replace
from orchestrator.graph.state import StateSchema
from orchestrator.graph.topology import ANY
from orchestrator.graph.versions import NO_MIGRATION, Migration, Renames, inside
from orchestrator.json import JsonObject
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameState, OpenFork, Phase
from orchestrator.kernel.version import Version
from orchestrator.values import Unfit


def field_names(migration: Migration, new: GraphDefinition) -> dict[str, str]:
    """Return old path of a field -> its new path, for fields that are renamed, or kept under a changed type."""
    if not isinstance(migration.state, Mapping):
        return {}
    sources = [source for source in migration.state.values() if isinstance(source, str)]
    found: dict[str, str] = {}
    for path, source in migration.state.items():
        if isinstance(source, str) and sources.count(source) == 1:
            place, _, name = path.rpartition("/")
            graph, old = graph_at(new, place), source.rpartition("/")[2]
            copied = graph is not None and old != name and old in graph.schema.fields
            if not copied:
                found[source if "/" in source else inside(place, source)] = path
    return found


def graph_at(graph: GraphDefinition | None, place: str) -> GraphDefinition | None:
    """Return the graph at a path; None if there is none."""
    for name in place.split("/") if place else ():
        node = graph.nodes.get(name) if graph is not None else None
        graph = None if node is None else node.subgraph
    return graph


@dataclass(slots=True)
class FrameValues:
    """The values of one running graph in the new version."""

    given: dict[str, object] = field(default_factory=dict)
    """New field -> its value as plain JSON, for fields that are added or mapped."""
    lost: set[str] = field(default_factory=set)
    """Old fields whose value would be lost, or does not fit, and that the migration does not mention."""
    reset: set[str] = field(default_factory=set)
    """Old fields of another type that have their default, and get the new default."""
    missing: set[str] = field(default_factory=set)
    """New fields that need a value and get none."""


class StateMove:
    """Determines the values of a running graph in the new version.

    Args:
        migration: the user's decisions.
        names: the renamed parts.
        frame: the running graph.
        new: the state of its graph in the new version.
        changed: its fields, by their old names, whose type changed.
    """

    def __init__(
        self, migration: Migration, names: Renames, frame: FrameState, new: StateSchema, changed: frozenset[str]
    ) -> None:
        self.migration, self.names, self.frame, self.new, self.changed = migration, names, frame, new, changed
        self.place, self.there = frame.place, names.place(frame.place)
        self.old = frame.plan.schema
        self.versions = list(live_versions(frame))

    def values(self) -> FrameValues:
        """Return the values.

        Raises:
            InvalidMigration: the migration of the state does not fit.
        """
        found = FrameValues()
        mapped = self._mapped()
        sources = {self.names.state_field(self.place, name): name for name in self.old.fields}
        for name in self.new.fields:
            source = sources.get(name)
            if name in mapped:
                found.given[name] = mapped[name]
            elif source in self.changed and self._kept(source):
                self._keep(source, name, found)
            elif source is None or self._dropped(source, name):
                self._default(name, found)
            elif source in self.changed:
                if self._is_default(source):
                    found.reset.add(source)
                    self._default(name, found)
                else:
                    found.lost.add(source)
        for name in self.old.fields:
            gone = self.names.state_field(self.place, name) not in self.new.fields
            if gone and not self._used(name) and not self._is_default(name):
                found.lost.add(name)
        return found

    def written_in_branches(self, name: str) -> bool:
        """Return True if branches that a later join merges wrote a field."""
        return any(name in (version.update or {}) for version in _history(self.versions))

    # -- one field -----------------------------------------------------------------------------------------------

    def _default(self, name: str, found: FrameValues) -> None:
        spec = self.new.field(name)
        try:
            found.given[name] = spec.codec.encode(spec.default(), validators=False)
        except Unfit:
            found.missing.add(name)

    def _keep(self, source: str, name: str, found: FrameValues) -> None:
        """Keep the value of a field whose type changed, if the new type accepts it."""
        values = [self.old.dump({source: one.values[source]})[source] for one in self.versions]
        made = [self._encoded({name: value})[name] for value in values]
        if all(one == made[0] for one in made):
            found.given[name] = made[0]

    def _dropped(self, source: str, name: str) -> bool:
        return inside(self.place, source) in self.migration.drop or inside(self.there, name) in self.migration.drop

    def _kept(self, source: str) -> bool:
        """Return True if the migration keeps a value, under this name or another one."""
        return inside(self.place, source) in self.names.fields

    def _used(self, name: str) -> bool:
        """Return True if the migration covers a removed field."""
        state = self.migration.state
        path = inside(self.place, name)
        if path in self.migration.drop:
            return True
        if isinstance(state, Mapping):
            return any(source in (name, path) for source in state.values())
        return callable(state) and not self.place

    def _is_default(self, name: str) -> bool:
        """Return True if a field has its default wherever the run is."""
        spec = self.old.field(name)
        try:
            default = spec.codec.encode(spec.default(), validators=False)
        except Unfit:
            return False
        values = [self.old.dump({name: one.values[name]})[name] for one in self.versions if name in one.values]
        return all(value == default for value in values)

    # -- mapped values -------------------------------------------------------------------------------------------

    def _mapped(self) -> dict[str, object]:
        """Return new field -> value that the migration makes of the old state."""
        state = self.migration.state
        if callable(state):
            return {} if self.place else self._same({None: state})
        if not state:
            return {}
        functions: dict[str | None, Any] = {}
        for path, source in state.items():
            place, _, name = path.rpartition("/")
            if place != self.there:
                continue
            if name not in self.new.fields:
                raise InvalidMigration(f"state: the new version has no field {path!r}; it has {self._fields()}")
            if isinstance(source, str):
                old = source.rpartition("/")[2]
                if old not in self.old.fields:
                    raise InvalidMigration(f"state: the old version has no field {source!r}, which {path!r} comes from")
                if self.names.fields.get(inside(self.place, old)) != path:  # several fields share one source
                    functions[name] = _copies(old)
            elif callable(source):
                functions[name] = source
            else:
                raise InvalidMigration(f"state: {path!r} comes from an old field or a function, not from {source!r}")
        return self._same(functions)

    def _same(self, functions: Mapping[str | None, Any]) -> dict[str, object]:
        """Return the results of functions of the old state, if they are the same wherever the run is."""
        found: dict[str, object] | None = None
        for version in self.versions if functions else ():
            values: dict[str, object] = {}
            for name, function in functions.items():
                try:
                    made = function(dict(self.old.dump(version.values)))
                except Exception as error:
                    raise InvalidMigration(
                        f"state: {_called(name)} raised {type(error).__name__}: {message_of(error)}"
                    ) from error
                if name is None and not isinstance(made, Mapping):
                    raise InvalidMigration(f"state: the function returned a {type(made).__name__}, not a mapping")
                values |= made if name is None else {name: made}
            encoded = dict(self._encoded(values))
            if found is not None and found != encoded:
                differ = ", ".join(repr(name) for name in encoded if found.get(name) != encoded[name])
                raise InvalidMigration(
                    f"state: {differ} would have different values in branches that are under way; rename the field "
                    "instead of computing it, or migrate when the branches have been joined"
                )
            found = encoded
        return found or {}

    def _encoded(self, values: Mapping[str, object]) -> JsonObject:
        try:
            return self.new.encode_update({name: replace(value) for name, value in values.items()})[0]
        except (InvalidUpdate, InvalidInput, SecretInState) as error:
            raise InvalidMigration(f"state: {error}") from None

    def _fields(self) -> str:
        return ", ".join(self.new.fields)


def live_versions(frame: FrameState) -> Iterator[Version]:
    """Yield the states from which a graph can still continue, each once; for a failed graph, where it was frozen."""
    seen: set[int] = set()
    tokens = list(frame.live.values())
    found = [token.version for token in tokens] + list(frame.ended_versions)
    if frame.result is not None and frame.frozen is not None:
        tokens = list(frame.frozen.live.values())
        found = [token.version for token in tokens] + frame.frozen.ended_versions
    found += [one for token in tokens for fork in token.forks for one in (fork.version, fork.trunk)]
    for version in found or [frame.root]:
        if id(version) not in seen:
            seen.add(id(version))
            yield version


def _history(versions: list[Version]) -> Iterator[Version]:
    """Yield versions, and all that are among their causes."""
    seen: set[int] = set()
    stack = list(versions)
    while stack:
        version = stack.pop()
        if id(version) not in seen:
            seen.add(id(version))
            yield version
            stack.extend(version.parents)


def _copies(name: str) -> Any:
    return lambda values: values[name]


def _called(name: str | None) -> str:
    return "the function" if name is None else f"the function of {name!r}"


Grade: TypeAlias = Literal["compatible", "decision", "migration"]
GRADES: Sequence[Grade] = ("compatible", "decision", "migration")


def highest(grades: Iterable[Grade]) -> Grade:
    """Return the most demanding grade."""
    found: Grade = "compatible"
    for grade in grades:
        if GRADES.index(grade) > GRADES.index(found):
            found = grade
    return found


@dataclass(frozen=True, slots=True)
class GradedChange:
    """A difference, with its effect on the run."""

    grade: Grade
    text: str
    settled: bool = False
    """True if the migration covers it."""
    change: Change | None = None
    fork: str = ""
    """The open fork whose join it is."""
    proof: bool = False
    """True if a proof is lost."""

    def __str__(self) -> str:
        return f"{self.grade}{' (given)' if self.settled else ''}: {self.text}"


class Compared:
    """A run compared with a new version of its graph.

    Attributes:
        new: The new version.
        migration: The user's decisions.
        names: The renamed parts.
        frames: Path of a graph -> the running ones.
    """

    new: GraphDefinition
    migration: Migration
    names: Renames
    frames: dict[str, list[FrameState]]


def _forks(run: Compared) -> Iterator[tuple[str, OpenFork, FrameState]]:
    """Yield each open fork once, with the path of its graph and one of the running graphs in which it is open."""
    seen: set[tuple[str, str]] = set()
    for place, frames in run.frames.items():
        for frame in frames:
            for fork in (one for token in frame.live.values() for one in token.forks):
                if (place, fork.fork) not in seen:
                    seen.add((place, fork.fork))
                    yield place, fork, frame


def changed_joins(run: Compared) -> Iterator[GradedChange]:
    """Yield the joins of open forks that changed.

    Raises:
        InvalidMigration: the migration names a join that the fork does not have in the new version.
    """
    for place, fork, frame in _forks(run):
        graph = graph_at(run.new, run.names.place(place))
        if graph is None:
            continue
        before, after = frame.plan.topology, graph.topology
        joins = after.joins_of(run.names.vertex(place, fork.fork, before, after))
        where = f"the fork at {_node_of(fork.fork)!r}, whose branches are under way"
        kept: set[str] = set()
        for name in before.joins_of(fork.fork):
            now, path = run.names.node(place, name), inside(place, name)
            same = now in joins and after.nodes[now][1:] == before.nodes[name][1:]
            if same and after.closes[now] == before.closes[name]:
                kept.add(now)
                continue
            said, target = path in run.migration.joins, run.migration.joins.get(path)
            if target is not None and target.rpartition("/")[2] not in joins:
                raise InvalidMigration(
                    f"joins: {target!r} is not a join of the fork at {_node_of(fork.fork)!r} in the new version; "
                    f"its joins are {', '.join(joins) or 'none'}"
                )
            kept |= {target.rpartition("/")[2]} if target is not None else set()
            text = f"join {name!r} of {where}, {'is another one' if now in joins else 'is gone'}"
            yield GradedChange("migration", text, said, Change("join", place, name, text), fork.fork)
        for now in joins:
            if now not in kept:
                text, said = f"node {now!r} is a new join of {where}", inside(place, now) in run.migration.joins
                yield GradedChange("migration", text, said, Change("join", place, now, text), fork.fork)


def misplaced(run: Compared) -> Iterator[GradedChange]:
    """Yield tokens at places where the new version does not allow them."""
    for place, frames in run.frames.items():
        graph = graph_at(run.new, run.names.place(place))
        if graph is None:
            continue
        allowed, known = Placements(graph.topology), None
        reported: set[tuple[str, tuple[str, ...], bool]] = set()
        for frame in frames:
            old = frame.plan.topology
            known = known or Placements(old)
            for token in frame.live.values():
                forks, node = tuple(fork.fork for fork in token.forks), run.names.node(place, token.node)
                if node not in graph.nodes or (token.node, forks, token.merged) in reported:
                    continue
                reported.add((token.node, forks, token.merged))
                moved = tuple(run.names.vertex(place, fork, old, graph.topology) for fork in forks)
                if not _allows(allowed, node, moved, token) and _allows(known, token.node, forks, token):
                    change = Change("node_gone", place, token.node, "")
                    yield GradedChange("migration", _words(node, moved), change=change)


def _allows(placements: Placements, node: str, forks: tuple[str, ...], token: Activation) -> bool:
    return placements.allow(node, forks) or (token.merged and placements.allow(node, forks, fired=True))


def _words(node: str, forks: tuple[str, ...]) -> str:
    around = " and ".join(repr(_node_of(fork)) for fork in forks)
    where = f"inside the fork at {around}" if forks else "outside of all forks"
    return f"the run is at {node!r} {where}, where the new version never is"


def _node_of(vertex: str) -> str:
    """Return the name of a fork's node: a map next to other edges has its own name."""
    return vertex.partition("*")[0]


class Comparison(Compared):
    """A run, its graph, and a new version of the graph.

    Args:
        machine: the run.
        old: its graph; code is not needed.
        new: the new version.
        migration: the decisions of a user, or those that the new version declares.
        accepts: old paths of the graphs whose changes ahead of the run are accepted, with those inside them; None: that
            of the whole graph, if the migration accepts changes.

    Attributes:
        names: The renamed parts.
        changes: Every difference with its grade, the most demanding first.
        values: Key of a running graph -> its values in the new version.

    Raises:
        InvalidMigration: the migration names missing parts, or its values do not fit.
    """

    def __init__(
        self,
        machine: RunState,
        old: GraphDefinition,
        new: GraphDefinition,
        migration: Migration = NO_MIGRATION,
        accepts: frozenset[str] | None = None,
    ) -> None:
        self.machine, self.old, self.new, self.migration = machine, old, new, migration
        self._accepts = frozenset([""] if migration.accept else []) if accepts is None else accepts
        self.names = Renames(dict(migration.nodes), field_names(migration, new), dict(migration.forks))
        frames: dict[str, list[FrameState]] = {}
        for frame in machine.frames():
            frames.setdefault(frame.place, []).append(frame)
        self.frames = frames
        self.at = {
            place: {token.node for frame in frames for token in frame.live.values()}
            for place, frames in self.frames.items()
        }
        self.ahead = dict(_regions(self, old, "", entered=False))
        self._check_names()
        found = list(structure_changes(old, new, self.names))
        self.values = self._values(found)
        self.changes = sorted(self._graded(found), key=lambda one: -GRADES.index(one.grade))

    @property
    def grade(self) -> Grade:
        """Return the highest grade of a change that the migration does not settle."""
        return highest(one.grade for one in self.changes if not one.settled)

    @property
    def undecided(self) -> bool:
        """Return True if a user has to accept changes ahead of the run that the migration does not accept."""
        return any(
            one.grade == "decision"
            and not one.settled
            and (one.proof or one.change is None or not self._accepted(one.change.place))
            for one in self.changes
        )

    def _accepted(self, place: str) -> bool:
        """Return True if the migration accepts changes in a graph."""
        return any(not one or place == one or place.startswith(f"{one}/") for one in self._accepts)

    def touched(self, token: Activation) -> bool:
        """Return True if the node of a token changed, or has another path."""
        place, node = token.frame.place, token.node
        if self._accepted(place) and self._is_same(place, node):
            return False
        if self.names.place(place) != place or self.names.node(place, node) != node:
            return True
        return any(
            one.change is not None
            and (one.change.place, one.change.name) == (place, node)
            and one.change.kind in ("outcomes", "join", "edges", "order", "graph_inside", "node_gone")
            for one in self.changes
        )

    def _is_same(self, place: str, name: str) -> bool:
        """Return True if a node differs at most in its content, and its approval leads to the same nodes."""
        old, new = graph_at(self.old, place), graph_at(self.new, self.names.place(place))
        if old is None or new is None or self.names.node(place, name) != name or name not in new.nodes:
            return False
        if _kind(old.nodes[name]) != _kind(new.nodes[name]) or old.nodes[name].outcomes != new.nodes[name].outcomes:
            return False
        approves = new.nodes[name].approves
        return approves is None or _led_to(old, name, approves.outcome) == _led_to(new, name, approves.outcome)

    # -- names ---------------------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        """Refuse a migration that names missing parts."""
        named = [("nodes", self.migration.nodes), ("forks", self.migration.forks)]
        for what, path, target in ((what, *pair) for what, names in named for pair in names.items()):
            place, _, name = path.rpartition("/")
            before, after = graph_at(self.old, place), graph_at(self.new, self.names.place(place))
            if before is None or name not in before.nodes:
                raise InvalidMigration(f"{what}: the run's graph has no node {path!r}; {_has(before)}")
            if after is None or target.rpartition("/")[2] not in after.nodes:
                raise InvalidMigration(f"{what}: the new version has no node {target!r}; {_has(after)}")
            if "/" in target and target.rpartition("/")[0] != self.names.place(place):
                raise InvalidMigration(f"{what}: {path!r} cannot become {target!r}, which is in another graph")
        for path in self.migration.joins:
            place, _, name = path.rpartition("/")
            graphs = (graph_at(self.old, place), graph_at(self.new, self.names.place(place)))
            if all(graph is None or name not in graph.nodes for graph in graphs):
                raise InvalidMigration(f"joins: there is no node {path!r}")
        for path in {*self.names.fields, *self.migration.drop}:
            place, _, name = path.rpartition("/")
            graphs = (graph_at(self.old, place), graph_at(self.new, place))
            if all(graph is None or name not in graph.schema.fields for graph in graphs):
                raise InvalidMigration(f"state: there is no field {path!r}")

    # -- values --------------------------------------------------------------------------------------------------

    def _values(self, changes: Sequence[Change]) -> dict[str, FrameValues]:
        found: dict[str, FrameValues] = {}
        for place, frames in self.frames.items():
            graph = graph_at(self.new, self.names.place(place))
            if graph is None:
                continue
            typed = frozenset(one.name for one in changes if one.kind == "field_type" and one.place == place)
            for frame in frames:
                move = StateMove(self.migration, self.names, frame, graph.schema, typed)
                values = found[frame.key] = move.values()
                for one in changes:
                    if one.kind == "field_reducer" and one.place == place and move.written_in_branches(one.name):
                        values.lost.add(one.name)
        return found

    def values_beside(self, frame: FrameState) -> dict[str, object]:
        """Return the new version's values of a graph that a step keeps although it failed; none if some are missing."""
        graph = graph_at(self.new, self.names.place(frame.place))
        if graph is None:
            return {}
        changes = structure_changes(self.old, self.new, self.names)
        typed = frozenset(one.name for one in changes if one.kind == "field_type" and one.place == frame.place)
        found = StateMove(self.migration, self.names, frame, graph.schema, typed).values()
        return {} if found.lost or found.missing else found.given

    def _of_place(self, place: str) -> list[FrameValues]:
        return [self.values[frame.key] for frame in self.frames.get(place, ()) if frame.key in self.values]

    # -- grades --------------------------------------------------------------------------------------------------

    def _graded(self, changes: Sequence[Change]) -> Iterator[GradedChange]:
        if self.machine.result is None:
            yield from self._given()
            yield from misplaced(self)
            joins = list(changed_joins(self))
            yield from joins
            yield from (GradedChange("decision", text, proof=True) for text in self._proofs())
        else:
            joins = []
        known = {(one.change.place, one.change.name) for one in joins if one.change is not None}
        for change in changes:
            if not (change.kind == "join" and (change.place, change.name) in known):
                yield self._graded_change(change)

    def _given(self) -> Iterator[GradedChange]:
        """Yield the renames of the migration, graded by the position of the run."""
        for path, target in self.migration.nodes.items():
            place, _, name = path.rpartition("/")
            if name in self.at.get(place, ()):
                text = f"node {path!r}, which the run is at, becomes {target!r}"
                yield GradedChange("migration", text, settled=True)
        for path, target in self.names.fields.items():
            if path != target:
                yield GradedChange("migration", f"state field {path!r} becomes {target!r}", settled=True)

    def _proofs(self) -> Iterator[str]:
        yield from lost_proofs(self.old, self.new, self.names, self.at)

    def _graded_change(self, change: Change) -> GradedChange:
        here = change.name in self.at.get(change.place, ())
        ahead = change.name in self.ahead.get(change.place, ())
        both = ahead and not self.ahead.get(change.place, set()).isdisjoint(change.others)
        grade: Grade = "compatible"
        settled, text = False, change.text
        if self.machine.result is not None and not change.kind.startswith("field"):
            return GradedChange("compatible", text, change=change)
        match change.kind:
            case "node_gone" if here:
                grade, text = "migration", f"{text}, and the run is at it"
            case "graph_inside" if self._is_inside(change):
                grade, text = "migration", f"{text}, and the run is inside it"
            case "outcomes" | "graph_inside" | "join" | "order" | "pool" if ahead:
                grade = "decision"
            case "join_order" if both:
                grade = "decision"
            case "edges" if here or (change.name == ANY and self.at.get(change.place)):
                grade = "decision"
            case "field_reducer" if any(change.name in one.lost for one in self._of_place(change.place)):
                grade, text = "migration", f"{text}, and branches that are under way wrote it"
            case "field_reducer":
                grade = "decision"
            case "field_gone" | "field_type":
                grade, settled, text = self._graded_field(change)
            case "field_new" if self._needs_value(change):
                settled = all(change.name not in one.missing for one in self._of_place(change.place))
                grade, text = "migration", f"{text}, and has no default"
            case _:
                pass
        return GradedChange(grade, text, settled, change)

    def _graded_field(self, change: Change) -> tuple[Grade, bool, str]:
        values = self._of_place(change.place)
        if any(change.name in one.lost for one in values):
            return "migration", False, f"{change.text}, and has a value"
        if any(change.name in one.reset for one in values):
            return "decision", False, f"{change.text}; it has its default, and begins with the new one"
        said = change.path in self.migration.drop or change.path in self.names.fields
        return "migration" if said else "compatible", said, change.text

    def _needs_value(self, change: Change) -> bool:
        """Return True if a new field has no default, and the run is in its graph."""
        graph = graph_at(self.new, self.names.place(change.place))
        return graph is not None and graph.schema.field(change.name).required and change.place in self.frames

    def _is_inside(self, change: Change) -> bool:
        tokens = (token for frame in self.frames.get(change.place, ()) for token in frame.live.values())
        return any(
            token.node == change.name and (token.phase is Phase.INSIDE or token.child is not None) for token in tokens
        )


def _led_to(graph: GraphDefinition, name: str, outcome: str) -> list[tuple[str, object]]:
    """Return the nodes to which an outcome leads, with their kinds."""
    targets = [edge.target for edge in graph.edges if edge.source == name and edge.outcome in (None, outcome)]
    return [(one, _kind(graph.nodes[one]) if one in graph.nodes else None) for one in targets]


def _kind(node: Node) -> object:
    """Return the kind of a node, also if its code is not known; for a function, its name."""
    data = node_data(node)
    return data.get("kind"), data.get("ref")


def _has(graph: GraphDefinition | None) -> str:
    return f"it has {', '.join(graph.nodes)}" if graph is not None else "there is no such graph"


def _regions(
    comparison: Comparison, graph: GraphDefinition, place: str, *, entered: bool
) -> Iterator[tuple[str, set[str]]]:
    """Yield the path of each graph with the nodes that the run is at, or may still reach.

    Args:
        comparison: the run.
        graph: the graph, in the run's version.
        place: its path.
        entered: whether it may start again.
    """
    topology = graph.topology
    at = comparison.at.get(place, set())
    found = set(graph.nodes) if entered else topology.reachable(at)
    again = set(graph.nodes) if entered else topology.reachable(t for node in at for t in topology.successors[node])
    if topology.exhausted_target is not None and at:
        found |= topology.reachable([topology.exhausted_target])
        again |= topology.reachable([topology.exhausted_target])
    yield place, found
    frames: Mapping[str, Sequence[FrameState]] = comparison.frames
    queued = {
        token.node
        for frame in frames.get(place, ())
        for token in frame.live.values()
        if token.phase is not Phase.INSIDE
    }
    for name, node in graph.nodes.items():
        if node.subgraph is not None:
            yield from _regions(comparison, node.subgraph, inside(place, name), entered=name in again | queued)
