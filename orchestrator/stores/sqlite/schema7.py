"""From the tables of version 6 to those of version 7: long strings of records are kept beside them, once each.

Records that are there stay as they are. `payload_uses` says which runs have records with a payload; it goes with the
last of them. The view for people shows records without their first line that says where payloads were.
"""

from __future__ import annotations

import sqlite3


def payloads_beside_records(connection: sqlite3.Connection) -> None:
    """Change the tables."""
    for statement in _STATEMENTS.split(";"):
        connection.execute(statement)


BEFORE_PAYLOADS = 6
"""The schema version of files whose records are whole."""


def no_payloads(connection: sqlite3.Connection) -> None:
    """Let a file of an earlier version that may only be read look as if it had the tables, without anything in them."""
    connection.execute("PRAGMA temp_store = MEMORY")
    for statement in _STATEMENTS.split(";"):
        if "CREATE TABLE" in statement:
            connection.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE"))


_STATEMENTS = """
    CREATE TABLE payloads (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL);

    CREATE TABLE payload_uses (digest BLOB NOT NULL, run INTEGER NOT NULL, PRIMARY KEY (digest, run)) WITHOUT ROWID;
    CREATE INDEX payload_uses_by_run ON payload_uses (run);

    DROP VIEW journal;
    CREATE VIEW journal AS
        SELECT runs.run_id, records.id & 4294967295 AS seq, CAST(
            CASE WHEN substr(records.data, 1, 1) = x'7E' THEN substr(records.data, instr(records.data, x'0A') + 1)
            ELSE records.data END AS TEXT
        ) AS record
        FROM records JOIN runs ON runs.id = records.id >> 32
"""
