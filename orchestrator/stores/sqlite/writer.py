"""The one thread that writes to the file.

Writes wait in a queue; the thread takes all that are there, puts them into one transaction and commits once:
an append alone costs a commit, a hundred at the same time cost one together. Each write looks first whether it
may, and changes nothing if not, so a conflict fails that write only. Any other error rolls the whole transaction
back; then each write gets a transaction of its own, so that only the one that is bad fails.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeAlias, TypeVar

from orchestrator.errors import OrchestratorError, StoreError
from orchestrator.stores.sqlite.files import file_identity, open_to_write, patiently, store_error, whole_file
from orchestrator.stores.wake import Ticket

__all__ = ["Write", "Writer", "WriterStatistics"]

T = TypeVar("T")

Write: TypeAlias = Callable[[sqlite3.Connection], T]
"""A change. It raises an `OrchestratorError` only before it has changed anything."""

_LARGEST_BATCH = 256


@dataclass(frozen=True, slots=True)
class WriterStatistics:
    """What a writer has done. `writes / commits` says how many writes shared a commit."""

    writes: int = 0
    """Writes asked for."""
    commits: int = 0
    refused: int = 0
    """Writes that found that they may not, such as an append that lost its compare-and-set."""
    failed: int = 0
    """Writes that the file could not take."""


class _Job(Generic[T]):
    __slots__ = ("checkpoint", "ticket", "write")

    def __init__(self, write: Write[T], checkpoint: bool) -> None:
        self.write = write
        self.checkpoint = checkpoint
        self.ticket: Ticket[T] = Ticket()

    def apply(self, connection: sqlite3.Connection) -> Callable[[], None]:
        """Make the change; gives what tells the waiting task about it, to be called after the commit."""
        value = self.write(connection)
        return lambda: self.ticket.finish(value)


class Writer:
    """Hands writes to a thread of its own, which is started by the first one. `close` ends it."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url
        self._queue: SimpleQueue[_Job[object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        # only the thread touches what follows
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._writes = self._commits = self._refused = self._failed = 0

    async def write(self, write: Write[T], *, checkpoint: bool = False) -> T:
        """Make a change and give what it gives; it is durable then.

        Cancelling the waiting task does not end the wait: see `Ticket.result`. With `checkpoint` the log is
        emptied into the file afterwards, unless somebody reads it just then.

        Raises:
            StoreUnavailable: the file cannot take it now. Nothing was changed.
            StoreError: the store is closed, or the file is no store.
        """
        with self._lock:
            if self._closed:
                raise StoreError(f"store {self._url} is closed; open it anew to write")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"store {self._url}", daemon=True)
                self._thread.start()
            job = _Job(write, checkpoint)
            self._queue.put(job)  # type: ignore[arg-type]  # a job is told its own value only
        return await job.ticket.result()

    def stop(self) -> threading.Thread | None:
        """Take no more writes, finish those that wait, close the file; does not wait for any of it."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            self._queue.put(None)
            return self._thread

    def statistics(self) -> WriterStatistics:
        """What was done so far."""
        return WriterStatistics(self._writes, self._commits, self._refused, self._failed)

    # --------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        more = True
        while more:
            batch: list[_Job[object]] = []
            job = self._queue.get()
            while job is not None:
                batch.append(job)
                if len(batch) == _LARGEST_BATCH:
                    break
                try:
                    job = self._queue.get_nowait()
                except Empty:
                    break
            else:
                more = False
            if batch:
                self._writes += len(batch)
                self._commit(batch)
        self._checkpoint()
        self._disconnect()

    def _commit(self, batch: list[_Job[object]]) -> None:
        try:
            answers = self._transaction(self._connected(), batch)
        except Exception as error:
            self._abandon(error)
            if len(batch) > 1 and not whole_file(error):
                for job in batch:
                    self._commit([job])
                return
            self._failed += len(batch)
            for job in batch:
                job.ticket.fail(store_error(error, self._url))
        else:
            self._commits += 1
            if any(job.checkpoint for job in batch):
                self._checkpoint()
            for answer in answers:
                answer()

    def _transaction(self, connection: sqlite3.Connection, batch: list[_Job[object]]) -> list[Callable[[], None]]:
        answers: list[Callable[[], None]] = []
        refused = 0
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        for job in batch:
            try:
                answers.append(job.apply(connection))
            except OrchestratorError as refusal:
                refused += 1
                answers.append(_refuse(job, refusal))
        connection.execute("COMMIT")
        self._refused += refused
        return answers

    def _connected(self) -> sqlite3.Connection:
        identity = file_identity(self._path)
        if self._connection is not None and identity != self._identity:
            self._disconnect()  # the file was removed or replaced: what we would write, nobody would see
        if self._connection is None:
            self._connection = open_to_write(self._path, self._url)
            self._identity = file_identity(self._path)
        return self._connection

    def _abandon(self, error: Exception) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()
        else:
            if whole_file(error):
                self._disconnect()  # start anew when the cause is gone

    def _checkpoint(self) -> None:
        # an error leaves the log as it is, to be read by whoever opens the file next
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _refuse(job: _Job[object], refusal: OrchestratorError) -> Callable[[], None]:
    return lambda: job.ticket.fail(refusal)
