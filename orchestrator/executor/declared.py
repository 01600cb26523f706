"""The migrations that a graph declares for runs of its earlier versions: its own, and those of the graphs inside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from orchestrator.executor.migrated_state import graph_at
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.versions import Migration, Renames, StateFunction, StateMapping, inside

_MOST = 30
"""Combinations of migrations that are tried for one run."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A migration of a whole graph, from those that it and the graphs inside it declare."""

    migration: Migration
    accepts: frozenset[str] = frozenset()
    """Old paths of the graphs whose changes ahead of the run are accepted."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A migration that one of the graphs declares, and where that graph is."""

    migration: Migration
    old: str
    new: str


def declared(old: GraphDefinition, new: GraphDefinition) -> Iterator[Declared]:
    """The migrations from one version of a graph to another that the new version declares.

    Args:
        old: the version before.
        new: the version after.
    """
    for parts in islice(_choices(old, new, "", ""), _MOST):
        if parts and (merged := _merged(parts)) is not None:
            yield merged


def _choices(old: GraphDefinition, new: GraphDefinition, old_place: str, new_place: str) -> Iterator[tuple[_Part, ...]]:
    """The ways to choose a migration for a graph and for each graph inside it; none for those that did not change."""
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
    """Whether both versions have the nodes that it names. A function of the whole state is about the whole graph."""
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
    """The migration of the whole graph; None if what they say of the state cannot be said in one."""
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
    """What a migration says of fields, with their paths in the whole graph."""
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
