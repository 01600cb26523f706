"""Writing to the file: one connection, changes in batches, and a thread for those that may take long.

Changes wait in a queue; whoever has the turn takes all that are there, puts them into one transaction and commits
once: an append alone costs a commit, a hundred at the same time cost one together. Each change looks first whether
it may, and changes nothing if not, so a conflict fails that change only. Any other error rolls the whole transaction
back; then each change gets a transaction of its own, so that only the one that is bad fails.

Two have turns. A thread may wait: for a disk, for another process's lock. But to hand it a change and to hear from it
costs about half of what a commit on a good disk costs. So while commits are quick, a task that wants to write first
lets all other tasks that are ready do the same, and then commits for all of them itself; on the first slow commit,
lock or error the work goes to the thread, and stays there until commits are quick again.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, TypeAlias, TypeVar

from anyio.lowlevel import cancel_shielded_checkpoint

from orchestrator.errors import OrchestratorError, StoreError
from orchestrator.stores.sqlite.files import (
    busy_error,
    file_identity,
    open_to_write,
    patiently,
    store_error,
    whole_file,
)
from orchestrator.stores.wake import Ticket

__all__ = ["Write", "Writer", "WriterStatistics"]

T = TypeVar("T")

Write: TypeAlias = Callable[[sqlite3.Connection], T]
"""A change. It raises an `OrchestratorError` only before it has changed anything."""

_LARGEST_BATCH = 256

QUICK = 0.003
"""Seconds that a commit may hold up an event loop."""

_LONELY = 16
"""After so many commits for one change each, only one in so many waits for company."""


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
    """Makes changes to a file, durably and in the order in which they are asked for. `close` ends it."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url
        self._jobs: deque[_Job[object]] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        """Rung for the thread: whether there is more to come."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        # only who has the turn touches what follows
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._usual = math.inf
        """How long a commit takes, in seconds: slow ones count at once, quick ones slowly."""
        self._alone = 0
        """How many commits were for one change only, since the last that several shared."""
        self._writes = self._commits = self._refused = self._failed = 0

    async def write(self, write: Write[T], *, checkpoint: bool = False) -> T:
        """Make a change and give what it gives; it is durable then.

        Cancelling the waiting task does not end the wait: see `Ticket.result`. With `checkpoint` the log is
        emptied into the file afterwards, unless somebody reads it just then.

        Raises:
            StoreUnavailable: the file cannot take it now. Nothing was changed.
            StoreError: the store is closed, or the file is no store.
        """
        job = _Job(write, checkpoint)
        with self._lock:
            if self._closed:
                raise StoreError(f"store {self._url} is closed; open it anew to write")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"store {self._url}", daemon=True)
                self._thread.start()
            self._jobs.append(job)  # type: ignore[arg-type]  # a job is told its own value only
        if self._usual > QUICK:
            self._bell.put(True)
        else:
            try:
                if self._alone < _LONELY or not self._writes % _LONELY:
                    await cancel_shielded_checkpoint()
            finally:
                if not job.ticket.done and not self._commit_here():
                    self._bell.put(True)
        return await job.ticket.result()

    def stop(self) -> threading.Thread | None:
        """Take no more writes, finish those that wait, close the file; does not wait for any of it."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            self._bell.put(False)
            return self._thread

    def statistics(self) -> WriterStatistics:
        """What was done so far."""
        return WriterStatistics(self._writes, self._commits, self._refused, self._failed)

    # ---------------------------------------------------------------------------- who has the turn

    def _run(self) -> None:
        """The thread."""
        more = True
        while more:
            more = self._bell.get()
            with self._turn:
                while batch := self._batch():
                    self._commit(batch)
        with self._turn:
            self._checkpoint()
            self._disconnect()

    def _commit_here(self) -> bool:
        """Commit what waits in the calling task, if that takes no waiting. False: the thread has to do it."""
        if self._connection is None or not self._turn.acquire(blocking=False):
            return False
        try:
            if self._usual > QUICK or not self._begin_now():
                return False
            batch = self._batch()
            if batch:
                self._commit(batch, begun=True)
            else:
                self._abandon(None)
            return True
        finally:
            self._turn.release()

    def _batch(self) -> list[_Job[object]]:
        """The changes to make next, in the order in which they were asked for."""
        batch: list[_Job[object]] = []
        while self._jobs and len(batch) < _LARGEST_BATCH:  # only who has the turn takes any out
            batch.append(self._jobs.popleft())
        return batch

    def _begin_now(self) -> bool:
        try:
            self._connected().execute("BEGIN IMMEDIATE")
        except Exception:
            return False  # the thread meets it too, and waits, or tells it
        return True

    def _commit(self, batch: list[_Job[object]], *, begun: bool = False) -> None:
        self._writes += len(batch)
        self._alone = self._alone + 1 if len(batch) == 1 else 0
        try:
            connection = self._open() if begun else self._connected()
            started = time.perf_counter()
            answers = self._transaction(connection, batch, begun)
        except Exception as error:
            self._usual = math.inf
            self._abandon(error)
            if len(batch) > 1 and not whole_file(error):
                self._writes -= len(batch)
                for job in batch:
                    self._commit([job])
                return
            self._failed += len(batch)
            for job in batch:
                job.ticket.fail(store_error(error, self._url))
        except BaseException as error:  # Ctrl-C, in a task that commits for others: they must not wait for ever
            self._failed += len(batch)
            for job in batch:
                job.ticket.fail(StoreError(f"store {self._url}: a write was interrupted; see what it came to"))
            self._abandon(error)
            raise
        else:
            self._commits += 1
            if any(job.checkpoint for job in batch):
                self._checkpoint()
            self._took(time.perf_counter() - started)
            for answer in answers:
                answer()

    def _took(self, seconds: float) -> None:
        usual = self._usual
        self._usual = min(seconds, 10 * QUICK) if not seconds < usual < math.inf else 0.8 * usual + 0.2 * seconds

    def _transaction(
        self, connection: sqlite3.Connection, batch: list[_Job[object]], begun: bool
    ) -> list[Callable[[], None]]:
        answers: list[Callable[[], None]] = []
        refused = 0
        if not begun:
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

    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _connected(self) -> sqlite3.Connection:
        identity = file_identity(self._path)
        if self._connection is not None and identity != self._identity:
            self._disconnect()  # the file was removed or replaced: what we would write, nobody would see
        if self._connection is None:
            self._connection = open_to_write(self._path, self._url)
            self._identity = file_identity(self._path)
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
            if error is not None and whole_file(error):
                self._disconnect()  # start anew when the cause is gone

    def _checkpoint(self) -> None:
        # an error leaves the log as it is, to be read by whoever opens the file next
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                patiently(self._empty_log, 1.0)

    def _empty_log(self) -> None:
        busy = self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise busy_error()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _refuse(job: _Job[object], refusal: OrchestratorError) -> Callable[[], None]:
    return lambda: job.ticket.fail(refusal)
