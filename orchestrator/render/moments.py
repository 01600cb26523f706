"""A run as one drawing and what changes in it, moment by moment: what a page needs to replay it, or to show it live.

    replayed = replay(run.definition, run.records())
    svg = to_svg(run.definition, replayed.last)    # laid out once, with all that the run will ever plan
    replayed.moments                               # for each record that changed the picture: id -> new Mark

A `Mark` is all that a run adds to a part (see `overlaid`), so a moment is shown by putting, for each id, the latest
mark up to it: the part's own classes and the mark's, and its texts into the elements with that `data-slot`. Moments
are deltas: a long run costs what its records changed. To go back, put `replayed.at(seq)`.
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
    """Id -> the part's whole new mark."""

    def to_json(self) -> list[object]:
        """`[seq, {id: [classes, {slot: text}]}]`; texts are left out where there are none."""
        return [self.seq, {part: mark_json(mark) for part, mark in self.changes.items()}]


@dataclass(frozen=True, slots=True)
class Replay:
    """A run's picture at every moment."""

    drawing: Drawing
    """The graph's, with no run laid over it."""
    moments: tuple[Moment, ...]
    last: Overlay
    """The end: a picture of it has every part that a moment names."""
    start: Mapping[str, Mark] = field(default_factory=lambda: MappingProxyType({}))
    """Marks of parts before the first record; those that are missing are empty."""

    def at(self, seq: int) -> dict[str, Mark]:
        """Id -> mark after record `seq`, of all parts that were ever marked till then."""
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
        records: The run's journal from its first record on (`run.records()`).
        folds: Further views to be folded from the same records.
        plan: The plan to fold the records with (`run.plan`); None: that of the graph.
    """
    journal = list(records)
    live = Live(graph, *folds, plan=plan)
    live.expect([record for record in journal if isinstance(record, Migrated)])
    moments = [moment for moment in map(live.apply, journal) if moment.changes]
    for fold in folds:
        fold.finish()
    return Replay(live.drawing, tuple(moments), live.trace.overlay())


class Live:
    """The same for a run whose records come one by one.

    Attributes:
        drawing: The graph's.
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
        """Id -> mark after the last record, of all parts that were ever marked."""
        return self._marks

    def expect(self, moves: Iterable[Migrated]) -> None:
        """Show what comes before migrations at the parts of the last version, which is the one that is drawn."""
        plan = self._reader.run.first
        for record in moves:
            after = self._reader.run.later.get(record.content)
            if after is not None:
                self._moves.append((Renames(record.nodes, record.fields, record.forks), plan, after))
                plan = after

    def _node(self, key: tuple[str, str]) -> tuple[str, str]:
        """A node of the version that the run has now, in the last one."""
        for names, _, _ in self._moves:
            key = names.place(key[0]), names.node(*key)
        return key

    def _edge(self, key: tuple[str, int]) -> tuple[str, int] | None:
        """The same for an edge; None if the last version does not have it."""
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
        """Fold a record in and return what it changes.

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
    """`[classes, {slot: text}]`, the texts left out where there are none."""
    classes = " ".join(mark.classes)
    return [classes, dict(mark.texts)] if mark.texts else [classes]
