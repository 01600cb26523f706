"""What is read, as functions of a connection that is inside a transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from contextlib import closing
from typing import TypeAlias

from orchestrator.errors import RunUnknown
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.records import Record
from orchestrator.stores.base import Lease, Message, RunInfo, corrupt, graph_unknown, read_record
from orchestrator.stores.sqlite.writes import checksum

__all__ = ["INFO_COLUMNS", "InfoRow", "graph", "inbox", "info", "info_of", "lease", "records", "snapshot"]

InfoRow: TypeAlias = tuple[
    int, str, str, str, str, float, float, int, str, str, float | None, int
]  # fmt: skip

INFO_COLUMNS = (
    "runs.id, runs.run_id, runs.graph, runs.status, runs.labels, runs.created, runs.updated, runs.head,"
    " runs.structure, runs.content, runs.due, runs.waiting"
)


def info_of(row: InfoRow) -> RunInfo:
    """A row of `INFO_COLUMNS` as the facts about a run."""
    _, run_id, graph_name, status, labels, created, updated, head, structure, content, due, waiting = row
    return RunInfo(
        run_id, graph_name, status, json.loads(labels), created, updated, head, structure, content, due, waiting
    )


def info(connection: sqlite3.Connection, run_id: str) -> RunInfo:
    row: InfoRow | None = connection.execute(f"SELECT {INFO_COLUMNS} FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    return info_of(row)


def records(
    connection: sqlite3.Connection, run_id: str, after: int, upto: int | None, limit: int | None
) -> list[Record]:
    """The records of a run, each one checked.

    Raises:
        RunUnknown: there is no such run.
        StoreCorrupt: a row is missing or damaged, or the file is where the next row should be.
    """
    found = connection.execute("SELECT id, head FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    first, head = found[0] << 32, found[1]
    after = max(after, 0)
    last = head if upto is None else min(upto, head)
    if limit is not None:
        last = min(last, after + limit)
    result: list[Record] = []
    if last <= after:
        return result
    query = "SELECT id, crc, data FROM records WHERE id > ? AND id <= ? ORDER BY id"
    # closed whatever happens: a statement that is left open would hold the connection at this moment for ever
    with closing(connection.execute(query, (first | after, first | last))) as rows:
        for seq in range(after + 1, last + 1):
            try:
                row = rows.fetchone()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise  # the disk or a lock, not the data
                raise corrupt(run_id, seq, f"the file is damaged there: {error}", result) from error
            if row is None or row[0] != first | seq:
                raise corrupt(run_id, seq, "it is missing", result)
            _, crc, data = row
            if not isinstance(data, bytes) or checksum(seq, data) != crc:
                raise corrupt(run_id, seq, "its checksum does not fit", result)
            result.append(read_record(run_id, seq, data, result))
    return result


def graph(connection: sqlite3.Connection, digest: str, url: str) -> JsonObject:
    row = connection.execute("SELECT data FROM graphs WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        raise graph_unknown(digest, url)
    data: JsonObject = json.loads(row[0])
    return data


def snapshot(connection: sqlite3.Connection, run_id: str, upto: int | None) -> tuple[int, bytes] | None:
    found = connection.execute("SELECT id, head FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        return None
    first, head = found[0] << 32, found[1]
    last = head if upto is None else min(upto, head)
    if last < 0:
        return None
    query = "SELECT id, crc, data FROM snapshots WHERE id >= ? AND id <= ? ORDER BY id DESC"
    with closing(connection.execute(query, (first, first | last))) as rows:
        for key, crc, data in rows:
            seq = key - first
            if isinstance(data, bytes) and checksum(seq, data) == crc:
                return seq, data
    return None  # a damaged cache is no cache


def lease(connection: sqlite3.Connection, run_id: str) -> Lease | None:
    row = connection.execute(
        "SELECT token, owner, expires FROM leases JOIN runs ON runs.id = leases.run WHERE run_id = ?", (run_id,)
    ).fetchone()
    return None if row is None else Lease(run_id, row[0], json.loads(row[1]), row[2])


def inbox(connection: sqlite3.Connection, run_ids: Collection[str]) -> list[Message]:
    if connection.execute("SELECT 1 FROM inbox LIMIT 1").fetchone() is None:
        return []  # as nearly always: do not look for each of the runs
    rows = connection.execute(
        "SELECT inbox.id, runs.run_id, inbox.body FROM json_each(?) AS wanted"
        " JOIN runs ON runs.run_id = wanted.value JOIN inbox ON inbox.run = runs.id ORDER BY inbox.id",
        (json.dumps(sorted(run_ids)),),
    )
    return [Message(key, run_id, json.loads(body)) for key, run_id, body in rows]
