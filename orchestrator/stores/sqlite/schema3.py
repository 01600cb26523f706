"""From the tables of version 2 to those of version 3: items, and which calls of runs wrote them.

What a released migration does is never changed, so it uses nothing of the library that may change.
"""

from __future__ import annotations

import sqlite3


def items_beside_runs(connection: sqlite3.Connection) -> None:
    """Add the tables."""
    for statement in _STATEMENTS.split(";"):
        connection.execute(statement)


BEFORE_ITEMS = 2
"""The schema version of files without items."""


def no_items(connection: sqlite3.Connection) -> None:
    """Let a file of version 2 that may only be read look as if it had tables of items, without any in them."""
    connection.execute("PRAGMA temp_store = MEMORY")
    for statement in _STATEMENTS.split(";"):
        if "CREATE TABLE" in statement:
            connection.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE"))


_STATEMENTS = """
    CREATE TABLE items (
        id INTEGER PRIMARY KEY,
        area TEXT NOT NULL,
        namespace TEXT NOT NULL,
        key TEXT NOT NULL,
        data TEXT NOT NULL,
        text TEXT NOT NULL,
        vector BLOB NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        expires REAL,
        size INTEGER NOT NULL,
        words INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        indexed INTEGER NOT NULL,
        UNIQUE (area, namespace, key)
    );
    CREATE INDEX items_by_age ON items (area, updated, expires, size);
    CREATE INDEX items_by_expiry ON items (expires) WHERE expires IS NOT NULL;
    CREATE INDEX items_to_index ON items (id) WHERE indexed = 0;

    CREATE TABLE item_writes (key TEXT PRIMARY KEY, run INTEGER NOT NULL, found INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX item_writes_by_run ON item_writes (run)
"""
