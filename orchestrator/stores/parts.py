"""What one run spent, as one row: the names of its parts, and their numbers in cells of eight bytes.

Most runs of a graph have the same parts. So their numbers, put behind each other, are columns at fixed distances, and
sums over many runs are made column by column.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import add
from typing import TypeAlias

from orchestrator.stores.rows import RunTotals, Total

_ROW = struct.Struct("<4q2d")
_CELLS = 6
"""Calls, failed ones, tokens in, tokens out; cost, seconds."""

Name: TypeAlias = tuple[str, str, str]
"""Node, kind and name of a row of `RunTotals`."""


def packed(totals: RunTotals) -> tuple[str, bytes]:
    """The names and the numbers of what a run spent."""
    names = json.dumps([(row.node, row.kind, row.name) for row in totals.rows], separators=(",", ":"))
    numbers = (
        _ROW.pack(row.calls, row.failed, row.input_tokens, row.output_tokens, row.cost, row.seconds)
        for row in totals.rows
    )
    return names, b"".join(numbers)


@lru_cache(maxsize=1000)
def names_of(text: object) -> tuple[Name, ...] | None:
    """The names of the parts; None if they are damaged."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
        names = tuple((str(node), str(kind), str(name)) for node, kind, name in found or ())
    except (ValueError, TypeError, RecursionError):
        return None
    return names if isinstance(found, list) else None


def unpacked(text: object, numbers: object, seconds: float) -> RunTotals | None:
    """What a run spent; None if it is damaged."""
    names = names_of(text)
    if names is None or not fits(names, numbers):
        return None
    assert isinstance(numbers, bytes)
    rows = zip(names, _ROW.iter_unpack(numbers), strict=True)
    return RunTotals(tuple(Total(*name, *row) for name, row in rows), seconds)


def fits(names: Sequence[Name], numbers: object) -> bool:
    """Whether there are as many numbers as the names need."""
    return isinstance(numbers, bytes) and len(numbers) == _ROW.size * len(names)


class Columns:
    """The numbers of many runs with the same parts, by column."""

    def __init__(self, names: Sequence[Name], rows: Sequence[bytes]) -> None:
        data = b"".join(rows)
        self._whole, self._real = array("q", data), array("d", data)
        if sys.byteorder == "big":
            self._whole.byteswap()
            self._real.byteswap()
        self._names, self._width, self._count = names, _CELLS * len(names), len(rows)

    def calls(self, parts: Iterable[int], kind: str) -> tuple[int, int]:
        """Calls of a kind in some parts, and how many failed."""
        mine = [at for at in parts if self._names[at][1] == kind]
        return self._sum(mine, 0), self._sum(mine, 1)

    def tokens(self, parts: Iterable[int]) -> tuple[int, int]:
        """Tokens in and out of some parts."""
        mine = [*parts]
        return self._sum(mine, 2), self._sum(mine, 3)

    def costs(self, parts: Iterable[int]) -> array[float]:
        """For each run, the cost of some parts."""
        return self._added(parts, 4)

    def seconds(self, parts: Iterable[int], kind: str) -> array[float]:
        """For each run, the seconds of a kind in some parts."""
        return self._added([at for at in parts if self._names[at][1] == kind], 5)

    def _sum(self, parts: Iterable[int], column: int) -> int:
        return sum(sum(self._whole[_CELLS * at + column :: self._width]) for at in parts)

    def _added(self, parts: Iterable[int], column: int) -> array[float]:
        """From the first part on, as `stores.statistics` adds: so the sums are equal to the last digit."""
        found: array[float] = array("d", bytes(8 * self._count))
        for at in parts:
            found = array("d", map(add, found, self._real[_CELLS * at + column :: self._width]))
        return found
