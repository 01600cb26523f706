"""Reads, as functions of a connection. Each is one statement, so that it sees one moment.

The numbers of runs that were read are cached: with its number, a run needs only the partition of its month.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from orchestrator.errors import RunArchived, RunUnknown
from orchestrator.json import JsonObject
from orchestrator.stores.base import Message, RunInfo
from orchestrator.stores.payloads import MARK, Parted
from orchestrator.stores.postgres.related_rows import Joiner
from orchestrator.stores.postgres.statements import walking
from orchestrator.stores.postgres.writes import NOW, run_number
from orchestrator.stores.rows import MAX_DEATHS, Note, StoredRun
from orchestrator.stores.shared import corrupt, json_object
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
    from orchestrator.stores.postgres.statements import Connection


_MOST = 10_000


class RunNumbers:
    """Numbers by ids, of the latest runs. A number may be that of a deleted run: the rows found by it show that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}

    def get(self, run_id: str) -> int | None:
        """Return the number of a run; None if it is unknown."""
        return self._numbers.get(run_id)

    def keep(self, run_id: str, number: int) -> None:
        """Remember the number of a run in this process; the oldest entry is dropped if there are too many."""
        if self._numbers.get(run_id) == number:
            return
        with self._lock:
            self._numbers[run_id] = number
            if len(self._numbers) > _MOST:
                del self._numbers[next(iter(self._numbers))]


INFO_AND_NOW = f"{INFO_COLUMNS}, {NOW}"
"""The columns of `InfoRow`, and the clock of leases."""


def info_with_now(row: tuple[Any, ...]) -> RunInfo:
    """Return the facts about a run, from a row of `INFO_AND_NOW`."""
    *columns, now = row
    return info_of(InfoRow._make(columns), now)


def info(connection: Connection, run_id: str) -> RunInfo:
    """Return the facts about a run.

    Raises:
        RunUnknown: the store has no such run.
        StoreCorrupt: its row contains impossible values.
    """
    row: Any = connection.execute(
        f"SELECT {INFO_AND_NOW} FROM runs {INFO_TABLES} WHERE run_id = %s".encode(), (run_id,)
    ).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    check_info(run_id, InfoRow._make(row[:-1]))
    return info_with_now(row)


def infos(connection: Connection, run_ids: Collection[str]) -> dict[str, RunInfo]:
    """Return the facts about some runs, by their ids."""
    if not run_ids:
        return {}
    rows: Any = connection.execute(
        f"SELECT {INFO_AND_NOW} FROM runs {INFO_TABLES} WHERE run_id = ANY(%s)".encode(), (list(run_ids),)
    ).fetchall()
    found = map(info_with_now, rows)
    return {one.run_id: one for one in found}


def notes(connection: Connection, run_id: str) -> list[Note]:
    """See `Store.notes`."""
    number = run_number(connection, run_id)
    # a standby may have the tables of an earlier version
    there: Any = connection.execute("SELECT to_regclass('notes') IS NOT NULL").fetchone()
    if not there[0]:
        return []
    rows: Any = connection.execute("SELECT id, at, data FROM notes WHERE run = %s::bigint", (number,)).fetchall()
    return shown_notes(run_id, rows)


def heads(connection: Connection, run_ids: Collection[str]) -> dict[str, tuple[int, str]]:
    """See `Store.heads`."""
    if not run_ids:
        return {}
    rows: Any = connection.execute(
        "SELECT run_id, head, status FROM runs WHERE run_id = ANY(%s)", (sorted(run_ids),)
    ).fetchall()
    return {run_id: (head, status) for run_id, head, status in rows}


# The number is a parameter, so that the server plans for one partition of `records` and locks no others.
_RECORDS = f"""
    SELECT {JOURNAL_COLUMNS}, seq, crc, data FROM (
        SELECT {JOURNAL_COLUMNS} FROM runs WHERE run_id = %(run)s
    ) AS one LEFT JOIN (
        SELECT seq, crc, data FROM records WHERE run = %(number)s::bigint AND seq > %(after)s AND seq <= %(upto)s
        ORDER BY seq LIMIT %(limit)s
    ) AS part ON TRUE ORDER BY seq
"""
_LAST = 1 << 33
_AT_ONCE = 1000


def records(
    connection: Connection, run_id: str, after: int, upto: int | None, limit: int | None, numbers: RunNumbers
) -> list[Record]:
    """Return the records of a run, each one checked, and the first one against the run's row.

    Raises:
        RunUnknown: the store has no such run.
        RunArchived: the records are in an archive.
        StoreCorrupt: a row or a payload is missing or damaged, or there are rows after the last one.
    """
    after = max(after, 0)
    whole = limit is None and upto is None
    most = _LAST if limit is None else max(limit, 0)
    # Each returned row contains the facts of the run, so a long run is read in several parts.
    values = {"run": run_id, "after": after, "upto": _LAST if upto is None else upto, "limit": min(most, _AT_ONCE)}
    number = numbers.get(run_id)
    if number is None:
        number = run_number(connection, run_id)
    while True:
        found: Any = connection.execute(_RECORDS.encode(), {**values, "number": number}).fetchall()
        if not found:
            raise RunUnknown(run_id)
        *facts, _seq, _crc, _data = found[0]
        run = JournalRow(*facts)
        if run.id == number:
            break
        number = run.id  # another run has reused the id of a deleted one
    numbers.keep(run_id, number)
    _check_not_archived(run_id, run.archived)
    check_head(run_id, run.head)
    last = run.head if upto is None else min(upto, run.head)
    if limit is not None:
        last = min(last, after + max(limit, 0))
    return _checked(connection, run, [row[-3:] for row in found], after, last, whole=whole)


def _checked(
    connection: Connection,
    run: JournalRow | InfoRow,
    found: Iterable[tuple[Any, Any, Any]],
    after: int,
    last: int,
    *,
    whole: bool,
) -> list[Record]:
    """Return the records up to `last`, each one checked, and the first one against the run's row.

    Args:
        connection: reads payloads, and the records that were not found at once.
        run: the run's row.
        found: the rows of the first records: `seq`, `crc` and `data`, or a row of None if there are no records.
        after: the number of the record before the first one.
        last: the number of the last record to return.
        whole: whether no record may follow that one.
    """
    run_id, number, head = run.run_id, run.id, run.head
    result: list[Record] = []
    rows = [row for row in found if row[-1] is not None]
    while True:
        joiner: Joiner | None = None
        for at, (seq, crc, data) in enumerate(rows):
            expected = after + len(result) + 1
            if seq > head:
                if whole:
                    raise corrupt(run_id, head + 1, f"the run's row says that {head} is the last one", result)
                break
            if seq != expected:
                raise corrupt(run_id, expected, "it is missing", result)
            if data.startswith(MARK):
                joiner = joiner or Joiner(connection, rows)
                try:
                    data = _with_payloads(connection, joiner, at, run_id, number)
                except ValueError as error:
                    raise corrupt(run_id, seq, str(error), result) from error
            record = record_of(run_id, seq, crc, data, result)
            if seq == 1:
                check_beginning(run_id, run, record)
            result.append(record)
        if len(rows) < _AT_ONCE or after + len(result) >= last:
            break
        rows = _some_more(connection, run_id, number, after + len(result), last)
    if after + len(result) < last:
        raise corrupt(run_id, after + len(result) + 1, "it is missing", result)
    return result


def _some_more(connection: Connection, run_id: str, number: int, after: int, upto: int) -> list[tuple[int, int, bytes]]:
    """Return the next records of a run. Stored records never change, so this may see a later moment."""
    found: Any = connection.execute(
        "SELECT seq, crc, data FROM records WHERE run = %s::bigint AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s",
        (number, after, upto, _AT_ONCE),
    ).fetchall()
    if not found:
        _check_there(connection, run_id, number)
    rows: list[tuple[int, int, bytes]] = found
    return rows


def _check_there(connection: Connection, run_id: str, number: int) -> None:
    """Raise if a run was deleted, or archived, after its first records were read."""
    row: Any = connection.execute("SELECT id, archived FROM runs WHERE run_id = %s", (run_id,)).fetchone()
    there, text = row or (None, None)
    if there != number:
        raise RunUnknown(run_id)
    _check_not_archived(run_id, text)


def _check_not_archived(run_id: str, text: object) -> None:
    archived = archived_of(text)
    if archived is not None:
        raise RunArchived(run_id, archived)


def _with_payloads(connection: Connection, joiner: Joiner, at: int, run_id: str, number: int) -> bytes | Parted:
    """Return a record that was read, with its payloads, which are read after it."""
    try:
        return joiner.record(at)
    except ValueError:
        _check_there(connection, run_id, number)
        return joiner.record(at)  # archived and restored meanwhile, perhaps


def graph(connection: Connection, digest: str, url: str) -> JsonObject:
    """See `Store.graph`."""
    return graph_of(connection.execute("SELECT data FROM graphs WHERE digest = %s", (digest,)).fetchone(), digest, url)


def snapshot(connection: Connection, run_id: str, upto: int | None) -> tuple[int, bytes] | None:
    """See `Store.snapshot`."""
    rows: Any = connection.execute(
        "SELECT seq, crc, data FROM runs JOIN snapshots ON snapshots.run = runs.id WHERE run_id = %s AND seq <= head"
        " AND seq <= %s ORDER BY seq DESC LIMIT 1",
        (run_id, _LAST if upto is None else upto),
    ).fetchall()
    for seq, crc, data in rows:
        if checksum(run_id, seq, data) == crc:
            return seq, data
    return None if not rows else _older_snapshot(connection, run_id, rows[0][0])


def _older_snapshot(connection: Connection, run_id: str, before: int) -> tuple[int, bytes] | None:
    """Return the latest snapshot before a damaged one, if any; any valid snapshot can be used."""
    return snapshot(connection, run_id, before - 1)


# The snapshot is in the first row only.
_LOAD = f"""
    SELECT {INFO_AND_NOW}, kept.seq, kept.crc, CASE WHEN part.seq IS NULL OR part.seq = kept.seq + 1 THEN kept.data END,
        part.seq, part.crc, part.data
    FROM (SELECT * FROM runs WHERE run_id = %(run)s) AS runs {INFO_TABLES} LEFT JOIN LATERAL (
        SELECT seq, crc, data FROM snapshots
        WHERE %(after)s::bigint IS NULL AND run = runs.id AND seq <= runs.head AND seq <= %(upto)s
        ORDER BY seq DESC LIMIT 1
    ) AS kept ON TRUE LEFT JOIN LATERAL (
        SELECT seq, crc, data FROM records
        WHERE run = %(number)s::bigint AND seq > COALESCE(%(after)s::bigint, kept.seq, 0) AND seq <= %(upto)s
        ORDER BY seq LIMIT {_AT_ONCE}
    ) AS part ON TRUE ORDER BY part.seq
"""


def load(connection: Connection, run_id: str, after: int | None, upto: int | None, numbers: RunNumbers) -> StoredRun:
    """See `Loading.load`.

    Raises:
        the errors of `info` and `records`.
    """
    values = {"run": run_id, "after": after, "upto": _LAST if upto is None else upto}
    number = numbers.get(run_id)
    if number is None:
        number = run_number(connection, run_id)
    found: Any = connection.execute(_LOAD.encode(), {**values, "number": number}).fetchall()
    if not found:
        raise RunUnknown(run_id)
    *facts, seq, crc, data = found[0][:-3]
    run = InfoRow._make(facts[:-1])
    check_info(run_id, run)
    kept = (seq, data) if data is not None and checksum(run_id, seq, data) == crc else None
    if run.id != number or (seq is not None and kept is None):
        # another run has reused the id of a deleted one, or the snapshot is damaged: read one after another
        kept = snapshot(connection, run_id, upto) if after is None else None
        read = records(connection, run_id, after or (kept[0] if kept else 0), upto, None, numbers)
        return StoredRun(info(connection, run_id), kept, read)
    numbers.keep(run_id, number)
    _check_not_archived(run_id, run.archived)
    start: int = after or (0 if kept is None else kept[0])
    last = run.head if upto is None else min(upto, run.head)
    rows = [row[-3:] for row in found]
    return StoredRun(
        info_with_now(tuple(facts)), kept, _checked(connection, run, rows, start, last, whole=upto is None)
    )


def notices(connection: Connection) -> list[Message]:
    """See `Store.notices`."""
    rows: Any = connection.execute(
        "SELECT inbox.id, run_id, body FROM inbox JOIN runs ON runs.id = inbox.run WHERE notice ORDER BY inbox.id"
    ).fetchall()
    return [Message(key, run_id, json_object(body)) for key, run_id, body in rows]


def inbox(connection: Connection, run_ids: Collection[str]) -> list[Message]:
    """See `Store.inbox`."""
    if not run_ids:
        return []
    rows: Any = connection.execute(
        "SELECT inbox.id, run_id, body FROM inbox JOIN runs ON runs.id = inbox.run WHERE run_id = ANY(%s)"
        " ORDER BY inbox.id",
        (sorted(run_ids),),
    ).fetchall()
    return [Message(key, run_id, json_object(body)) for key, run_id, body in rows]


def unsettled(connection: Connection, graphs: Collection[str] | None) -> list[RunInfo]:
    """See `Store.unsettled`."""
    # this index contains only these few runs; without the order the server may read all runs
    query = (
        f"SELECT {INFO_AND_NOW} FROM (SELECT id FROM runs WHERE status = 'running'"
        " UNION (SELECT id FROM runs WHERE due IS NOT NULL ORDER BY graph, due)"
        " UNION SELECT run FROM inbox WHERE NOT notice) AS busy"
        " CROSS JOIN LATERAL"
        " (SELECT * FROM runs WHERE id = busy.id AND status IN ('running', 'paused') OFFSET 0) AS runs"
        f" {INFO_TABLES} ORDER BY runs.created, runs.id"
    )
    with walking(connection):
        rows: Any = connection.execute(query.encode()).fetchall()
    found = map(info_with_now, rows)
    return [one for one in found if graphs is None or one.graph in graphs]


def parked(connection: Connection, limit: int) -> list[RunInfo]:
    """See `Store.parked`."""
    query = (  # in the order of the index, as above
        f"SELECT {INFO_AND_NOW} FROM (SELECT id FROM runs WHERE retry_at IS NOT NULL AND deaths >= {MAX_DEATHS}"
        " AND (status IN ('running', 'paused')) IS TRUE ORDER BY graph, retry_at) AS backing_off"
        f" JOIN runs ON runs.id = backing_off.id {INFO_TABLES} ORDER BY retry_at, runs.id LIMIT %s"
    )
    with walking(connection):
        rows: Any = connection.execute(query.encode(), (max(limit, 0),)).fetchall()
    return [*map(info_with_now, rows)]
