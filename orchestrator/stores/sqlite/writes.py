"""What is written, as functions of a connection that is inside a transaction.

Each looks first whether it may and raises before it changes anything: others share its transaction.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Sequence
from typing import TypeAlias

from orchestrator.errors import RunExists, RunUnknown
from orchestrator.jsontypes import canonical
from orchestrator.kernel.records import Record, encode
from orchestrator.stores.base import Lease, RunInfo
from orchestrator.stores.shared import moved, taken_over

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


def create(
    connection: sqlite3.Connection,
    numbers: dict[str, int],
    info: RunInfo,
    rows: Sequence[Row],
    graph: str | None = None,
    lease: Lease | None = None,
    owner: str = "",
) -> None:
    """Add a run. `owner`: that of the lease, as text. `numbers`: see `append`."""
    row = connection.execute(
        "INSERT INTO runs (run_id, graph, status, labels, created, updated, head, structure, content, due, waiting)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING",
        (
            info.run_id, info.graph, info.status, canonical(dict(info.labels)), info.created, info.updated,
            info.head, info.structure, info.content, info.due, info.waiting,
        ),
    )  # fmt: skip
    if not row.rowcount:
        raise RunExists(info.run_id)
    number = row.lastrowid
    assert number is not None
    if info.labels:
        connection.executemany(
            "INSERT INTO labels (name, value, created, run) VALUES (?, ?, ?, ?)",
            [(name, value, info.created, number) for name, value in info.labels.items()],
        )
    if graph is not None:
        put_graph(connection, info.content, graph)
    _insert(connection, number, rows)
    if lease is not None:
        _hold(connection, number, lease, owner)
    _remember(numbers, info.run_id, number)


def append(
    connection: sqlite3.Connection,
    numbers: dict[str, int],
    run_id: str,
    rows: Sequence[Row],
    after: int,
    row: RowChange,
    consumed: Sequence[int] | None,
    lease: str | None,
    release: bool,
) -> int:
    """The compare-and-set. `numbers` remembers runs' numbers between calls; a wrong one does no harm.

    `consumed`: the messages to delete; None: all of the run's.
    """
    number = numbers.get(run_id, 0)
    if not _move(connection, row, number, run_id, after, lease):
        number = _number_at(connection, run_id, after, lease)
        _remember(numbers, run_id, number)
        _move(connection, row, number, run_id, after, lease)
    _insert(connection, number, rows)
    if release:
        numbers.pop(run_id, None)
        connection.execute("DELETE FROM leases WHERE run = ?", (number,))
    if consumed is None:
        connection.execute("DELETE FROM inbox WHERE run = ?", (number,))
    elif consumed:
        connection.executemany(
            "DELETE FROM inbox WHERE id = ? AND run = ?", [(message, number) for message in consumed]
        )
    return after + len(rows)


def _remember(numbers: dict[str, int], run_id: str, number: int) -> None:
    if len(numbers) > 10_000:
        numbers.clear()
    numbers[run_id] = number


RowChange: TypeAlias = tuple[str, tuple[object, ...]]
"""Columns of a run's row, as SQL that sets them, and their values."""


def row_after(
    head: int, updated: float | None, status: str | None, due: float | None, waiting: int | None
) -> RowChange:
    """What an append changes in its run's row."""
    columns = "head = ?, updated = coalesce(?, updated)"
    values: tuple[object, ...] = head, updated
    # columns are named only when they change: naming `status` would rewrite the indexes that hold it
    if status is not None:
        columns, values = f"{columns}, status = ?, due = ?", (*values, status, due)
    elif due is not None:
        columns, values = f"{columns}, due = ?", (*values, due)
    if waiting is not None:
        columns, values = f"{columns}, waiting = ?", (*values, waiting)
    return columns, values


_AT = "WHERE id = ? AND head = ? AND run_id = ?"
_HELD = "AND EXISTS (SELECT 1 FROM leases WHERE leases.run = runs.id AND token = ?)"


def _move(
    connection: sqlite3.Connection, row: RowChange, number: int, run_id: str, after: int, lease: str | None
) -> bool:
    columns, values = row[0], (*row[1], number, after, run_id)
    if lease is None:
        return connection.execute(f"UPDATE runs SET {columns} {_AT}", values).rowcount == 1
    return connection.execute(f"UPDATE runs SET {columns} {_AT} {_HELD}", (*values, lease)).rowcount == 1


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
    labels, created = connection.execute("SELECT labels, created FROM runs WHERE id = ?", (number,)).fetchone()
    # not by json_each: SQLite's JSON ends a text at its first zero byte
    named = labels_of(labels)
    if named is None:  # damaged: look at the label of every run
        connection.execute("DELETE FROM labels WHERE run = ?", (number,))
    else:
        connection.executemany(
            "DELETE FROM labels WHERE name = ? AND value = ? AND created = ? AND run = ?",
            [(name, value, created, number) for name, value in named.items()],
        )
    keys = number << 32, (number + 1) << 32
    connection.execute("DELETE FROM records WHERE id >= ? AND id < ?", keys)
    connection.execute("DELETE FROM snapshots WHERE id >= ? AND id < ?", keys)
    connection.execute("DELETE FROM leases WHERE run = ?", (number,))
    connection.execute("DELETE FROM inbox WHERE run = ?", (number,))
    connection.execute("DELETE FROM runs WHERE id = ?", (number,))


def labels_of(text: object) -> dict[str, str] | None:
    """The labels in a run's row; None if they are damaged."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return None
    return found


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
    _hold(connection, number, lease, canonical(lease.owner))
    return True


def _hold(connection: sqlite3.Connection, number: int, lease: Lease, owner: str) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO leases (run, token, owner, expires) VALUES (?, ?, ?, ?)",
        (number, lease.token, owner, lease.expires),
    )


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
