"""Names of places and fields in one version of a run's graph, where the run moved between versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from orchestrator.graph.versions import Renames, inside
from orchestrator.kernel.records import Migrated, Record, RunStarted

T = TypeVar("T")


class VersionNames:
    """The names of a run in one of its versions: the last one with this structure, else the one that it has now.

    Args:
        records: the records of the run.
        structure: digest of the structure of that version.
    """

    def __init__(self, records: Sequence[Record], structure: str) -> None:
        moves = [record for record in records if isinstance(record, Migrated)]
        first = records[0] if records else None
        versions = [first.structure if isinstance(first, RunStarted) else "", *(move.structure for move in moves)]
        there = [number for number, version in enumerate(versions) if version == structure]
        self._seqs = [move.seq for move in moves]
        self._to = there[-1] if there else len(moves)
        self._added: list[Mapping[str, object]] = [move.values or {} for move in moves[: self._to]]
        forward = [Renames(move.nodes, move.fields) for move in moves]
        self._forward = forward[: self._to]
        self._back = [_inverse(names) for names in forward[self._to :]]

    def place(self, seq: int, path: str, node: str) -> tuple[str, str]:
        """A path and a node in a record, as the version names them."""
        for names in self._names_from(seq):
            path, node = _renamed(names, path, node)
        return path, node

    def fields(self, seq: int, place: str, values: Mapping[str, T]) -> dict[str, T]:
        """Values of state fields, by the names that the version has for the fields.

        Args:
            place: the path of the graph that the state is of.
        """
        found = dict(values)
        for names in self._names_from(seq):
            found = {names.state_field(place, name): value for name, value in found.items()}
            place = names.place(place)
        return found

    def start(self, values: Mapping[str, object]) -> dict[str, object]:
        """The values that the run began with, and those that migrations added until the version."""
        found = dict(values)
        for names, added in zip(self._forward, self._added, strict=True):
            kept = {names.state_field("", name): value for name, value in found.items()}
            found = {**added, **kept}
        return found

    def _names_from(self, seq: int) -> Sequence[Renames]:
        """Renames to apply, version by version, from the version of a record."""
        at = sum(move < seq for move in self._seqs)
        if at <= self._to:
            return self._forward[at:]
        return self._back[: at - self._to][::-1]


def _inverse(names: Renames) -> Renames:
    """The way back."""
    nodes = {names.path(old): old for old in names.nodes}
    fields = {}
    for old in names.fields:
        place, _, name = old.rpartition("/")
        fields[inside(names.place(place), names.state_field(place, name))] = old
    return Renames(nodes, fields)


def _renamed(names: Renames, path: str, node: str) -> tuple[str, str]:
    """The path of a branch, and a node in it. A part of the path is a branch, `plan.2`, or the node of a subgraph."""
    place, parts = "", []
    for part in path.split("/") if path else ():
        fork, dot, number = part.rpartition(".")
        if dot:
            parts.append(f"{_fork(names, place, fork)}.{number}")
        else:
            parts.append(names.node(place, part))
            place = inside(place, part)
    return "/".join(parts), names.node(place, node)


def _fork(names: Renames, place: str, fork: str) -> str:
    """The name of a fork: a node, or a map next to other edges, `plan*search:queries`."""
    source, star, rest = fork.partition("*")
    target, colon, field = rest.partition(":")
    if not star or not colon:
        return names.node(place, fork)
    return f"{names.node(place, source)}*{names.node(place, target)}:{names.state_field(place, field)}"
