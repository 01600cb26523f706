"""Threads and their connections: one that works in batches, those that read, and one that listens.

A server may go away and come back. Callers wait for it, for as long as the store's patience lasts. What a batch was
asked for when the connection was cut may have been done or not, so all of it is asked again in a form that finds out:
see `Job.again`.

A notification that there may be runs to take up is a hint. Workers look for runs when one comes, and now and then
without one: it may be lost with the connection, and some runs become free without one. So nothing depends on it but
how soon a run is taken up.
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
"""Takes the jobs that are done together out of those that wait, the first of all among them."""

Do: TypeAlias = Callable[[Connection, list[J]], None]
"""Does jobs and sets what they give. An `OrchestratorError` of one of them is its `error`, and changes nothing."""


class Job(Pending[T]):
    """Something that was asked for."""

    __slots__ = ("again",)

    def __init__(self) -> None:
        super().__init__()
        self.again = False
        """True if it may have been done already: the connection was cut before the answer came."""


@dataclass(slots=True)
class BatchStatistics:
    """Counts of the jobs that a thread has done."""

    jobs: int = 0
    batches: int = 0
    refused: int = 0
    """Jobs that found that they may not."""
    failed: int = 0
    """Jobs that the server could not take."""
    lost: int = 0
    """Connections that were cut in the middle of a batch."""


class BatchThread(Generic[J]):
    """Does jobs. `stop` ends it."""

    def __init__(self, address: Address, name: str, take: Take[J], do: Do[J]) -> None:
        self._address, self._name, self._take, self._do = address, name, take, do
        self._jobs: deque[J] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        """Rung for the thread: whether there is more to come."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._turn = threading.Lock()
        """Had while a batch is done."""
        self._connection: Connection | None = None
        self.statistics = BatchStatistics()

    def put(self, job: J) -> None:
        """Ask for a job. `tell` is called when it is done.

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
        """Ask for a job, and wait until it is done. See `Pending.wait` for cancellation."""
        self.put(job)
        if not job.done:
            await job.wait()

    def stop(self) -> threading.Thread | None:
        """Take no more jobs, finish those that wait, close the connection; does not wait for any of it."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            self._bell.put(False)
            return self._thread

    def before_fork(self) -> None:
        """See `Forkable`. The connection stays: it is the parent's."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """See `Forkable`. What waits to be done is the parent's."""
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
            for job in batch:  # one of them may be bad: each gets a transaction of its own
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
"""Connections of processes that this one was forked from. They are kept, because to delete one would close it."""


def leave_to_parent(connection: Connection | None) -> None:
    """In a forked process: let go of a connection of the parent's, and say nothing by it."""
    if connection is None:
        return
    _of_parents.append(connection)
    with suppress(Exception):
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, connection.fileno())  # the server sees the end of the connection when the parent is gone
        os.close(nothing)


_KEPT = 4

_limiter: RunVar[CapacityLimiter] = RunVar("orchestrator.stores.postgres.connection_threads")
"""A limiter for each event loop. Not anyio's own: tools that hold all of its threads must not keep us from reading."""


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
