"""Threads and their connections: one that works in batches, those that read, and one that listens.

If a server goes away, callers wait for it, for as long as the store's patience lasts. If the connection was lost
during a batch, its jobs may have been done or not, so all of them are repeated in a form that finds out:
see `Job.again`.

A notification that there may be runs to resume is a hint. Workers look for runs when one arrives, and now and then
without one: it may be lost with the connection, and some runs become free without one. So nothing depends on it but
how soon a run is resumed.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from orchestrator.errors import OrchestratorError, StoreError
from orchestrator.stores.postgres.connections import (
    WORK,
    Address,
    connect,
    connect_bare,
    is_lost,
    patiently,
    store_error,
)
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.shared import store_closed
from orchestrator.stores.threads import Bell, Pending, tell

T = TypeVar("T")
J = TypeVar("J", bound="Job[Any]")

Take: TypeAlias = Callable[[deque[J]], list[J]]
"""Takes the jobs that are done together out of the waiting ones, including the first."""

Do: TypeAlias = Callable[[Connection, list[J]], None]
"""Does jobs and sets their results. An `OrchestratorError` of one of them is its `error`, and changes nothing."""


class Job(Pending[T]):
    """A requested job."""

    __slots__ = ("again",)

    def __init__(self) -> None:
        super().__init__()
        self.again = False
        """True if it may have been done already: the connection was lost before the answer arrived."""


@dataclass(slots=True)
class BatchStatistics:
    """Counts of the jobs of a thread."""

    jobs: int = 0
    batches: int = 0
    refused: int = 0
    """Jobs that were refused, such as an append that lost its compare-and-set."""
    failed: int = 0
    """Jobs that the server could not accept."""
    lost: int = 0
    """Connections that were lost during a batch."""


class BatchThread(Generic[J]):
    """A thread that does jobs in batches. `stop` ends it."""

    def __init__(self, address: Address, name: str, take: Take[J], do: Do[J]) -> None:
        self._address, self._name, self._take, self._do = address, name, take, do
        self._jobs: deque[J] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        """Wakes the thread; the value is whether there is more to come."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._turn = threading.Lock()
        """Held while a batch is done."""
        self._connection: Connection | None = None
        self.statistics = BatchStatistics()

    def put(self, job: J) -> None:
        """Request a job. `tell` is called when it is done.

        Raises:
            StoreError: the store is closed.
        """
        with self._lock:
            if self._closed:
                raise store_closed(self._address.url)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"store {self._name}", daemon=True)
                self._thread.start()
            self._jobs.append(job)
            self._bell.put(True)

    async def ask(self, job: J) -> None:
        """Request a job, and wait until it is done. See `Pending.wait` for cancellation."""
        self.put(job)
        if not job.done:
            await job.wait()

    def stop(self) -> threading.Thread | None:
        """Accept no more jobs; return the thread, if it runs, that finishes waiting ones and closes the connection."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            self._bell.put(False)
            return self._thread

    def before_fork(self) -> None:
        """See `Forkable`. The connection stays open, since it belongs to the parent."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """See `Forkable`. The waiting jobs belong to the parent."""
        if not child:
            self._lock.release()
            return
        self._jobs, self._bell = deque(), SimpleQueue()
        self._lock, self._turn, self._thread = threading.Lock(), threading.Lock(), None
        leave_to_parent(self._connection)
        self._connection = None

    # -------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        more = True
        while more:
            more = self._bell.get()
            while self._jobs:
                with self._turn:
                    self._take_turn()
        self._disconnect()

    def _take_turn(self) -> None:
        with self._lock:
            batch = self._take(self._jobs)
        self.statistics.jobs += len(batch)
        try:
            self._finish(batch)
        except BaseException as error:  # the callers must not wait for ever
            self._fail(batch, error)

    def _finish(self, batch: list[J]) -> None:
        try:
            patiently(lambda: self._attempt(batch), self._address.patience)
        except Exception as error:
            is_known = isinstance(error, StoreError) or store_error(error, self._address) is not None
            if len(batch) == 1 or not is_known or is_lost(error, self._connection):
                self._fail(batch, error)
                return
            for job in batch:  # one of them may be bad: each gets its own transaction
                self._finish([job])
        else:
            self.statistics.batches += 1
            self.statistics.refused += sum(job.error is not None for job in batch)
            tell(batch)

    def _attempt(self, batch: list[J]) -> None:
        for job in batch:
            job.error = None
        if self._connection is None:
            self._connection = connect(self._address)
        try:
            self._do(self._connection, batch)
        except Exception as error:
            if is_lost(error, self._connection):
                self.statistics.lost += 1
                self._disconnect()
                for job in batch:
                    job.again = True
            raise

    def _fail(self, batch: list[J], error: BaseException) -> None:
        self.statistics.failed += len(batch)
        for job in batch:
            if not job.done:
                job.error = self._said(error)
        tell(batch)

    def _said(self, error: BaseException) -> BaseException:
        if isinstance(error, OrchestratorError):
            return error
        known = store_error(error, self._address)
        if known is not None:
            known.__cause__ = error
            return known
        if isinstance(error, Exception):
            return error
        return StoreError(f"store {self._address.url}: a write was interrupted; check whether it took effect")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


_of_parents: list[Connection] = []
"""Connections of processes from which this one was forked. They are kept, because deleting one would close it."""


def leave_to_parent(connection: Connection | None) -> None:
    """In a forked process, release a connection of the parent without sending anything."""
    if connection is None:
        return
    _of_parents.append(connection)
    with suppress(Exception):
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, connection.fileno())  # the server sees the end of the connection when the parent is gone
        os.close(nothing)


_KEPT = 4

_limiter: RunVar[CapacityLimiter] = RunVar("orchestrator.stores.postgres.connection_threads")
"""A limiter for each event loop, separate from anyio's: tools that use all of its threads must not block reads."""


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
        """Run a reading function in this thread, again if the connection is lost.

        Args:
            action: starts transactions itself, if it needs one.
            patience: seconds to wait for a server that is away; None: as the URL says.
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
        """Release the database. Reads still work: a connection is opened and closed for each."""
        with self._lock:
            self._closed = True
            connections, self._idle = self._idle, []
        for connection in connections:
            with suppress(Exception):
                connection.close()

    def before_fork(self) -> None:
        """See `Forkable`. The connections stay open, since they belong to the parent."""
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


_LOOK = 10.0
"""Seconds between two checks of the connection and of whether the store was closed."""
_AGAIN = 5.0
"""Seconds between two attempts to connect."""


class Listener:
    """Counts notifications, from the first call of `alerts` on."""

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
        """Stop listening, and return the thread, which ends soon; None if none was started."""
        with self._lock:
            self._closed.set()
            connection = self._connection
            if connection is not None:
                with suppress(OSError):  # the thread notices the end of its connection, and checks why
                    hung_up = socket.socket(fileno=os.dup(connection.fileno()))
                    hung_up.shutdown(socket.SHUT_RDWR)
                    hung_up.close()
            return self._thread

    def before_fork(self) -> None:
        """See `Forkable`. The connection stays open, since it belongs to the parent."""
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
            self._tell(listens=False)  # listeners look for notifications that were missed
            self._closed.wait(_AGAIN)

    def _listen(self) -> None:
        connection = self._connection = connect_bare(self._address)
        try:
            connection.execute(f"LISTEN {WORK}".encode())
            self._tell(listens=True)
            while not self._closed.is_set():
                for _ in connection.notifies(timeout=_LOOK, stop_after=1):
                    self._tell(listens=True)
                connection.execute("SELECT 1")  # reports a server that no longer responds
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
