"""The interface of stores: they keep the journal of every run, and append by compare-and-set.

A store keeps, per run, an append-only list of records and one row of facts about it (`RunInfo`), and beside
them graphs (once per digest), snapshots (a cache, never the truth), leases and an inbox of messages. Every
write is atomic and durable when the call returns. `append` is a compare-and-set on the run's head, and on the lease
of who appends, so two executors on one run can never both win.

`orchestrator.testing.check_store` tests every promise made here for custom stores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.records import Record

__all__ = ["Lease", "Message", "Page", "RunInfo", "Store"]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts about a run that a list of runs shows, kept beside its journal."""

    run_id: str
    graph: str
    """The graph's name."""
    status: str
    """The status in the journal: never `interrupted`, which depends on the lease."""
    labels: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    """Unix seconds."""
    updated: float = 0.0
    """`ts` of the last record, Unix seconds."""
    head: int = 0
    """`seq` of the last record."""
    structure: str = ""
    content: str = ""
    due: float | None = None
    """When the next timer or deadline is due, Unix seconds."""
    waiting: int = 0
    """How many questions are open."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the list of runs, the newest first. `cursor` leads to the next part; None: this was the last."""

    runs: tuple[RunInfo, ...] = ()
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Who drives a run, and until when if nothing more is heard. `expires` is in Unix seconds."""

    run_id: str
    token: str
    owner: JsonObject
    expires: float


@dataclass(frozen=True, slots=True)
class Message:
    """Something handed to a run from outside, waiting for its holder. Ids grow and are never used twice."""

    id: int
    run_id: str
    body: JsonObject


@runtime_checkable
class Store(Protocol):
    """A store of runs.

    Every method may raise `StoreUnavailable` (full, read-only or locked: nothing was changed, and the store works again
    when the cause is gone). Methods that write finish even if the task that awaits them is cancelled, and then return
    as usual, so the caller always learns the outcome of its write.
    """

    @property
    def url(self) -> str:
        """How this store was opened, such as `sqlite:///runs.db`."""
        ...

    async def create(
        self, info: RunInfo, records: Sequence[Record], *, graph: JsonObject | None = None, lease: Lease | None = None
    ) -> None:
        """Add a run with its first records, all or nothing.

        In the same transaction the data of its `graph` is stored under `info.content`, as by `put_graph`, and the run
        is held by `lease`. A `graph` object that is passed again must be unchanged, because a store may cache its text.

        Args:
            info: the run's row; `info.head` must equal the number of records.
            records: the records, numbered from 1.
            graph: the data of the run's graph; None if it is stored already.
            lease: the lease that the run starts with.

        Raises:
            RunExists: a run with this id exists; nothing was written, neither the graph nor the lease.
            ValueError: the records, the graph or the lease do not fit `info`.
        """
        ...

    async def append(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        status: str | None = None,
        due: float | None = None,
        waiting: int | None = None,
        consumed: Sequence[int] = (),
        lease: str | None = None,
        release: bool = False,
    ) -> int:
        """Add records to a run. They are durable when this returns.

        With the token of a `lease`, the append succeeds only if the run's lease has that token in the same transaction,
        expired or not. An executor whose lease was taken over writes nothing from that moment on, whether or not its
        successor has written yet. The same transaction updates the run's row.

        Args:
            run_id: the run's id.
            records: the records, numbered from `after + 1`.
            after: the head that the run must have, which is the number of its last record.
            status: the run's new status; None leaves it. If it is final, all messages of the run are deleted as well,
                because no executor will handle them.
            due: when the run must be continued, in seconds since the epoch. It belongs to `status`: with a status it is
                stored as given (None clears it), without a status None leaves it.
            waiting: the new number of open questions; None leaves it.
            consumed: ids of messages to delete. Only those of this run are deleted.
            lease: the token of the lease to check; None: no check.
            release: release the lease in the same transaction.

        Returns:
            The new head.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run's head is not `after`, or its lease is not `lease`; nothing was written.
            ValueError: the records' `seq` do not follow `after` one by one, or `release` comes without a `lease`.
        """
        ...

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        """Return the records with `after < seq <= upto`, in order.

        Args:
            run_id: the run's id.
            after: the number of the record before the first one to return.
            upto: the number of the last record to return; None: to the end.
            limit: the most records to return; None: no limit.

        Returns:
            The records.

        Raises:
            RunUnknown: the store has no such run.
            StoreCorrupt: a record is damaged or missing; the readable records before it are its `records`.
            StoreTooNew: a newer version of this library wrote one of them.
        """
        ...

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """See `read`. For callers without an event loop; blocks."""
        ...

    async def info(self, run_id: str) -> RunInfo:
        """Return the row of a run.

        Args:
            run_id: the run's id.

        Returns:
            The row as it was last written.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    async def runs(
        self,
        *,
        status: Collection[str] | str | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Return a page of the runs that match every filter, newest `created` first.

        Runs that are added between two pages neither repeat nor hide another run.

        Args:
            status: a status or several.
            graph: the name of a graph.
            labels: labels that a run must have, with their values.
            after: the cursor of the previous page; None: the first page.
            limit: the most runs on a page.

        Returns:
            The page; its cursor is None if no page follows.

        Raises:
            StoreError: `after` is not a cursor of this store.
        """
        ...

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        """Store a graph's data under its digest. Storing it again changes nothing.

        Args:
            digest: the digest of the graph's content.
            data: the result of `Graph.data()`.
        """
        ...

    async def graph(self, digest: str) -> JsonObject:
        """Return the data of a graph.

        Args:
            digest: the digest of the graph's content.

        Returns:
            The data, as given to `put_graph`.

        Raises:
            GraphUnknown: the store has no graph with this digest.
        """
        ...

    def graph_now(self, digest: str) -> JsonObject:
        """See `graph`. For callers without an event loop; blocks."""
        ...

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        """Store a snapshot: the folded first `seq` records of a run, as a cache.

        Args:
            run_id: the run's id.
            seq: the number of the last folded record.
            data: the snapshot.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        """Return the latest snapshot with `seq <= upto`.

        Args:
            run_id: the run's id.
            upto: the last record that the snapshot may contain; None: any.

        Returns:
            Its `seq` and its data; None if there is no snapshot that can be trusted.
        """
        ...

    async def lease(self, run_id: str) -> Lease | None:
        """Return the lease on a run, even if it has expired.

        Args:
            run_id: the run's id.

        Returns:
            The lease; None if there is none or it was dropped.
        """
        ...

    async def take_lease(self, lease: Lease, *, replaces: str | None = None, now: float) -> bool:
        """Take a run's lease if none is held, the held one's token is `replaces`, or it expired before `now`.

        Args:
            lease: the lease to take.
            replaces: the token of the lease that it may replace although that one has not expired.
            now: the current time in seconds since the epoch.

        Returns:
            Whether the lease was taken.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    async def renew_lease(self, run_id: str, token: str, expires: float) -> bool:
        """Renew a lease.

        Args:
            run_id: the run's id.
            token: the token of the lease.
            expires: when it expires now, in seconds since the epoch.

        Returns:
            False if another executor has the lease now.
        """
        ...

    async def drop_lease(self, run_id: str, token: str) -> None:
        """Release a lease. Nothing happens if another executor has it now.

        Args:
            run_id: the run's id.
            token: the token of the lease.
        """
        ...

    async def post(self, run_id: str, body: JsonObject) -> int:
        """Leave a message for the executor that drives the run.

        Args:
            run_id: the run's id.
            body: the message as plain JSON.

        Returns:
            The message's id.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        """Return the messages for some runs, oldest first. Cheap when nothing has changed since the last call.

        Args:
            run_ids: the ids of the runs.

        Returns:
            The messages, with their ids.
        """
        ...

    async def discard(self, ids: Sequence[int]) -> None:
        """Delete messages. Unknown ids are ignored.

        Args:
            ids: the ids of the messages.
        """
        ...

    async def delete(self, run_id: str) -> None:
        """Delete one run: records, snapshots, labels, lease, messages. Graphs stay, because other runs may share them.

        There are no further checks: `Executor.delete` refuses a run that is being driven, and also deletes the runs
        that its graph tools started.

        Args:
            run_id: the run's id.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    async def copy(self, run_id: str, to: Store) -> None:
        """Copy a run, the graphs that it names and its unread messages into another store.

        Args:
            run_id: the run's id.
            to: the other store.

        Raises:
            RunUnknown: the store has no such run.
            RunExists: the other store has a run with this id.
        """
        ...

    async def close(self) -> None:
        """Finish all writes and let go of files and threads. Closing again does nothing; writing raises StoreError."""
        ...
