"""From the tables of version 3 to those of version 4: totals and open questions of runs, and labels in the index.

What a released migration does is never changed, so it uses nothing of the library that may change. Totals and questions
of runs are not known before they are folded, so there are none until a run is written again.
"""

from __future__ import annotations

import sqlite3


def totals_beside_runs(connection: sqlite3.Connection) -> None:
    """Add the tables. The full-text index of runs goes: it has no labels. The next search makes it again."""
    for statement in _STATEMENTS.split(";"):
        connection.execute(statement)
    connection.execute("DROP TABLE IF EXISTS search")


BEFORE_TOTALS = 3
"""The schema version of files without totals."""


def no_totals(connection: sqlite3.Connection) -> None:
    """Let a file of version 3 that may only be read look as if it had the tables, without anything in them."""
    connection.execute("PRAGMA temp_store = MEMORY")
    for statement in _STATEMENTS.split(";"):
        if "CREATE TABLE" in statement:
            connection.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE"))


_STATEMENTS = """
    CREATE TABLE run_totals (
        run INTEGER PRIMARY KEY,
        calls INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        tools INTEGER NOT NULL,
        failed_tools INTEGER NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cost REAL NOT NULL,
        seconds REAL NOT NULL
    );
    CREATE INDEX run_totals_failed ON run_totals (run) WHERE failed_tools > 0;

    CREATE TABLE totals (
        run INTEGER NOT NULL,
        node TEXT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        calls INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cost REAL NOT NULL,
        seconds REAL NOT NULL,
        PRIMARY KEY (run, node, kind, name)
    ) WITHOUT ROWID;
    CREATE INDEX totals_failed ON totals (name, run) WHERE kind = 'tool' AND failed > 0;

    CREATE TABLE questions (
        run INTEGER NOT NULL,
        name TEXT NOT NULL,
        asked REAL NOT NULL,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (run, name)
    ) WITHOUT ROWID;
    CREATE INDEX questions_by_time ON questions (asked, run, name);

    CREATE INDEX runs_waiting ON runs (created) WHERE waiting > 0
"""
