"""Runs whose records are in an archive, as functions of a connection.

`runs.archived` is in the row that an append changes, so PostgreSQL itself orders an append and a move to the archive:
whichever comes second sees what the first one did.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Archived, RunConflict, RunUnknown
from orchestrator.stores.payloads import Payloads
from orchestrator.stores.postgres.reads import INFO_AND_NOW, info_with_now
from orchestrator.stores.postgres.related_rows import keep, let_go
from orchestrator.stores.postgres.statements import walking
from orchestrator.stores.rows import Page
from orchestrator.stores.shared import out_of_reach, page_cursor, parse_cursor
from orchestrator.stores.stored import INFO_TABLES, InfoRow, Row, archived_of, archived_text

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection


def ended(connection: Connection, before: float | None, after: str | None, limit: int) -> Page:
    """See `Archivable.ended`."""
    created, number = (-1e300, 0) if after is None else parse_cursor(after)
    latest = 1e300 if before is None else before
    query = (
        f"SELECT {INFO_AND_NOW} FROM (SELECT * FROM runs WHERE archived IS NULL"
        " AND status IN ('cancelled', 'completed', 'exhausted', 'failed')"
        " AND (created, id) > (%s::double precision, %s::bigint) AND created < %s::double precision"
        " AND updated < %s::double precision ORDER BY created, id LIMIT %s) AS runs"
        f" {INFO_TABLES} ORDER BY runs.created, runs.id"
    )
    with walking(connection):
        rows: Any = connection.execute(query.encode(), (created, number, latest, latest, max(limit, 1) + 1)).fetchall()
    found = rows[: max(limit, 1)]
    last = InfoRow._make(found[-1][:-1]) if len(rows) > len(found) else None
    cursor = None if last is None else page_cursor(last.created, last.id)
    return Page(tuple(map(info_with_now, found)), cursor)


def note(connection: Connection, run_id: str, noted: Archived) -> Archived:
    """See `Archivable.note_object`."""
    _locked(connection, run_id)
    row: Any = connection.execute(
        "SELECT data FROM archive_objects WHERE run_id = %s AND archive = %s AND sha256 = %s AND NOT gone LIMIT 1",
        (run_id, noted.archive, noted.sha256),
    ).fetchone()
    known = archived_of(row and row[0])
    if known is not None and known.name:
        return known
    connection.execute(
        "INSERT INTO archive_objects (name, run_id, archive, sha256, data, gone) VALUES (%s, %s, %s, %s, %s, FALSE)",
        (noted.name, run_id, noted.archive, noted.sha256, archived_text(noted)),
    )
    return noted


def move_out(connection: Connection, run_id: str, archived: Archived, head: int) -> None:
    """See `Archivable.move_out`."""
    number, status, has, token, where = _locked(connection, run_id)
    text = archived_text(archived)
    if where == text:
        return
    why = out_of_reach(status, has, head, held=token is not None, elsewhere=where is not None)
    if why is None and not _is_noted(connection, run_id, archived.name):
        why = "the object was not noted for this run"
    if why is not None:
        raise RunConflict(run_id, why)
    connection.execute("DELETE FROM records WHERE run = %s::bigint", (number,))
    connection.execute("DELETE FROM snapshots WHERE run = %s", (number,))
    let_go(connection, number)
    connection.execute("UPDATE runs SET archived = %s WHERE id = %s", (text, number))


def _is_noted(connection: Connection, run_id: str, name: str) -> bool:
    query = "SELECT 1 FROM archive_objects WHERE name = %s AND run_id = %s AND NOT gone"
    return connection.execute(query, (name, run_id)).fetchone() is not None


def move_back(connection: Connection, run_id: str, rows: Sequence[Row], payloads: Payloads, archived: Archived) -> None:
    """See `Archivable.move_back`."""
    number, _, _, _, where = _locked(connection, run_id)
    if where is None:
        return
    if where != archived_text(archived):
        raise RunConflict(run_id, "its records are in another object of the archive")
    connection.execute(
        "INSERT INTO records (run, seq, crc, data) SELECT %s::bigint, *"
        " FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[])",
        (number, [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]),
    )
    keep(connection, number, payloads)
    connection.execute("UPDATE runs SET archived = NULL WHERE id = %s", (number,))


def _locked(connection: Connection, run_id: str) -> tuple[int, str, int, str | None, str | None]:
    """Lock a run until the transaction ends: its number, status, head, token and where its records are."""
    row: Any = connection.execute(
        "SELECT id, status, head, token, archived FROM runs WHERE run_id = %s FOR NO KEY UPDATE", (run_id,)
    ).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    number, status, head, token, where = row
    return int(number), status, head, token, where


def objects(connection: Connection, run_id: str) -> list[Archived]:
    """See `Archivable.objects`."""
    return _noted(connection.execute("SELECT data FROM archive_objects WHERE run_id = %s", (run_id,)).fetchall())


def left(connection: Connection) -> list[Archived]:
    """See `Archivable.left_objects`."""
    return _noted(connection.execute("SELECT data FROM archive_objects WHERE gone").fetchall())


def _noted(rows: Any) -> list[Archived]:
    found = [archived_of(data) for (data,) in rows]
    return sorted((one for one in found if one is not None and one.name), key=lambda one: one.at)


def forget(connection: Connection, names: Collection[str]) -> None:
    """See `Archivable.forget_objects`."""
    connection.execute("DELETE FROM archive_objects WHERE name = ANY(%s) AND gone", (sorted(names),))
