"""From the tables of version 2 to those of version 3: items, and which calls of runs wrote them.

What a released migration does is never changed, so it uses nothing of the library that may change.
"""

from __future__ import annotations

import sqlite3


def items_beside_runs(connection: sqlite3.Connection) -> None:
    """Add the tables."""
    for statement in _STATEMENTS.split(";"):
        connection.execute(statement)


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
