"""Giving out runs that can continue and that no executor drives, as functions of a connection inside a transaction.

Each kind of such runs is found by an index that has few others. The index contains the runs of a graph by their time,
so for each graph as many are read as are wanted in all, and the oldest of them are taken.

Waiting runs are also found by the value of a label that takes turns (see `orchestrator.stores.fair_claims`).

The first claim that takes turns by a label adds an index for that label. It contains only runs without a holder that
wait to be resumed or for a time, so a scan from one value to the next never reads runs that have ended, wait for
people, or are driven.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.json import canonical
from orchestrator.stores.base import Lease, RunInfo
from orchestrator.stores.fair_claims import Selection, Turns, take_turns
from orchestrator.stores.owner import held_here
from orchestrator.stores.requests import ClaimRequest
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.stores.shared import DIED
from orchestrator.stores.sqlite.leases import IS_NOTICE, StoreClock, die, give, hold, present_holders, rob

VISITED = 1000
"""Maximum number of values that one claim visits."""

_WAITS = (
    f"status IN ('running', 'paused') AND token IS NULL AND deaths < {MAX_DEATHS}"
    " AND (due IS NOT NULL OR status = 'running')"
)
_READY = "max(coalesce(due, 0.0), coalesce(retry_at, 0.0))"
"""The time from which a run can be claimed; 0: since it was created."""
_SOME_TIME = 5e-324
"""The first moment that is not 0. Runs that did not wait for a time are queried separately: they come first in
the index, and would be taken before those that waited for a long time."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Claimable runs, with their values."""

    rows: list[tuple[str, Any]]
    visited: str | None
    """The value at which the scan had to stop; None: it visited all, or found enough."""


def waiting(connection: sqlite3.Connection, turns: Turns, graphs: list[str], limit: int, wall: float) -> Waiting:
    """Find runs of the values whose turn it is: of as many values as runs are wanted, if there are so many.

    Args:
        connection: a connection in a transaction that may write.
        turns: the turns.
        graphs: the names of graphs.
        limit: the number of runs wanted.
        wall: Unix seconds.
    """
    index = _label_index(connection, turns.label)
    values, last = _ready_values(connection, index, turns, graphs, limit, wall)
    each = -(-limit // max(len(values), 1))
    query = (
        f"SELECT id, run_id, NULL, NULL, graph, max({_READY}, created) FROM runs INDEXED BY {index} WHERE {_WAITS}"
        f" AND {_value(turns.label)} = ? AND graph = ? AND {_READY} BETWEEN ? AND ? ORDER BY {_READY}, created LIMIT ?"
    )
    found: list[tuple[str, Any]] = []
    for value in values:
        rows: list[tuple[Any, ...]] = []
        for graph in graphs:
            for span in ((0.0, 0.0), (_SOME_TIME, wall)):
                rows += connection.execute(query, (value, graph, *span, each)).fetchall()
        found += [(_text(value), row[:-1]) for row in sorted(rows, key=lambda row: row[-1])]
    return Waiting(found, last)


def value_of(connection: sqlite3.Connection, turns: Turns, number: int) -> str:
    """Return the value of a run for the label that takes turns."""
    (value,) = connection.execute(f"SELECT {_value(turns.label)} FROM runs WHERE id = ?", (number,)).fetchone()
    return _text(value)


def _ready_values(
    connection: sqlite3.Connection, index: str, turns: Turns, graphs: list[str], limit: int, wall: float
) -> tuple[list[bytes], str | None]:
    """Return values after the last one, then those before it, that have a claimable run; and where the scan stopped."""
    value, marks = _value(turns.label), ", ".join("?" * len(graphs))
    next_one = f"SELECT {value} FROM runs INDEXED BY {index} WHERE {_WAITS} AND {value} > {{}} ORDER BY {value} LIMIT 1"
    walk = (
        f"WITH RECURSIVE steps (v, n) AS (SELECT ({{first}}), 1 UNION ALL SELECT ({next_one.format('v')}), n + 1"
        f" FROM steps WHERE v IS NOT NULL AND n < ?) SELECT v, EXISTS (SELECT 1 FROM runs INDEXED BY {index}"
        f" WHERE {_WAITS} AND {value} = v AND graph IN ({marks}) AND {_READY} <= ?) FROM steps WHERE v IS NOT NULL"
    )
    smallest = f"SELECT {value} FROM runs INDEXED BY {index} WHERE {_WAITS} ORDER BY {value} LIMIT 1"
    after = turns.after.encode("utf-8", "surrogateescape")
    found: list[bytes] = []
    visited = 0
    for first, given in ((next_one.format("?"), (after,)), (smallest, ())):
        for one, ready in connection.execute(walk.format(first=first), (*given, VISITED - visited, *graphs, wall)):
            if first is smallest and one > after:
                return found, None  # all values were visited
            visited += 1
            if ready:
                found.append(one)
            if len(found) >= limit:
                return found, None
            if visited >= VISITED:
                return found, _text(one)
    return found, None


def _label_index(connection: sqlite3.Connection, label: str) -> str:
    """Return the name of the index of a label, which is created if missing."""
    name = f"runs_in_turn_{label.encode().hex()}"
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?", (name,)).fetchone() is None:
        connection.execute(f"CREATE INDEX {name} ON runs ({_value(label)}, graph, {_READY}, created) WHERE {_WAITS}")
    return name


def _value(label: str) -> str:
    """Return the SQL of a run's value of a label, as bytes, which sort like code points; empty without the label.

    The names of labels that `Turns` accepts need no quoting.
    """
    found = f"CASE WHEN json_valid(labels) THEN json_extract(labels, '$.\"{label}\"') END"
    return f"CAST(coalesce({found}, '') AS BLOB)"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


Candidate: TypeAlias = tuple[int, str, str | None, str | None, str]
"""Number, id, token, holder and graph of a run."""
_Way: TypeAlias = Callable[[list[str]], list[Candidate]]
"""Finds candidates among the runs of some graphs."""


def claim(
    connection: sqlite3.Connection, clock: StoreClock, request: ClaimRequest, info_of: Callable[[str], RunInfo]
) -> list[tuple[RunInfo, Lease]]:
    """See `Store.claim`. `info_of` reads the row of a run."""
    owner, ttl = request.owner, request.ttl
    present, gone = present_holders(connection, clock)
    found = _selected(connection, [*present, owner.executor], request)
    if not found:
        return []
    if gone:
        # A silent holder that is alive detects it by its next beat.
        marks = ", ".join("?" * len(gone))
        connection.execute(
            f"UPDATE holders SET expires = ? WHERE holder IN ({marks})", (clock.now(connection, write=True), *gone)
        )
    hold(connection, clock, owner.executor, canonical(owner.data()), ttl)
    taken: list[tuple[RunInfo, Lease]] = []
    for number, run_id, token, holder, _ in found:
        if token is not None and holder != owner.executor:
            rob(connection, holder)
            deaths = die(connection, number, DIED)
            connection.execute("UPDATE runs SET token = NULL, holder = NULL WHERE id = ?", (number,))
            if deaths >= MAX_DEATHS:
                continue
            token, holder = None, None
        lease = Lease(run_id, os.urandom(16).hex(), owner.executor, owner.data(), ttl, ttl)
        held_here[lease.token] = owner.executor
        give(connection, number, lease, (token, holder))
        taken.append((info_of(run_id), lease))
    return taken


def claimable(connection: sqlite3.Connection, clock: StoreClock, request: ClaimRequest) -> bool:
    """Return True if a claim would find anything."""
    owner, graphs = request.owner, request.graphs
    present = present_holders(connection, clock)[0]
    names = graph_names(connection) if graphs is None else [*graphs]
    ways = _ways(connection, [*present, owner.executor], SYSTEM_CLOCK.now(), 1)
    return any(names and way(names) for kind, way in ways if kind != "due")  # "new" includes these


def _selected(connection: sqlite3.Connection, present: list[str], request: ClaimRequest) -> list[Candidate]:
    """Return runs that can continue and that none of these holders holds."""
    graphs, limit, turns = request.graphs, request.limit, request.turns
    names = graph_names(connection) if graphs is None else sorted(graphs)
    found = Selection[Candidate](limit, request.most)
    wall = SYSTEM_CLOCK.now()
    connection.execute(_INDEX)
    ways = list(_ways(connection, present, wall, limit))

    def add(row: Candidate) -> bool:
        return found.add(row[0], row[4], row)

    if turns is not None and found.open(names):
        lapsed = [way for kind, way in ways if kind in ("message", "lapsed")]
        first = [(value_of(connection, turns, row[0]), row) for way in lapsed for row in way(names)]
        found_waiting = waiting(connection, turns, names, limit, wall)
        take_turns(turns, [*first, *found_waiting.rows], add, lambda: found.full)
        if not found.full and found_waiting.visited is not None:
            turns.after = found_waiting.visited
    for _, way in ways:
        _add_all(way, found, names, add)
    return found.rows


def _add_all(way: _Way, found: Selection[Candidate], names: Collection[str], add: Callable[[Candidate], bool]) -> None:
    """Add the runs of a kind; again without the graphs that reached their limits, while those come before others."""
    known = found.open(names)
    while known:
        for row in way(known):
            add(row)
        still = found.open(known)
        if len(still) == len(known):
            return
        known = still


def _ways(connection: sqlite3.Connection, present: list[str], wall: float, limit: int) -> Iterator[tuple[str, _Way]]:
    """Yield the kinds of claimable runs, in their order, each with the query that finds them."""
    free, ready = _free(present), f"deaths < {MAX_DEATHS} AND (retry_at IS NULL OR retry_at <= ?)"

    def addressed(names: list[str]) -> list[Candidate]:
        return connection.execute(
            f"{_COLUMNS} FROM inbox CROSS JOIN runs ON runs.id = inbox.run WHERE graph IN ({_marks(names)})"
            f" AND status IN ('running', 'paused') AND {free} AND {ready} AND NOT {IS_NOTICE}"
            " GROUP BY runs.id ORDER BY min(inbox.id) LIMIT ?",
            (*names, *present, wall, limit),
        ).fetchall()

    def due(index: str, names: list[str]) -> list[Candidate]:
        query = (
            f"{_COLUMNS}, due FROM runs INDEXED BY {index} AND graph = ? AND due <= ?"
            f" AND status IN ('running', 'paused') AND {free} AND {ready} ORDER BY due LIMIT ?"
        )
        return _oldest_of_each(connection, query, names, wall, *present, wall, limit)

    def lapsed(names: list[str]) -> list[Candidate]:
        query = (
            f"{_COLUMNS}, created FROM runs INDEXED BY runs_by_holder WHERE holder = ? AND status = 'running'"
            f" AND graph IN ({_marks(names)}) AND (due IS NULL OR due <= ?) AND {ready} LIMIT ?"
        )
        return _oldest_of_each(connection, query, _absent(connection, present), *names, wall, wall, limit)

    def idle(names: list[str]) -> list[Candidate]:
        query = (
            f"SELECT * FROM ({_FREE} AND retry_at IS NULL ORDER BY created LIMIT ?3) UNION ALL"
            f" SELECT * FROM ({_FREE} AND retry_at <= ?2 ORDER BY retry_at LIMIT ?3)"
        )
        return _oldest_of_each(connection, query, names, wall, limit)

    yield "message", addressed
    yield "due", partial(due, f"runs_overdue WHERE {_MOVED_ON}")
    yield "lapsed", lapsed
    yield "idle", idle
    yield "new", partial(due, "runs_by_due WHERE due IS NOT NULL")


_MOVED_ON = "(due > created OR status = 'paused')"
"""Condition for due runs, which time, an answer or an event continues; the others were enqueued to start at once."""
_INDEX = f"CREATE INDEX IF NOT EXISTS runs_overdue ON runs (graph, due) WHERE {_MOVED_ON}"
_COLUMNS = "SELECT runs.id, runs.run_id, runs.token, runs.holder, runs.graph"
_FREE = (
    f"{_COLUMNS}, coalesce(retry_at, created) FROM runs INDEXED BY runs_free WHERE graph = ?1 AND status = 'running'"
    f" AND token IS NULL AND deaths < {MAX_DEATHS} AND due IS NULL"
)


def _oldest_of_each(
    connection: sqlite3.Connection, query: str, keys: Collection[str], *values: object
) -> list[Candidate]:
    """Return the rows of a query for each of some keys, in the order of the time in their last column."""
    found: list[tuple[Any, ...]] = []
    for key in keys:
        found += connection.execute(query, (key, *values)).fetchall()
    return [row[:-1] for row in sorted(found, key=_time_of)]


def _time_of(row: tuple[Any, ...]) -> float:
    """Return the last column of a row; a damaged one counts as old, so that its run is not skipped."""
    return row[-1] if isinstance(row[-1], int | float) else 0.0


def _free(present: Collection[str]) -> str:
    return f"(token IS NULL OR holder NOT IN ({_marks(present)}))"


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def graph_names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all graphs that have runs, by one index lookup for each."""
    return [name for (name,) in connection.execute(_steps("graph", "runs", "TRUE"))]


def _absent(connection: sqlite3.Connection, present: Collection[str]) -> list[str]:
    """Return the ids of the holders that runs name, without those that may be alive."""
    found = connection.execute(_steps("holder", "runs", "holder IS NOT NULL"))
    return [holder for (holder,) in found if holder not in present]


def _steps(column: str, table: str, where: str) -> str:
    first = f"SELECT min({column}) FROM {table} WHERE {where}"
    return (
        f"WITH RECURSIVE steps (name) AS ({first} UNION ALL SELECT ({first} AND {column} > name) FROM steps"
        " WHERE name IS NOT NULL) SELECT name FROM steps WHERE name IS NOT NULL"
    )


def next_due(connection: sqlite3.Connection, clock: StoreClock, graphs: Collection[str] | None) -> float | None:
    """See `Store.next_due`."""
    present = present_holders(connection, clock)[0]
    free = f"{_free(present)} AND deaths < {MAX_DEATHS}"
    times: list[float] = []
    overdue = (
        "SELECT due FROM runs INDEXED BY runs_by_due WHERE graph = ? AND due IS NOT NULL AND retry_at IS NULL"
        f" AND status IN ('running', 'paused') AND {free} ORDER BY due LIMIT 1"
    )
    backing_off = (
        "SELECT min(CASE WHEN status = 'running' AND due IS NULL THEN retry_at ELSE max(due, retry_at) END)"
        " FROM runs INDEXED BY runs_by_retry WHERE graph = ? AND retry_at IS NOT NULL"
        f" AND status IN ('running', 'paused') AND {free}"
    )
    for name in graph_names(connection) if graphs is None else graphs:
        for query in (overdue, backing_off):
            found = connection.execute(query, (name, *present)).fetchone()
            if found is not None and isinstance(found[0], float):
                times.append(found[0])
    return min(times, default=None)
