"""Reads, as functions of a connection inside a transaction."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Collection
from contextlib import closing
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING

from orchestrator.errors import RunArchived, RunUnknown
from orchestrator.json import JsonObject
from orchestrator.stores.base import Message, RunInfo
from orchestrator.stores.payloads import MARK
from orchestrator.stores.rows import Note, StoredRun
from orchestrator.stores.shared import corrupt, json_object
from orchestrator.stores.sqlite.leases import IS_NOTICE
from orchestrator.stores.sqlite.payloads import Joiner
from orchestrator.stores.stored import (
    INFO_COLUMNS,
    INFO_TABLES,
    JOURNAL_COLUMNS,
    InfoRow,
    JournalRow,
    archived_of,
    check_beginning,
    check_head,
    check_info,
    checksum,
    graph_of,
    info_of,
    record_of,
    shown_notes,
)

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record

_AT_ONCE = 512
"""Maximum number of runs in one statement."""

FEW_RECORDS = 64
"""Maximum number of records, or rows of runs, that a task may read without a thread."""

FEW_BYTES = 1 << 18
"""Maximum bytes of records, or of a snapshot, that a task may read without a thread."""


class TooMuch(Exception):
    """Raised when a read is too large for the calling task, because it would block its event loop for long."""


def info(connection: sqlite3.Connection, run_id: str, now: float) -> RunInfo:
    """Return the facts about a run. `now`: the file's clock.

    Raises:
        RunUnknown: the store has no such run.
        StoreCorrupt: its row contains impossible values.
    """
    row = _info_row(connection, run_id)
    _check_row(run_id, row)
    return info_of(row, now)


def found(connection: sqlite3.Connection, run_id: str, now: float) -> RunInfo:
    """Return the facts about a run; of a damaged row, those that can be read.

    Raises:
        RunUnknown: the store has no such run.
    """
    return info_of(_info_row(connection, run_id), now)


def _info_row(connection: sqlite3.Connection, run_id: str) -> InfoRow:
    row = connection.execute(f"SELECT {INFO_COLUMNS} FROM runs {INFO_TABLES} WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    return InfoRow._make(row)


def run_number(connection: sqlite3.Connection, run_id: str) -> int:
    """Return the number under which a run's rows are stored.

    Raises:
        RunUnknown: the store has no such run.
    """
    row = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    number: int = row[0]
    return number


def notes(connection: sqlite3.Connection, run_id: str) -> list[Note]:
    """See `Store.notes`."""
    number = run_number(connection, run_id)
    if not has_notes(connection):
        return []
    rows = connection.execute("SELECT id, at, data FROM notes WHERE run = ?", (number,)).fetchall()
    return shown_notes(run_id, rows)


def has_notes(connection: sqlite3.Connection) -> bool:
    """Return True if the file has the table of notes: one that cannot be written may be of an earlier version."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'notes'").fetchone() is not None


def heads(connection: sqlite3.Connection, run_ids: Collection[str], *, few: bool = False) -> dict[str, tuple[int, str]]:
    """See `Store.heads`.

    Raises:
        TooMuch: with `few`, if these are more than `FEW_RECORDS` runs.
    """
    if few and len(run_ids) > FEW_RECORDS:
        raise TooMuch
    wanted, found = sorted(run_ids), dict[str, tuple[int, str]]()
    for first in range(0, len(wanted), _AT_ONCE):
        marks, some = _listed(wanted[first : first + _AT_ONCE])
        query = f"SELECT run_id, head, status FROM runs WHERE run_id IN ({marks})"
        same = dict(zip(some, some, strict=True)).setdefault  # one object for each text: the result is kept
        found |= {same(id_, id_): (head, same(status, status)) for id_, head, status in connection.execute(query, some)}
    return found


def _listed(names: list[str]) -> tuple[str, list[str]]:
    """Return placeholders for names, and the names: the last one repeated, up to a power of two.

    A connection keeps its last 128 statements. As one for each length of a list, they took more memory than the runs
    that a process watches.
    """
    count = 1 << (len(names) - 1).bit_length()
    return ", ".join("?" * count), names + names[-1:] * (count - len(names))


_TYPES: dict[str, type | tuple[type, ...]] = {
    "id": int, "run_id": str, "graph": str, "status": str, "labels": str, "created": float, "updated": float,
    "head": int, "structure": str, "content": str, "due": (float, NoneType), "waiting": int,
}  # fmt: skip


def _check_row(run_id: str, row: InfoRow) -> None:
    for name, kind in _TYPES.items():
        value = getattr(row, name)
        if not isinstance(value, kind):
            raise corrupt(run_id, 0, f"{name} is {value!r}", ())
    check_info(run_id, row)


def records(
    connection: sqlite3.Connection, run_id: str, after: int, upto: int | None, limit: int | None, *, few: bool = False
) -> list[Record]:
    """Return the records of a run, each one checked, and the first one against the run's row.

    Raises:
        TooMuch: with `few`, if these are more than `FEW_RECORDS`, have more than `FEW_BYTES`, or have payloads.
        RunUnknown: the store has no such run.
        RunArchived: the records are in an archive.
        StoreCorrupt: a row or a payload is missing or damaged, or the file is damaged at the next row.
    """
    found = connection.execute(f"SELECT {JOURNAL_COLUMNS} FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    return _records(connection, run_id, JournalRow(*found), after, upto, limit, few=few)


def _records(
    connection: sqlite3.Connection,
    run_id: str,
    run: JournalRow | InfoRow,
    after: int,
    upto: int | None,
    limit: int | None,
    *,
    few: bool,
) -> list[Record]:
    """See `records`. `run`: the run's row."""
    archived = archived_of(run.archived)
    if archived is not None:
        raise RunArchived(run_id, archived)
    check_head(run_id, run.head)
    first, head = run.id << 32, run.head
    after = max(after, 0)
    last = head if upto is None else min(upto, head)
    if limit is not None:
        last = min(last, after + limit)
    if few and last > after:
        if last - after > FEW_RECORDS:
            raise TooMuch
        # a blob is not read to get its length
        query = "SELECT sum(length(data)) FROM records WHERE id > ? AND id <= ? AND typeof(data) = 'blob'"
        (size,) = connection.execute(query, (first | after, first | last)).fetchone()
        if (size or 0) > FEW_BYTES:
            raise TooMuch
    result: list[Record] = []
    joiner: Joiner | None = None
    query = "SELECT id, crc, data FROM records WHERE id > ? AND id <= ? ORDER BY id"
    # closed in any case: while a statement is open, the connection would not see later writes
    with closing(connection.execute(query, (first | after, first | max(last, after)))) as rows:
        for seq in range(after + 1, last + 1):
            try:
                row = rows.fetchone()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise  # a fault of the disk or a lock, not of the data
                raise corrupt(run_id, seq, f"the file is damaged there: {error}", result) from error
            key, crc, data = row or (None, None, None)
            if key != first | seq:
                raise corrupt(run_id, seq, "it is missing", result)
            if isinstance(data, bytes) and data.startswith(MARK):
                if few:
                    raise TooMuch
                joiner = joiner or Joiner(connection, first | last)
                try:
                    data = joiner.record(first | seq, data)
                except ValueError as error:
                    raise corrupt(run_id, seq, str(error), result) from error
            record = record_of(run_id, seq, crc, data, result)
            if seq == 1:
                check_beginning(run_id, run, record)
            result.append(record)
    if last == head and (upto is None or upto > head) and _goes_on(connection, first | head, first + (1 << 32)):
        raise corrupt(run_id, head + 1, f"the run's row says that {head} is the last one", result)
    return result


def _goes_on(connection: sqlite3.Connection, after: int, before: int) -> bool:
    """Return True if there are rows after the last record of a run."""
    query = "SELECT 1 FROM records WHERE id > ? AND id < ? LIMIT 1"
    return connection.execute(query, (after, before)).fetchone() is not None


def graph(connection: sqlite3.Connection, digest: str, url: str) -> JsonObject:
    """See `Store.graph`."""
    return graph_of(connection.execute("SELECT data FROM graphs WHERE digest = ?", (digest,)).fetchone(), digest, url)


def snapshot(
    connection: sqlite3.Connection, run_id: str, upto: int | None, *, few: bool = False
) -> tuple[int, bytes] | None:
    """See `Store.snapshot`.

    Raises:
        TooMuch: with `few`, if it has more than `FEW_BYTES`.
    """
    found = connection.execute("SELECT id, head FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        return None
    number, head = found
    return _snapshot(connection, run_id, number, head, upto, few=few)


def _snapshot(
    connection: sqlite3.Connection, run_id: str, number: int, head: object, upto: int | None, *, few: bool
) -> tuple[int, bytes] | None:
    """See `snapshot`. `number`, `head`: of the run's row."""
    first = number << 32
    if not isinstance(head, int):
        return None  # the row is damaged; reading the records reports it
    last = head if upto is None else min(upto, head)
    if last < 0:
        return None
    # a blob is not read to get its length, and one that is too long is not read at all
    most = FEW_BYTES if few else sys.maxsize
    query = (
        "SELECT id, crc, CASE WHEN typeof(data) = 'blob' AND length(data) <= ? THEN data ELSE length(data) END"
        " FROM snapshots WHERE id >= ? AND id <= ? ORDER BY id DESC"
    )
    with closing(connection.execute(query, (most, first, first | last))) as rows:
        for key, crc, data in rows:
            if few and isinstance(data, int):
                raise TooMuch
            seq = key - first
            if isinstance(data, bytes) and checksum(run_id, seq, data) == crc:
                return seq, data
    return None  # a damaged snapshot is ignored


def load(
    connection: sqlite3.Connection, run_id: str, now: float, after: int | None, upto: int | None, *, few: bool = False
) -> StoredRun:
    """See `Loading.load`. `now`: the file's clock.

    Raises:
        TooMuch: with `few`; see `records` and `snapshot`.
        and the errors of `info` and `records`.
    """
    row = _info_row(connection, run_id)
    _check_row(run_id, row)
    kept = None if after is not None else _snapshot(connection, run_id, row.id, row.head, upto, few=few)
    after = after or (0 if kept is None else kept[0])
    return StoredRun(info_of(row, now), kept, _records(connection, run_id, row, after, upto, None, few=few))


def notices(connection: sqlite3.Connection) -> list[Message]:
    """See `Store.notices`."""
    rows = connection.execute(
        f"SELECT inbox.id, run_id, body FROM inbox JOIN runs ON runs.id = inbox.run WHERE {IS_NOTICE} ORDER BY inbox.id"
    ).fetchall()
    return [Message(key, run_id, json_object(body)) for key, run_id, body in rows]


def inbox(connection: sqlite3.Connection, run_ids: Collection[str], *, few: bool = False) -> list[Message]:
    """See `Store.inbox`.

    Raises:
        TooMuch: with `few`, if any run has a message: they may be large.
    """
    if connection.execute("SELECT 1 FROM inbox LIMIT 1").fetchone() is None:
        return []  # the usual case: no lookup for each run
    if few:
        raise TooMuch
    wanted, rows = sorted(run_ids), list[tuple[int, str, object]]()
    for first in range(0, len(wanted), _AT_ONCE):
        # not json_each(): it ends strings at the first NUL
        marks, some = _listed(wanted[first : first + _AT_ONCE])
        rows += connection.execute(
            "SELECT inbox.id, runs.run_id, inbox.body FROM runs CROSS JOIN inbox ON inbox.run = runs.id"
            f" WHERE runs.run_id IN ({marks})",
            some,
        )
    return [Message(key, run_id, json_object(body)) for key, run_id, body in sorted(rows, key=itemgetter(0))]
