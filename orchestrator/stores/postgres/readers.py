"""Connections that read, in anyio's worker threads, a few at a time; they are kept open between reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from orchestrator.stores.postgres.batches import leave_to_parent
from orchestrator.stores.postgres.connections import Address, connect, is_lost, patiently, store_error
from orchestrator.stores.postgres.statements import Connection

T = TypeVar("T")

_KEPT = 4

_limiter: RunVar[CapacityLimiter] = RunVar("orchestrator.stores.postgres.readers")
"""One for each event loop. Not anyio's own: tools that hold all of its threads must not keep us from reading."""


class Readers:
    """A small pool of connections to one database."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    async def read(self, action: Callable[[Connection], T]) -> T:
        """Run a reading function in a worker thread.

        Raises:
            StoreUnavailable, StoreError, StoreTooNew: the database cannot be read.
        """
        return await to_thread.run_sync(self.read_now, action, limiter=_threads())

    def read_now(self, action: Callable[[Connection], T], *, patience: float | None = None) -> T:
        """Run a reading function here. It is run again if the connection is lost.

        Args:
            action: begins transactions itself, if it needs one.
            patience: seconds for which a server that is away is waited for; None: as the URL says.
        """
        try:
            return patiently(lambda: self._attempt(action), self._address.patience if patience is None else patience)
        except Exception as error:
            known = store_error(error, self._address)
            if known is None:
                raise
            raise known from error

    def _attempt(self, action: Callable[[Connection], T]) -> T:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = connect(self._address)
        keep = False
        try:
            result = action(connection)
            keep = True
            return result
        except Exception as error:
            keep = not is_lost(error, connection)
            raise
        finally:
            self._give_back(connection, keep=keep)

    def _give_back(self, connection: Connection, *, keep: bool) -> None:
        with suppress(Exception):
            if keep and connection.info.transaction_status:
                connection.rollback()
        with self._lock:
            keep = keep and not self._closed and len(self._idle) < _KEPT and not connection.closed
            if keep:
                self._idle.append(connection)
        if not keep:
            with suppress(Exception):
                connection.close()

    def close(self) -> None:
        """Let go of the database. Reading goes on to work; a connection is opened for it and closed at once."""
        with self._lock:
            self._closed = True
            connections, self._idle = self._idle, []
        for connection in connections:
            with suppress(Exception):
                connection.close()

    def before_fork(self) -> None:
        """See `Forkable`. The connections stay: they are the parent's."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """See `Forkable`."""
        if not child:
            self._lock.release()
            return
        self._lock = threading.Lock()
        for connection in self._idle:
            leave_to_parent(connection)
        self._idle = []


def _threads() -> CapacityLimiter:
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_KEPT)
        _limiter.set(limiter)
    return limiter
