"""What runs have spent, and the sums over them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from orchestrator.stores.rows import RunTotals, Total
from orchestrator.stores.sqlite.label_text import labels_of
from orchestrator.stores.sqlite.writes import run_number
from orchestrator.stores.statistics import By, Groups, StatsRow


def totals(connection: sqlite3.Connection, run_id: str) -> RunTotals | None:
    """See `Store.totals`."""
    number = run_number(connection, run_id)
    row = connection.execute("SELECT seconds FROM run_totals WHERE run = ?", (number,)).fetchone()
    if row is None:
        return None
    rows = connection.execute(
        "SELECT node, kind, name, calls, failed, input_tokens, output_tokens, cost, seconds FROM totals WHERE run = ?"
        " ORDER BY node, kind, name",
        (number,),
    )
    return RunTotals(tuple(Total(*row) for row in rows), row[0])


_RUN = "runs.graph, runs.created, runs.status, {labels}"
_SUMS = "calls, failed, tools, failed_tools, input_tokens, output_tokens, cost, run_totals.seconds"
_PARTS = (
    "sum((kind = 'model') * calls), sum((kind = 'model') * failed), sum((kind = 'tool') * calls),"
    " sum((kind = 'tool') * failed), sum(input_tokens), sum(output_tokens), sum(cost), sum((kind = ?) * seconds)"
)


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
    columns = _RUN.format(labels="runs.labels" if any(name.startswith("label:") for name in by.names) else "NULL")
    groups = Groups(by)
    if by.within:
        query = f"SELECT {columns} FROM runs WHERE {where} AND id NOT IN (SELECT run FROM run_totals)"
        for row in connection.execute(query, values):
            groups.add(_part(by, row), row[2], None)
        names = ", ".join("totals.node" if name == "node" else "totals.name" for name in by.within)
        kind = () if by.kind is None else (by.kind,)
        # CROSS: totals are looked up by run, in the order of their key
        query = (
            f"SELECT {columns}, {_PARTS}, {names} FROM runs CROSS JOIN totals ON totals.run = runs.id"
            f"{' AND totals.kind = ?' if kind else ''} WHERE {where} GROUP BY runs.id, {names}"
        )
        for row in connection.execute(query, (by.kind or "step", *kind, *values)):
            part = dict(zip(by.within, row[12:], strict=True))
            groups.add({**_part(by, row), **part}, row[2], row[4:12])
    else:
        query = f"SELECT {columns}, {_SUMS} FROM runs LEFT JOIN run_totals ON run = id WHERE {where}"
        for row in connection.execute(query, values):
            groups.add(_part(by, row), row[2], None if row[4] is None else row[4:])
    return groups.rows()


def _part(by: By, row: Sequence[object]) -> dict[str, str | None]:
    graph, created, _, labels = row[:4]
    return by.run_part(str(graph), created, labels_of(labels) or {})


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
