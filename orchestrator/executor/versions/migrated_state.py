"""The state of a run in another version of its graph: which values stay, which are added, mapped or given up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import InvalidInput, InvalidMigration, InvalidUpdate, SecretInState, message_of
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.reducers import replace
from orchestrator.graph.state import StateSchema
from orchestrator.graph.versions import Migration, Renames, inside
from orchestrator.json import JsonObject
from orchestrator.kernel.state import FrameState
from orchestrator.kernel.version import Version
from orchestrator.values import Unfit


def field_names(migration: Migration, new: GraphDefinition) -> dict[str, str]:
    """Old path of a field -> its new path, of fields that are renamed, or kept under a changed type."""
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
    """The graph at a path; None if there is none."""
    for name in place.split("/") if place else ():
        node = graph.nodes.get(name) if graph is not None else None
        graph = None if node is None else node.subgraph
    return graph


@dataclass(slots=True)
class FrameValues:
    """The values of one running graph in the new version."""

    given: dict[str, object] = field(default_factory=dict)
    """New field -> its value, of fields that are added or mapped, as plain JSON."""
    lost: set[str] = field(default_factory=set)
    """Old fields whose value would be lost, or does not fit, and of which the migration says nothing."""
    reset: set[str] = field(default_factory=set)
    """Old fields of another type that hold their default, and begin with the new one."""
    missing: set[str] = field(default_factory=set)
    """New fields that need a value and get none."""


class StateMove:
    """Finds the values of a running graph in the new version.

    Args:
        migration: what the user decided.
        names: what is renamed.
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
        """The values.

        Raises:
            InvalidMigration: what the migration says of the state does not fit.
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
        """True if branches that a later join merges wrote a field."""
        return any(name in (version.update or {}) for version in _history(self.versions))

    # -- one field -----------------------------------------------------------------------------------------------

    def _default(self, name: str, found: FrameValues) -> None:
        spec = self.new.field(name)
        try:
            found.given[name] = spec.codec.encode(spec.default(), validators=False)
        except Unfit:
            found.missing.add(name)

    def _keep(self, source: str, name: str, found: FrameValues) -> None:
        """Keep the value of a field whose type changed, where the new type accepts it."""
        values = [self.old.dump({source: one.values[source]})[source] for one in self.versions]
        made = [self._encoded({name: value})[name] for value in values]
        if all(one == made[0] for one in made):
            found.given[name] = made[0]

    def _dropped(self, source: str, name: str) -> bool:
        return inside(self.place, source) in self.migration.drop or inside(self.there, name) in self.migration.drop

    def _kept(self, source: str) -> bool:
        """True if the migration keeps a value, under this name or another one."""
        return inside(self.place, source) in self.names.fields

    def _used(self, name: str) -> bool:
        """True if the migration covers a field that is gone."""
        state = self.migration.state
        path = inside(self.place, name)
        if path in self.migration.drop:
            return True
        if isinstance(state, Mapping):
            return any(source in (name, path) for source in state.values())
        return callable(state) and not self.place

    def _is_default(self, name: str) -> bool:
        """True if a field holds its default wherever the run is."""
        spec = self.old.field(name)
        try:
            default = spec.codec.encode(spec.default(), validators=False)
        except Unfit:
            return False
        values = [self.old.dump({name: one.values[name]})[name] for one in self.versions if name in one.values]
        return all(value == default for value in values)

    # -- mapped values -------------------------------------------------------------------------------------------

    def _mapped(self) -> dict[str, object]:
        """New field -> what the migration makes of the old state."""
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
                if self.names.fields.get(inside(self.place, old)) != path:  # one source of several fields
                    functions[name] = _copies(old)
            elif callable(source):
                functions[name] = source
            else:
                raise InvalidMigration(f"state: {path!r} comes from an old field or a function, not from {source!r}")
        return self._same(functions)

    def _same(self, functions: Mapping[str | None, Any]) -> dict[str, object]:
        """The results of functions of the old state, if it is the same wherever the run is."""
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
    """The states that a graph can still go on from, each once: of one that failed, where it was frozen."""
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
    """Versions, and all that are among their causes."""
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
