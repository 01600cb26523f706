"""When a run worked, kept while the run goes on: the cost of a record does not grow with the run.

The same as `orchestrator.views.timeline` says of a whole timeline.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from orchestrator.views.timeline import Timeline, TimelineRow

_SHORTEST = 0.001
"""Seconds. A shorter idle span is left out."""
_Span = tuple[float, float]


class WorkingSeconds:
    """Seconds that each row worked; a row with a graph inside works while a row inside does.

    Attributes:
        found: By row number.
    """

    def __init__(self, rows: Timeline) -> None:
        self.found: list[float] = []
        self._rows = rows
        self._inside: list[float] = []

    def update(self, numbers: Iterable[int]) -> None:
        """Work out the seconds of rows that changed, or that have not ended.

        Args:
            numbers: rows, and all rows around them.
        """
        rows, found, inside = self._rows.rows, self.found, self._inside
        found.extend([0.0] * (len(rows) - len(found)))
        inside.extend([0.0] * (len(rows) - len(inside)))
        for number in sorted(numbers, reverse=True):  # what is inside comes first
            row = rows[number]
            worked = row.working(self._rows.end)
            if row.graph:
                worked = min(worked, inside[number])
            if row.parent is not None:
                inside[row.parent] += worked - found[number]
            found[number] = worked


class IdleSpans:
    """The times in which no row worked, because every live one waited."""

    def __init__(self, rows: Timeline) -> None:
        self._rows = rows
        self._busy: list[_Span] = []
        """Times in which rows that ended worked, in order, and further apart than the shortest idle span."""
        self._added: dict[int, _Span] = {}
        """Row -> when it began and ended."""

    def update(self, numbers: Iterable[int]) -> None:
        """Take rows that changed into account."""
        for number in numbers:
            row = self._rows.rows[number]
            if row.graph or row.ended is None:
                continue  # the rows inside say when it works
            span = (row.started, row.ended)
            known = self._added.setdefault(number, span)
            if known != span:  # it landed after it had been stopped
                self._added[number] = span
                self._busy = []
                for other in self._added:
                    self._add(self._rows.rows[other])
            elif known is span:
                self._add(row)

    def spans(self) -> list[_Span]:
        """Start and end of each time, in Unix seconds."""
        rows, found = self._rows, list[_Span]()
        live = [span for row in rows.live.values() if not row.graph for span in self._worked(row)]
        reached = rows.start
        for start, end in sorted([*self._busy, *live]):
            if start - reached > _SHORTEST:
                found.append((reached, start))
            reached = max(reached, end)
        if rows.end - reached > _SHORTEST:
            found.append((reached, rows.end))
        return found

    def _worked(self, row: TimelineRow) -> Iterator[_Span]:
        at = row.started
        end = self._rows.end if row.ended is None else row.ended
        for wait in sorted(row.waits, key=lambda one: one.start):
            yield at, max(at, wait.start)
            at = max(at, end if wait.end is None else wait.end)
        yield at, max(at, end)

    def _add(self, row: TimelineRow) -> None:
        for start, end in self._worked(row):
            busy = self._busy
            first = bisect_left(busy, start - _SHORTEST, key=lambda span: span[1])
            last = first
            while last < len(busy) and busy[last][0] - end <= _SHORTEST:
                start, end = min(start, busy[last][0]), max(end, busy[last][1])
                last += 1
            busy[first:last] = [(start, end)]
