"""Runs that wait, by the value of a label that takes turns (see `orchestrator.stores.fair_claims`).

The first claim that takes turns by a label adds an index for that label. It has only runs without a holder and that
wait to be taken up or for a time, so a walk from one value to the next never meets runs that have ended, wait for
people, or are driven.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from orchestrator.stores.fair_claims import Turns
from orchestrator.stores.rows import MAX_DEATHS

VISITED = 1000
"""Values that one claim visits at most."""

_WAITS = (
    f"status IN ('running', 'paused') AND token IS NULL AND deaths < {MAX_DEATHS}"
    " AND (due IS NOT NULL OR status = 'running')"
)
_READY = "max(coalesce(due, 0.0), coalesce(retry_at, 0.0))"
"""From when on a run can be claimed; 0: ever since it was created."""
_SOME_TIME = 5e-324
"""The first moment that is not 0. Runs that waited for none are asked for on their own: they come before all others in
the index, and would be taken before those that waited for a long time."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Runs that can be claimed, with their values."""

    rows: list[tuple[str, Any]]
    visited: str | None
    """The value at which the walk had to stop; None: it visited all, or found enough."""


def waiting(connection: sqlite3.Connection, turns: Turns, graphs: list[str], limit: int, wall: float) -> Waiting:
    """Find runs of values whose turn it is: of as many values as runs are wanted, if there are so many.

    Args:
        connection: a connection in a transaction that may write.
        turns: whose turn it is.
        graphs: the names of graphs.
        limit: how many runs are wanted.
        wall: Unix seconds.
    """
    index = _index(connection, turns.label)
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
    """The value of one run."""
    (value,) = connection.execute(f"SELECT {_value(turns.label)} FROM runs WHERE id = ?", (number,)).fetchone()
    return _text(value)


def _ready_values(
    connection: sqlite3.Connection, index: str, turns: Turns, graphs: list[str], limit: int, wall: float
) -> tuple[list[bytes], str | None]:
    """Values behind the last one, then those before it, that have a run which can be claimed; and where it stopped."""
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
                return found, None  # all round
            visited += 1
            if ready:
                found.append(one)
            if len(found) >= limit:
                return found, None
            if visited >= VISITED:
                return found, _text(one)
    return found, None


def _index(connection: sqlite3.Connection, label: str) -> str:
    """The name of the index of a label, which is made if it is not there."""
    name = f"runs_in_turn_{label.encode().hex()}"
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?", (name,)).fetchone() is None:
        connection.execute(f"CREATE INDEX {name} ON runs ({_value(label)}, graph, {_READY}, created) WHERE {_WAITS}")
    return name


def _value(label: str) -> str:
    """A run's value of a label, as bytes, which compare as code points do; empty without the label.

    The names of labels that `Turns` takes need no quoting.
    """
    found = f"CASE WHEN json_valid(labels) THEN json_extract(labels, '$.\"{label}\"') END"
    return f"CAST(coalesce({found}, '') AS BLOB)"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
