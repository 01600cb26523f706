"""What runs have spent, and the sums over them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.stores import parts
from orchestrator.stores.rows import RunTotals
from orchestrator.stores.sqlite.writes import run_number
from orchestrator.stores.statistics import By, Group, Groups, StatsRow, parts_by
from orchestrator.stores.stored import labels_of


def totals(connection: sqlite3.Connection, run_id: str) -> RunTotals | None:
    """See `Store.totals`."""
    row = connection.execute(
        "SELECT names, numbers, seconds FROM run_totals JOIN run_parts USING (run) WHERE run = ?",
        (run_number(connection, run_id),),
    ).fetchone()
    return None if row is None else parts.unpacked(*row)


_SUMS = "calls, failed, tools, failed_tools, input_tokens, output_tokens, cost, run_totals.seconds"
_OF_RUN = 9
"""Columns before those of `_Keys`: the status of the run, and its numbers."""


def stats(
    connection: sqlite3.Connection,
    by: By,
    since: float | None,
    until: float | None,
    graph: str | None,
    labels: Mapping[str, str],
) -> list[StatsRow]:
    """See `Store.stats`."""
    where, values = _where(since, until, graph, labels)
    groups = Groups(by)
    keys = _Keys(by, groups)
    if by.within:
        query = f"SELECT names, numbers, runs.status{keys.columns} FROM runs LEFT JOIN run_parts ON run = id"
        _add_parts(by, keys, connection.execute(f"{query} WHERE {where}", values))
        return groups.rows()
    query = f"SELECT runs.status, {_SUMS}{keys.columns} FROM runs LEFT JOIN run_totals ON run = id WHERE {where}"
    for row in connection.execute(query, values):
        group = keys.group_of(keys.about(row[_OF_RUN:]), ())
        if row[1] is None:
            group.add_uncounted(row[0])
        else:
            group.add(row)
    return groups.rows()


def _add_parts(by: By, keys: _Keys, rows: Iterable[tuple[Any, ...]]) -> None:
    """Add what runs did in their parts: those with the same parts, status and group together."""
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


def _add_alike(by: By, keys: _Keys, alike: dict[tuple[Any, ...], list[bytes]]) -> None:
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


class _Keys:
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


def _where(
    since: float | None, until: float | None, graph: str | None, labels: Mapping[str, str]
) -> tuple[str, list[object]]:
    where, values = ["TRUE"], list[object]()
    for text, value in (("runs.created >= ?", since), ("runs.created < ?", until), ("runs.graph = ?", graph)):
        if value is not None:
            where.append(text)
            values.append(value)
    for item in labels.items():
        where.append("runs.id IN (SELECT run FROM labels WHERE name = ? AND value = ?)")
        values.extend(item)
    return " AND ".join(where), values
