"""What is written, as functions of a connection that is inside a transaction.

Each looks first whether it may and raises before it changes anything: others share its transaction.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from typing import TypeAlias

from orchestrator.errors import RunExists, RunUnknown
from orchestrator.jsontypes import canonical
from orchestrator.kernel.records import Record, encode
from orchestrator.stores.base import Lease, RunInfo, moved, taken_over

__all__ = [
    "append",
    "checksum",
    "create",
    "delete",
    "discard",
    "drop_lease",
    "post",
    "put_graph",
    "put_snapshot",
    "renew_lease",
    "rows_of",
    "run_number",
    "take_lease",
]

Row: TypeAlias = tuple[int, int, bytes]
"""seq, checksum, data."""


def checksum(run_id: str, seq: int, data: bytes) -> int:
    """CRC-32 of a row; its run and `seq` are in it so that a row in the wrong place is found too."""
    return zlib.crc32(data, zlib.crc32(run_id.encode(), seq & 0xFFFFFFFF))


def rows_of(run_id: str, records: Sequence[Record]) -> list[Row]:
    """Records as rows."""
    rows: list[Row] = []
    for record in records:
        data = encode(record)
        rows.append((record.seq, checksum(run_id, record.seq, data), data))
    return rows


def run_number(connection: sqlite3.Connection, run_id: str) -> int:
    """The number under which a run's rows are kept.

    Raises:
        RunUnknown: there is no such run.
    """
    row = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    number: int = row[0]
    return number


def create(connection: sqlite3.Connection, info: RunInfo, rows: Sequence[Row]) -> None:
    if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (info.run_id,)).fetchone():
        raise RunExists(info.run_id)
    number = connection.execute(
        "INSERT INTO runs (run_id, graph, status, labels, created, updated, head, structure, content, due, waiting)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            info.run_id, info.graph, info.status, canonical(dict(info.labels)), info.created, info.updated,
            info.head, info.structure, info.content, info.due, info.waiting,
        ),
    ).lastrowid  # fmt: skip
    assert number is not None
    connection.executemany(
        "INSERT INTO labels (name, value, created, run) VALUES (?, ?, ?, ?)",
        [(name, value, info.created, number) for name, value in info.labels.items()],
    )
    _insert(connection, number, rows)


def append(
    connection: sqlite3.Connection,
    numbers: dict[str, int],
    run_id: str,
    rows: Sequence[Row],
    after: int,
    updated: float | None,
    status: str | None,
    due: float | None,
    waiting: int | None,
    consumed: Sequence[int],
    lease: str | None,
) -> int:
    """The compare-and-set. `numbers` remembers runs' numbers between calls; a wrong one does no harm."""
    head = after + len(rows)
    number = numbers.get(run_id, 0)
    if not _move(connection, number, run_id, after, head, updated, lease):
        number = _number_at(connection, run_id, after, lease)
        if len(numbers) > 10_000:
            numbers.clear()
        numbers[run_id] = number
        _move(connection, number, run_id, after, head, updated, lease)
    _insert(connection, number, rows)
    # columns are named only when they change: naming `status` would rewrite the indexes that hold it
    if status is not None:
        connection.execute("UPDATE runs SET status = ?, due = ? WHERE id = ?", (status, due, number))
    elif due is not None:
        connection.execute("UPDATE runs SET due = ? WHERE id = ?", (due, number))
    if waiting is not None:
        connection.execute("UPDATE runs SET waiting = ? WHERE id = ?", (waiting, number))
    if consumed:
        connection.executemany(
            "DELETE FROM inbox WHERE id = ? AND run = ?", [(message, number) for message in consumed]
        )
    return head


_MOVE = "UPDATE runs SET head = ?, updated = coalesce(?, updated) WHERE id = ? AND head = ? AND run_id = ?"
_MOVE_HELD = f"{_MOVE} AND EXISTS (SELECT 1 FROM leases WHERE leases.run = runs.id AND token = ?)"


def _move(
    connection: sqlite3.Connection,
    number: int,
    run_id: str,
    after: int,
    head: int,
    updated: float | None,
    lease: str | None,
) -> bool:
    values = (head, updated, number, after, run_id)
    if lease is None:
        return connection.execute(_MOVE, values).rowcount == 1
    return connection.execute(_MOVE_HELD, (*values, lease)).rowcount == 1


def _number_at(connection: sqlite3.Connection, run_id: str, after: int, lease: str | None) -> int:
    found = connection.execute("SELECT id, head FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    if found[1] != after:
        raise moved(run_id, found[1], after)
    number: int = found[0]
    if (
        lease is not None
        and not connection.execute("SELECT 1 FROM leases WHERE run = ? AND token = ?", (number, lease)).fetchone()
    ):
        raise taken_over(run_id)
    return number


def _insert(connection: sqlite3.Connection, number: int, rows: Sequence[Row]) -> None:
    first = number << 32
    for seq, crc, data in rows:
        connection.execute("INSERT INTO records (id, crc, data) VALUES (?, ?, ?)", (first | seq, crc, data))


def delete(connection: sqlite3.Connection, run_id: str) -> None:
    number = run_number(connection, run_id)
    connection.execute(
        "DELETE FROM labels WHERE (name, value, created, run) IN ("
        " SELECT label.key, label.value, runs.created, runs.id FROM runs, json_each(runs.labels) AS label"
        " WHERE runs.id = ?)",
        (number,),
    )
    keys = number << 32, (number + 1) << 32
    connection.execute("DELETE FROM records WHERE id >= ? AND id < ?", keys)
    connection.execute("DELETE FROM snapshots WHERE id >= ? AND id < ?", keys)
    connection.execute("DELETE FROM leases WHERE run = ?", (number,))
    connection.execute("DELETE FROM inbox WHERE run = ?", (number,))
    connection.execute("DELETE FROM runs WHERE id = ?", (number,))


def put_graph(connection: sqlite3.Connection, digest: str, data: str) -> None:
    connection.execute("INSERT OR IGNORE INTO graphs (digest, data) VALUES (?, ?)", (digest, data))


def put_snapshot(connection: sqlite3.Connection, run_id: str, seq: int, data: bytes) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO snapshots (id, crc, data) VALUES (?, ?, ?)",
        (run_number(connection, run_id) << 32 | seq, checksum(run_id, seq, data), data),
    )


def take_lease(connection: sqlite3.Connection, lease: Lease, replaces: str | None, now: float) -> bool:
    number = run_number(connection, lease.run_id)
    held = connection.execute("SELECT token, expires FROM leases WHERE run = ?", (number,)).fetchone()
    if held is not None and held[0] != replaces and isinstance(held[1], float) and held[1] >= now:
        return False  # one whose end is damaged holds nothing up
    connection.execute(
        "INSERT OR REPLACE INTO leases (run, token, owner, expires) VALUES (?, ?, ?, ?)",
        (number, lease.token, canonical(lease.owner), lease.expires),
    )
    return True


def renew_lease(connection: sqlite3.Connection, run_id: str, token: str, expires: float) -> bool:
    changed = connection.execute(
        "UPDATE leases SET expires = ? WHERE token = ? AND run = (SELECT id FROM runs WHERE run_id = ?)",
        (expires, token, run_id),
    ).rowcount
    return changed > 0


def drop_lease(connection: sqlite3.Connection, run_id: str, token: str) -> None:
    connection.execute(
        "DELETE FROM leases WHERE token = ? AND run = (SELECT id FROM runs WHERE run_id = ?)", (token, run_id)
    )


def post(connection: sqlite3.Connection, run_id: str, body: str) -> int:
    number = run_number(connection, run_id)
    message = connection.execute("INSERT INTO inbox (run, body) VALUES (?, ?)", (number, body)).lastrowid
    assert message is not None
    return message


def discard(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    connection.executemany("DELETE FROM inbox WHERE id = ?", [(message,) for message in ids])
