"""Changes other than appends and new runs: functions of a connection, each made once, in a transaction of its own.

When a connection is cut while a transaction is committed, the client does not know whether it was. The server is asked
for the fate of the transaction by its number, which was read before. So a function is never made a second time after
it took effect, and its result is that of the one time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.errors import OrchestratorError, RunUnknown, StoreUnavailable
from orchestrator.stores.postgres.connections import BEGIN, WORK
from orchestrator.stores.postgres.lane import Job
from orchestrator.stores.postgres.leases import drop, rob
from orchestrator.stores.rows import NOTICE
from orchestrator.stores.shared import json_object
from orchestrator.stores.stored import checksum

if TYPE_CHECKING:
    from orchestrator.stores.postgres.connections import Connection

T = TypeVar("T")

_LONGEST = 30.0
"""Seconds for which the end of a transaction is waited for whose connection was cut."""


class ChangeJob(Job[T]):
    """A change that was asked for. `change` raises an `OrchestratorError` only before it has changed anything."""

    __slots__ = ("change", "number", "promised")

    def __init__(self, change: Callable[[Connection], T]) -> None:
        super().__init__()
        self.change = change
        self.number: object = None
        """Of the transaction whose fate is not known."""
        self.promised: T | None = None
        """What it gives if that one was committed."""


def change_all(connection: Connection, jobs: list[ChangeJob[Any]]) -> None:
    """Make changes, one after the other."""
    for job in jobs:
        _change(connection, job)


def _change(connection: Connection, job: ChangeJob[Any]) -> None:
    if job.number is not None:
        if _was_committed(connection, job.number):
            job.value, job.number = job.promised, None
            return
        job.number = None
    connection.execute(BEGIN, prepare=False)
    try:
        try:
            job.value = job.change(connection)
        except OrchestratorError as refusal:
            connection.execute("ROLLBACK")
            job.error = refusal
            return
        row = connection.execute("SELECT pg_current_xact_id_if_assigned()::text").fetchone()
        number = row[0] if row else None
        job.number, job.promised = number, job.value
        connection.execute("COMMIT")
        job.number = None
    except BaseException:
        if not connection.closed and connection.info.transaction_status:
            connection.rollback()
            job.number = None  # the server said what was wrong: it is not committed
        raise


def _was_committed(connection: Connection, number: object) -> bool:
    """Whether a transaction took effect.

    Raises:
        StoreUnavailable: the server does not know yet, or not any more.
    """
    deadline = time.monotonic() + _LONGEST
    while (status := _status(connection, number)) == "in progress" and time.monotonic() < deadline:
        # Its session has not noticed that its client is gone. If COMMIT is still on its way, it is too late for it now.
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


def _status(connection: Connection, number: object) -> str | None:
    from psycopg.errors import InvalidParameterValue

    try:
        row = connection.execute("SELECT pg_xact_status(%s::text::xid8)", (number,)).fetchone()
    except InvalidParameterValue:  # it lies in the future of this server, a standby that took over without it
        return "aborted"
    return row[0] if row else None


# ------------------------------------------------------------------------------------- changes


def put_graph(connection: Connection, digest: str, data: str) -> None:
    """See `Store.put_graph`."""
    connection.execute("INSERT INTO graphs (digest, data) VALUES (%s, %s) ON CONFLICT DO NOTHING", (digest, data))


def put_snapshot(connection: Connection, run_id: str, seq: int, data: bytes) -> None:
    """See `Store.put_snapshot`."""
    connection.execute(
        "INSERT INTO snapshots (run, seq, crc, data) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (run, seq) DO UPDATE SET crc = excluded.crc, data = excluded.data",
        (locked(connection, run_id), seq, checksum(run_id, seq, data), data),
    )


def post(connection: Connection, run_id: str, body: str, key: str | None) -> int:
    """See `Store.post`."""
    number = locked(connection, run_id)
    if key is not None:
        known: Any = connection.execute("SELECT id FROM inbox WHERE run = %s AND key = %s", (number, key)).fetchone()
        if known is not None:
            return int(known[0])
    notice = json_object(body).get("type") == NOTICE
    made: Any = connection.execute(
        "INSERT INTO inbox (run, body, key, notice) VALUES (%s, %s, %s, %s) RETURNING id", (number, body, key, notice)
    ).fetchone()
    if not notice:
        tell_of_work(connection)
    return int(made[0])


def tell_of_work(connection: Connection) -> None:
    """Notify listeners, once this transaction is committed, that there may be a run to take up."""
    connection.execute("SELECT pg_notify(%s, '')", (WORK,))


def drop_lease(connection: Connection, run_id: str, token: str, fault: str | None) -> None:
    """See `Store.drop_lease`."""
    if drop(connection, run_id, token, fault) and fault is None:
        tell_of_work(connection)


def locked(connection: Connection, run_id: str) -> int:
    """Lock a run against deletion and messages until the transaction ends, and return its number.

    Raises:
        RunUnknown: there is no such run.
    """
    row: Any = connection.execute("SELECT id FROM runs WHERE run_id = %s FOR NO KEY UPDATE", (run_id,)).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    return int(row[0])


def discard(connection: Connection, ids: list[int]) -> None:
    """See `Store.discard`."""
    connection.execute("DELETE FROM inbox WHERE id = ANY(%s::bigint[])", (ids,))


_OF_RUN = (
    "labels", "records", "snapshots", "inbox", "item_writes", "summaries", "run_totals", "run_parts", "failed_tools",
    "questions", "unlisted",
)  # fmt: skip


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
        connection.execute(f"DELETE FROM {table} WHERE run = %s".encode(), (number,))
    connection.execute("DELETE FROM runs WHERE id = %s", (number,))
    return True
