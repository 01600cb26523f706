"""The tables, their versions, and how a file of one version becomes one of the next.

A row of `records` or `snapshots` has the key `run << 32 | seq`: an ordinary rowid table whose rows lie in the
order in which they are read. (`WITHOUT ROWID` would put every record of more than a quarter page on an overflow
page of its own.) `labels` repeats `created` so that a page of the runs with a label is one walk along its key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from typing import TypeAlias

from orchestrator.errors import StoreError, StoreTooNew
from orchestrator.stores.sqlite.clock import StoreClock
from orchestrator.stores.sqlite.schema2 import leases_in_rows
from orchestrator.stores.sqlite.schema3 import items_beside_runs
from orchestrator.stores.sqlite.schema4 import totals_beside_runs
from orchestrator.stores.sqlite.schema5 import totals_in_one_row
from orchestrator.stores.sqlite.schema6 import records_elsewhere
from orchestrator.stores.sqlite.schema7 import payloads_beside_records

APPLICATION_ID = 0x4F524348
"""SQLite's header field that says whose database a file is: "ORCH"."""

Migration: TypeAlias = Callable[[sqlite3.Connection], None]


def _first_tables(connection: sqlite3.Connection) -> None:
    for statement in _FIRST_TABLES.split(";"):
        connection.execute(statement)


_FIRST_TABLES = """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        graph TEXT NOT NULL,
        status TEXT NOT NULL,
        labels TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        head INTEGER NOT NULL,
        structure TEXT NOT NULL,
        content TEXT NOT NULL,
        due REAL,
        waiting INTEGER NOT NULL
    );
    CREATE INDEX runs_by_created ON runs (created);
    CREATE INDEX runs_by_status ON runs (status, created);
    CREATE INDEX runs_by_graph ON runs (graph, created);
    CREATE INDEX runs_by_graph_and_status ON runs (graph, status, created);

    CREATE TABLE labels (
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        created REAL NOT NULL,
        run INTEGER NOT NULL,
        PRIMARY KEY (name, value, created, run)
    ) WITHOUT ROWID;

    CREATE TABLE records (id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL);
    CREATE TABLE snapshots (id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL);
    CREATE TABLE graphs (digest TEXT PRIMARY KEY, data TEXT NOT NULL);
    CREATE TABLE leases (run INTEGER PRIMARY KEY, token TEXT NOT NULL, owner TEXT NOT NULL, expires REAL NOT NULL);

    CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, body TEXT NOT NULL);
    CREATE INDEX inbox_by_run ON inbox (run);

    CREATE VIEW journal AS
        SELECT runs.run_id, records.id & 4294967295 AS seq, CAST(records.data AS TEXT) AS record
        FROM records JOIN runs ON runs.id = records.id >> 32
"""


MIGRATIONS: list[Migration] = [
    _first_tables, leases_in_rows, items_beside_runs, totals_beside_runs, totals_in_one_row,
    records_elsewhere, payloads_beside_records,
]  # fmt: skip
"""The n-th turns a file of version n into one of version n + 1. Released ones are never edited."""


def version_of(connection: sqlite3.Connection) -> int:
    """How many migrations a file has seen; 0 for an empty one."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def check_version(connection: sqlite3.Connection, url: str, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """The version of a file that this library may use.

    Raises:
        StoreTooNew: a newer version of this library wrote it.
        StoreError: it is the database of another program.
    """
    began = not connection.in_transaction
    if began:
        connection.execute("BEGIN")  # all of one moment: another process may be making the tables
    try:
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        version = version_of(connection)
    finally:
        if began and connection.in_transaction:
            connection.execute("ROLLBACK")
    if application != APPLICATION_ID and (application or tables):
        raise StoreError(f"store {url} is the SQLite database of another program; name another file")
    if version > len(migrations):
        raise StoreTooNew(
            f"store {url} has schema version {version}, this version of the library knows up to "
            f"{len(migrations)}; update the library"
        )
    return version


def check_tables(connection: sqlite3.Connection, url: str) -> None:
    """Refuse a file of the newest version whose tables are not as the migrations make them.

    Raises:
        StoreError: it is damaged. SQLite would go on in a table whose definition says something else.
    """
    if not _definitions() <= {*_defined(connection)}:
        raise StoreError(
            f"store {url}: the file is damaged (its tables are not those of schema version {len(MIGRATIONS)}); "
            "restore it from a copy"
        )
    (triggers,) = connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").fetchone()
    if triggers:  # they would write to the journal whenever this library does
        raise StoreError(
            f"store {url}: the file has {triggers} triggers, which this library never creates; drop them, or name "
            "another file"
        )


@cache
def _definitions() -> frozenset[str]:
    return frozenset(_newest_tables())


@cache
def _newest_tables() -> tuple[str, ...]:
    """The statements that make the tables of the newest version, as SQLite keeps them after all migrations."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for change in MIGRATIONS:
            change(connection)
        return _defined(connection)


def _defined(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The statements that made what is in a file, tables before their indexes."""
    rows = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
    return tuple(sql for (sql,) in rows)


def _all_at_once(connection: sqlite3.Connection) -> None:
    """Turn an empty file into one of the newest version, without the steps between: `ALTER TABLE` is slow."""
    for statement in _newest_tables():
        if "sqlite_sequence" not in statement:  # SQLite makes it, with the first table that needs it
            connection.execute(statement)
    StoreClock().now(connection, write=True)  # as the migrations do: the next caller remembers it


def migrate(connection: sqlite3.Connection, url: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring a file to the newest version, in one transaction: it is changed wholly or not at all.

    Raises:
        StoreTooNew, StoreError: see `check_version`.
        sqlite3.Error: the file cannot be changed.
    """
    if check_version(connection, url, migrations) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = check_version(connection, url, migrations)  # asked again, now that no other process can change it
        at_once = version == 0 and [*migrations] == MIGRATIONS
        for change in [_all_at_once] if at_once else migrations[version:]:
            change(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
