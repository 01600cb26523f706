"""Runs whose records are in an archive, as functions of a connection that is inside a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from orchestrator.errors import Archived, RunConflict, RunUnknown
from orchestrator.stores.payloads import Payloads
from orchestrator.stores.rows import Page
from orchestrator.stores.shared import out_of_reach, page_cursor, parse_cursor
from orchestrator.stores.sqlite.writes import insert, remove
from orchestrator.stores.stored import INFO_COLUMNS, INFO_TABLES, InfoRow, Row, archived_of, archived_text, info_of


def ended(connection: sqlite3.Connection, now: float, before: float | None, after: str | None, limit: int) -> Page:
    """See `Archivable.ended`. `now`: the file's clock."""
    created, number = (-1e300, 0) if after is None else parse_cursor(after)
    latest = 1e300 if before is None else before
    rows = connection.execute(
        # by its index, which has no archived runs; SQLite would take another one, and sort
        f"SELECT {INFO_COLUMNS} FROM runs INDEXED BY runs_to_archive {INFO_TABLES} WHERE archived IS NULL"
        " AND status IN ('cancelled', 'completed', 'exhausted', 'failed')"
        " AND (runs.created, runs.id) > (?, ?) AND runs.created < ? AND runs.updated < ?"
        " ORDER BY runs.created, runs.id LIMIT ?",
        (created, number, latest, latest, max(limit, 1) + 1),
    ).fetchall()
    found = [*map(InfoRow._make, rows[: max(limit, 1)])]
    cursor = page_cursor(found[-1].created, found[-1].id) if len(rows) > len(found) else None
    return Page(tuple(info_of(row, now) for row in found), cursor)


def note(connection: sqlite3.Connection, run_id: str, noted: Archived) -> Archived:
    """See `Archivable.note_object`."""
    if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
        raise RunUnknown(run_id)
    rows = connection.execute(
        "SELECT data FROM archive_objects WHERE run_id = ? AND archive = ? AND sha256 = ? AND gone = 0",
        (run_id, noted.archive, noted.sha256),
    )
    known = archived_of((rows.fetchone() or (None,))[0])
    if known is not None and known.name:
        return known
    connection.execute(
        "INSERT INTO archive_objects (name, run_id, archive, sha256, data, gone) VALUES (?, ?, ?, ?, ?, 0)",
        (noted.name, run_id, noted.archive, noted.sha256, archived_text(noted)),
    )
    return noted


def move_out(connection: sqlite3.Connection, run_id: str, archived: Archived, head: int) -> None:
    """See `Archivable.move_out`."""
    found = connection.execute(
        "SELECT id, status, head, token, archived FROM runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    number, status, has, token, where = found
    text = archived_text(archived)
    if where == text:
        return
    why = out_of_reach(status, has, head, held=token is not None, elsewhere=where is not None)
    if why is None and not _is_noted(connection, run_id, archived.name):
        why = "the object was not noted for this run"
    if why is not None:
        raise RunConflict(run_id, why)
    remove(connection, number)
    connection.execute("UPDATE runs SET archived = ? WHERE id = ?", (text, number))


def _is_noted(connection: sqlite3.Connection, run_id: str, name: str) -> bool:
    query = "SELECT 1 FROM archive_objects WHERE name = ? AND run_id = ? AND gone = 0"
    return connection.execute(query, (name, run_id)).fetchone() is not None


def move_back(
    connection: sqlite3.Connection, run_id: str, rows: Sequence[Row], payloads: Payloads, archived: Archived
) -> None:
    """See `Archivable.move_back`."""
    found = connection.execute("SELECT id, archived FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    number, where = found
    if where is None:
        return
    if where != archived_text(archived):
        raise RunConflict(run_id, "its records are in another object of the archive")
    insert(connection, number, rows, payloads)
    connection.execute("UPDATE runs SET archived = NULL WHERE id = ?", (number,))


def objects(connection: sqlite3.Connection, run_id: str) -> list[Archived]:
    """See `Archivable.objects`."""
    return _noted(connection.execute("SELECT data FROM archive_objects WHERE run_id = ?", (run_id,)))


def left(connection: sqlite3.Connection) -> list[Archived]:
    """See `Archivable.left_objects`."""
    return _noted(connection.execute("SELECT data FROM archive_objects WHERE gone = 1"))


def _noted(rows: sqlite3.Cursor) -> list[Archived]:
    found = [archived_of(data) for (data,) in rows.fetchall()]
    return sorted((one for one in found if one is not None and one.name), key=lambda one: one.at)


def forget(connection: sqlite3.Connection, names: Collection[str]) -> None:
    """See `Archivable.forget_objects`."""
    connection.executemany("DELETE FROM archive_objects WHERE name = ? AND gone = 1", [(name,) for name in names])
