"""What is read, as functions of a connection. Each is one statement, so that all of it is of one moment.

The numbers of runs that were read: who knows the number of a run can ask for the partition of its month alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from orchestrator.errors import RunArchived, RunUnknown, StoreError
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel import records as r
from orchestrator.kernel.records import FINAL
from orchestrator.stores.base import Message, Parent, RunInfo
from orchestrator.stores.payloads import MARK, Parted
from orchestrator.stores.postgres.leases import lease_of
from orchestrator.stores.postgres.payloads import Joiner
from orchestrator.stores.postgres.statements import walking
from orchestrator.stores.postgres.writes import NOW, run_number
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.stores.shared import corrupt, graph_unknown, json_object
from orchestrator.stores.stored import archived_of, checksum, labels_of, record_of, row_text
from orchestrator.values import in_calendar

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record, RunStarted
    from orchestrator.stores.postgres.statements import Connection


_MOST = 10_000


class RunNumbers:
    """Numbers by ids, of the latest runs. A number may be that of a deleted run: what is found by it says so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}

    def get(self, run_id: str) -> int | None:
        """The number of a run, if it is known."""
        return self._numbers.get(run_id)

    def keep(self, run_id: str, number: int) -> None:
        """Note the number of a run."""
        if self._numbers.get(run_id) == number:
            return
        with self._lock:
            self._numbers[run_id] = number
            if len(self._numbers) > _MOST:
                del self._numbers[next(iter(self._numbers))]


InfoRow: TypeAlias = tuple[Any, ...]
"""A row of `INFO_COLUMNS`."""

STATUSES = {*FINAL, "running", "paused"}

INFO_COLUMNS = (
    "runs.id, runs.run_id, runs.graph, runs.status, runs.labels, runs.created, runs.updated, runs.head,"
    " runs.structure, runs.content, runs.due, runs.waiting, error, input, output, question, usage, steps, parent,"
    f" parent_seq, relation, deaths, retry_at, fault, token, runs.holder, owner, ttl, expires, {NOW}, archived"
)
INFO_TABLES = "LEFT JOIN summaries ON summaries.run = runs.id LEFT JOIN holders ON holders.holder = runs.holder"


def info_of(row: InfoRow) -> RunInfo:
    """A row of `INFO_COLUMNS` as the facts about a run. Of a damaged one, as much as can be read."""
    _, run_id, graph_name, status, labels, created, updated, head, structure, content, due, waiting = row[:12]
    error, given, output, question, usage, steps, parent, seq, relation, deaths, retry_at, fault = row[12:24]
    return RunInfo(
        run_id, graph_name, status, labels_of(labels) or {}, in_calendar(created), in_calendar(updated), head,
        structure, content, None if due is None else in_calendar(due), waiting,
        row_text(error), row_text(given), row_text(output), row_text(question),
        usage, steps or 0,  # the usage is read when asked for
        _parent_of(parent, seq, relation), deaths, None if retry_at is None else in_calendar(retry_at), row_text(fault),
        lease_of(run_id, row[24:30]),
        archived=archived_of(row[30]),
    )  # fmt: skip


def _parent_of(run_id: object, seq: object, relation: object) -> Parent | None:
    if not isinstance(run_id, str) or relation not in ("fork", "replay", "call"):
        return None
    return Parent(run_id, seq if isinstance(seq, int) else 0, relation)


def info(connection: Connection, run_id: str) -> RunInfo:
    """The facts about a run.

    Raises:
        RunUnknown: there is no such run.
        StoreCorrupt: its row holds what is never written.
    """
    row: Any = connection.execute(
        f"SELECT {INFO_COLUMNS} FROM runs {INFO_TABLES} WHERE run_id = %s".encode(), (run_id,)
    ).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    _check_head(run_id, row[7])
    if row[3] not in STATUSES:
        raise corrupt(run_id, 0, f"its status is {row[3]!r}", ())
    if labels_of(row[4]) is None:
        raise corrupt(run_id, 0, f"its labels are {row[4]!r}", ())
    return info_of(row)


def infos(connection: Connection, run_ids: Collection[str]) -> dict[str, RunInfo]:
    """The facts about some runs, by their ids."""
    if not run_ids:
        return {}
    rows: Any = connection.execute(
        f"SELECT {INFO_COLUMNS} FROM runs {INFO_TABLES} WHERE run_id = ANY(%s)".encode(), (list(run_ids),)
    ).fetchall()
    return {row[1]: info_of(row) for row in rows}


def heads(connection: Connection, run_ids: Collection[str]) -> dict[str, tuple[int, str]]:
    """See `Store.heads`."""
    if not run_ids:
        return {}
    rows: Any = connection.execute(
        "SELECT run_id, head, status FROM runs WHERE run_id = ANY(%s)", (sorted(run_ids),)
    ).fetchall()
    return {run_id: (head, status) for run_id, head, status in rows}


def _check_head(run_id: str, head: int) -> None:
    if not 0 <= head < 1 << 32:
        raise corrupt(run_id, 0, f"its head is {head!r}", ())


# The number is given, so that the server plans for one partition of `records` and locks no others.
_RECORDS = """
    SELECT id, head, run_id, graph, labels, structure, content, archived, seq, crc, data FROM (
        SELECT id, head, run_id, graph, labels, structure, content, archived FROM runs WHERE run_id = %(run)s
    ) AS one LEFT JOIN (
        SELECT seq, crc, data FROM records WHERE run = %(number)s::bigint AND seq > %(after)s AND seq <= %(upto)s
        ORDER BY seq LIMIT %(limit)s
    ) AS part ON TRUE ORDER BY seq
"""
_LAST = 1 << 33


def records(
    connection: Connection, run_id: str, after: int, upto: int | None, limit: int | None, numbers: RunNumbers
) -> list[Record]:
    """The records of a run, each one checked, and the first one against the run's row.

    Raises:
        RunUnknown: there is no such run.
        RunArchived: they are not in the database.
        StoreCorrupt: a row or a payload is missing or damaged, or there are rows behind the last one.
    """
    after = max(after, 0)
    whole = limit is None and upto is None
    most = _LAST if limit is None else max(limit, 0)
    # The facts of the run are in each row that comes back, so a long run is not read in one go.
    values = {"run": run_id, "after": after, "upto": _LAST if upto is None else upto, "limit": min(most, _AT_ONCE)}
    number = numbers.get(run_id)
    if number is None:
        number = run_number(connection, run_id)
    while True:
        found: Any = connection.execute(_RECORDS, {**values, "number": number}).fetchall()
        if not found:
            raise RunUnknown(run_id)
        if found[0][0] == number:
            break
        number = found[0][0]  # another run has got the id of a deleted one
    numbers.keep(run_id, number)
    head, facts, archived = found[0][1], found[0][2:7], archived_of(found[0][7])
    if archived is not None:
        raise RunArchived(run_id, archived)
    _check_head(run_id, head)
    last = head if upto is None else min(upto, head)
    if limit is not None:
        last = min(last, after + max(limit, 0))
    result: list[Record] = []
    rows = [row[8:] for row in found if row[8] is not None]
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
            if seq == 1 and isinstance(record, r.RunStarted):
                _check_beginning(run_id, facts, record)
            result.append(record)
        if len(rows) < _AT_ONCE or after + len(result) >= last:
            break
        rows = _some_more(connection, run_id, number, after + len(result), last)
    if after + len(result) < last:
        raise corrupt(run_id, after + len(result) + 1, "it is missing", result)
    return result


_AT_ONCE = 1000


def _some_more(connection: Connection, run_id: str, number: int, after: int, upto: int) -> list[tuple[int, int, bytes]]:
    """The next records of a run. Records that are there never change, so this may be of a later moment."""
    found: Any = connection.execute(
        "SELECT seq, crc, data FROM records WHERE run = %s::bigint AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s",
        (number, after, upto, _AT_ONCE),
    ).fetchall()
    if not found:
        _check_there(connection, run_id, number)
    rows: list[tuple[int, int, bytes]] = found
    return rows


def _check_there(connection: Connection, run_id: str, number: int) -> None:
    """Refuse to go on reading a run that was deleted, or archived, after its first records were read."""
    row: Any = connection.execute("SELECT id, archived FROM runs WHERE run_id = %s", (run_id,)).fetchone()
    if row is None or row[0] != number:
        raise RunUnknown(run_id)
    archived = archived_of(row[1])
    if archived is not None:
        raise RunArchived(run_id, archived)


def _with_payloads(connection: Connection, joiner: Joiner, at: int, run_id: str, number: int) -> bytes | Parted:
    """One of the records that were read, with its payloads, which are read after it."""
    try:
        return joiner.record(at)
    except ValueError:
        _check_there(connection, run_id, number)
        return joiner.record(at)  # archived and restored meanwhile, perhaps


def _check_beginning(run_id: str, row: tuple[object, ...], started: RunStarted) -> None:
    named, graph_name, labels, structure, content = row
    own = named == started.run_id  # a fork begins with the first record of another run
    facts = (
        ("graph", graph_name, started.graph),
        ("labels", labels_of(labels), dict(started.labels) if own else labels_of(labels)),
        ("structure", structure, started.structure),
        ("content", content, started.content),
    )
    for name, stored, true in facts:
        if stored != true:
            raise corrupt(run_id, 0, f"its {name}: {stored!r}; {true!r} by its first record", ())


def graph(connection: Connection, digest: str, url: str) -> JsonObject:
    """See `Store.graph`."""
    row: Any = connection.execute("SELECT data FROM graphs WHERE digest = %s", (digest,)).fetchone()
    if row is None:
        raise graph_unknown(digest, url)
    try:
        data: JsonObject = json.loads(row[0], parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise StoreError(
            f"store {url}: graph {digest!r} is damaged; give the executor the graph itself, or restore the store from "
            "a copy"
        ) from None
    return data


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


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
    """A damaged cache is no cache: the one before it is as good."""
    return snapshot(connection, run_id, before - 1)


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
    # the order is that of an index that has these few runs alone: without it the server may look at all
    query = (
        f"SELECT {INFO_COLUMNS} FROM (SELECT id FROM runs WHERE status = 'running'"
        " UNION (SELECT id FROM runs WHERE due IS NOT NULL ORDER BY graph, due)"
        " UNION SELECT run FROM inbox WHERE NOT notice) AS busy"
        " CROSS JOIN LATERAL"
        " (SELECT * FROM runs WHERE id = busy.id AND status IN ('running', 'paused') OFFSET 0) AS runs"
        f" {INFO_TABLES} ORDER BY runs.created, runs.id"
    )
    with walking(connection):
        rows: Any = connection.execute(query.encode()).fetchall()
    return [info_of(row) for row in rows if graphs is None or row[2] in graphs]


def parked(connection: Connection, limit: int) -> list[RunInfo]:
    """See `Store.parked`."""
    query = (  # ordered as above
        f"SELECT {INFO_COLUMNS} FROM (SELECT id FROM runs WHERE retry_at IS NOT NULL AND deaths >= {MAX_DEATHS}"
        " AND (status IN ('running', 'paused')) IS TRUE ORDER BY graph, retry_at) AS backing_off"
        f" JOIN runs ON runs.id = backing_off.id {INFO_TABLES} ORDER BY retry_at, runs.id LIMIT %s"
    )
    with walking(connection):
        rows: Any = connection.execute(query.encode(), (max(limit, 0),)).fetchall()
    return [info_of(row) for row in rows]
