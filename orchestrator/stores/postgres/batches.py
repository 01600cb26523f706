"""One thread with one connection, which does work in batches, in the order in which it is asked for.

A server may go away and come back. Callers wait for it, for as long as the store's patience lasts. What was asked
for when the connection was cut may have been done or not, so all of it is asked again in a form that finds out: see
`Job.again`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from orchestrator.errors import OrchestratorError, StoreError
from orchestrator.stores.postgres.connections import Address, connect, is_lost, patiently, store_error
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.shared import store_closed
from orchestrator.stores.threads import Pending, tell

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
        """Whether it may have been done already: the connection was cut before the answer came."""


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
