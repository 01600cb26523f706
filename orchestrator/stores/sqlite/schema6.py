"""From the tables of version 5 to those of version 6: the records of ended runs may be in an archive.

`runs.archived` says in which object; NULL: they are in the file. `archive_objects` has every object that was written
for a run, until it is removed: also of runs that went on, and of those that are deleted (`gone`).
"""

from __future__ import annotations

import sqlite3


def records_elsewhere(connection: sqlite3.Connection) -> None:
    """Change the tables."""
    for statement in _STATEMENTS.split(";"):
        connection.execute(statement)


BEFORE_ARCHIVES = 5
"""The schema version of files that have all of their records."""


def nothing_archived(connection: sqlite3.Connection) -> None:
    """Let a file of an earlier version that may only be read look as if it had the column."""
    connection.execute("CREATE TEMP VIEW runs AS SELECT *, NULL AS archived FROM main.runs")


_STATEMENTS = """
    ALTER TABLE runs ADD COLUMN archived TEXT;
    CREATE INDEX runs_to_archive ON runs (created)
        WHERE archived IS NULL AND status IN ('cancelled', 'completed', 'exhausted', 'failed');

    CREATE TABLE archive_objects (
        name TEXT PRIMARY KEY,
        run_id TEXT NOT NULL,
        archive TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        data TEXT NOT NULL,
        gone INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX archive_objects_by_run ON archive_objects (run_id);
    CREATE INDEX archive_objects_gone ON archive_objects (name) WHERE gone = 1
"""
