"""How long a piece of work took."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import mean, median
from typing import Self

from tests.benchmarks.subjects import Figures

_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6}


class Stopwatch:
    """Seconds of the clock, and of the processors in all threads of this process, inside a `with`."""

    wall = cpu = 0.0

    def __enter__(self) -> Self:
        self._started = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self._started[0]
        self.cpu = time.process_time() - self._started[1]

    def figures(self, unit: str, count: int = 1, name: str = "") -> Figures:
        """Both times for each of `count` things."""
        factor = _UNITS[unit] / count
        return {f"{name}{unit}": self.wall * factor, f"cpu_{name}{unit}": self.cpu * factor}


MARKS: list[tuple[float, float]] = []
"""When the steps of a run were: what the clock said, and the processor's."""


def mark() -> None:
    """Note that a step is now."""
    MARKS.append((time.perf_counter(), time.process_time()))


def between(marks: list[tuple[float, float]]) -> Figures:
    """Microseconds from one step to the next, without the first five: median, mean and worst; forgets them all."""
    kept, marks[:] = marks[5:], []
    walls, cpus = zip(*((b[0] - a[0], b[1] - a[1]) for a, b in pairwise(kept)), strict=True)
    found: Figures = {}
    for name, times in (("", walls), ("cpu_", cpus)):
        for what, value in (("us", median(times)), ("mean_us", mean(times)), ("worst_us", max(times))):
            found[name + what] = value * 1e6
    return found


def repeated(work: Callable[[], object], name: str, times: int = 9) -> Figures:
    """Milliseconds of each of several times, as medians."""
    found = []
    for _ in range(times):
        with Stopwatch() as took:
            work()
        found.append(took)
    return typical(found, name)


def typical(found: list[Stopwatch], name: str) -> Figures:
    """The medians, in milliseconds."""
    return {
        f"{name}ms": median(took.wall for took in found) * 1e3,
        f"cpu_{name}ms": median(took.cpu for took in found) * 1e3,
    }
