"""The full-text index of labels, inputs and outputs: a cache, made by the first search and brought up to date by each.

An append never touches it. What is indexed are the words of `stores.requests.words`, so that all stores find the same
runs, and no text of a user is ever a query to SQLite.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from orchestrator.stores.requests import contains, words
from orchestrator.stores.stored import labels_of

OF_RUNS = ("run_parts", "failed_tools", "run_totals", "questions", "unlisted")
"""Tables of what is known of runs beside their journals, with the number of the run in the column `run`."""
COUNTED = 1000
"""Runs that a filter selects are looked up one by one if there are fewer; they are counted no further."""
AT_ONCE = 500
"""Runs that are indexed in one write."""


def has_index(connection: sqlite3.Connection) -> bool:
    """True if there is an index."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'search'").fetchone() is not None


def index_some(connection: sqlite3.Connection) -> bool:
    """Index some of the runs that are not; whether others may be left."""
    if not has_index(connection):
        connection.execute("UPDATE summaries SET indexed = 0 WHERE indexed <> 0")
        connection.execute("CREATE VIRTUAL TABLE search USING fts5 (words)")
    rows = connection.execute(
        "SELECT summaries.run, input, output, labels FROM summaries LEFT JOIN runs ON runs.id = summaries.run"
        " WHERE indexed = 0 LIMIT ?",
        (AT_ONCE,),
    ).fetchall()
    connection.executemany("DELETE FROM search WHERE rowid = ?", [(run,) for run, *_ in rows])
    connection.executemany(
        "INSERT INTO search (rowid, words) VALUES (?, ?)",
        [(run, " ".join(words(" ".join(_texts(*texts))))) for run, *texts in rows],
    )
    connection.executemany("UPDATE summaries SET indexed = 1 WHERE run = ?", [(run,) for run, *_ in rows])
    return len(rows) == AT_ONCE


def is_complete(connection: sqlite3.Connection) -> bool:
    """True if every run is indexed."""
    return (
        has_index(connection)
        and connection.execute("SELECT 1 FROM summaries WHERE indexed = 0 LIMIT 1").fetchone() is None
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on `runs`."""

    where: str
    values: tuple[object, ...] = ()
    few: bool = False
    """True if few runs meet it, which are best looked up by their numbers."""


def condition(connection: sqlite3.Connection, wanted: list[str]) -> Condition:
    """A condition on `runs` for those that have all of these words."""
    if not wanted:
        return Condition("FALSE", few=True)
    found: list[str] = []
    values: list[object] = []
    if has_index(connection):
        found.append("{runs.id} IN (SELECT rowid FROM search WHERE search MATCH ?)")
        values.append(" ".join(f'"{word}"' for word in wanted))
    if not is_complete(connection):  # a file that cannot be written: read the rest
        connection.create_function(
            "has_words",
            3,
            lambda given, output, labels: contains(wanted, *_texts(given, output, labels)),
            deterministic=True,
        )
        rows = (
            "SELECT run FROM summaries JOIN runs AS labelled ON labelled.id = run"
            " WHERE has_words(input, output, labelled.labels)"
        )
        found.append(f"{{runs.id}} IN ({rows}{' AND indexed = 0' if found else ''})")
    # Few runs are looked up one by one. Many are put into a set, and met soon on a walk along the list: the sign keeps
    # SQLite from looking up and sorting all of them.
    few = len(found) == 1 and _count(connection, values) < COUNTED
    where = f"({' OR '.join(found)})".replace("{runs.id}", "runs.id" if few else "+runs.id")
    return Condition(where, tuple(values), few)


def _count(connection: sqlite3.Connection, values: list[object]) -> int:
    """How many runs the index finds, counted no further than needed."""
    if not values:
        return 0
    query = "SELECT count(*) FROM (SELECT 1 FROM search WHERE search MATCH ? LIMIT ?)"
    count: int = connection.execute(query, (*values, COUNTED)).fetchone()[0]
    return count


def _texts(given: object, output: object, labels: object) -> list[str]:
    """The texts of a run that are searched."""
    named = labels_of(labels) or {}
    return [str(given), str(output), *named, *named.values()]


def forget(connection: sqlite3.Connection, number: int) -> None:
    """Delete what is known of a run beside its journal, and its words from the index."""
    for table in OF_RUNS:
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (number,))
    row = connection.execute("SELECT indexed FROM summaries WHERE run = ?", (number,)).fetchone()
    if row is None:
        return
    connection.execute("DELETE FROM summaries WHERE run = ?", (number,))
    if row[0] and has_index(connection):  # its words stay in the index until `Store.compact` merges it
        connection.execute("DELETE FROM search WHERE rowid = ?", (number,))
