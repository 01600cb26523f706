"""Connections that read.

In SQLite's WAL mode a reader sees the last commit as it was when it began, and neither waits for the writer nor
makes it wait. Reads run in anyio's worker threads, a few at a time; what they need is kept open between them.

To hand a read to a thread and to hear from it costs several times as much as to read a row. So the calling task makes
small reads itself, as it makes quick commits (see `writer`), with a connection that is open already and never waits for
a lock. What turns out to be large, is locked or fails is read by a thread; so is everything after reads were slow,
until they are quick again.

Who makes small reads: the calling task while they are quick, a thread while they are not.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar, checkpoint

from orchestrator.errors import StoreUnavailable
from orchestrator.stores.sqlite.files import StoreFile, open_to_read, patiently, store_error
from orchestrator.stores.sqlite.reads import TooMuch

QUICK = 0.003
"""Seconds that a read may hold up an event loop, on the average."""

MOST_DEBT = 10 * QUICK
"""Seconds by which reads may exceed that before threads take over: now and then a page comes from the disk."""

_QUICK_THERE = QUICK + sys.getswitchinterval()
"""As long looks a quick read to a thread: it waits for the interpreter too, if an event loop is busy."""


class Pace:
    """How quick reads have lately been. Threads may note at the same time; a time that is lost then does no harm."""

    __slots__ = ("_debt", "here")

    def __init__(self) -> None:
        self.here = True
        """True if tasks make small reads themselves."""
        self._debt = 0.0
        """Seconds that reads have lately taken beyond what is quick."""

    def note(self, seconds: float, *, here: bool) -> None:
        """Decide who makes the next read, now that one took so long.

        Args:
            seconds: how long it took.
            here: whether a task made it.
        """
        debt = max(0.0, self._debt + seconds - (QUICK if here else _QUICK_THERE))
        self.here = debt < MOST_DEBT if here else not debt
        self._debt = min(debt, MOST_DEBT)


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
        self._pace = Pace()

    async def read(
        self, action: Callable[[sqlite3.Connection], T], *, small: Callable[[sqlite3.Connection], T] | None = None
    ) -> T:
        """Run a reading function in a worker thread.

        Args:
            action: the function.
            small: the same for the calling task, which it may hold up for as long as a few rows take; it raises
                `TooMuch` before it reads more. None: it always reads more.

        Raises:
            StoreUnavailable, StoreError, StoreTooNew: the file cannot be read, or is not the one that was opened.
        """
        if small is None:
            return await to_thread.run_sync(self.read_now, action, limiter=_threads())
        if self._pace.here:
            await checkpoint()  # as for a thread: cancellation is heard of, and other tasks have their turn
            with suppress(TooMuch, sqlite3.Error, OSError, UnicodeError, StoreUnavailable):  # the thread tells it
                return self._read_here(small)
            return await to_thread.run_sync(self.read_now, action, limiter=_threads())
        return await to_thread.run_sync(self._read_there, action, small, limiter=_threads())

    def read_now(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run a reading function here; all that it reads is of one moment."""
        try:
            identity = self._file.identity()
            connection, reusable = self._kept(identity), True
            if connection is None:
                connection, reusable = open_to_read(self._path, self._url)
                connection.execute("PRAGMA busy_timeout = 0")
            with self._lent(connection, identity if reusable else None):
                return patiently(lambda: _at_one_moment(connection, action))
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise store_error(error, self._url) from error

    def _read_here(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run a reading function here, if no file has to be opened for it and nothing waited for."""
        identity = self._file.identity()
        connection = self._kept(identity)
        if connection is None:
            raise TooMuch
        began = perf_counter()
        try:
            with self._lent(connection, identity):
                return _at_one_moment(connection, action)
        finally:
            self._pace.note(perf_counter() - began, here=True)

    def _read_there(self, action: Callable[[sqlite3.Connection], T], small: Callable[[sqlite3.Connection], T]) -> T:
        """The same as `read_now`. How long what is small takes says whether tasks may read that again."""
        began = perf_counter()
        try:
            found = self.read_now(small)
        except TooMuch:
            return self.read_now(action)
        self._pace.note(perf_counter() - began, here=False)
        return found

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
    def _lent(self, connection: sqlite3.Connection, identity: tuple[int, int] | None) -> Iterator[None]:
        """Read by a connection, which is kept for the next reader if it has an identity and nothing went wrong."""
        reusable = identity is not None
        try:
            yield
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


def _at_one_moment(connection: sqlite3.Connection, action: Callable[[sqlite3.Connection], T]) -> T:
    connection.execute("BEGIN")
    try:
        return action(connection)
    finally:
        connection.execute("ROLLBACK")


def _threads() -> CapacityLimiter:
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_KEPT)
        _limiter.set(limiter)
    return limiter
