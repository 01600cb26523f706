"""What runs have spent, and the sums over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import RunUnknown
from orchestrator.stores import parts
from orchestrator.stores.postgres.statements import reading, streamed
from orchestrator.stores.postgres.texts import index_key
from orchestrator.stores.requests import StatsQuery
from orchestrator.stores.rows import RunTotals
from orchestrator.stores.statistics import By, Groups, StatsRow
from orchestrator.stores.summing import Keys, add_parts

if TYPE_CHECKING:
    from orchestrator.stores.postgres.connections import Connection


def totals(connection: Connection, run_id: str) -> RunTotals | None:
    """See `Store.totals`."""
    row = connection.execute(
        "SELECT names, numbers, seconds FROM runs LEFT JOIN run_totals ON run_totals.run = runs.id"
        " LEFT JOIN run_parts ON run_parts.run = runs.id WHERE run_id = %s",
        (run_id,),
    ).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    names, numbers, seconds = row
    return None if seconds is None else parts.unpacked(names, numbers, seconds)


_SUMS = "calls, failed, tools, failed_tools, input_tokens, output_tokens, cost, run_totals.seconds"
_OF_RUN = 9
"""Columns before those of `Keys`: the status of the run, and its numbers."""


def stats(connection: Connection, by: By, wanted: StatsQuery) -> list[StatsRow]:
    """See `Store.stats`."""
    where, values = _where(wanted)
    groups = Groups(by)
    keys = Keys(by, groups)
    with reading(connection):
        if by.within:
            query = f"SELECT names, numbers, runs.status{keys.columns} FROM runs LEFT JOIN run_parts ON run = id"
            add_parts(by, keys, streamed(connection, f"{query} WHERE {where}", values))
            return groups.rows()
        query = f"SELECT runs.status, {_SUMS}{keys.columns} FROM runs LEFT JOIN run_totals ON run = id WHERE {where}"
        for row in streamed(connection, query, values):
            group = keys.group_of(keys.about(row[_OF_RUN:]), ())
            if row[1] is None:
                group.add_uncounted(row[0])
            else:
                group.add(row)
    return groups.rows()


def _where(wanted: StatsQuery) -> tuple[str, tuple[object, ...]]:
    where, values = ["TRUE"], list[object]()
    for text, value in (
        ("runs.created >= %s", wanted.since),
        ("runs.created < %s", wanted.until),
        ("runs.graph = %s", wanted.graph),
    ):
        if value is not None:
            where.append(text)
            values.append(value)
    for item in wanted.labels.items():
        where.append("runs.id IN (SELECT run FROM labels WHERE name = %s AND value = %s)")
        values.extend(map(index_key, item))
    return " AND ".join(where), tuple(values)
