"""From the tables of version 1 to those of version 2: leases move into the rows of runs, and rows say more.

What a released migration does is never changed, so it uses nothing of the library that may change: it reads records as
plain JSON, and writes what version 2 wrote. Texts and parents are filled in one pass over the first and the last record
of each run, open questions by a look at the records of runs that wait. What a run used is not known before it is
folded, so it stays empty until the run is written again.
"""

from __future__ import annotations

import json
import sqlite3
import time

from orchestrator.stores.sqlite.clock import StoreClock

_TEXT = 2000


def leases_in_rows(connection: sqlite3.Connection) -> None:
    """Change the tables, and fill the new columns."""
    for statement in _STATEMENTS.split(";"):
        connection.execute(statement)
    _move_leases(connection)
    connection.execute("DROP TABLE leases")
    graphs: dict[object, dict[str, object]] = {}
    rows = connection.execute("SELECT id, run_id, waiting, head, content FROM runs").fetchall()
    for number, run_id, waiting, head, content in rows:
        if isinstance(head, int) and 0 < head < 1 << 32:
            _fill(connection, graphs, number, run_id, waiting, head, content)


_STATEMENTS = """
    ALTER TABLE runs ADD COLUMN token TEXT;
    ALTER TABLE runs ADD COLUMN holder TEXT;
    ALTER TABLE runs ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN retry_at REAL;
    ALTER TABLE runs ADD COLUMN fault TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN parent TEXT;
    ALTER TABLE runs ADD COLUMN parent_seq INTEGER;
    ALTER TABLE runs ADD COLUMN relation TEXT;
    CREATE INDEX runs_by_holder ON runs (holder) WHERE holder IS NOT NULL;
    CREATE INDEX runs_by_due ON runs (graph, due) WHERE due IS NOT NULL;
    CREATE INDEX runs_by_retry ON runs (graph, retry_at) WHERE retry_at IS NOT NULL;
    CREATE INDEX runs_free ON runs (graph, retry_at, created)
        WHERE status = 'running' AND token IS NULL AND deaths < 5 AND due IS NULL;
    CREATE INDEX runs_by_parent ON runs (parent, created) WHERE parent IS NOT NULL;

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

    ALTER TABLE inbox ADD COLUMN key TEXT;
    CREATE UNIQUE INDEX inbox_by_key ON inbox (run, key) WHERE key IS NOT NULL;

    CREATE TABLE schedules (name TEXT PRIMARY KEY, next_at REAL NOT NULL, data TEXT NOT NULL) WITHOUT ROWID
"""


def _move_leases(connection: sqlite3.Connection) -> None:
    """Living leases stay held: the process that holds one cannot renew it, so it ends after what is left of it."""
    now = time.time()
    clock = StoreClock().now(connection, write=True)
    for run, token, text, expires in connection.execute("SELECT run, token, owner, expires FROM leases").fetchall():
        owner = _object(text)
        ttl = owner.get("ttl")
        if not isinstance(expires, float) or not isinstance(ttl, float | int) or not 0 < ttl <= 86400:
            continue
        holder = f"{owner.get('executor', '')} {token}"
        left = min(max(expires - now, 0.0), float(ttl))
        connection.execute("UPDATE runs SET token = ?, holder = ? WHERE id = ?", (str(token), holder, run))
        connection.execute(
            "INSERT OR REPLACE INTO holders (holder, owner, ttl, expires, robbed) VALUES (?, ?, ?, ?, 0)",
            (holder, text, float(ttl), clock + left),
        )


def _fill(
    connection: sqlite3.Connection,
    graphs: dict[object, dict[str, object]],
    number: int,
    run_id: object,
    waiting: object,
    head: int,
    content: object,
) -> None:
    first = _record(connection, number, 1)
    last = first if head == 1 else _record(connection, number, head)
    if content not in graphs:
        graphs[content] = _graph(connection, content)
    values = first.get("values")
    error, output = last.get("error"), last.get("output") if last.get("type") == "ended" else None
    connection.execute(
        "INSERT INTO summaries (run, error, input, output, question, steps, usage) VALUES (?, ?, ?, ?, ?, 0, NULL)",
        (
            number,
            _failure(error) if last.get("type") == "ended" else "",
            _input(values if isinstance(values, dict) else {}, graphs[content].get("input")),
            _short(output),
            _question(connection, number) if waiting else "",
        ),
    )
    caller, labels = first.get("caller"), first.get("labels")
    parent = caller.get("run_id") if isinstance(caller, dict) else None
    if parent is None and isinstance(labels, dict) and isinstance(labels.get("parent"), str):
        # Before runs named their callers, the id of such a run began with that of the run that called it.
        parent = labels["parent"] if str(run_id).startswith(f"{labels['parent']}.") else None
    if isinstance(parent, str):
        connection.execute(
            "UPDATE runs SET parent = ?, parent_seq = 0, relation = 'call' WHERE id = ?", (parent, number)
        )


def _record(connection: sqlite3.Connection, number: int, seq: int) -> dict[str, object]:
    row = connection.execute("SELECT data FROM records WHERE id = ?", (number << 32 | seq,)).fetchone()
    return {} if row is None else _object(row[0])


def _graph(connection: sqlite3.Connection, content: object) -> dict[str, object]:
    row = connection.execute("SELECT data FROM graphs WHERE digest = ?", (content,)).fetchone()
    return {} if row is None else _object(row[0])


def _object(text: object) -> dict[str, object]:
    try:
        found = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _input(values: dict[str, object], fields: object) -> str:
    if isinstance(fields, str):
        return _short(values.get(fields))
    if isinstance(fields, list):
        return _short({name: values[name] for name in fields if name in values})
    return _short(values)


def _question(connection: sqlite3.Connection, number: int) -> str:
    """The prompt of the first open question of a run."""
    prompts: dict[object, str] = {}
    rows = connection.execute("SELECT data FROM records WHERE id > ? AND id < ?", (number << 32, (number + 1) << 32))
    for (data,) in rows.fetchall():
        if not isinstance(data, bytes) or not data.endswith((b'"asked"}', b'"answered"}', b'"answers_withdrawn"}')):
            continue
        record = _object(data)
        question = record.get("question")
        if record.get("type") == "asked" and isinstance(question, dict):
            prompts[question.get("id")] = str(question.get("prompt") or question.get("kind") or "")
        elif isinstance(question, str):
            prompts.pop(question, None)
        withdrawn = record.get("questions")
        for name in withdrawn if isinstance(withdrawn, list) else ():
            prompts.pop(name, None)
    return _short(next(iter(prompts.values()), ""))


def _failure(error: object) -> str:
    if not isinstance(error, dict):
        return ""
    kind, message = str(error.get("type", "")), str(error.get("message", ""))
    return _short(f"{kind}: {message}" if message else kind)


def _short(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"
