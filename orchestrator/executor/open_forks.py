"""What a new version of a graph changes for forks that are open in a run: their joins, and where their tokens are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.errors import InvalidMigration
from orchestrator.executor.migrated_state import graph_at
from orchestrator.graph.checks.shape import Placements
from orchestrator.graph.diff import Change
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.versions import Migration, Renames, inside
from orchestrator.kernel.state import Activation, FrameState, OpenFork

Grade: TypeAlias = Literal["compatible", "decision", "migration"]
GRADES: Sequence[Grade] = ("compatible", "decision", "migration")


def highest(grades: Iterable[Grade]) -> Grade:
    """The grade that needs most."""
    found: Grade = "compatible"
    for grade in grades:
        if GRADES.index(grade) > GRADES.index(found):
            found = grade
    return found


@dataclass(frozen=True, slots=True)
class GradedChange:
    """One difference, as far as the run is concerned."""

    grade: Grade
    text: str
    settled: bool = False
    """Whether the migration says what becomes of it."""
    change: Change | None = None
    fork: str = ""
    """The open fork whose join it is."""
    proof: bool = False
    """Whether it is a proof that is lost."""

    def __str__(self) -> str:
        return f"{self.grade}{' (given)' if self.settled else ''}: {self.text}"


class Compared:
    """A run that is compared with a new version of its graph.

    Attributes:
        new: The new version.
        migration: What a user decided.
        names: What is renamed.
        frames: Path of a graph -> the running ones.
    """

    new: GraphDefinition
    migration: Migration
    names: Renames
    frames: dict[str, list[FrameState]]


def _forks(run: Compared) -> Iterator[tuple[str, OpenFork, FrameState]]:
    """Each open fork once, with the path of its graph and one of the running graphs that it is open in."""
    seen: set[tuple[str, str]] = set()
    for place, frames in run.frames.items():
        for frame in frames:
            for fork in (one for token in frame.live.values() for one in token.forks):
                if (place, fork.fork) not in seen:
                    seen.add((place, fork.fork))
                    yield place, fork, frame


def changed_joins(run: Compared) -> Iterator[GradedChange]:
    """The joins of open forks that changed.

    Raises:
        InvalidMigration: it names a join that the fork does not have in the new version.
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
                    f"joins: {target!r} is no join of the fork at {_node_of(fork.fork)!r} in the new version; "
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
    """Tokens that the new version does not allow where they are."""
    for place, frames in run.frames.items():
        graph = graph_at(run.new, run.names.place(place))
        if graph is None:
            continue
        allowed, known = Placements(graph.topology), None
        told: set[tuple[str, tuple[str, ...], bool]] = set()
        for frame in frames:
            old = frame.plan.topology
            known = known or Placements(old)
            for token in frame.live.values():
                forks, node = tuple(fork.fork for fork in token.forks), run.names.node(place, token.node)
                if node not in graph.nodes or (token.node, forks, token.merged) in told:
                    continue
                told.add((token.node, forks, token.merged))
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
    """The node of a fork: a map beside other edges has a name of its own."""
    return vertex.partition("*")[0]
