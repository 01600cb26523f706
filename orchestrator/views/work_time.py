"""How long steps worked: from start to end, less what they waited for answers and what the run stood still."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class WorkTime:
    """Keeps when a run stood still: paused, crashed, or waiting for people only."""

    def __init__(self) -> None:
        self._gaps: list[tuple[float, float]] = []
        self._waits: dict[str, list[tuple[float, float]]] = {}

    def gap(self, begin: float, end: float) -> None:
        """The run stood still from one record's time to the next one's. To be told in order."""
        if end > begin:
            self._gaps.append((begin, end))

    def waited(self, activation: str, begin: float, end: float) -> None:
        """An activation waited for an answer."""
        self._waits.setdefault(activation, []).append((begin, end))

    def forget(self, activation: str) -> Sequence[tuple[float, float]]:
        """An activation is over. What it waited."""
        return self._waits.pop(activation, ())

    def worked(self, activation: str, started: float, ended: float) -> float:
        """Seconds that an activation worked, which is over now."""
        first = bisect_left(self._gaps, started, key=lambda gap: gap[1])
        total, reached = max(0.0, ended - started), started
        for begin, end in sorted((*self.forget(activation), *self._gaps[first:])):
            begin, end = max(begin, reached), min(end, ended)
            if end > begin:
                total -= end - begin
                reached = end
        return max(0.0, total)
