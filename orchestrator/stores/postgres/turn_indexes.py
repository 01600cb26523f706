"""Builds the indexes of labels that take turns, in a thread of its own, while the store is used.

`CREATE INDEX CONCURRENTLY` lets others write, but waits for every transaction that began before it: hours, behind one
that was left open. So it has a connection of its own, and claims do without the index until it is built. One process
builds it, under a lock that a second connection holds in a transaction without a snapshot, which the build does not
wait for. An index whose session ended during the build is invalid: it is dropped and built again.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from anyio import move_on_after

from orchestrator.stores.postgres import turn_index
from orchestrator.stores.postgres.batches import leave_to_parent
from orchestrator.stores.postgres.connections import Address, Connection, connect, store_error, will_pass
from orchestrator.stores.threads import Bell

_PATIENCE = 2.0
"""Seconds for which claims wait for an index that is made. Without open transactions that takes milliseconds."""
_AGAIN = 1.0
"""Seconds between two attempts, and between two looks at an index that another process makes."""
_GUARD = (
    b"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = 0;"
    b" SET LOCAL lock_timeout = 0"
)


class _Making:
    """An index that is being made."""

    def __init__(self) -> None:
        self.until = monotonic() + _PATIENCE
        self.done = False
        self.error: Exception | None = None
        self.bells: set[Bell] = set()


class TurnIndexes:
    """The indexes of one database. `stop` ends it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._known: set[str] = set()
        """Labels whose index is known to be there."""
        self._refused: set[str] = set()
        self._making: dict[str, _Making] = {}
        self._threads: set[threading.Thread] = set()
        self._connections: set[Connection] = set()

    async def ready(self, label: str) -> bool:
        """Whether the index of a label is there. If it is not, it is made, and waited for a moment.

        Raises:
            StoreError, StoreUnavailable: the database refuses to make it.
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
        """Have the index of a label made, without waiting for it. A user who may not make it does without."""
        with self._lock:
            if not {label} & (self._known | self._refused | {*self._making}):
                self._begin(label)

    def stop(self) -> list[threading.Thread]:
        """Make no more; gives the threads that end now. The server goes on with what it is making."""
        with self._lock:
            self._closed.set()
            for connection in self._connections:
                with suppress(OSError):  # the thread meets the end of its connection
                    hung_up = socket.socket(fileno=os.dup(connection.fileno()))
                    hung_up.shutdown(socket.SHUT_RDWR)
                    hung_up.close()
            return [*self._threads]

    def before_fork(self) -> None:
        """See `Forkable`. The connections stay: they are the parent's."""
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
        except Exception as error:  # the claims of this moment raise it; the next one tries again
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
        """Make an index, unless it is there or another process makes it; whether it is there now."""
        try:
            with self._connected() as connection:
                while not self._closed.is_set():
                    if turn_index.state(connection, label) == "valid":
                        return True
                    with self._connected() as guard:
                        guard.execute(_GUARD, prepare=False)
                        if _is_ours(guard) and turn_index.state(connection, label) != "being made":
                            turn_index.make(connection, label)
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
    """Whether no other process makes an index now; then none does until the transaction of `guard` ends."""
    # without parameters, by the simple protocol: in the other one its snapshot would live on, and be waited for
    found: Any = guard.execute(
        f"SELECT pg_try_advisory_xact_lock({turn_index.LOCK})".encode(), prepare=False
    ).fetchone()
    return bool(found[0])


def _will_pass(error: Exception) -> bool:
    return will_pass(error) or getattr(error, "sqlstate", None) == "57014"  # it took too long, or was cancelled
