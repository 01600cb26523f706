"""Connections to the file: one that writes, with changes in batches, and those that read.

Changes wait in a queue. One task or thread at a time takes all of them, puts them into one transaction and commits
once: a single append costs a commit, a hundred at the same time cost one together. Each change first checks whether
it is allowed, and changes nothing if not, so a conflict fails that change only. Any other error rolls the whole
transaction back; then each change gets its own transaction, so that only the bad one fails.

In SQLite's WAL mode a reader sees the last commit before it started, and neither waits for the writer nor
delays it. Reads run in anyio's worker threads, a few at a time; their connections are kept open between them.

Handing work to a thread, and being woken by it, costs more than a small write or read. So while the disk is fast, the
calling task does it itself: a task that wants to write first lets all other tasks that are ready do the same, and then
commits as many of them as may block an event loop; a small read uses a connection that is already open and
never waits for a lock. A lock, an error, a large read, or a disk that is slow more than occasionally send the work to a
thread, where it stays until the disk is fast again. For writes, only the time of the disk counts, not the amount of
changes: that needs the interpreter, and so blocks every event loop, in any thread.

A commit that extends the log has to make the new length of the file durable as well, which costs a disk as much as the
commit itself. One that overwrites bytes does not. SQLite overwrites its log after it has been emptied into the file for
the first time; until then zeros are written after its end, more each time, so that a process with few commits writes
few of them. SQLite ends a log at the first invalid frame, and zeros are not a valid one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar, checkpoint
from msgspec import Struct

from orchestrator.errors import OrchestratorError, StoreError, StoreUnavailable
from orchestrator.stores.shared import store_closed
from orchestrator.stores.sqlite.files import (
    StoreFile,
    busy_error,
    file_identity,
    open_to_read,
    open_to_write,
    patiently,
    store_error,
    whole_file,
)
from orchestrator.stores.sqlite.reads import TooMuch
from orchestrator.stores.threads import Pending, give_way, tell

T = TypeVar("T")

Write: TypeAlias = Callable[[sqlite3.Connection], T]
"""A change. It raises an `OrchestratorError` only before it has changed anything."""

MOST = 256
"""Maximum number of changes in one transaction of the thread."""

MOST_HERE = 64
"""Maximum number of changes in one transaction of a task, which blocks its event loop for as long."""

BYTES_HERE = 1 << 20
"""Bytes from which a commit is made by the thread, however fast small commits are."""

QUICK = 0.003
"""Seconds for which a commit or a read may block an event loop, on average."""

MOST_DEBT = 10 * QUICK
"""Total seconds above that before a thread takes over: occasionally SQLite checkpoints its log, or a page is read from
the disk."""

_QUICK_THERE = QUICK + sys.getswitchinterval()
"""The same limit for measurements in a thread, which also waits for the interpreter if an event loop is busy."""

FORK_SECONDS = 1.0
"""Seconds that a fork of the process waits for the write in progress."""

_ROOM_EVERY = 8
"""Commits between two checks of the free space in the log."""

_LONELY = 16
"""After so many commits of a single change, only one commit in so many waits for further changes."""


class WriterStatistics(Struct, frozen=True):
    """Counts of a writer. `writes / commits` is the average number of writes that shared a commit."""

    writes: int = 0
    """Requested writes."""
    commits: int = 0
    refused: int = 0
    """Writes that were refused, such as an append that lost its compare-and-set."""
    failed: int = 0
    """Writes that failed because of the file."""


class _Job(Pending[T]):
    __slots__ = ("checkpoint", "size", "write")

    def __init__(self, write: Write[T], checkpoint: bool, size: int = 0) -> None:
        super().__init__()
        self.write = write
        self.checkpoint = checkpoint
        self.size = size


class Writer:
    """Makes changes to a file, durably and in the order of the requests. `close` ends it."""

    def __init__(self, path: Path, url: str, file: StoreFile | None = None) -> None:
        self._path = path
        self._url = url
        self._file = StoreFile(path, url) if file is None else file
        self._log = LogSpace(path)
        self._jobs: deque[_Job[Any]] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        """Wakes the thread; the value is whether there is more to come."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._forkable = True
        # only the current committer uses the following attributes
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._here = False
        """True if tasks commit themselves; never before the thread has measured the speed of commits."""
        self._debt = 0.0
        """Seconds that recent commits took beyond what is fast."""
        self._alone = 0
        """Commits of a single change, since the last that several shared."""
        self._writes = self._commits = self._refused = self._failed = 0

    async def write(self, write: Write[T], *, checkpoint: bool = False, size: int = 0) -> T:
        """Make a change and return its result, once it is durable.

        Cancelling the waiting task does not end the wait: see `Pending.wait`. With `checkpoint` the log is
        emptied into the file afterwards, unless a reader uses it at that moment. `size`: about how many bytes it adds.

        Raises:
            StoreUnavailable: the file cannot be written now. Nothing was changed.
            StoreError: the store is closed, or the file is not a store.
        """
        job = _Job(write, checkpoint, size)
        with self._lock:
            if self._closed:
                raise store_closed(self._url)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"store {self._url}", daemon=True)
                self._thread.start()
            self._jobs.append(job)
        try:
            if self._here and (self._alone < _LONELY or not self._writes % _LONELY):
                await give_way()
        finally:
            while not job.done and self._commit_here():
                pass  # earlier requests come first
            if not job.done and self._bell.empty():  # else the thread checks anyway, after the job was put there
                self._bell.put(True)
        if not job.done:
            await job.wait()
        return job.result()

    def stop(self) -> threading.Thread | None:
        """Accept no more writes; return the thread that finishes the waiting ones and closes the file, if it runs."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            self._bell.put(False)
            return self._thread

    def statistics(self) -> WriterStatistics:
        """Return the counts so far."""
        return WriterStatistics(self._writes, self._commits, self._refused, self._failed)

    def before_fork(self) -> None:
        """See `Forkable`."""
        self._forkable = self._turn.acquire(timeout=FORK_SECONDS)
        if self._forkable:
            self._disconnect()
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """See `Forkable`. The waiting writes belong to the parent."""
        if child:
            self._jobs, self._bell = deque(), SimpleQueue()
            self._lock, self._turn, self._thread = threading.Lock(), threading.Lock(), None
            self._closed = self._closed or not self._forkable  # another thread was using the connection
        else:
            self._lock.release()
            if self._forkable:
                self._turn.release()

    # ------------------------------------------------------------------------------- committing

    def _run(self) -> None:
        """Body of the thread."""
        more = True
        while more:
            more = self._bell.get()
            with self._turn:
                while self._jobs:
                    with contextlib.suppress(Exception):  # the callers received the error; others continue
                        self._take_turn(MOST)
        with self._turn:
            self._checkpoint()
            self._disconnect()

    def _commit_here(self) -> bool:
        """Commit waiting changes in the calling task, if that needs no waiting. False: the rest is for the thread."""
        if not self._here or not self._turn.acquire(blocking=False):
            return False
        try:
            connection = self._connection
            if not self._here or connection is None or not self._jobs or self._jobs[0].checkpoint:
                return False
            # by index: other threads may append to them meanwhile
            if sum(self._jobs[i].size for i in range(min(len(self._jobs), MOST_HERE))) > BYTES_HERE:
                return False
            if file_identity(self._file.name) != self._identity:
                return False  # the thread reports it
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error:
                return False  # the thread meets it too, and waits for it or reports it
            self._take_turn(MOST_HERE, connection)
            return True
        finally:
            self._turn.release()

    def _take_turn(self, most: int, begun: sqlite3.Connection | None = None) -> None:
        """Commit the next changes, in the order of the requests. `begun`: see `_commit`."""
        batch: list[_Job[object]] = []
        jobs = self._jobs  # only the current committer takes any out
        try:
            while jobs and len(batch) < most:
                if begun is not None and jobs[0].checkpoint:
                    break  # emptying the log may have to wait for a reader
                batch.append(jobs[0])  # first, so that it is found even after an interruption in between
                jobs.popleft()
            self._commit(batch, begun)
        except BaseException as error:  # Ctrl-C, in a task that commits for others: they must not wait for ever
            self._fail(batch, error)
            self._abandon(error)
            raise

    def _commit(self, batch: list[_Job[object]], begun: sqlite3.Connection | None = None) -> None:
        """Commit changes and report results: in a task if its connection is in a transaction, else in the thread."""
        here = begun is not None
        self._writes += len(batch)
        self._alone = self._alone + 1 if len(batch) == 1 else 0
        try:
            seconds = self._transaction(begun or self._connected(), batch, here)
        except Exception as error:
            self._here = False
            self._abandon(error)
            if len(batch) == 1 or whole_file(error):
                self._fail(batch, error)
                return
            self._writes -= len(batch)
            for job in batch:
                job.error = None
            if here:
                self._jobs.extendleft(reversed(batch))  # the thread finds out which one is bad: that may take long
            else:
                for job in batch:
                    self._commit([job])
        else:
            self._commits += 1
            if seconds > QUICK or self._debt or not here:
                self._decide(seconds, here)
            if not here and any(job.checkpoint for job in batch):
                self._checkpoint()
            tell(batch)

    def _transaction(self, connection: sqlite3.Connection, batch: list[_Job[object]], begun: bool) -> float:
        """Make the changes and commit them; return the duration of the commit in seconds."""
        if not begun:
            patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        if self._commits % _ROOM_EVERY == _ROOM_EVERY - 1:
            self._log.make()
        refused = 0
        for job in batch:
            try:
                job.value = job.write(connection)
            except OrchestratorError as refusal:
                refused += 1
                job.error = refusal
        started = time.perf_counter()
        connection.execute("COMMIT")
        self._file.identity()  # changes to a removed file are not durable, and must not be reported so
        self._refused += refused
        return time.perf_counter() - started

    def _decide(self, seconds: float, here: bool) -> None:
        """Decide whether a task or the thread makes the next commit, from the duration of the last one."""
        debt = max(0.0, self._debt + seconds - (QUICK if here else _QUICK_THERE))
        self._here = debt < MOST_DEBT if here else not debt
        self._debt = min(debt, MOST_DEBT)

    def _fail(self, batch: list[_Job[object]], error: BaseException) -> None:
        self._failed += len(batch)
        for job in batch:
            if job.done:
                continue  # its change is made: only the report was interrupted
            if isinstance(error, Exception):
                job.error = store_error(error, self._url)
            else:
                job.error = StoreError(f"store {self._url}: a write was interrupted; check whether it took effect")
        tell(batch)

    def _connected(self) -> sqlite3.Connection:
        self._file.identity()
        if self._connection is None:
            self._connection = open_to_write(self._path, self._url)
            self._identity = self._file.identity()
        return self._connection

    def _abandon(self, error: BaseException | None) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()
        else:
            # Reopen when the cause is gone; but for a removed file the open connection keeps its identity in use.
            if error is not None and whole_file(error) and not isinstance(error, StoreUnavailable):
                self._disconnect()

    def _checkpoint(self) -> None:
        # an error leaves the log unchanged, to be read by the next process that opens the file
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                patiently(partial(_empty_log, self._connection), 1.0)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _empty_log(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        raise busy_error()


MOST_BYTES = 4 << 20
"""Maximum length of the log, unless a reader holds it while it is written."""

_AT_ONCE = 512 << 10
"""Maximum zeros that one commit writes: more would make it slow."""


class LogSpace:
    """The free space in the log of one file, for its writer."""

    __slots__ = ("_name", "_size")

    def __init__(self, path: Path) -> None:
        self._name = f"{path}-wal"
        self._size = 0
        """Size of the log in bytes when zeros were last written."""

    def make(self) -> None:
        """Make space if there is none. To be called inside a transaction that may write: no other process writes then.

        On failure, SQLite extends the log itself, and reports the error if it cannot.
        """
        with contextlib.suppress(OSError):
            size = os.stat(self._name).st_size
            if size in (0, self._size) or size >= MOST_BYTES:
                return
            count = min(size, _AT_ONCE, MOST_BYTES - size)
            # Always after the end: if the store was just moved away, the log of another one may have this name, and the
            # process that writes to that one does not wait for this one.
            log = os.open(self._name, os.O_WRONLY | os.O_APPEND)
            try:
                self._size = size + os.write(log, bytes(count))
            finally:
                os.close(log)


class Pace:
    """The speed of recent reads. Threads may call it at the same time; a lost measurement does no harm."""

    __slots__ = ("_debt", "here")

    def __init__(self) -> None:
        self.here = True
        """True if tasks make small reads themselves."""
        self._debt = 0.0
        """Seconds that recent reads took beyond what is fast."""

    def note(self, seconds: float, *, here: bool) -> None:
        """Decide whether a task or a thread makes the next read, from the duration of the last one.

        Args:
            seconds: the duration.
            here: whether a task made it.
        """
        debt = max(0.0, self._debt + seconds - (QUICK if here else _QUICK_THERE))
        self.here = debt < MOST_DEBT if here else not debt
        self._debt = min(debt, MOST_DEBT)


_KEPT = 4

_limiter: RunVar[CapacityLimiter] = RunVar("orchestrator.stores.sqlite.connections")
"""A limiter for each event loop, separate from anyio's: tools that use all of its threads must not block reads."""


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
            small: the same for the calling task, which it may block for as long as a few rows take; it raises
                `TooMuch` before it reads more. None: the read is always larger.

        Raises:
            StoreUnavailable, StoreError, StoreTooNew: the file cannot be read, or is not the one that was opened.
        """
        if small is None:
            return await to_thread.run_sync(self.read_now, action, limiter=_threads())
        if self._pace.here:
            await checkpoint()  # as for a thread: allow cancellation, and let other tasks run
            with suppress(TooMuch, sqlite3.Error, OSError, UnicodeError, StoreUnavailable):  # the thread reports it
                return self._read_here(small)
            return await to_thread.run_sync(self.read_now, action, limiter=_threads())
        return await to_thread.run_sync(self._read_there, action, small, limiter=_threads())

    def read_now(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run a reading function in this thread; it sees one moment."""
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
        """Run a reading function in this thread, if no file has to be opened and no lock waited for."""
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
        """Like `read_now`, in a thread. The time of `small` decides whether tasks may make small reads again."""
        began = perf_counter()
        try:
            found = self.read_now(small)
        except TooMuch:
            return self.read_now(action)
        self._pace.note(perf_counter() - began, here=False)
        return found

    def changes(self) -> tuple[object, ...] | None:
        """Return a value that changes with every commit to the file; None if it cannot be determined.

        Takes a few microseconds and no thread.
        """
        try:
            identity = self._file.identity()
        except StoreUnavailable:
            return None  # reading reports the error
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
                    self._watches += 1  # the version starts again for each connection
                version: int = self._watching[0].execute("PRAGMA data_version").fetchone()[0]
            except (sqlite3.Error, OSError, UnicodeDecodeError):
                return None
            return (*identity, self._watches, version)

    def close(self) -> None:
        """Release the file. Reads still work: a connection is opened and closed for each."""
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
        """Return all connections that are not in use, to be closed."""
        connections = [connection for connection, _ in self._idle]
        self._idle.clear()
        if self._watching is not None:
            connections.append(self._watching[0])
            self._watching = None
        return connections

    @contextmanager
    def _lent(self, connection: sqlite3.Connection, identity: tuple[int, int] | None) -> Iterator[None]:
        """Lend a connection for a read. It is kept for the next reader if it has an identity and nothing failed."""
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
