"""What runs have spent, and the sums over them."""

from __future__ import annotations

import sqlite3

from orchestrator.stores import parts
from orchestrator.stores.requests import StatsQuery
from orchestrator.stores.rows import RunTotals
from orchestrator.stores.sqlite.writes import run_number
from orchestrator.stores.statistics import By, Groups, StatsRow
from orchestrator.stores.summing import Keys, add_parts


def totals(connection: sqlite3.Connection, run_id: str) -> RunTotals | None:
    """See `Store.totals`."""
    row = connection.execute(
        "SELECT names, numbers, seconds FROM run_totals JOIN run_parts USING (run) WHERE run = ?",
        (run_number(connection, run_id),),
    ).fetchone()
    return None if row is None else parts.unpacked(*row)


_SUMS = "calls, failed, tools, failed_tools, input_tokens, output_tokens, cost, run_totals.seconds"
_OF_RUN = 9
"""Columns before those of `Keys`: the status of the run, and its numbers."""


def stats(connection: sqlite3.Connection, by: By, wanted: StatsQuery) -> list[StatsRow]:
    """See `Store.stats`."""
    where, values = _where(wanted)
    groups = Groups(by)
    keys = Keys(by, groups)
    if by.within:
        query = f"SELECT names, numbers, runs.status{keys.columns} FROM runs LEFT JOIN run_parts ON run = id"
        add_parts(by, keys, connection.execute(f"{query} WHERE {where}", values))
        return groups.rows()
    query = f"SELECT runs.status, {_SUMS}{keys.columns} FROM runs LEFT JOIN run_totals ON run = id WHERE {where}"
    for row in connection.execute(query, values):
        group = keys.group_of(keys.about(row[_OF_RUN:]), ())
        if row[1] is None:
            group.add_uncounted(row[0])
        else:
            group.add(row)
    return groups.rows()


def _where(wanted: StatsQuery) -> tuple[str, list[object]]:
    where, values = ["TRUE"], list[object]()
    for text, value in (
        ("runs.created >= ?", wanted.since),
        ("runs.created < ?", wanted.until),
        ("runs.graph = ?", wanted.graph),
    ):
        if value is not None:
            where.append(text)
            values.append(value)
    for item in wanted.labels.items():
        where.append("runs.id IN (SELECT run FROM labels WHERE name = ? AND value = ?)")
        values.extend(item)
    return " AND ".join(where), values
