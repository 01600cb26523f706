"""What runs have spent, and the sums over them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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
    groups, keys = Groups(by), _Keys(by)
    if not by.within:
        query = f"SELECT {columns}, {_SUMS} FROM runs LEFT JOIN run_totals ON run = id WHERE {where}"
        for row in connection.execute(query, values):
            groups.add_to(keys.of(row), row[2], None if row[4] is None else row[4:])
        return groups.rows()
    query = f"SELECT {columns} FROM runs WHERE {where} AND id NOT IN (SELECT run FROM run_totals)"
    for row in connection.execute(query, values):
        groups.add_to(keys.of(row), row[2], None)
    names = ", ".join("totals.node" if name == "node" else "totals.name" for name in by.within)
    kind = () if by.kind is None else (by.kind,)
    # Grouped along the key of the totals, so nothing is sorted: models and tools have one row for each node.
    query = (
        f"SELECT {columns}, {_PARTS}, runs.id, {names} FROM runs CROSS JOIN totals ON totals.run = runs.id"
        f"{' AND totals.kind = ?' if kind else ''} WHERE {where} GROUP BY runs.id, totals.node"
        f"{', totals.kind, totals.name' if kind else ''}"
    )
    rows = connection.execute(query, (by.kind or "step", *kind, *values))
    for row in rows if "node" in by.within else _merged(rows):
        groups.add_to(keys.of(row, row[13:]), row[2], row[4:12])
    return groups.rows()


def _merged(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rows of one run, which follow each other, with those of one model or tool added up."""
    known: dict[str, tuple[Any, ...]] = {}
    run: int | None = None
    for row in rows:
        if row[12] != run:
            yield from known.values()
            run, known = row[12], {row[13]: row}
        elif row[13] not in known:
            known[row[13]] = row
        else:
            before = known[row[13]]
            sums = (one + other for one, other in zip(before[4:12], row[4:12], strict=True))
            known[row[13]] = (*before[:4], *sums, *before[12:])
    yield from known.values()


class _Keys:
    """What groups rows belong to; what a run gives is worked out once for each graph, day and set of labels."""

    def __init__(self, by: By) -> None:
        self._by = by
        self._by_day = "day" in by.names
        self._keys: dict[tuple[object, ...], tuple[str | None, ...]] = {}

    def of(self, row: Sequence[Any], part: tuple[str, ...] = ()) -> tuple[str | None, ...]:
        """The group of a row of `_RUN`, and of the part of the run that it is about."""
        graph, created, _, labels = row[:4]
        whole = isinstance(created, float) and abs(created) < _CALENDAR
        about = (graph, created // _DAY if whole else created, labels, part) if self._by_day else (graph, labels, part)
        key = self._keys.get(about)
        if key is None:
            values = self._by.run_part(str(graph), created, labels_of(labels) or {})
            values |= dict(zip(self._by.within, part, strict=bool(part)))
            if len(self._keys) >= _MOST_KEYS:
                self._keys.clear()
            key = self._keys[about] = tuple(values.get(name) for name in self._by.names)
        return key


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
