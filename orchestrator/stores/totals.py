"""What runs spent, as databases keep it: a row of each run, packed, and the sums over many rows.

A row has the names of the run's parts, and their numbers in cells of eight bytes. Most runs of a graph have the same
parts. So their numbers, put behind each other, are columns at fixed distances, and sums over many runs are made column
by column. What the runs of a day, a graph or a label share is worked out once.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import add
from typing import Any, TypeAlias

from orchestrator.stores.rows import RunTotals, Total
from orchestrator.stores.statistics import By, Group, Groups, parts_by
from orchestrator.stores.stored import labels_of

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


def add_parts(by: By, keys: Keys, rows: Iterable[tuple[Any, ...]]) -> None:
    """Add what runs did in their parts: those with the same parts, status and group together.

    Args:
        by: what makes a group.
        keys: what finds the groups.
        rows: of each run the two columns of `parts`, its status, and `keys.columns`.
    """
    alike: dict[tuple[Any, ...], list[bytes]] = {}
    held = 0
    for text, numbers, status, *given in rows:
        about = keys.about(tuple(given))
        names = names_of(text)
        if names is None or not fits(names, numbers):
            keys.group_of(about, (None,) * len(by.within)).add_uncounted(status)
            continue
        alike.setdefault((names, status, about), []).append(numbers)
        held += 1
        if held >= _AT_ONCE:
            _add_alike(by, keys, alike)
            held = 0
    _add_alike(by, keys, alike)


def _add_alike(by: By, keys: Keys, alike: dict[tuple[Any, ...], list[bytes]]) -> None:
    for (names, status, about), rows in alike.items():
        columns = Columns(names, rows)
        for part, places in parts_by(by, names).items():
            group = keys.group_of(about, part)
            group.add_many(
                status,
                (*columns.calls(places, "model"), *columns.calls(places, "tool"), *columns.tokens(places)),
                columns.costs(places),
                columns.seconds(places, by.seconds_of),
            )
    alike.clear()


_AT_ONCE = 10_000
"""Runs whose numbers are held before they are added up."""


class Keys:
    """What groups rows belong to; what a run gives is worked out once for each graph, day and set of labels."""

    def __init__(self, by: By, groups: Groups) -> None:
        self._by, self._all = by, groups
        self._groups: dict[tuple[tuple[Any, ...], tuple[str | None, ...]], Group] = {}
        needed = {
            "graph": "graph" in by.names,
            "labels": any(name.startswith("label:") for name in by.names),
            "created": "day" in by.names,
        }
        self._names = [name for name, wanted in needed.items() if wanted]
        self._day_at = self._names.index("created") if "created" in self._names else None
        self.columns = "".join(f", runs.{name}" for name in self._names)
        """What rows have of their runs; then comes the part of the run."""

    def about(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """What these columns of a run say about its group: equal for all runs of a day."""
        at = self._day_at
        if at is None or not isinstance(row[at], float) or abs(row[at]) >= _CALENDAR:  # or a damaged row
            return row
        return (*row[:at], row[at] // _DAY * _DAY, *row[at + 1 :])

    def group_of(self, about: tuple[Any, ...], part: tuple[str | None, ...]) -> Group:
        """The group of what `about` says, and of a part of the run."""
        group = self._groups.get((about, part))
        if group is None:
            given = dict(zip(self._names, about, strict=True))
            found = labels_of(given.get("labels")) or {}
            values = self._by.run_part(str(given.get("graph")), given.get("created"), found)
            values |= dict(zip(self._by.within, part, strict=True))
            if len(self._groups) >= _MOST_KEYS:
                self._groups.clear()
            key = tuple(values.get(name) for name in self._by.names)
            group = self._groups[about, part] = self._all.group(key)
        return group


_DAY = 86_400.0
_CALENDAR = 1e11
_MOST_KEYS = 100_000
