"""The list of runs, a page at a time, at a cost that does not grow with the number of runs.

Every index that can lead the way holds `created` and the run's number behind what it selects, so walking it
backwards gives the runs in the order of the list, and a page ends after `limit` of them. With several filters
the one that selects fewest leads and the others are looked up; how few is counted no further than needed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.stores.base import Page
from orchestrator.stores.shared import page_cursor, parse_cursor
from orchestrator.stores.sqlite.reads import INFO_COLUMNS, InfoRow, info_of

_COUNTED = 1000


@dataclass(frozen=True, slots=True)
class _Filter:
    """A way into the list: `table` has columns `created` and `key`, the run's number."""

    table: str
    key: str
    where: str
    values: tuple[object, ...]


def runs(
    connection: sqlite3.Connection,
    statuses: frozenset[str] | None,
    graph: str | None,
    labels: Mapping[str, str],
    after: str | None,
    limit: int,
) -> Page:
    """See `Store.runs`."""
    place = None if after is None else parse_cursor(after)
    limit = max(limit, 1)
    # one walk for each status, for only within one status are an index's entries in the list's order
    walks = [_of_row(status, graph) for status in sorted(statuses)] if statuses is not None else [_of_row(None, graph)]
    by_label = [_Filter("labels", "run", "name = ? AND value = ?", item) for item in labels.items()]
    rest = by_label
    if by_label:
        by_row = sum(_count(connection, walk) for walk in walks) if statuses is not None or graph is not None else None
        counts = [(_count(connection, label), index) for index, label in enumerate(by_label)]
        fewest, index = min(counts)
        if by_row is None or fewest <= by_row:
            label = by_label.pop(index)
            walks = [_and_row(label, walk) for walk in walks]
            rest = by_label
    rows = [row for walk in walks for row in _walk(connection, walk, rest, place, limit + 1)]
    rows.sort(key=_place, reverse=True)
    cursor = page_cursor(rows[limit - 1][5], rows[limit - 1][0]) if len(rows) > limit else None
    return Page(tuple(info_of(row) for row in rows[:limit]), cursor)


def _place(row: InfoRow) -> tuple[bool, float, int]:
    """Where a run stands in the list: as SQLite has it, also where a damaged `created` is no number."""
    created, number = row[5], row[0]
    return (False, created, number) if isinstance(created, float | int) else (True, 0.0, number)


def _of_row(status: str | None, graph: str | None) -> _Filter:
    parts = [("runs.graph = ?", graph), ("runs.status = ?", status)]
    given = [(text, value) for text, value in parts if value is not None]
    return _Filter("runs", "id", " AND ".join(text for text, _ in given) or "TRUE", tuple(value for _, value in given))


def _and_row(label: _Filter, row: _Filter) -> _Filter:
    return _Filter("labels", "run", f"{label.where} AND {row.where}", label.values + row.values)


def _count(connection: sqlite3.Connection, walk: _Filter) -> int:
    count: int = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {walk.table} WHERE {walk.where} LIMIT {_COUNTED})", walk.values
    ).fetchone()[0]
    return count


def _walk(
    connection: sqlite3.Connection, walk: _Filter, labels: list[_Filter], place: tuple[float, int] | None, limit: int
) -> list[InfoRow]:
    table = walk.table
    source = "runs" if table == "runs" else "labels CROSS JOIN runs ON runs.id = labels.run"  # CROSS: in this order
    where, values = [walk.where], list(walk.values)
    if place is not None:
        where.append(f"({table}.created, {table}.{walk.key}) < (?, ?)")
        values.extend(place)
    for label in labels:
        where.append(
            f"EXISTS (SELECT 1 FROM labels AS other WHERE {label.where.replace('name', 'other.name', 1)}"
            " AND other.created = runs.created AND other.run = runs.id)"
        )
        values.extend(label.values)
    return connection.execute(
        f"SELECT {INFO_COLUMNS} FROM {source} WHERE {' AND '.join(where)}"
        f" ORDER BY {table}.created DESC, {table}.{walk.key} DESC LIMIT ?",
        (*values, limit),
    ).fetchall()
