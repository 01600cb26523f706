"""The full-text index of inputs and outputs: a cache, made by the first search and brought up to date by each.

An append never touches it. What is indexed are the words as `stores.words` gives them, so that all stores find the same
runs, and no text of a user is ever a query to SQLite.
"""

from __future__ import annotations

import sqlite3

from orchestrator.stores.words import contains, words

AT_ONCE = 500
"""Runs that are indexed in one write."""


def has_index(connection: sqlite3.Connection) -> bool:
    """Whether there is an index."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'search'").fetchone() is not None


def index_some(connection: sqlite3.Connection) -> bool:
    """Index some of the runs that are not; whether others may be left."""
    if not has_index(connection):
        connection.execute("UPDATE summaries SET indexed = 0 WHERE indexed <> 0")
        connection.execute("CREATE VIRTUAL TABLE search USING fts5 (words)")
    rows = connection.execute(
        "SELECT run, input, output FROM summaries WHERE indexed = 0 LIMIT ?", (AT_ONCE,)
    ).fetchall()
    connection.executemany("DELETE FROM search WHERE rowid = ?", [(run,) for run, _, _ in rows])
    connection.executemany(
        "INSERT INTO search (rowid, words) VALUES (?, ?)",
        [(run, " ".join(words(f"{given} {output}"))) for run, given, output in rows],
    )
    connection.executemany("UPDATE summaries SET indexed = 1 WHERE run = ?", [(run,) for run, _, _ in rows])
    return len(rows) == AT_ONCE


def is_complete(connection: sqlite3.Connection) -> bool:
    """Whether every run is indexed."""
    return (
        has_index(connection)
        and connection.execute("SELECT 1 FROM summaries WHERE indexed = 0 LIMIT 1").fetchone() is None
    )


def condition(connection: sqlite3.Connection, wanted: list[str]) -> tuple[str, tuple[object, ...]]:
    """A condition on `runs` for those that have all of these words, and its values."""
    if not wanted:
        return "FALSE", ()
    found: list[str] = []
    values: list[object] = []
    if has_index(connection):
        found.append("runs.id IN (SELECT rowid FROM search WHERE search MATCH ?)")
        values.append(" ".join(f'"{word}"' for word in wanted))
    if not is_complete(connection):  # a file that cannot be written: read the rest
        connection.create_function(
            "has_words", 2, lambda given, output: contains(wanted, str(given), str(output)), deterministic=True
        )
        found.append(
            "runs.id IN (SELECT run FROM summaries WHERE indexed = 0 AND has_words(input, output))"
            if found
            else "runs.id IN (SELECT run FROM summaries WHERE has_words(input, output))"
        )
    return f"({' OR '.join(found)})", tuple(values)


def forget(connection: sqlite3.Connection, number: int) -> None:
    """Delete what is known of a run beside its journal, and its words from the index."""
    row = connection.execute("SELECT indexed FROM summaries WHERE run = ?", (number,)).fetchone()
    if row is None:
        return
    connection.execute("DELETE FROM summaries WHERE run = ?", (number,))
    if row[0] and has_index(connection):  # its words stay in the index until `Store.compact` merges it
        connection.execute("DELETE FROM search WHERE rowid = ?", (number,))
