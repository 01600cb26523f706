"""Writing: appends and new runs in batches by one thread, heartbeats by another, other changes one by one by a third.

While a batch is being written, further requests queue up and share the next statement: a single append costs a round
trip and a commit, a hundred at the same time cost one together. A change may wait for a row that another client has
locked; a heartbeat must not wait for that, or the leases of a healthy executor expire.

Other changes are functions of a connection, each made once, in its own transaction. If a connection is lost while
a transaction is committed, the client does not know whether it was. The server is then asked for the outcome of the
transaction by its number, which was read before. So a function never runs again after it took effect, and its result
is that of the first time.

A standby that took over may give the numbers that it never saw to its own transactions. It has everything that was
in the log before the position at which it took over: it has our transaction only if that position is after the one
that was read with the number.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from orchestrator.errors import OrchestratorError, RunUnknown, StoreUnavailable
from orchestrator.stores.payloads import size_of
from orchestrator.stores.postgres import record_partitions
from orchestrator.stores.postgres.connection_threads import BatchStatistics, BatchThread, Job
from orchestrator.stores.postgres.connections import IDLE_SECONDS, WORK, Address, begin, idle_within
from orchestrator.stores.postgres.leases import drop, rob
from orchestrator.stores.postgres.related_rows import let_go
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.postgres.writes import AppendJob, CreateJob, append_all, create_all
from orchestrator.stores.rows import NOTICE, Note
from orchestrator.stores.shared import check_postable, json_object, notes_full
from orchestrator.stores.stored import checksum, note_row
from orchestrator.stores.threads import watch

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection


T = TypeVar("T")

_LONGEST = 30.0
"""Seconds to wait for the end of a transaction whose connection was lost."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is about to be committed.

    Attributes:
        number: its number.
        timeline: timeline of the server's log, which increases when a server takes over.
        place: a position in the log after all changes of the transaction, and before its commit.
    """

    number: str
    timeline: str
    place: str


class ChangeJob(Job[T]):
    """A requested change. `change` raises an `OrchestratorError` only before it has changed anything."""

    __slots__ = ("change", "promised", "transaction")

    def __init__(self, change: Callable[[Connection], T]) -> None:
        super().__init__()
        self.change = change
        self.transaction: Transaction | None = None
        """The transaction whose outcome is unknown."""
        self.promised: T | None = None
        """Result of the change, if `transaction` turns out to be committed."""


def change_all(connection: Connection, jobs: list[ChangeJob[Any]], idle: float = IDLE_SECONDS) -> None:
    """Make changes one by one. The server ends a transaction in which this client is silent for `idle` seconds."""
    for job in jobs:
        _change(connection, job, idle)


def _change(connection: Connection, job: ChangeJob[Any], idle: float) -> None:
    if job.transaction is not None:
        if was_committed(connection, job.transaction):
            job.value, job.transaction = job.promised, None
            return
        job.transaction = None
    connection.execute(begin(idle), prepare=False)
    try:
        try:
            job.value = job.change(connection)
        except OrchestratorError as refusal:
            connection.execute("ROLLBACK")
            job.error = refusal
            return
        job.transaction, job.promised = transaction_of(connection), job.value
        connection.execute("COMMIT")
        job.transaction = None
    except BaseException:
        if not connection.closed and connection.info.transaction_status:
            connection.rollback()
            job.transaction = None  # the server reported an error: it is not committed
        raise


def transaction_of(connection: Connection) -> Transaction | None:
    """Return the transaction of a connection; None if it has changed nothing."""
    row = connection.execute(
        f"SELECT pg_current_xact_id_if_assigned()::text, {_TIMELINE}, pg_current_wal_insert_lsn()::text"
    ).fetchone()
    return None if row is None or row[0] is None else Transaction(*row)


def was_committed(connection: Connection, transaction: Transaction) -> bool:
    """Return True if a transaction took effect.

    Raises:
        StoreUnavailable: the outcome is not known yet, or no longer.
    """
    number = transaction.number
    if not _has_seen(connection, transaction):
        return False
    deadline = time.monotonic() + _LONGEST
    while (status := _status(connection, number)) == "in progress" and time.monotonic() < deadline:
        # Its session has not noticed that the client is gone. A COMMIT that is still on its way now comes too late.
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xid = %s::text::xid", (number,)
        )
        time.sleep(0.01)
    if status in ("committed", "aborted"):
        return status == "committed"
    raise StoreUnavailable(
        "the connection was cut while something was written, and the server does not know whether it was"
        if status is None
        else "the connection was cut while something was written, which the server is still doing; ask again"
    )


_TIMELINE = "left(pg_walfile_name(pg_current_wal_lsn()), 8)"


def _has_seen(connection: Connection, transaction: Transaction) -> bool:
    """Return True if the transaction with this number is the given one on this server.

    Raises:
        StoreUnavailable: the server no longer has the position at which it took over.
    """
    row: Any = connection.execute(
        f"SELECT CASE WHEN NOT pg_is_in_recovery() THEN {_TIMELINE} END, %s::text::pg_lsn <= pg_last_wal_replay_lsn()",
        (transaction.place,),
    ).fetchone()
    timeline, seen = row
    if timeline == transaction.timeline:
        return True
    # A server that took over reports the position until it is restarted. There may have been earlier take-overs.
    if timeline is None or seen is None or int(timeline, 16) != int(transaction.timeline, 16) + 1:
        raise StoreUnavailable(
            "the connection was cut while something was written, another server has taken over since, and it does not"
            " know whether it was written"
        )
    return bool(seen)


def _status(connection: Connection, number: object) -> str | None:
    from psycopg.errors import InvalidParameterValue

    try:
        row = connection.execute("SELECT pg_xact_status(%s::text::xid8)", (number,)).fetchone()
    except InvalidParameterValue:  # the position is in the future of this server, a standby that took over without it
        return "aborted"
    return row[0] if row else None


# ------------------------------------------------------------------------------------- changes


def put_graph(connection: Connection, digest: str, data: str) -> None:
    """See `Store.put_graph`."""
    connection.execute("INSERT INTO graphs (digest, data) VALUES (%s, %s) ON CONFLICT DO NOTHING", (digest, data))


def put_snapshot(connection: Connection, run_id: str, seq: int, data: bytes) -> None:
    """See `Store.put_snapshot`."""
    number = locked(connection, run_id)
    connection.execute(  # snapshots of archived runs are not stored
        "INSERT INTO snapshots (run, seq, crc, data)"
        " SELECT id, %s::bigint, %s::bigint, %s::bytea FROM runs WHERE id = %s AND archived IS NULL"
        " ON CONFLICT (run, seq) DO UPDATE SET crc = excluded.crc, data = excluded.data",
        (seq, checksum(run_id, seq, data), data, number),
    )


def post(connection: Connection, run_id: str, body: str, key: str | None) -> int:
    """See `Store.post`."""
    found: Any = connection.execute(
        "SELECT id, status FROM runs WHERE run_id = %s FOR NO KEY UPDATE", (run_id,)
    ).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    number, status = found
    notice = json_object(body).get("type") == NOTICE
    check_postable(run_id, status, notice)
    if key is not None:
        known: Any = connection.execute("SELECT id FROM inbox WHERE run = %s AND key = %s", (number, key)).fetchone()
        if known is not None:
            return int(known[0])
    made: Any = connection.execute(
        "INSERT INTO inbox (run, body, key, notice) VALUES (%s, %s, %s, %s) RETURNING id", (number, body, key, notice)
    ).fetchone()
    if not notice:
        tell_of_work(connection)
    return int(made[0])


def tell_of_work(connection: Connection) -> None:
    """Notify listeners, once this transaction is committed, that there may be a run to resume."""
    connection.execute("SELECT pg_notify(%s, '')", (WORK,))


def drop_lease(connection: Connection, run_id: str, token: str, fault: str | None) -> None:
    """See `Store.drop_lease`."""
    if drop(connection, run_id, token, fault) and fault is None:
        tell_of_work(connection)


def locked(connection: Connection, run_id: str) -> int:
    """Lock a run against deletion and messages until the transaction ends, and return its number.

    Raises:
        RunUnknown: the store has no such run.
    """
    row: Any = connection.execute("SELECT id FROM runs WHERE run_id = %s FOR NO KEY UPDATE", (run_id,)).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    return int(row[0])


def add_note(connection: Connection, note: Note, most: int) -> None:
    """See `Store.add_note`."""
    number = locked(connection, note.run)
    row: Any = connection.execute(
        "SELECT count(*) FILTER (WHERE id = %s), count(*) FROM notes WHERE run = %s::bigint", (note.id, number)
    ).fetchone()
    there, count = row
    if not there:
        if count >= most:
            raise notes_full(note.run, most)
        connection.execute("INSERT INTO notes (run, id, at, data) VALUES (%s, %s, %s, %s)", (number, *note_row(note)))


def delete_note(connection: Connection, run_id: str, note: str) -> bool:
    """See `Store.delete_note`."""
    number = locked(connection, run_id)
    return connection.execute("DELETE FROM notes WHERE run = %s::bigint AND id = %s", (number, note)).rowcount > 0


def discard(connection: Connection, ids: list[int]) -> None:
    """See `Store.discard`."""
    connection.execute("DELETE FROM inbox WHERE id = ANY(%s::bigint[])", (ids,))


_OF_RUN = (
    "labels",
    "records",
    "snapshots",
    "inbox",
    "item_writes",
    "summaries",
    "run_totals",
    "run_parts",
    "failed_tools",
    "questions",
    "unlisted",
    "notes",
)


def delete(connection: Connection, run_id: str) -> bool:
    """See `Store.delete`."""
    try:
        number = locked(connection, run_id)
    except RunUnknown:
        return False
    row: Any = connection.execute("SELECT holder FROM runs WHERE id = %s", (number,)).fetchone()
    if row[0] is not None:
        rob(connection, row[0])
    for table in _OF_RUN:
        connection.execute(f"DELETE FROM {table} WHERE run = %s::bigint".encode(), (number,))
    let_go(connection, number)
    connection.execute("UPDATE archive_objects SET gone = TRUE WHERE run_id = %s AND NOT gone", (run_id,))
    connection.execute("DELETE FROM runs WHERE id = %s", (number,))
    return True


MOST = 256
"""Maximum number of appends or new runs in one statement."""
MOST_BYTES = 8 << 20
"""Maximum bytes in one statement, if it is for several runs."""
_TRY_AGAIN = 60.0
"""Seconds until a failed start of a month is tried again."""

_RunJob: TypeAlias = AppendJob | CreateJob


class Writer:
    """Makes changes, durably. `stop` ends it."""

    def __init__(self, address: Address) -> None:
        self._runs: BatchThread[_RunJob] = BatchThread(address, f"{address.url} writer", _take, self._do)
        self._others: BatchThread[ChangeJob[Any]] = BatchThread(
            address, f"{address.url} changes", _take_one, self._change_all
        )
        self._beats: BatchThread[ChangeJob[Any]] = BatchThread(
            address, f"{address.url} heartbeats", _take_one, self._change_all
        )
        self._idle = IDLE_SECONDS
        self._next_try = 0.0
        """When a month may be started, by the monotonic clock."""
        for thread in (self._runs, self._others, self._beats):
            watch(thread)

    async def append(self, job: AppendJob) -> int:
        """Make an append and return the new head, once it is durable."""
        await self._runs.ask(job)
        return job.result()

    async def create(self, job: CreateJob) -> None:
        """Add a run; it is durable when this returns."""
        await self._runs.ask(job)
        job.result()

    async def change(self, change: Callable[[Connection], T]) -> T:
        """Make another change in its own transaction, once, and return its result, once it is durable.

        Args:
            change: raises an `OrchestratorError` only before it has changed anything.
        """
        job = ChangeJob(change)
        await self._others.ask(job)
        return job.result()

    async def beat(self, change: Callable[[Connection], T]) -> T:
        """Like `change`, for heartbeats, which wait for no other change of this process."""
        job = ChangeJob(change)
        await self._beats.ask(job)
        return job.result()

    def note_lease(self, ttl: float) -> None:
        """Record that this process has leases of `ttl` seconds: its transactions must not be silent for longer."""
        if ttl > 0:
            self._idle = min(self._idle, idle_within(ttl))

    def stop(self) -> list[Any]:
        """Accept no more writes and finish the waiting ones; return the threads that do so."""
        threads = (self._runs.stop(), self._others.stop(), self._beats.stop())
        return [thread for thread in threads if thread is not None]

    def statistics(self) -> BatchStatistics:
        """Return the counts of appends and new runs so far: on average, `jobs / batches` shared a commit."""
        return self._runs.statistics

    def _change_all(self, connection: Connection, jobs: list[ChangeJob[Any]]) -> None:
        record_partitions.mending(connection, partial(change_all, connection, jobs, self._idle))

    def _do(self, connection: Connection, jobs: list[_RunJob]) -> None:
        appends = [job for job in jobs if isinstance(job, AppendJob)]
        if appends:
            record_partitions.mending(connection, partial(append_all, connection, appends))
        news = [job for job in jobs if isinstance(job, CreateJob)]
        if news:
            has_begun = record_partitions.mending(connection, partial(create_all, connection, news))
            if has_begun:
                self._begin_month(connection)

    def _begin_month(self, connection: Connection) -> None:
        """Start a month, which takes milliseconds. If this is not possible now, writes continue without it."""
        import psycopg

        if monotonic() >= self._next_try:
            self._next_try = monotonic() + _TRY_AGAIN
            with suppress(psycopg.Error):
                record_partitions.begin_month(connection)


def _take_one(waiting: deque[ChangeJob[Any]]) -> list[ChangeJob[Any]]:
    return [waiting.popleft()]


def _take(waiting: deque[_RunJob]) -> list[_RunJob]:
    """Return the first job, and others of its kind for other runs; the rest keeps its order."""
    first = waiting.popleft()
    taken, runs, size = [first], {_run_of(first)}, _size(first)
    left: list[_RunJob] = []
    while waiting and len(taken) < MOST and size < MOST_BYTES:
        job = waiting.popleft()
        run = _run_of(job)
        if run in runs or type(job) is not type(first):
            left.append(job)
            runs.add(run)  # later jobs of the run wait as well
        else:
            taken.append(job)
            runs.add(run)
            size += _size(job)
    waiting.extendleft(reversed(left))
    return taken


def _run_of(job: _RunJob) -> str:
    return job.append.run_id if isinstance(job, AppendJob) else job.new.info.run_id


def _size(job: _RunJob) -> int:
    return size_of(job.related.rows, job.related.payloads)
