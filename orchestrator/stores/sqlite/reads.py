"""What is read, as functions of a connection that is inside a transaction."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Collection
from contextlib import closing
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from orchestrator.errors import RunArchived, RunUnknown, StoreError
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel import records as r
from orchestrator.kernel.records import FINAL
from orchestrator.stores.base import Message, Parent, RunInfo
from orchestrator.stores.payloads import MARK
from orchestrator.stores.shared import corrupt, graph_unknown, json_object
from orchestrator.stores.sqlite.leases import IS_NOTICE, lease_of
from orchestrator.stores.sqlite.payloads import Joiner
from orchestrator.stores.stored import archived_of, checksum, labels_of, record_of, row_text
from orchestrator.values import in_calendar

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record, RunStarted

InfoRow: TypeAlias = tuple[Any, ...]
"""A row of `INFO_COLUMNS`. What a damaged file holds may be of any type."""

_AT_ONCE = 500
"""Runs that one statement looks for."""

FEW_RECORDS = 64
"""Records, or rows of runs, that a task may read without a thread."""

FEW_BYTES = 1 << 18
"""Bytes of records, or of a snapshot, likewise."""


class TooMuch(Exception):
    """A read is not made in the task that asks for it, because it would hold up its event loop for long."""


STATUSES = {*FINAL, "running", "paused"}

_JOURNAL_COLUMNS = (
    "runs.id, runs.run_id, runs.graph, runs.status, runs.labels, runs.created, runs.updated, runs.head,"
    " runs.structure, runs.content, runs.due, runs.waiting"
)
INFO_COLUMNS = (
    f"{_JOURNAL_COLUMNS}, error, input, output, question, usage, steps, parent, parent_seq, relation, deaths, retry_at,"
    " fault, token, runs.holder, owner, ttl, expires, archived"
)
INFO_TABLES = "LEFT JOIN summaries ON summaries.run = runs.id LEFT JOIN holders ON holders.holder = runs.holder"


def info_of(row: InfoRow, now: float) -> RunInfo:
    """A row of `INFO_COLUMNS` as the facts about a run. A damaged one is told as far as it can be read.

    Args:
        row: the row.
        now: the file's clock.
    """
    _, run_id, graph_name, status, labels, created, updated, head, structure, content, due, waiting = row[:12]
    error, given, output, question, usage, steps, parent, seq, relation, deaths, retry_at, fault = row[12:24]
    return RunInfo(
        run_id, graph_name, status, labels_of(labels) or {}, in_calendar(created), in_calendar(updated), head,
        structure, content, None if due is None else in_calendar(due), waiting,
        row_text(error), row_text(given), row_text(output), row_text(question),
        cast(Any, usage) if isinstance(usage, str) else None,  # read when it is asked for
        steps if isinstance(steps, int) else 0, _parent_of(parent, seq, relation),
        deaths if isinstance(deaths, int) else 0, in_calendar(retry_at) if isinstance(retry_at, float) else None,
        row_text(fault),
        lease_of(run_id, row[24:29], now), archived=archived_of(row[29]),
    )  # fmt: skip


def _parent_of(run_id: object, seq: object, relation: object) -> Parent | None:
    if not isinstance(run_id, str) or relation not in ("fork", "replay", "call"):
        return None
    return Parent(run_id, seq if isinstance(seq, int) else 0, relation)


def info(connection: sqlite3.Connection, run_id: str, now: float) -> RunInfo:
    """The facts about a run. `now`: the file's clock.

    Raises:
        RunUnknown: there is no such run.
        StoreCorrupt: its row holds what is never written.
    """
    row = _info_row(connection, run_id)
    _check_row(run_id, row)
    return info_of(row, now)


def found(connection: sqlite3.Connection, run_id: str, now: float) -> RunInfo:
    """The same; a damaged row is told as far as it can be read.

    Raises:
        RunUnknown: there is no such run.
    """
    return info_of(_info_row(connection, run_id), now)


def _info_row(connection: sqlite3.Connection, run_id: str) -> InfoRow:
    row: InfoRow | None = connection.execute(
        f"SELECT {INFO_COLUMNS} FROM runs {INFO_TABLES} WHERE run_id = ?", (run_id,)
    ).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    return row


def heads(connection: sqlite3.Connection, run_ids: Collection[str], *, few: bool = False) -> dict[str, tuple[int, str]]:
    """See `Store.heads`.

    Raises:
        TooMuch: with `few`, if these are more than `FEW_RECORDS` runs.
    """
    if few and len(run_ids) > FEW_RECORDS:
        raise TooMuch
    wanted, found = sorted(run_ids), dict[str, tuple[int, str]]()
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        query = f"SELECT run_id, head, status FROM runs WHERE run_id IN ({', '.join('?' * len(some))})"
        found |= {run_id: (head, status) for run_id, head, status in connection.execute(query, some)}
    return found


_TYPES: tuple[type | tuple[type, ...], ...] = (
    int, str, str, str, str, float, float, int, str, str, (float, NoneType), int,
)  # fmt: skip


def _check_row(run_id: str, row: InfoRow) -> None:
    names = _JOURNAL_COLUMNS.replace("runs.", "").split(", ")
    for name, value, kind in zip(names, row[: len(names)], _TYPES, strict=True):
        if not isinstance(value, kind):
            raise corrupt(run_id, 0, f"{name} is {value!r}", ())
    _check_head(run_id, row[7])
    if row[1] != run_id:
        raise corrupt(run_id, 0, f"it says that it is run {row[1]!r}", ())
    if row[3] not in STATUSES:
        raise corrupt(run_id, 0, f"its status is {row[3]!r}", ())
    if labels_of(row[4]) is None:
        raise corrupt(run_id, 0, f"its labels are {row[4]!r}", ())


def _check_head(run_id: str, head: object) -> None:
    if not isinstance(head, int) or not 0 <= head < 1 << 32:
        raise corrupt(run_id, 0, f"its head is {head!r}", ())


def records(
    connection: sqlite3.Connection, run_id: str, after: int, upto: int | None, limit: int | None, *, few: bool = False
) -> list[Record]:
    """The records of a run, each one checked, and the first one against the run's row.

    Raises:
        TooMuch: with `few`, if these are more than `FEW_RECORDS`, have more than `FEW_BYTES`, or have payloads.
        RunUnknown: there is no such run.
        RunArchived: they are not in the file.
        StoreCorrupt: a row or a payload is missing or damaged, or the file is where the next row should be.
    """
    found = connection.execute(
        "SELECT id, head, run_id, graph, labels, structure, content, archived FROM runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    archived = archived_of(found[7])
    if archived is not None:
        raise RunArchived(run_id, archived)
    _check_head(run_id, found[1])
    first, head = found[0] << 32, found[1]
    after = max(after, 0)
    last = head if upto is None else min(upto, head)
    if limit is not None:
        last = min(last, after + limit)
    if few and last > after:
        if last - after > FEW_RECORDS:
            raise TooMuch
        # what is a blob is not read for its length
        query = "SELECT sum(length(data)) FROM records WHERE id > ? AND id <= ? AND typeof(data) = 'blob'"
        (size,) = connection.execute(query, (first | after, first | last)).fetchone()
        if (size or 0) > FEW_BYTES:
            raise TooMuch
    result: list[Record] = []
    joiner: Joiner | None = None
    query = "SELECT id, crc, data FROM records WHERE id > ? AND id <= ? ORDER BY id"
    # closed whatever happens: a statement that is left open would hold the connection at this moment for ever
    with closing(connection.execute(query, (first | after, first | max(last, after)))) as rows:
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
            if isinstance(data, bytes) and data.startswith(MARK):
                if few:
                    raise TooMuch
                joiner = joiner or Joiner(connection, first | last)
                try:
                    data = joiner.record(row[0], data)
                except ValueError as error:
                    raise corrupt(run_id, seq, str(error), result) from error
            record = record_of(run_id, seq, crc, data, result)
            if seq == 1 and isinstance(record, r.RunStarted):
                _check_beginning(run_id, found[2:7], record)
            result.append(record)
    if last == head and (upto is None or upto > head) and _goes_on(connection, first | head, first + (1 << 32)):
        raise corrupt(run_id, head + 1, f"the run's row says that {head} is the last one", result)
    return result


def _check_beginning(run_id: str, row: tuple[object, ...], started: RunStarted) -> None:
    named, graph_name, labels, structure, content = row
    own = named == started.run_id  # a fork begins with the first record of another run
    facts = (
        ("graph", graph_name, started.graph),
        ("labels", labels_of(labels), dict(started.labels) if own else labels_of(labels)),
        ("structure", structure, started.structure),
        ("content", content, started.content),
    )
    for name, told, true in facts:
        if told != true:
            raise corrupt(run_id, 0, f"its {name}: {told!r}; {true!r} by its first record", ())


def _goes_on(connection: sqlite3.Connection, after: int, before: int) -> bool:
    """Whether there are rows behind the last one."""
    query = "SELECT 1 FROM records WHERE id > ? AND id < ? LIMIT 1"
    return connection.execute(query, (after, before)).fetchone() is not None


def graph(connection: sqlite3.Connection, digest: str, url: str) -> JsonObject:
    row = connection.execute("SELECT data FROM graphs WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        raise graph_unknown(digest, url)
    try:
        data: JsonObject = json.loads(row[0], parse_constant=_refuse)
    except (TypeError, ValueError, RecursionError):
        raise StoreError(
            f"store {url}: graph {digest!r} is damaged; give the executor the graph itself, or restore the store from "
            "a copy"
        ) from None
    return data


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


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
    first, head = found[0] << 32, found[1]
    if not isinstance(head, int):
        return None  # the row is damaged, whoever reads the records is told
    last = head if upto is None else min(upto, head)
    if last < 0:
        return None
    # what is a blob is not read for its length, and one that is too long is not read at all
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
    return None  # a damaged cache is no cache


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
        return []  # as nearly always: do not look for each of the runs
    if few:
        raise TooMuch
    wanted, rows = sorted(run_ids), list[tuple[int, str, object]]()
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]  # not by json_each: SQLite's JSON ends a text at its first zero byte
        rows += connection.execute(
            "SELECT inbox.id, runs.run_id, inbox.body FROM runs CROSS JOIN inbox ON inbox.run = runs.id"
            f" WHERE runs.run_id IN ({', '.join('?' * len(some))})",
            some,
        )
    return [Message(key, run_id, json_object(body)) for key, run_id, body in sorted(rows, key=itemgetter(0))]
