"""From the tables of version 4 to those of version 5: what a run spent is one row, and lists find their rows at once.

What a released migration does is never changed, so it uses nothing of the library that may change.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from typing import Any


def totals_in_one_row(connection: sqlite3.Connection) -> None:
    """Change the tables, and fill the new ones."""
    _add_functions(connection)
    for statement in _STATEMENTS.split(";"):
        connection.execute(statement)
    for table, query in _CONTENT.items():
        connection.execute(f"INSERT INTO {table} {query}")
    connection.execute("DROP TABLE totals")


BEFORE_PARTS = 4
"""The schema version of files with a row for each node and each thing that it called."""


def parts_as_views(connection: sqlite3.Connection) -> None:
    """Let a file of version 4 that may only be read look as if it had the tables."""
    _add_functions(connection)
    for table, query in _CONTENT.items():
        connection.execute(f"CREATE TEMP VIEW {table} AS {query}")


class _Names:
    """An aggregate: the first three columns of rows, as JSON."""

    def __init__(self) -> None:
        self._rows: list[tuple[object, ...]] = []

    def step(self, *row: object) -> None:
        self._rows.append(row)

    def finalize(self) -> str:
        return json.dumps(self._rows, separators=(",", ":"))


class _Numbers:
    """An aggregate: numbers of rows, in cells of eight bytes."""

    def __init__(self) -> None:
        self._data = b""

    def step(self, *row: float) -> None:
        self._data += struct.pack("<4q2d", *row)

    def finalize(self) -> bytes:
        return self._data


def _add_functions(connection: sqlite3.Connection) -> None:
    names: Any = _Names  # the types of the standard library know whole numbers alone as results
    numbers: Any = _Numbers
    connection.create_aggregate("names_of_rows", 3, names)
    connection.create_aggregate("numbers_of_rows", 6, numbers)


_CONTENT = {
    "run_parts": (
        "SELECT run, names_of_rows(node, kind, name) AS names,"
        " numbers_of_rows(calls, failed, input_tokens, output_tokens, cost, seconds) AS numbers"
        " FROM (SELECT * FROM totals ORDER BY run, node, kind, name) GROUP BY run"
        " UNION ALL SELECT run, '[]', x'' FROM run_totals WHERE run NOT IN (SELECT run FROM totals)"
    ),
    "failed_tools": "SELECT DISTINCT name, run FROM totals WHERE kind = 'tool' AND failed > 0",
    "unlisted": "SELECT id AS run FROM runs WHERE waiting > 0 AND id NOT IN (SELECT run FROM questions)",
}

_STATEMENTS = """
    CREATE TABLE run_parts (run INTEGER PRIMARY KEY, names TEXT NOT NULL, numbers BLOB NOT NULL);

    CREATE TABLE failed_tools (name TEXT NOT NULL, run INTEGER NOT NULL, PRIMARY KEY (name, run)) WITHOUT ROWID;
    CREATE INDEX failed_tools_by_run ON failed_tools (run);

    CREATE TABLE unlisted (run INTEGER PRIMARY KEY);
    CREATE INDEX questions_by_kind ON questions (kind, asked, run, name)
"""
