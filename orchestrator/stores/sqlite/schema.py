"""The tables, and files that have them.

A row of `records` or `snapshots` has the key `run << 32 | seq`: an ordinary rowid table whose rows are stored in the
order in which they are read. (`WITHOUT ROWID` would put every record of more than a quarter page on a separate
overflow page.) `labels` repeats `created` so that a page of the runs with a label is one scan along its key.

Records of ended runs may be in an archive: `runs.archived` names the object. `archive_objects` contains every object
that was written for a run, until it is removed, including those of continued and of deleted runs (`gone`).
`notes` are those of people on runs and steps.
Long strings of records are in `payloads`, once each; `payload_uses` lists the runs whose records have a payload. The
view `journal` is for people: it shows records without their first line, which contains the positions of payloads.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache, lru_cache

from orchestrator.errors import StoreError, StoreTooNew
from orchestrator.stores.shared import too_old
from orchestrator.stores.sqlite.leases import StoreClock

APPLICATION_ID = 0x4F524348
"""SQLite's header field for the application id: "ORCH"."""

VERSION = 8
"""The version of these tables. Each change of them gets the next number, and a step from this one to it."""
OLDEST = 7
"""The oldest version of a file that can be read, and that the first write brings to `VERSION`."""

_NOTES = """
CREATE TABLE notes (
    run INTEGER NOT NULL,
    id TEXT NOT NULL,
    at REAL NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run, id)
) WITHOUT ROWID"""

STEPS = {7: _NOTES}
"""Version -> the statement that makes the next version of it."""

_TABLES = """
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
    waiting INTEGER NOT NULL,
    token TEXT,
    holder TEXT,
    deaths INTEGER NOT NULL DEFAULT 0,
    retry_at REAL,
    fault TEXT NOT NULL DEFAULT '',
    taken INTEGER NOT NULL DEFAULT 0,
    parent TEXT,
    parent_seq INTEGER,
    relation TEXT,
    archived TEXT
);
CREATE INDEX runs_by_created ON runs (created);
CREATE INDEX runs_by_status ON runs (status, created);
CREATE INDEX runs_by_graph ON runs (graph, created);
CREATE INDEX runs_by_graph_and_status ON runs (graph, status, created);
CREATE INDEX runs_by_holder ON runs (holder) WHERE holder IS NOT NULL;
CREATE INDEX runs_by_due ON runs (graph, due) WHERE due IS NOT NULL;
CREATE INDEX runs_by_retry ON runs (graph, retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX runs_free ON runs (graph, retry_at, created)
    WHERE status = 'running' AND token IS NULL AND deaths < 5 AND due IS NULL;
CREATE INDEX runs_by_parent ON runs (parent, created) WHERE parent IS NOT NULL;
CREATE INDEX runs_waiting ON runs (created) WHERE waiting > 0;
CREATE INDEX runs_to_archive ON runs (created)
    WHERE archived IS NULL AND status IN ('cancelled', 'completed', 'exhausted', 'failed');

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

CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, body TEXT NOT NULL, key TEXT);
CREATE INDEX inbox_by_run ON inbox (run);
CREATE UNIQUE INDEX inbox_by_key ON inbox (run, key) WHERE key IS NOT NULL;

CREATE TABLE summaries (
    run INTEGER PRIMARY KEY,
    error TEXT NOT NULL,
    input TEXT NOT NULL,
    output TEXT NOT NULL,
    question TEXT NOT NULL,
    steps INTEGER NOT NULL,
    usage TEXT,
    indexed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX summaries_to_index ON summaries (run) WHERE indexed = 0;

CREATE TABLE holders (
    holder TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    ttl REAL NOT NULL,
    expires REAL NOT NULL,
    robbed INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE clocks (boot TEXT PRIMARY KEY, start REAL NOT NULL) WITHOUT ROWID;

CREATE TABLE schedules (name TEXT PRIMARY KEY, next_at REAL NOT NULL, data TEXT NOT NULL) WITHOUT ROWID;

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
CREATE INDEX item_writes_by_run ON item_writes (run);

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

CREATE TABLE questions (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    asked REAL NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run, name)
) WITHOUT ROWID;
CREATE INDEX questions_by_time ON questions (asked, run, name);
CREATE INDEX questions_by_kind ON questions (kind, asked, run, name);

CREATE TABLE run_parts (run INTEGER PRIMARY KEY, names TEXT NOT NULL, numbers BLOB NOT NULL);

CREATE TABLE failed_tools (name TEXT NOT NULL, run INTEGER NOT NULL, PRIMARY KEY (name, run)) WITHOUT ROWID;
CREATE INDEX failed_tools_by_run ON failed_tools (run);

CREATE TABLE unlisted (run INTEGER PRIMARY KEY);

CREATE TABLE archive_objects (
    name TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    archive TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    data TEXT NOT NULL,
    gone INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX archive_objects_by_run ON archive_objects (run_id);
CREATE INDEX archive_objects_gone ON archive_objects (name) WHERE gone = 1;

CREATE TABLE payloads (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL);

CREATE TABLE payload_uses (digest BLOB NOT NULL, run INTEGER NOT NULL, PRIMARY KEY (digest, run)) WITHOUT ROWID;
CREATE INDEX payload_uses_by_run ON payload_uses (run);

CREATE VIEW journal AS
    SELECT runs.run_id, records.id & 4294967295 AS seq, CAST(
        CASE WHEN substr(records.data, 1, 1) = x'7E' THEN substr(records.data, instr(records.data, x'0A') + 1)
        ELSE records.data END AS TEXT
    ) AS record
    FROM records JOIN runs ON runs.id = records.id >> 32
"""
"""The tables of version `OLDEST`."""


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of a file's tables; 0 for an empty file."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def check_version(connection: sqlite3.Connection, url: str) -> int:
    """Return the version of a file that this library may use: `OLDEST` to `VERSION`, or 0 for one without tables.

    Raises:
        StoreTooNew: a newer version of this library wrote it.
        StoreError: a development version before the first release wrote it, or it is the database of another program.
    """
    began = not connection.in_transaction
    if began:
        connection.execute("BEGIN")  # at one moment: another process may be creating the tables
    try:
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        version = version_of(connection)
    finally:
        if began and connection.in_transaction:
            connection.execute("ROLLBACK")
    if application != APPLICATION_ID and (application or tables):
        raise StoreError(f"store {url} is the SQLite database of another program; name another file")
    if version > VERSION:
        raise StoreTooNew(
            f"store {url} has schema version {version}, but this version of the library supports {VERSION} at most; "
            "update the library"
        )
    if 0 < version < OLDEST:
        raise StoreError(too_old(url, version, OLDEST, VERSION))
    return version


def check_tables(connection: sqlite3.Connection, url: str) -> None:
    """Refuse a file whose tables are not those of its version.

    Raises:
        StoreError: the file is damaged. SQLite would continue with a table whose definition differs.
    """
    version = version_of(connection)
    statements, triggers = _defined(connection)
    if not _definitions(version) <= statements:
        raise StoreError(
            f"store {url}: the file is damaged (its tables are not those of schema version {version}); restore it from "
            "a copy"
        )
    if triggers:  # triggers would write to the journal whenever this library does
        raise StoreError(
            f"store {url}: the file has {triggers} triggers, which this library never creates; drop them, or name "
            "another file"
        )


@cache
def _definitions(version: int) -> frozenset[str]:
    """Return the statements of the tables of a version, as SQLite stores them, without their layout."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_TABLES)
        for step in range(OLDEST, version):
            connection.execute(STEPS[step])
        return _defined(connection)[0]


def _defined(connection: sqlite3.Connection) -> tuple[frozenset[str], int]:
    """Return the statements of the tables and indexes of a file, without their layout, and its number of triggers."""
    text, triggers = connection.execute(
        "SELECT group_concat(sql, char(31)), total(type = 'trigger') FROM sqlite_schema"  # one text: decoded at once
    ).fetchone()
    return frozenset(map(_plain, (text or "").split("\x1f"))), int(triggers)


@lru_cache(maxsize=256)  # the same few statements at each opening of a file
def _plain(sql: str) -> str:
    """Return a statement without blanks, which differ where `ALTER TABLE` added columns."""
    return "".join(sql.split())


def make_tables(connection: sqlite3.Connection, url: str) -> None:
    """Create the tables in an empty file, or bring those of an earlier version to this one, in one transaction.

    Raises:
        StoreTooNew, StoreError: see `check_version`.
        sqlite3.Error: the file cannot be changed.
    """
    if check_version(connection, url) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = check_version(connection, url)  # checked again, now that no other process can change it
        if not version:
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            StoreClock().now(connection, write=True)  # the next caller caches it
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for step in range(version or OLDEST, VERSION):
            connection.execute(STEPS[step])
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
