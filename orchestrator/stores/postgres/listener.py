"""Notifications of the server that there may be runs to take up: LISTEN, on a connection and in a thread of its own.

A notification is a hint. Workers look for runs when one comes, and now and then without one: it may be lost with
the connection, and some runs become free without one. So nothing depends on it but how soon a run is taken up.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

from orchestrator.stores.postgres.batches import leave_to_parent
from orchestrator.stores.postgres.connections import WORK, Address, connect_bare
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.threads import Bell

_LOOK = 10.0
"""Seconds between two looks at whether the store was closed, and at the connection."""
_AGAIN = 5.0
"""Seconds between two attempts to connect."""


class Listener:
    """Counts notifications. It listens from the first question on."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._connection: Connection | None = None
        self._listens = False
        self._count = 0
        self._bells: set[Bell] = set()

    def alerts(self) -> int | None:
        """See `Alerting`."""
        if not self._address.listen:
            return None
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name=f"store {self._address.url} listener", daemon=True
                )
                self._thread.start()
            return self._count if self._listens else None

    async def wait(self, seen: int) -> None:
        """See `Alerting.wait_for_alert`."""
        bell = Bell()
        with self._lock:
            if self._count != seen or not self._listens:
                return
            self._bells.add(bell)
        try:
            await bell.wait()
        finally:
            with self._lock:
                self._bells.discard(bell)

    def stop(self) -> threading.Thread | None:
        """Listen no more; does not wait for it."""
        with self._lock:
            self._closed.set()
            connection = self._connection
            if connection is not None:
                with suppress(OSError):  # the thread meets the end of its connection, and looks why
                    hung_up = socket.socket(fileno=os.dup(connection.fileno()))
                    hung_up.shutdown(socket.SHUT_RDWR)
                    hung_up.close()
            return self._thread

    def before_fork(self) -> None:
        """See `Forkable`. The connection stays: it is the parent's."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """See `Forkable`."""
        if not child:
            self._lock.release()
            return
        self._lock, self._thread, self._listens, self._bells = threading.Lock(), None, False, set()
        leave_to_parent(self._connection)
        self._connection = None

    # -------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        while not self._closed.is_set():
            with suppress(Exception):  # writes and reads report a server that is away
                self._listen()
            self._tell(listens=False)  # what was not heard in between is looked for
            self._closed.wait(_AGAIN)

    def _listen(self) -> None:
        connection = self._connection = connect_bare(self._address)
        try:
            connection.execute(f"LISTEN {WORK}".encode())
            self._tell(listens=True)
            while not self._closed.is_set():
                for _ in connection.notifies(timeout=_LOOK, stop_after=1):
                    self._tell(listens=True)
                connection.execute("SELECT 1")  # a server that fell silent says nothing of it
        finally:
            with self._lock:
                self._connection = None
            connection.close()

    def _tell(self, *, listens: bool) -> None:
        with self._lock:
            self._listens = listens
            self._count += 1
            bells, self._bells = self._bells, set()
        for bell in bells:
            bell.ring()
