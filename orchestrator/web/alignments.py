"""Several runs side by side: rows of the same step, with the differences of each run from the first.

Each run is compared with the first one as by `diff` compares two; the rows of all pairs are then put into one order.
Reading long runs takes seconds, so alignments are kept while their runs do not change.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio

from orchestrator.executor.run_status import with_status
from orchestrator.json import size_of
from orchestrator.kernel.records import Record
from orchestrator.tasks import away
from orchestrator.views.diff import ComparedRun, PairedRuns, Place, in_order
from orchestrator.views.run import Run
from orchestrator.views.run_diff import Difference
from orchestrator.views.safe_text import told
from orchestrator.views.step_names import step_name
from orchestrator.views.timeline import TimelineRow, TimelineRowStatus

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.stores.base import RunInfo


RowKind: TypeAlias = Literal["start", "step", "end"]
"""Kind of a row: the input of the runs, a step, or their end."""
_NOWHERE: Place = ("", "", 0)


@dataclass(frozen=True, slots=True)
class AlignedStep:
    """A step of one run."""

    number: int
    """Number from 1, in the order in which the run's steps started."""
    began: int
    """The record after which it started."""
    seq: int | None
    """The record that ended it; None: it has not ended."""
    status: TimelineRowStatus
    outcome: str
    tokens: int
    cost: float
    seconds: float
    """Seconds that it worked."""

    @classmethod
    def of(cls, row: TimelineRow, now: float) -> AlignedStep:
        """Make a step from a row of a timeline.

        Args:
            row: the row.
            now: the end of the time that counts for a step that has not ended, in Unix seconds.
        """
        usage = row.usage
        return cls(
            row.number + 1,
            row.began,
            row.seq,
            row.status,
            told(row.outcome, 80),
            usage.tokens,
            usage.cost,
            row.working(now),
        )


@dataclass(frozen=True, slots=True)
class AlignedRow:
    """A row: the same step of all runs."""

    number: int
    """Number from 0, which is the row of the inputs."""
    kind: RowKind
    place: Place
    """Branch, node, and number of the step among the node's steps in that branch; empty for a start or an end."""
    name: str
    """Name of the step; empty for a start and an end."""
    steps: tuple[AlignedStep | None, ...]
    """The step of each run; None: the run has no such step. Empty for a start and an end."""
    differences: tuple[tuple[Difference, ...], ...]
    """For each run but the first: its differences from the first. Without the lines of texts, see `texts`."""

    @property
    def differs(self) -> bool:
        """True if any run differs from the first in this row."""
        return any(self.differences)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Several runs, row by row."""

    runs: tuple[Run, ...]
    rows: tuple[AlignedRow, ...]
    _pairs: tuple[PairedRuns, ...]

    @property
    def first(self) -> AlignedRow | None:
        """The first row in which a run differs from the first one; None if there is none."""
        return next((row for row in self.rows if row.differs), None)

    @property
    def differing(self) -> int:
        """Number of rows that differ."""
        return sum(row.differs for row in self.rows)

    def row(self, kind: RowKind, place: Place = _NOWHERE) -> AlignedRow | None:
        """Return the row of a step; None if no run has it."""
        return next((row for row in self.rows if (row.kind, row.place) == (kind, place)), None)

    def texts(self, row: AlignedRow) -> tuple[tuple[Difference, ...], ...]:
        """Return the differences of a row with their lines, for each run but the first."""
        return tuple(tuple(_differences(pair, row.kind, row.place, texts=True)) for pair in self._pairs)


def align(runs: Sequence[tuple[Run, Sequence[Record]]]) -> Alignment:
    """Put runs side by side.

    Args:
        runs: two or more runs with their records; the others are compared with the first.
    """
    (first, records), *others = runs
    pairs = tuple(PairedRuns.of(first, records, run, read) for run, read in others)
    places: list[Place] = [*pairs[0].one.steps]
    for pair in pairs:
        places = [*in_order(places, pair.places())]
    rows = [_row(0, "start", _NOWHERE, pairs)]
    rows += [_row(number, "step", place, pairs) for number, place in enumerate(places, 1)]
    rows.append(_row(len(rows), "end", _NOWHERE, pairs))
    return Alignment(tuple(run for run, _ in runs), tuple(rows), pairs)


def _row(number: int, kind: RowKind, place: Place, pairs: Sequence[PairedRuns]) -> AlignedRow:
    differences = tuple(tuple(_differences(pair, kind, place, texts=False)) for pair in pairs)
    if kind != "step":
        return AlignedRow(number, kind, place, "", (), differences)
    one = next((pair.one for pair in pairs if place in pair.one.steps), pairs[0].one)
    reads = (one, *(pair.other for pair in pairs))
    name = next(str(step_name(read.steps[place])) for read in reads if place in read.steps)
    return AlignedRow(number, kind, place, name, tuple(_step(read, place) for read in reads), differences)


def _step(read: ComparedRun, place: Place) -> AlignedStep | None:
    row = read.steps.get(place)
    return None if row is None else AlignedStep.of(row, read.run.machine.updated)


def _differences(pair: PairedRuns, kind: RowKind, place: Place, *, texts: bool) -> Iterator[Difference]:
    if kind == "start":
        yield from pair.starts(texts=texts)
    elif kind == "end":
        yield from pair.ends(texts=texts)
    elif place in pair.one.steps or place in pair.other.steps:  # otherwise only a third run has it
        yield from pair.step(place, texts=texts)


_KEPT = 3
"""Alignments that are kept. Each has the records of its runs."""
_SIZE = 1 << 26
"""Characters of these records: beyond it, only the alignment requested last is kept."""


@dataclass(frozen=True, slots=True)
class _Made:
    alignment: Alignment
    version: object
    seconds: float
    """Seconds that it took."""
    size: int
    """Characters of the records, see `size_of`."""


@dataclass(slots=True)
class Alignments:
    """The alignments that were requested last."""

    _kept: dict[tuple[str, ...], _Made] = field(default_factory=dict)
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def of(self, executor: Executor, infos: Sequence[RunInfo]) -> Alignment:
        """Return the alignment of runs, in their current state.

        Args:
            executor: reads them.
            infos: their rows, that of the first run first.

        Raises:
            RunUnknown: a run was deleted meanwhile.
        """
        ids = tuple(info.run_id for info in infos)
        async with self._lock:  # a second request for the same runs waits here and finds the result cached
            made = self._kept.pop(ids, None)
            if made is None or made.version != version_of(infos):
                made = await _made(executor, infos)
            self._kept[ids] = made
            while len(self._kept) > _KEPT or (len(self._kept) > 1 and self._size() > _SIZE):
                self._kept.pop(next(iter(self._kept)))
        return made.alignment

    def _size(self) -> int:
        return sum(one.size for one in self._kept.values())

    def forget(self, run_id: str) -> None:
        """Drop the alignments of a run that is deleted."""
        for ids in [ids for ids in self._kept if run_id in ids]:
            del self._kept[ids]

    def rest(self, ids: Sequence[str]) -> float:
        """Return the seconds that a reader of these runs should wait before its next request, to bound the cost."""
        made = self._kept.get(tuple(ids))
        return 0.0 if made is None else 4 * made.seconds


def version_of(infos: Sequence[RunInfo]) -> object:
    """Return a value that changes once a run has changed."""
    return [(info.created, info.head, with_status(info).status) for info in infos]


async def _made(executor: Executor, infos: Sequence[RunInfo]) -> _Made:
    loaded = [await executor.load(info.run_id) for info in infos]
    read = [(run, await executor.store.read(run.run_id, upto=run.seq)) for run in loaded]
    begun = time.monotonic()
    alignment, size = await away(lambda: (align(read), size_of([records for _, records in read])))
    return _Made(alignment, version_of(infos), time.monotonic() - begun, size)
