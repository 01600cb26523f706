"""Waiting runs, by the value of a label that takes turns (see `orchestrator.stores.fair_claims`).

The first claim of a store that takes turns by a label creates an index for that label (see `TurnIndexes`). It contains
only runs without a holder that wait to be resumed or for a time, so a scan from one value to the next never reads
runs that have ended, wait for people, or are driven. A value is the escaped text of the label without its quotes,
200 characters at most.

`TurnIndexes` builds these indexes in a separate thread, while the store is used.

`CREATE INDEX CONCURRENTLY` lets others write, but waits for every transaction that started before it: for hours, if one
was left open. So it has its own connection, and claims work without the index until it is built. One process
builds it, under a lock that a second connection holds in a transaction without a snapshot, which the build does not
wait for. An index whose session ended during the build is invalid: it is dropped and built again.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from anyio import move_on_after

from orchestrator.stores.fair_claims import Turns
from orchestrator.stores.postgres import schema
from orchestrator.stores.postgres.connection_threads import leave_to_parent
from orchestrator.stores.postgres.connections import Address, connect, store_error, will_pass
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.stores.threads import Bell

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection


_LONGEST = 63

VISITED = 1000
"""Maximum number of values that one claim visits."""

WALL = "extract(epoch FROM statement_timestamp())::double precision"
"""The clock of the database, in Unix seconds, in a form that can be compared with an index."""
_WAITS = (
    f"status IN ('running', 'paused') AND token IS NULL AND deaths < {MAX_DEATHS}"
    " AND (due IS NOT NULL OR status = 'running')"
)
_READY = "greatest(coalesce(due, 0), coalesce(retry_at, 0))"
"""The time from which a run can be claimed; 0: since it was created."""
_SPANS = f"(VALUES (0, 0), (5e-324, {WALL})) AS span (lo, hi)"
"""Runs that did not wait for a time are queried separately: they come first in the index, and would be taken
before those that waited for a long time."""


OVERDUE = "(due > created OR status = 'paused')"
"""Condition for due runs, which time, an answer or an event continues; the others were enqueued to start at once.

It also stands for a label that no run has, so that their index is created like those of labels.
"""

LOCK = schema.LOCK + 1
"""The advisory lock of the process that creates such an index."""


def state(connection: Connection, label: str) -> Literal["missing", "valid", "invalid", "being made"]:
    """Return the progress of the index of a label."""
    found = connection.execute(
        "SELECT indisvalid, EXISTS (SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
        " WHERE datname = current_database() AND locktype = 'relation' AND relation = indrelid AND granted"
        " AND mode = 'ShareUpdateExclusiveLock') FROM pg_index WHERE indexrelid = to_regclass(%s)",
        (_name(label),),
    ).fetchone()
    if found is None:
        return "missing"
    if found[0]:
        return "valid"
    return "being made" if found[1] else "invalid"  # invalid: its creation was interrupted


def make(connection: Connection, label: str) -> None:
    """Create the index of a label, outside of any transaction, while others write. Waits for older transactions."""
    name = _name(label)
    if state(connection, label) == "invalid":
        connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}".encode(), prepare=False)
    rows = f"({_value(label)}, graph, {_READY}, created) WHERE {_WAITS}"
    if label == OVERDUE:
        rows = f"(graph, due) WHERE {OVERDUE}"
    connection.execute(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON runs {rows}".encode(), prepare=False)


def ready_values(
    connection: Connection, turns: Turns, graphs: Sequence[str], limit: int
) -> tuple[list[str], str | None]:
    """Return values after the last one, then those before it, that have a claimable run.

    Returns:
        The values, and the one at which the scan had to stop; None: it visited all, or found enough.
    """
    value = _value(turns.label)
    waits, order = f"SELECT {value} FROM runs WHERE {_WAITS}", f"ORDER BY {value} LIMIT 1"
    first, behind = f"({waits} AND {value} > %(after)s {order})", f"({waits} AND {value} > v {order})"

    def walk(first: str, until: str) -> bytes:
        return (
            f"WITH RECURSIVE steps (v, n) AS (SELECT {first}, 1 UNION ALL SELECT {behind}, n + 1 FROM steps"
            " WHERE v IS NOT NULL AND n < %(visits)s), looked AS (SELECT v, n, EXISTS (SELECT 1 FROM runs"
            f" WHERE {_WAITS} AND {value} = v AND graph = ANY(%(names)s::text[]) AND {_READY} <= {WALL}) AS ready"
            f" FROM steps WHERE v IS NOT NULL{until}) SELECT v, n, ready FROM looked WHERE ready OR n >= %(visits)s"
            " LIMIT %(limit)s"
        ).encode()

    found: list[str] = []
    visits = VISITED
    for query in (walk(first, ""), walk(f"({waits} {order})", " AND v <= %(after)s")):
        values = {"after": turns.after, "visits": visits, "names": graphs, "limit": limit - len(found)}
        rows: Any = connection.execute(query, values).fetchall()
        for one, number, ready in rows:
            if ready:
                found.append(one)
            if len(found) >= limit:
                return found, None
            if number >= visits:
                return found, one
    return found, None


def runs_of(
    connection: Connection, turns: Turns, values: Sequence[str], graphs: Sequence[str], each: int
) -> list[tuple[str, Any]]:
    """Return claimable runs of some values, with their values, those of one value oldest first.

    They are locked: at most `each` of a value and graph that waited for a time, and as many that did not.
    """
    value = _value(turns.label)
    rows: Any = connection.execute(
        (
            "SELECT one.* FROM unnest(%(values)s::text[]) AS v (value) CROSS JOIN unnest(%(names)s::text[]) AS g (name)"
            f" CROSS JOIN {_SPANS} CROSS JOIN LATERAL (SELECT {value} AS value, id, run_id, token, holder, graph,"
            f" greatest({_READY}, created) AS since FROM runs WHERE {_WAITS} AND {value} = v.value AND graph = g.name"
            f" AND {_READY} BETWEEN lo AND hi ORDER BY {_READY}, created LIMIT %(each)s"
            " FOR NO KEY UPDATE SKIP LOCKED) AS one ORDER BY since"
        ).encode(),
        {"values": [*values], "names": [*graphs], "each": each},
    ).fetchall()
    return [(row[0], row[1:6]) for row in rows]


def values_of(connection: Connection, turns: Turns, numbers: Sequence[int]) -> dict[int, str]:
    """Return the values of some runs, by their numbers."""
    query = f"SELECT id, {_value(turns.label)} FROM runs WHERE id = ANY(%s)"
    rows: Any = connection.execute(query.encode(), ([*numbers],)).fetchall()
    return dict(rows)


def _name(label: str) -> str:
    """Return the name of a label's index. PostgreSQL cuts names after 63 bytes."""
    if label == OVERDUE:
        return "runs_overdue"
    name = f"runs_in_turn_{label.encode().hex()}"
    return name if len(name) <= _LONGEST else f"runs_in_turn_of_{blake2b(label.encode(), digest_size=20).hexdigest()}"


def _value(label: str) -> str:
    """Return the SQL of a run's value of a label; empty without the label. Names in `Turns` need no quoting."""
    pattern = '[{,]"' + label.replace(".", "\\.") + '":"((?:[^"\\\\]|\\\\.)*)"'
    return f"(left(coalesce(substring(labels from '{pattern}'), ''), 200) COLLATE \"C\")"


_PATIENCE = 2.0
"""Seconds for which claims wait for an index that is created. Without open transactions that takes milliseconds."""
_AGAIN = 1.0
"""Seconds between two attempts, and between two checks of an index that another process creates."""
_GUARD = (
    b"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = 0;"
    b" SET LOCAL lock_timeout = 0"
)


class _Making:
    """An index that is being created."""

    def __init__(self) -> None:
        self.until = monotonic() + _PATIENCE
        self.done = False
        self.error: Exception | None = None
        self.bells: set[Bell] = set()


class TurnIndexes:
    """The indexes of one database. `stop` ends their creation."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._known: set[str] = set()
        """Labels whose index is known to exist."""
        self._refused: set[str] = set()
        self._making: dict[str, _Making] = {}
        self._threads: set[threading.Thread] = set()
        self._connections: set[Connection] = set()

    async def ready(self, label: str) -> bool:
        """Return True if the index of a label exists. If not, request it and wait for a moment.

        Raises:
            StoreError, StoreUnavailable: the database refuses to create it.
        """
        if label in self._known:
            return True
        bell = Bell()
        with self._lock:
            making = self._making.get(label)
            if making is None:
                making = self._begin(label)
            making.bells.add(bell)
            done = making.done
        try:
            if not done:
                with move_on_after(max(making.until - monotonic(), 0.0)):
                    await bell.wait()
        finally:
            with self._lock:
                making.bells.discard(bell)
        if making.error is not None:
            raise store_error(making.error, self._address) or making.error
        return label in self._known

    def want(self, label: str) -> None:
        """Request the creation of a label's index, without waiting. A user who may not create it works without one."""
        with self._lock:
            if not {label} & (self._known | self._refused | {*self._making}):
                self._begin(label)

    def stop(self) -> list[threading.Thread]:
        """Start no more threads; return those that end now. The server continues with the index that it is creating."""
        with self._lock:
            self._closed.set()
            for connection in self._connections:
                with suppress(OSError):  # the thread notices the end of its connection
                    hung_up = socket.socket(fileno=os.dup(connection.fileno()))
                    hung_up.shutdown(socket.SHUT_RDWR)
                    hung_up.close()
            return [*self._threads]

    def before_fork(self) -> None:
        """See `Forkable`. The connections stay open, since they belong to the parent."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """See `Forkable`."""
        if not child:
            self._lock.release()
            return
        self._lock, self._making, self._threads = threading.Lock(), {}, set()
        for connection in self._connections:
            leave_to_parent(connection)
        self._connections = set()

    def _begin(self, label: str) -> _Making:
        making = self._making[label] = _Making()
        thread = threading.Thread(
            target=self._run, args=(label, making), name=f"store {self._address.url} index", daemon=True
        )
        self._threads.add(thread)
        thread.start()
        return making

    # -------------------------------------------------------------------------- in the thread

    def _run(self, label: str, making: _Making) -> None:
        made = False
        try:
            while not made and not self._closed.is_set():
                made = self._attempt(label)
                if not made:
                    self._closed.wait(_AGAIN)
        except Exception as error:  # the current claims raise it; the next one tries again
            making.error = error
            self._refused.add(label)
        with self._lock:
            if made:
                self._known.add(label)
            self._making.pop(label, None)
            self._threads.discard(threading.current_thread())
            making.done = True
            bells, making.bells = making.bells, set()
        for bell in bells:
            bell.ring()

    def _attempt(self, label: str) -> bool:
        """Create an index, unless it exists or another process creates it; return whether it exists now."""
        try:
            with self._connected() as connection:
                while not self._closed.is_set():
                    if state(connection, label) == "valid":
                        return True
                    with self._connected() as guard:
                        guard.execute(_GUARD, prepare=False)
                        if _is_ours(guard) and state(connection, label) != "being made":
                            make(connection, label)
                            continue
                    self._closed.wait(_AGAIN)
                return False
        except Exception as error:
            if _will_pass(error) or self._closed.is_set():
                return False
            raise

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        connection = connect(self._address)
        with self._lock:
            self._connections.add(connection)
        try:
            yield connection
        finally:
            with self._lock:
                self._connections.discard(connection)
            with suppress(Exception):
                connection.close()


def _is_ours(guard: Connection) -> bool:
    """Return True if no other process creates an index now; then none does until the transaction of `guard` ends."""
    # without parameters, by the simple protocol: otherwise its snapshot would stay open, and block the build
    found: Any = guard.execute(f"SELECT pg_try_advisory_xact_lock({LOCK})".encode(), prepare=False).fetchone()
    return bool(found[0])


def _will_pass(error: Exception) -> bool:
    return will_pass(error) or getattr(error, "sqlstate", None) == "57014"  # it took too long, or was cancelled
