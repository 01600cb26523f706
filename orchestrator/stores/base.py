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
        self,
        info: RunInfo,
        records: Sequence[Record],
        *,
        graph: JsonObject | None = None,
        lease: Lease | None = None,
    ) -> None:
        """Add a run with its first records, all or nothing. `info.head` must equal the number of records.

        In the same transaction the data of its `graph` is stored under `info.content`, as by `put_graph`, and the run
        is held by `lease`. A `graph` object that is passed again must be unchanged, because a store may cache its text.

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
        """Add records after `after` and return the new head; the records are durable when this returns.

        With the token of a `lease`, the append succeeds only if the run's lease has that token in the same transaction,
        expired or not. An executor whose lease was taken over writes nothing from that moment on, whether or not its
        successor has written yet.

        The same transaction updates the run's row. A `status` or `waiting` of None leaves the value. `due` belongs to
        `status`: with a status it is stored as given (None clears it), without a status None leaves it. The run's
        messages in `consumed` are deleted.

        `release` releases the lease in the same transaction. If `status` is final, all messages of the run are deleted
        as well, because no executor will handle them.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run's head is not `after`, or its lease is not `lease`; nothing was written.
            ValueError: the records' `seq` do not follow `after` one by one, or `release` comes without a `lease`.
        """
        ...

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        """The records with `after < seq <= upto`, at most `limit` of them, in order.

        Raises:
            RunUnknown: there is no such run.
            StoreCorrupt: a record is damaged or missing; the readable ones before it are its `records`.
            StoreTooNew: a newer version of this library wrote one of them.
        """
        ...

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """The same as `read`, for callers without an event loop. Blocks."""
        ...

    async def info(self, run_id: str) -> RunInfo:
        """The row of a run.

        Raises:
            RunUnknown: there is no such run.
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
        """A page of the runs that fit every filter, the newest `created` first.

        `after` is the cursor of the page before. A run that is added meanwhile never makes another one appear
        twice or not at all.

        Raises:
            StoreError: `after` is not a cursor of this store.
        """
        ...

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        """Keep a graph's data under its digest. Doing so again changes nothing."""
        ...

    async def graph(self, digest: str) -> JsonObject:
        """The data of a graph.

        Raises:
            GraphUnknown: there is none under this digest.
        """
        ...

    def graph_now(self, digest: str) -> JsonObject:
        """The same as `graph`, for callers without an event loop. Blocks."""
        ...

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        """Store a fold of the first `seq` records, as a cache.

        Raises:
            RunUnknown: there is no such run.
        """
        ...

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        """The latest snapshot with `seq <= upto`, if there is one that can be trusted."""
        ...

    async def lease(self, run_id: str) -> Lease | None:
        """Return the lease on a run, even if it has expired; None if there is none or it was dropped."""
        ...

    async def take_lease(self, lease: Lease, *, replaces: str | None = None, now: float) -> bool:
        """Take a run's lease if none is held, the held one's token is `replaces`, or it expired before `now`.

        Raises:
            RunUnknown: there is no such run.
        """
        ...

    async def renew_lease(self, run_id: str, token: str, expires: float) -> bool:
        """Renew a lease. Return False if another executor has it now."""
        ...

    async def drop_lease(self, run_id: str, token: str) -> None:
        """Release a lease. Nothing happens if another executor has it now."""
        ...

    async def post(self, run_id: str, body: JsonObject) -> int:
        """Leave a message for the executor that drives the run, and return its id.

        Raises:
            RunUnknown: there is no such run.
        """
        ...

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        """The messages for these runs, oldest first. Cheap when nothing has changed since the last call."""
        ...

    async def discard(self, ids: Sequence[int]) -> None:
        """Delete messages. Unknown ids are ignored."""
        ...

    async def delete(self, run_id: str) -> None:
        """Delete one run: records, snapshots, labels, lease, messages. Graphs stay, because other runs may share them.

        There are no further checks: `Executor.delete` refuses a run that is being driven, and also deletes the runs
        that its graph tools started.

        Raises:
            RunUnknown: there is no such run.
        """
        ...

    async def copy(self, run_id: str, to: Store) -> None:
        """Copy a run, the graphs that it names and its unread messages into another store.

        Raises:
            RunUnknown: there is no such run.
            RunExists: the other store has a run of this id.
        """
        ...

    async def close(self) -> None:
        """Finish all writes and let go of files and threads. Closing again does nothing; writing raises StoreError."""
        ...
