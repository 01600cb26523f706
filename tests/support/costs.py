"""Cost of work as it grows, in processor time of this process, so that other processes do not count."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time

_TRIES = 6
_LEAST = 0.001
"""Seconds; of less than this no ratio is taken."""


def in_proportion(work: Callable[[int], object], few: int, *, times: int = 4, slack: float = 2.5) -> None:
    """Hold that `times` as much takes at most `slack * times` as long: with four times as much, the square is 16.

    One try in which it does is enough: what takes the square of the time does so in each of them.
    """
    shortest = {few: float("inf"), few * times: float("inf")}
    for _ in range(_TRIES):
        for size in shortest:
            shortest[size] = min(shortest[size], _took(work, size))
        less, more = shortest.values()
        if more <= slack * times * max(less, _LEAST):
            return
    raise AssertionError(f"{few} took {less:.4f} s, {few * times} took {more:.4f} s")


def _took(work: Callable[[int], object], size: int) -> float:
    """Return the seconds that work takes, without garbage collection, whose time depends on all existing objects."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = process_time()
        work(size)
        return process_time() - began
    finally:
        if collecting:
            gc.enable()
