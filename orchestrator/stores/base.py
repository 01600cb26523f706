"""What a store is: the journal of every run, one compare-and-set away from being moved.

A store keeps, per run, an append-only list of records and one row of facts about it (`RunInfo`), and beside
them graphs (once per digest), snapshots (a cache, never the truth), leases and an inbox of messages. Every
write is atomic and durable when the call returns. `append` is a compare-and-set on the run's head, and on the lease
of who appends, so two executors on one run can never both win.

`orchestrator.testing.check_store` holds every promise made here as a test for stores of your own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from orchestrator.errors import GraphUnknown, RunConflict, StoreCorrupt, StoreError, StoreTooNew
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.records import RECORD_VERSION, Record, decode

__all__ = ["Lease", "Message", "Page", "RunInfo", "Store"]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts about a run that a list of runs shows, kept beside its journal."""

    run_id: str
    graph: str
    """The graph's name."""
    status: str
    """What the journal says: never `interrupted`, which depends on who holds the lease."""
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
    """Where runs are kept.

    Every method may raise `StoreUnavailable` (full, read-only or locked: nothing was changed, and the store
    works again when the cause is gone). Methods that write finish even when the task that awaits them is
    cancelled, and then return as usual: the caller always learns what became of its write.
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

        In the same transaction the data of its `graph` is kept under `info.content`, as by `put_graph`, and the run
        is held by `lease` from its first moment. Whoever gives the same `graph` object again must not have changed
        it: a store may remember its text.

        Raises:
            RunExists: the id is taken; nothing was written, neither the graph nor the lease.
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
        """Add records behind `after` and return the new head; they are durable when it returns.

        With the token of a `lease` this happens only if the run's lease carries that token in the same transaction,
        expired or not: who was taken over writes nothing from that moment on, whether or not its successor has
        written yet.

        In the same transaction the run's row follows: a `status` or `waiting` of None is left as it is; `due`
        belongs to `status`: given together it is stored as given (None clears it), without a status None leaves
        it. The run's messages named in `consumed` are deleted.

        With `release` the lease is given back in the same transaction. If `status` is that of a run that is over,
        all messages of the run are deleted with it: nobody will ever handle them.

        Raises:
            RunUnknown: there is no such run.
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
        """Keep a fold of the first `seq` records, as a cache.

        Raises:
            RunUnknown: there is no such run.
        """
        ...

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        """The latest snapshot with `seq <= upto`, if there is one that can be trusted."""
        ...

    async def lease(self, run_id: str) -> Lease | None:
        """The lease on a run, also when it has expired; None if nobody took one or it was dropped."""
        ...

    async def take_lease(self, lease: Lease, *, replaces: str | None = None, now: float) -> bool:
        """Take a run's lease if none is held, the held one's token is `replaces`, or it expired before `now`.

        Raises:
            RunUnknown: there is no such run.
        """
        ...

    async def renew_lease(self, run_id: str, token: str, expires: float) -> bool:
        """Hold a lease longer. False: it is no longer ours."""
        ...

    async def drop_lease(self, run_id: str, token: str) -> None:
        """Give a lease back. Nothing happens if it is no longer ours."""
        ...

    async def post(self, run_id: str, body: JsonObject) -> int:
        """Leave a message for whoever drives the run, and return its id.

        Raises:
            RunUnknown: there is no such run.
        """
        ...

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        """The messages for these runs, oldest first. Cheap when nothing has changed since the last call."""
        ...

    async def discard(self, ids: Sequence[int]) -> None:
        """Delete messages. Ids that are not there are passed over."""
        ...

    async def delete(self, run_id: str) -> None:
        """Remove a run: records, snapshots, labels, lease, messages. Graphs stay, other runs may share them.

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


# --------------------------------------------------------------------- what every store needs


def check_seqs(run_id: str, records: Sequence[Record], after: int) -> None:
    """Refuse records that do not follow `after` one by one: a mistake of the caller, not a conflict."""
    for expected, record in enumerate(records, after + 1):
        if record.seq != expected:
            raise ValueError(
                f"run {run_id!r}: record {record.type} has seq {record.seq} where {expected} follows; "
                f"number the records from the head that you append after"
            )


def check_new(
    info: RunInfo, records: Sequence[Record], graph: JsonObject | None = None, lease: Lease | None = None
) -> None:
    """Refuse a new run whose row does not fit its records, its graph or its lease."""
    check_seqs(info.run_id, records, 0)
    if info.head != len(records):
        raise ValueError(f"run {info.run_id!r}: head is {info.head} but {len(records)} records were given")
    if graph is not None and not info.content:
        raise ValueError(f"run {info.run_id!r}: a graph is kept under its digest, and `content` is empty")
    if lease is not None and lease.run_id != info.run_id:
        raise ValueError(f"run {info.run_id!r}: the lease is on run {lease.run_id!r}; make one on this run")


def check_release(run_id: str, lease: str | None, release: bool) -> None:
    """Refuse to give back a lease that is not named."""
    if release and lease is None:
        raise ValueError(f"run {run_id!r}: release gives back the lease that the append names; name it (lease=)")


def moved(run_id: str, head: int, after: int) -> RunConflict:
    """The error for an append behind another head than the run's."""
    return RunConflict(run_id, f"its head is {head}, not {after}: somebody else moved it")


def taken_over(run_id: str) -> RunConflict:
    """The error for an append under a lease that the run does not have any more."""
    return RunConflict(run_id, "the lease that it is written under was taken over or given back")


def as_statuses(status: Collection[str] | str | None) -> frozenset[str] | None:
    """The `status` filter of `Store.runs` as a set; None means any."""
    if status is None:
        return None
    return frozenset({status} if isinstance(status, str) else status)


def page_cursor(created: float, number: int) -> str:
    """The place of a run in the list: keys of it, not a count, so that it stays right when runs are added."""
    return f"{created!r}_{number}"


def parse_cursor(cursor: str) -> tuple[float, int]:
    """Read a place in the list of runs back.

    Raises:
        StoreError: it is not one.
    """
    created, _, number = cursor.rpartition("_")
    try:
        return float(created), int(number)
    except ValueError:
        raise StoreError(f"{cursor!r} is not a page cursor; pass the `cursor` of the page before") from None


def read_record(run_id: str, seq: int, data: bytes, before: Sequence[Record]) -> Record:
    """Decode one stored record whose bytes are known to be what was written.

    Raises:
        StoreTooNew: a newer version of this library wrote it.
        StoreCorrupt: it is no record, or the one of another place.
    """
    try:
        record = decode(data)
    except ValueError as error:
        if _version_of(data) > RECORD_VERSION:
            raise StoreTooNew(
                f"run {run_id!r}: record {seq} was written by a newer version; update graph-orchestrator"
            ) from error
        raise corrupt(run_id, seq, "it is not a record that this version knows", before) from error
    if record.seq != seq:
        raise corrupt(run_id, seq, f"it says that it is record {record.seq}", before)
    return record


def corrupt(run_id: str, seq: int, why: str, before: Sequence[Record]) -> StoreCorrupt:
    """The error for a damaged record, which carries the readable records before it as `records`."""
    error = StoreCorrupt(run_id, seq, why)
    vars(error)["records"] = tuple(before)
    return error


def graph_unknown(digest: str, url: str) -> GraphUnknown:
    """The error for a graph that a store does not hold."""
    return GraphUnknown(f"store {url} holds no graph {digest!r}; give the graph itself, or copy its run anew")


async def copy_run(source: Store, run_id: str, to: Store) -> None:
    """`Store.copy` in terms of the other methods: graphs first, so that the run never appears without them."""
    info = await source.info(run_id)
    records = await source.read(run_id, upto=info.head)
    for name in _graphs_named(info, records):
        try:
            data = await source.graph(name)
        except GraphUnknown:
            continue  # `structure` and `content` both name graphs; a store holds what was put into it
        await to.put_graph(name, data)
    await to.create(info, records)
    for message in await source.inbox([run_id]):
        await to.post(run_id, message.body)


def _graphs_named(info: RunInfo, records: Iterable[Record]) -> list[str]:
    names = {info.structure: None, info.content: None}  # a dict keeps the order
    for record in records:
        for attribute in ("structure", "content"):
            name = getattr(record, attribute, None)
            if isinstance(name, str):
                names[name] = None
    names.pop("", None)
    return list(names)


def _version_of(data: bytes) -> int:
    import json

    try:
        value = json.loads(data)
    except ValueError:
        return 0
    version = value.get("v", 0) if isinstance(value, dict) else 0
    return version if isinstance(version, int) else 0
