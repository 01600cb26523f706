"""How long steps worked: from start to end, without waits for answers and gaps in which the run stood still."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence


def working_time(start: float, end: float, idle: Iterable[tuple[float, float]]) -> float:
    """Seconds from start to end that no idle span covers. Idle spans may overlap."""
    total, reached = end - start, start
    for began, ended in sorted(idle):
        began, ended = max(began, reached), min(ended, end)
        if ended > began:
            total, reached = total - (ended - began), ended
    return max(0.0, total)


class WorkTime:
    """Remembers when a run stood still: paused, crashed, or waiting only for answers."""

    def __init__(self) -> None:
        self._gaps: list[tuple[float, float]] = []
        self._waits: dict[str, list[tuple[float, float]]] = {}

    def gap(self, begin: float, end: float) -> None:
        """The run stood still between the times of two records. Gaps are added in order."""
        if end > begin:
            self._gaps.append((begin, end))

    def waited(self, activation: str, begin: float, end: float) -> None:
        """An activation waited for an answer."""
        self._waits.setdefault(activation, []).append((begin, end))

    def forget(self, activation: str) -> Sequence[tuple[float, float]]:
        """Forget an activation that ended. Returns its waits."""
        return self._waits.pop(activation, ())

    def worked(self, activation: str, started: float, ended: float) -> float:
        """Seconds that an activation worked, which has ended. Its waits are forgotten."""
        first = bisect_left(self._gaps, started, key=lambda gap: gap[1])
        return working_time(started, ended, (*self.forget(activation), *self._gaps[first:]))
