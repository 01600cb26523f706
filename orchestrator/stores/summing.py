"""Adding rows of runs up in their groups, for stores in databases: what the runs of a day, a graph or a label share is
worked out once, and their numbers are added column by column.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orchestrator.stores import parts
from orchestrator.stores.statistics import By, Group, Groups, parts_by
from orchestrator.stores.stored import labels_of


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
        names = parts.names_of(text)
        if names is None or not parts.fits(names, numbers):
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
        columns = parts.Columns(names, rows)
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
