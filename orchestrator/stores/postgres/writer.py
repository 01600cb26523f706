"""Writing: appends and new runs in batches by one thread, heartbeats by another, other changes one by one by a third.

While a batch is on its way, what is asked for queues up and shares the next statement: an append alone costs a round
trip and a commit, a hundred at the same time cost one together. A change may wait for a row that another client has
locked; a heartbeat must not wait behind that, or the leases of a healthy executor expire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from orchestrator.stores.payloads import size_of
from orchestrator.stores.postgres import record_partitions
from orchestrator.stores.postgres.batches import BatchStatistics, BatchThread
from orchestrator.stores.postgres.changes import ChangeJob, change_all
from orchestrator.stores.postgres.connections import IDLE_SECONDS, Address, idle_within
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.postgres.writes import AppendJob, CreateJob, append_all, create_all
from orchestrator.stores.threads import watch

T = TypeVar("T")

MOST = 256
"""Appends or new runs in one statement."""
MOST_BYTES = 8 << 20
"""Bytes in one statement, if it is for several runs."""
_TRY_AGAIN = 60.0
"""Seconds until a month is begun again that could not be begun."""

_RunJob: TypeAlias = AppendJob | CreateJob


class Writer:
    """Makes changes, durably. `stop` ends it."""

    def __init__(self, address: Address) -> None:
        self._runs: BatchThread[_RunJob] = BatchThread(address, f"{address.url} writer", _take, self._do)
        self._others: BatchThread[ChangeJob[Any]] = BatchThread(
            address, f"{address.url} changes", _take_one, self._change_all
        )
        self._beats: BatchThread[ChangeJob[Any]] = BatchThread(
            address, f"{address.url} heartbeats", _take_one, self._change_all
        )
        self._idle = IDLE_SECONDS
        self._next_try = 0.0
        """When a month may be begun, by the monotonic clock."""
        for thread in (self._runs, self._others, self._beats):
            watch(thread)

    async def append(self, job: AppendJob) -> int:
        """Make an append and return the new head; it is durable then."""
        await self._runs.ask(job)
        return job.result()

    async def create(self, job: CreateJob) -> None:
        """Add a run; it is durable then."""
        await self._runs.ask(job)
        job.result()

    async def change(self, change: Callable[[Connection], T]) -> T:
        """Make another change in a transaction of its own, once, and give what it gives; it is durable then.

        Args:
            change: raises an `OrchestratorError` only before it has changed anything.
        """
        job = ChangeJob(change)
        await self._others.ask(job)
        return job.result()

    async def beat(self, change: Callable[[Connection], T]) -> T:
        """See `change`; for heartbeats, which wait for no other change of this process."""
        job = ChangeJob(change)
        await self._beats.ask(job)
        return job.result()

    def note_lease(self, ttl: float) -> None:
        """Note that this process has leases of so many seconds: its transactions must not be silent for longer."""
        if ttl > 0:
            self._idle = min(self._idle, idle_within(ttl))

    def stop(self) -> list[Any]:
        """Take no more writes and finish those that wait; gives the threads that do so."""
        threads = (self._runs.stop(), self._others.stop(), self._beats.stop())
        return [thread for thread in threads if thread is not None]

    def statistics(self) -> BatchStatistics:
        """What was done about appends and new runs so far: `jobs / batches` shared a commit."""
        return self._runs.statistics

    def _change_all(self, connection: Connection, jobs: list[ChangeJob[Any]]) -> None:
        record_partitions.mending(connection, partial(change_all, connection, jobs, self._idle))

    def _do(self, connection: Connection, jobs: list[_RunJob]) -> None:
        appends = [job for job in jobs if isinstance(job, AppendJob)]
        if appends:
            record_partitions.mending(connection, partial(append_all, connection, appends))
        news = [job for job in jobs if isinstance(job, CreateJob)]
        if news:
            has_begun = record_partitions.mending(connection, partial(create_all, connection, news))
            if has_begun:
                self._begin_month(connection)

    def _begin_month(self, connection: Connection) -> None:
        """Begin a month, which takes milliseconds. If this cannot be done now, writes go on without it."""
        import psycopg

        if monotonic() >= self._next_try:
            self._next_try = monotonic() + _TRY_AGAIN
            with suppress(psycopg.Error):
                record_partitions.begin_month(connection)


def _take_one(waiting: deque[ChangeJob[Any]]) -> list[ChangeJob[Any]]:
    return [waiting.popleft()]


def _take(waiting: deque[_RunJob]) -> list[_RunJob]:
    """The first one, and others of its kind for other runs; what is left stays in its order."""
    first = waiting.popleft()
    taken, runs, size = [first], {_run_of(first)}, _size(first)
    left: list[_RunJob] = []
    while waiting and len(taken) < MOST and size < MOST_BYTES:
        job = waiting.popleft()
        run = _run_of(job)
        if run in runs or type(job) is not type(first):
            left.append(job)
            runs.add(run)  # what comes behind it waits as well
        else:
            taken.append(job)
            runs.add(run)
            size += _size(job)
    waiting.extendleft(reversed(left))
    return taken


def _run_of(job: _RunJob) -> str:
    return job.append.run_id if isinstance(job, AppendJob) else job.new.info.run_id


def _size(job: _RunJob) -> int:
    return size_of(job.related.rows, job.related.payloads)
