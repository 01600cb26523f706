"""A run as one drawing and its changes, moment by moment, for pages that replay it or show it live.

    replayed = replay(run.definition, run.records())
    svg = to_svg(run.definition, replayed.last)    # laid out once, with all plans of the run
    replayed.moments                               # for each record that changed the picture: id -> new Mark

A `Mark` is all that a run adds to a part (see `overlaid`), so a moment is shown by applying, for each id, the latest
mark up to it: its classes in addition to the part's own, and its texts in the elements with that `data-slot`. Moments
are deltas: the cost depends on the changes only. To go back, apply `replayed.at(seq)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.versions import Renames
from orchestrator.kernel.migration import moved_edges, plan_at
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Migrated, Record
from orchestrator.render.build import draw
from orchestrator.render.drawing import Drawing, NodeMark
from orchestrator.render.overlaid import Mark, edge_mark, node_mark, plan_marks, status_mark
from orchestrator.views.overlay import Overlay
from orchestrator.views.reader import Fold, Reader
from orchestrator.views.trace import OverlayChange, Trace

RUN = "run-status"
"""The id of the part that shows the run's status."""
_NOTHING = Mark()
_VISITED = Mark(("visited",))


@dataclass(frozen=True, slots=True)
class Moment:
    """The change of the picture by one record."""

    seq: int
    ts: float
    changes: Mapping[str, Mark]
    """Id -> the new mark of the part."""

    def to_json(self) -> list[object]:
        """Return `[seq, {id: [classes, {slot: text}]}]`, without empty dicts of texts."""
        return [self.seq, {part: mark_json(mark) for part, mark in self.changes.items()}]


@dataclass(frozen=True, slots=True)
class Replay:
    """A run's picture at every moment."""

    drawing: Drawing
    """The graph's drawing, without a run."""
    moments: tuple[Moment, ...]
    last: Overlay
    """The end: a picture of it has every part that a moment names."""
    start: Mapping[str, Mark] = field(default_factory=lambda: MappingProxyType({}))
    """Marks of parts before the first record; missing ones are empty."""

    def at(self, seq: int) -> dict[str, Mark]:
        """Id -> mark after record `seq`, of all parts marked so far."""
        found = dict(self.start)
        for moment in self.moments:
            if moment.seq > seq:
                break
            found.update(moment.changes)
        return found


def replay(graph: GraphDefinition, records: Iterable[Record], *folds: Fold, plan: Plan | None = None) -> Replay:
    """Replay a run as the changes of its picture by each record.

    Args:
        graph: The run's graph (`run.definition`); its code is not needed.
        records: The run's journal from its first record (`run.records()`).
        folds: Further views to fold from the same records.
        plan: The plan to fold the records with (`run.plan`); None: the plan of the graph.
    """
    journal = list(records)
    live = Live(graph, *folds, plan=plan)
    live.expect([record for record in journal if isinstance(record, Migrated)])
    moments = [moment for moment in map(live.apply, journal) if moment.changes]
    for fold in folds:
        fold.finish()
    return Replay(live.drawing, tuple(moments), live.trace.overlay())


class Live:
    """Changes of a run's picture, for records that arrive one by one.

    Attributes:
        drawing: The graph's drawing.
        trace: The run so far; `trace.overlay()` can be drawn.
    """

    def __init__(self, graph: GraphDefinition, *folds: Fold, plan: Plan | None = None) -> None:
        self.drawing, self.trace = draw(graph), Trace()
        self._reader = Reader(Plan.of(graph) if plan is None else plan, self.trace, *folds)
        self._nodes: dict[tuple[str, str], NodeMark] = {}
        self._ends: dict[tuple[str, int], tuple[str, ...]] = {}
        self._edges: dict[tuple[str, int], str] = {}
        self._marks: dict[str, Mark] = {}
        self._moves: list[tuple[Renames, Plan, Plan]] = []
        """Migrations to come, with the plans before and after."""
        self._fill(graph)

    @property
    def marks(self) -> Mapping[str, Mark]:
        """Id -> mark after the last record, of all parts marked so far."""
        return self._marks

    def expect(self, moves: Iterable[Migrated]) -> None:
        """Show records before migrations at the parts of the last version, which is drawn."""
        plan = self._reader.run.first
        for record in moves:
            after = self._reader.run.later.get(record.content)
            if after is not None:
                self._moves.append((Renames(record.nodes, record.fields, record.forks), plan, after))
                plan = after

    def _node(self, key: tuple[str, str]) -> tuple[str, str]:
        """Return the key that a node of the run's current version has in the last version."""
        for names, _, _ in self._moves:
            key = names.place(key[0]), names.node(*key)
        return key

    def _edge(self, key: tuple[str, int]) -> tuple[str, int] | None:
        """Return an edge's key in the run's last version, given its key in the current one; None if it is gone."""
        for names, before, after in self._moves:
            there = names.place(key[0])
            edges = moved_edges(names, key[0], plan_at(before, key[0]), plan_at(after, there))
            if key[1] not in edges:
                return None
            key = there, edges[key[1]]
        return key

    def _fill(self, graph: GraphDefinition) -> None:
        drawing = self.drawing
        for mark in drawing.by_key.values():
            if not mark.terminal:
                self._nodes[mark.path, mark.name] = mark
        for edge in drawing.edges:
            self._edges[edge.path, edge.index] = edge.id
            ends = (drawing.by_key[edge.source], drawing.by_key[edge.target])
            self._ends[edge.path, edge.index] = tuple(mark.id for mark in ends if mark.terminal)

    def apply(self, record: Record) -> Moment:
        """Fold a record in and return its changes.

        Raises:
            StoreCorrupt: the record does not follow the ones before it; nothing was changed.
        """
        self._reader.read(record)
        if isinstance(record, Migrated) and self._moves:
            self._moves.pop(0)
        found = self._marks_of(self.trace.changed)
        changes = {part: mark for part, mark in found.items() if self._marks.get(part, _NOTHING) != mark}
        self._marks.update(changes)
        return Moment(record.seq, record.ts, changes)

    def _marks_of(self, changed: OverlayChange) -> dict[str, Mark]:
        trace, run = self.trace, self.trace.live
        found: dict[str, Mark] = {RUN: status_mark(run)}
        for place in changed.places:
            if (part := self._nodes.get(self._node(place))) is not None:
                found[part.id] = node_mark(run, *place, part.asks)
        for way in changed.edges:
            if (edge := self._edge(way)) in self._edges:
                mark = found[self._edges[edge]] = edge_mark(run, *way)
                if mark.classes:
                    found.update(dict.fromkeys(self._ends[edge], _VISITED))
        for number in changed.plans:
            found.update(plan_marks(number + 1, trace.planned(number)))
        return found


def mark_json(mark: Mark) -> list[object]:
    """Return `[classes, {slot: text}]`, without an empty dict of texts."""
    classes = " ".join(mark.classes)
    return [classes, dict(mark.texts)] if mark.texts else [classes]
