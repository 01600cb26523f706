"""Connections that read.

In SQLite's WAL mode a reader sees the last commit as it was when it began, and neither waits for the writer nor
makes it wait. Reads run in anyio's worker threads, a few at a time; what they need is kept open between them.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from orchestrator.errors import StoreUnavailable
from orchestrator.stores.sqlite.files import StoreFile, open_to_read, store_error

T = TypeVar("T")

_KEPT = 4

_limiter: RunVar[CapacityLimiter] = RunVar("orchestrator.stores.sqlite.readers")
"""One for each event loop. Not anyio's own: tools that hold all of its threads must not keep us from reading."""


class Readers:
    """A small pool of connections to one file."""

    def __init__(self, path: Path, url: str, file: StoreFile) -> None:
        self._path = path
        self._file = file
        self._url = url
        self._lock = threading.Lock()
        self._idle: list[tuple[sqlite3.Connection, tuple[int, int] | None]] = []
        self._watching: tuple[sqlite3.Connection, tuple[int, int] | None] | None = None
        self._watches = 0
        self._closed = False

    async def read(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run a reading function in a worker thread.

        Raises:
            StoreUnavailable, StoreError, StoreTooNew: the file cannot be read, or is not the one that was opened.
        """
        return await to_thread.run_sync(self.read_now, action, limiter=_threads())

    def read_now(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run a reading function here; all that it reads is of one moment."""
        try:
            with self._connection() as connection:
                connection.execute("BEGIN")
                try:
                    return action(connection)
                finally:
                    connection.execute("ROLLBACK")
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise store_error(error, self._url) from error

    def changes(self) -> tuple[object, ...] | None:
        """A value that stays the same while nobody commits anything to the file; None if that cannot be told.

        Costs a few microseconds and no thread.
        """
        try:
            identity = self._file.identity()
        except StoreUnavailable:
            return None  # who reads is told
        if identity is None:
            return ("no file",)
        with self._lock:
            try:
                if self._watching is not None and self._watching[1] != identity:
                    self._watching[0].close()
                    self._watching = None
                if self._watching is None:
                    connection, reusable = open_to_read(self._path, self._url)
                    if not reusable or self._closed:
                        connection.close()
                        return None
                    connection.execute("PRAGMA busy_timeout = 0")
                    self._watching = connection, identity
                    self._watches += 1  # the version counts anew for each connection
                version: int = self._watching[0].execute("PRAGMA data_version").fetchone()[0]
            except (sqlite3.Error, OSError, UnicodeDecodeError):
                return None
            return (*identity, self._watches, version)

    def close(self) -> None:
        """Let go of the file. Reading goes on to work; a connection is opened for it and closed at once."""
        with self._lock:
            self._closed = True
            connections = self._taken()
        for connection in connections:
            connection.close()

    def before_fork(self) -> None:
        """See `Forkable`."""
        self._lock.acquire()
        for connection in self._taken():
            connection.close()

    def after_fork(self, *, child: bool) -> None:
        """See `Forkable`."""
        if child:
            self._lock = threading.Lock()
        else:
            self._lock.release()

    def _taken(self) -> list[sqlite3.Connection]:
        """All connections that nobody reads by just now, to be closed."""
        connections = [connection for connection, _ in self._idle]
        self._idle.clear()
        if self._watching is not None:
            connections.append(self._watching[0])
            self._watching = None
        return connections

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        identity = self._file.identity()
        connection = self._kept(identity)
        reusable = connection is not None
        if connection is None:
            connection, reusable = open_to_read(self._path, self._url)
            connection.execute("PRAGMA busy_timeout = 10000")
        try:
            yield connection
        except (sqlite3.Error, UnicodeDecodeError):
            reusable = False
            raise
        finally:
            with self._lock:
                keep = reusable and not self._closed and len(self._idle) < _KEPT
                if keep:
                    self._idle.append((connection, identity))
            if not keep:
                with suppress(sqlite3.Error):
                    connection.close()

    def _kept(self, identity: tuple[int, int] | None) -> sqlite3.Connection | None:
        with self._lock:
            while self._idle:
                connection, of = self._idle.pop()
                if of == identity:
                    return connection
                connection.close()
        return None


def _threads() -> CapacityLimiter:
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_KEPT)
        _limiter.set(limiter)
    return limiter
