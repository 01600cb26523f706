"""The interface of stores: they keep the journal of every run, and append by compare-and-set.

A store keeps, per run, an append-only list of records and one row of facts about it (`RunInfo`). It also keeps
graphs (once per digest), snapshots (a cache, never the truth), the executors that hold leases, an inbox of
messages, and items (see `ItemStore`), which belong to no run. Every write is atomic and durable when the call returns.
`append` is a compare-and-set on the run's head, and on the lease of the caller, so two executors on one run can never
both win.

Leases are measured by the store's clock, never by the caller's. Every write may be repeated, with the same
arguments, by a caller that did not learn the outcome of the first call: the result is that of one write.

docs/stores.md describes the protocol for authors of stores, and `orchestrator.testing.check_store` tests every promise
made here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from orchestrator.errors import Archived
from orchestrator.json import JsonObject
from orchestrator.kernel.status import Parent, Relation
from orchestrator.stores.items import ItemStore
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import Append, ClaimRequest, NewRun, QuestionQuery, RunQuery, StatsQuery
from orchestrator.stores.rows import (
    Finding,
    Holder,
    Lease,
    Message,
    Note,
    OpenQuestion,
    Page,
    QuestionPage,
    RunInfo,
    RunSummary,
    RunTotals,
    Schedule,
    StoredRun,
)
from orchestrator.stores.statistics import StatsRow

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


__all__ = [
    "Finding",
    "Holder",
    "Lease",
    "Message",
    "Note",
    "Page",
    "Parent",
    "Relation",
    "RunInfo",
    "RunSummary",
    "Schedule",
    "StatsRow",
    "Store",
]


@runtime_checkable
class Changing(Protocol):
    """A store that can cheaply detect whether anything was written to it. Other stores are polled."""

    @abstractmethod
    def changes(self) -> object | None:
        """Return a value that stays the same while nothing is written to the store; None if it is unknown. Cheap.

        Returns:
            The value, to be compared with an earlier one.
        """
        ...


@runtime_checkable
class Alerting(Protocol):
    """A store that sends alerts when there may be runs to resume. Other stores are polled.

    An alert is a hint: some runs become free without one, as when a lease expires, and one may be lost.
    """

    @abstractmethod
    def alerts(self) -> int | None:
        """Return the number of alerts so far; None if no alerts can be sent at the moment. Cheap."""
        ...

    @abstractmethod
    async def wait_for_alert(self, seen: int) -> None:
        """Wait for another alert, or until no more can be sent. May be cancelled.

        Args:
            seen: what `alerts` returned before the caller looked for runs.
        """
        ...


@runtime_checkable
class Reopening(Protocol):
    """A store that can be opened again."""

    @abstractmethod
    def reopen(self) -> None:
        """Open the store again after `close`."""
        ...


@runtime_checkable
class Loading(Protocol):
    """A store that reads at one moment what the state of a run is made from. Of others it is read in three calls."""

    @abstractmethod
    async def load(self, run_id: str, *, after: int | None = None, upto: int | None = None) -> StoredRun:
        """Return the row of a run, its latest snapshot, and the records after that snapshot.

        Args:
            run_id: the run's id.
            after: the number of the record before the first one to return, without a snapshot; None: the snapshot's.
            upto: the number of the last record to return, and the last that the snapshot may contain; None: any.

        Returns:
            The same as `Store.info`, `Store.snapshot` and `Store.read`.

        Raises:
            RunUnknown, StoreCorrupt, StoreTooNew: see `Store.info` and `Store.read`.
        """
        ...


@runtime_checkable
class Placing(Protocol):
    """A store whose list of runs can start at a time. Lists of other stores are read from the newest run."""

    @abstractmethod
    def cursor_before(self, created: float) -> str:
        """Return the cursor of the runs that were created before this time.

        Args:
            created: Unix seconds.
        """
        ...


@runtime_checkable
class Store(ItemStore, Protocol):
    """A store of runs.

    Every method may raise `StoreUnavailable` (full, read-only or locked: nothing was changed, and the store works again
    when the cause is gone). Methods that write finish even if the task that awaits them is cancelled, and then return
    as usual, so the caller always learns the outcome of its write.
    """

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL with which this store was opened, such as `sqlite:///runs.db`."""
        ...

    @abstractmethod
    async def create(self, new: NewRun) -> None:
        """Add a run with its first records, all or nothing.

        In the same transaction the data of its graph is stored, as by `put_graph`, and its lease is taken.
        Repeated with the same lease and records, it returns as if the run were new.

        Raises:
            RunExists: a run with this id exists; nothing was written, neither the graph nor the lease.
            InvalidValue: the run's id or the name of its graph is longer than 1,000 bytes.
            ValueError: the records, the graph or the lease do not fit the run's row.
        """
        ...

    @abstractmethod
    async def append(self, append: Append) -> int:
        """Add records to a run. They are durable when this returns.

        With the token of a lease, the append succeeds only if the run's lease has that token in the same transaction,
        expired or not. An executor whose lease was taken over writes nothing from that moment on, whether or not its
        successor has written yet. The same transaction updates the run's row. Repeated under the same lease, it
        compares the stored records with these, and returns the head of the first call.

        Returns:
            The new head.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run's head is not `after`, or its lease is not `lease`; nothing was written. An append
                without records, but with `release`, counts as made if the run is free and in the resulting state.
            ValueError: the records' `seq` do not follow `after` one by one, or `release` comes without a `lease`.
        """
        ...

    @abstractmethod
    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        """Return the records with `after < seq <= upto`, in order.

        Args:
            run_id: the run's id.
            after: the number of the record before the first one to return.
            upto: the number of the last record to return; None: to the end.
            limit: maximum number of records to return; None: no limit.

        Returns:
            The records.

        Raises:
            RunUnknown: the store has no such run.
            StoreCorrupt: a record is damaged or missing; the readable records before it are its `records`.
            StoreTooNew: a newer version of this library wrote one of them.
        """
        ...

    @abstractmethod
    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """See `read`. For callers without an event loop; blocks."""
        ...

    @abstractmethod
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

    @abstractmethod
    async def heads(self, run_ids: Collection[str]) -> dict[str, tuple[int, str]]:
        """Return the head and the status of some runs, in one query. Unknown runs are left out.

        Args:
            run_ids: the ids of the runs.

        Returns:
            Id -> number of the last record, and the status in the journal.
        """
        ...

    @abstractmethod
    async def runs(self, query: RunQuery) -> Page:
        """Return a page of the runs that match every filter, newest `created` first.

        Runs that are added between two pages neither repeat nor hide another run.

        Returns:
            The page; its cursor is None if no page follows.

        Raises:
            ValueError: a status is unknown.
            StoreError: `after` is not a cursor of this store.
        """
        ...

    @abstractmethod
    async def totals(self, run_id: str) -> RunTotals | None:
        """Return the usage of a run as last written, by node and by the models and tools that its nodes called.

        Args:
            run_id: the run's id.

        Returns:
            The totals; None if the run was last written by a version that did not count them.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    @abstractmethod
    async def stats(self, query: StatsQuery) -> list[StatsRow]:
        """Return sums over runs, in groups, computed from their rows and totals; no journal is read.

        `orchestrator.stores.statistics` defines the groups, and each number. The status is that of the journal.

        Returns:
            One row for each group that has a run, sorted by the values of `by`, None first.

        Raises:
            InvalidValue: an entry of `by` is not a valid group.
        """
        ...

    @abstractmethod
    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        """Return the open questions of a run in their order, as they were last written.

        Args:
            run_id: the run's id.

        Returns:
            The questions; None if some questions of the run are not in the store.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    @abstractmethod
    async def questions(self, query: QuestionQuery) -> QuestionPage:
        """Return a page of the open questions of all runs, the oldest `asked` first.

        Questions that are asked or answered between two pages neither repeat nor hide another one.

        Returns:
            The page.

        Raises:
            StoreError: `after` is not a cursor of this list.
        """
        ...

    @abstractmethod
    async def put_graph(self, digest: str, data: JsonObject) -> None:
        """Store a graph's data under its digest. Storing it again changes nothing.

        The order of keys is stored, too: it is the order of the nodes, in which joins enabled by one record fire.

        Args:
            digest: the digest of the graph's content.
            data: the result of `Graph.data()`.
        """
        ...

    @abstractmethod
    async def graph(self, digest: str) -> JsonObject:
        """Return the data of a graph.

        Args:
            digest: the digest of the graph's content.

        Returns:
            The data, as given to `put_graph`, with its keys in the same order.

        Raises:
            GraphUnknown: the store has no graph with this digest.
        """
        ...

    @abstractmethod
    def graph_now(self, digest: str) -> JsonObject:
        """See `graph`. For callers without an event loop; blocks."""
        ...

    @abstractmethod
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

    @abstractmethod
    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        """Return the latest snapshot with `seq <= upto`.

        Args:
            run_id: the run's id.
            upto: the last record that the snapshot may contain; None: any.

        Returns:
            Its `seq` and its data; None if there is no valid snapshot.
        """
        ...

    @abstractmethod
    async def lease(self, run_id: str) -> Lease | None:
        """Return the lease on a run, even if it has expired.

        Args:
            run_id: the run's id.

        Returns:
            The lease, with its remaining seconds; None if there is none or it was released.
        """
        ...

    @abstractmethod
    async def take_lease(self, lease: Lease, *, ttl: float, replaces: str | None = None) -> bool:
        """Take a run's lease if none is held, it has expired by the store's clock, or the held one is `replaces`.

        A lease that was never given back and is taken from another holder increments the run's `deaths`, sets `fault`,
        and sets `retry_at` for the case that this drive dies too. If the drive that died wrote a `step_done`, the run
        made progress, and this counts as its first death. Its former holder's next `beat` returns False. Repeated for
        the token that the run has already, it returns True.

        Args:
            lease: the lease to take: its run, token, holder and owner.
            ttl: seconds that it lasts without a beat of its holder. Taking a lease counts as a beat.
            replaces: the token of the lease that it may replace although that lease has not expired. With the token of
                `lease` itself a lease is kept: True only if the run still has it, whether or not it has expired.

        Returns:
            Whether the lease was taken, or kept.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    @abstractmethod
    async def beat(self, holder: str, ttl: float) -> bool:
        """Renew all leases of an executor, in one row.

        Args:
            holder: the executor's id.
            ttl: seconds that they last from now on without another beat; 0 gives up the row.

        Returns:
            False if they had expired before, or one of them was taken over since the last beat: then the executor must
            take each of its leases again, with `replaces` set to its own token, and has lost those that it does not
            get.
        """
        ...

    @abstractmethod
    async def announce(self, owner: Owner, *, ttl: float) -> None:
        """Record an executor and the facts about it in its row. It need not hold a run.

        This counts as a beat, but does not report lost leases: the next `beat` does. `owner.worker` replaces its
        earlier value; so does each `claim` and each lease that is taken.

        Args:
            owner: the executor.
            ttl: see `take_lease`.
        """
        ...

    @abstractmethod
    async def holders(self, *, runs: int = 20) -> list[Holder]:
        """Return the executors that hold leases or announced themselves, by id, also those whose leases have expired.

        An executor that gave up its row (`beat` with a `ttl` of 0) is left out. So may be one whose leases expired more
        than an hour ago and that no run names. The cost grows with the number of executors and of the runs that they
        hold.

        Args:
            runs: maximum number of run ids for each executor.
        """
        ...

    @abstractmethod
    async def drop_lease(self, run_id: str, token: str, *, fault: str | None = None) -> None:
        """Release a lease. Nothing happens if another executor has it now.

        Args:
            run_id: the run's id.
            token: the token of the lease.
            fault: None: the drive ended normally, and the run's `deaths`, `retry_at` and `fault` are cleared. A
                string is why the drive stopped: it is stored, `deaths` grows by one (or becomes 1 if the drive
                wrote a `step_done`), and `retry_at` becomes 1 second from now after the first death, doubled with each
                further one, at most an hour.
        """
        ...

    @abstractmethod
    async def claim(self, request: ClaimRequest) -> list[tuple[RunInfo, Lease]]:
        """Take leases on runs that can continue and that no executor drives. No two callers get the same run.

        These are runs that have messages other than notices; runs whose `due` time has passed and that are paused or
        created before it, so that time, an answer or an event continues them; runs that are `running` and whose
        holder's leases have expired or whose holder's process is dead; runs that are `running` and held by no executor;
        and the other runs whose `due` time has passed, which are new: in this order. Within each kind the oldest come
        first, whatever their graphs: by their first message, by `due`, and those without a holder by when they were
        created or their back-off ended. Runs of holders that are gone come in any order. A running run with `due`
        in the future is left out: it starts later. A run with `retry_at` in the future, or with 5 or more
        `deaths`, is left out, also if it has just died for the fifth time, which is then recorded. The cost does not
        grow with the number of other runs.

        With `turns`, the values of a label take turns among the waiting runs: one run of each value after `turns.after`
        is taken before a second one of any, and `turns.after` becomes the last visited value. A claim visits a bounded
        number of values, takes other runs in the order above if these have too few, and does not return to a value
        before it has visited all others. Within a value, runs of all graphs are taken oldest first.
        Runs with messages and runs of holders that are gone take part with the first of them.

        Returns:
            The rows of the runs, with the leases that were taken.
        """
        ...

    @abstractmethod
    async def parked(self, *, limit: int = 100) -> list[RunInfo]:
        """Return runs that `claim` no longer gives out, because their drives died or were given up 5 times in a row.

        The longest parked come first. Runs that have ended are left out. The cost grows only with the number of runs
        that back off.

        Args:
            limit: maximum number of runs to return.
        """
        ...

    @abstractmethod
    async def unsettled(self, graphs: Collection[str] | None) -> list[RunInfo]:
        """Return the runs that may have something to do: those that are running, that have a `due` time, or that have
        a message other than a notice, oldest first. The cost grows only with their number: runs that have ended, or
        only wait for people, cost nothing.

        Args:
            graphs: names of graphs; None: any.
        """
        ...

    @abstractmethod
    async def next_due(self, graphs: Collection[str] | None) -> float | None:
        """Return when `claim` will next find a run if nothing is written until then, by due times and back-offs.

        Leases that expire are not considered.

        Args:
            graphs: names of graphs; None: any.

        Returns:
            Unix seconds, in the past if something is overdue now; None: never.
        """
        ...

    @abstractmethod
    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        """Leave a message for the executor that drives the run.

        A run that has ended accepts only notices, whatever the order of this call and the append that ends it: other
        messages of an ended run are deleted.

        Args:
            run_id: the run's id.
            body: the message as plain JSON.
            key: a unique string of the caller, such as a UUID. While a message with this key is in the run's inbox,
                posting it again returns the id of that message.

        Returns:
            The message's id.

        Raises:
            RunUnknown: the store has no such run.
            RunEnded: the run has ended, and the message is not a notice.
            InvalidValue: the key is longer than 1,000 bytes.
        """
        ...

    @abstractmethod
    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        """Return the messages for some runs, oldest first. Cheap when nothing has changed since the last call.

        Args:
            run_ids: the ids of the runs.

        Returns:
            The messages, with their ids.
        """
        ...

    @abstractmethod
    async def notices(self) -> list[Message]:
        """Return the notices about all runs, oldest first: messages whose `type` is `NOTICE`.

        Cheap when nothing has changed since the last call.
        """
        ...

    @abstractmethod
    async def discard(self, ids: Sequence[int]) -> None:
        """Delete messages. Unknown ids are ignored.

        Args:
            ids: the ids of the messages.
        """
        ...

    @abstractmethod
    async def delete(self, run_id: str) -> bool:
        """Delete one run: records, snapshots, labels, lease, messages, notes, and what is known of the items it wrote.

        Graphs stay, because other runs may share them, and so do the items themselves.

        There are no further checks: `Executor.delete` refuses a run that is being driven, and also deletes the runs
        that its graph tools started.

        Args:
            run_id: the run's id.

        Returns:
            Whether the run existed. Deleting a missing run is not an error.
        """
        ...

    @abstractmethod
    async def copy(self, run_id: str, to: Store) -> None:
        """Copy a run, the graphs that it names, its notes and its unread messages into another store.

        Args:
            run_id: the run's id.
            to: the other store.

        Raises:
            RunUnknown: the store has no such run.
            RunExists: the other store has a run with this id.
        """
        ...

    @abstractmethod
    async def add_note(self, note: Note, *, most: int) -> None:
        """Add a note to a run, which may have ended or be archived. Adding it again changes nothing.

        Args:
            note: the note, with its `id`.
            most: maximum number of notes of the run with this one.

        Raises:
            RunUnknown: the store has no such run.
            InvalidValue: the run has `most` notes already.
        """
        ...

    @abstractmethod
    async def notes(self, run_id: str) -> list[Note]:
        """Return the notes of a run in the order in which they were written.

        Args:
            run_id: the run's id.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    @abstractmethod
    def notes_now(self, run_id: str) -> list[Note]:
        """See `notes`. For callers without an event loop; blocks."""
        ...

    @abstractmethod
    async def delete_note(self, run_id: str, note: str) -> bool:
        """Delete a note.

        Args:
            run_id: the run's id.
            note: the note's id.

        Returns:
            False if the run has no such note.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    @abstractmethod
    async def put_schedule(self, schedule: Schedule) -> None:
        """Store a schedule, replacing one with the same name.

        Args:
            schedule: the schedule.

        Raises:
            InvalidValue: its name is longer than 1,000 bytes.
        """
        ...

    @abstractmethod
    async def schedules(self) -> list[Schedule]:
        """Return all schedules, by name.

        Raises:
            StoreError: one of them is damaged.
        """
        ...

    @abstractmethod
    async def move_schedule(self, name: str, *, at: float, to: float) -> bool:
        """Set the next time of a schedule, if it still is the one that the caller saw.

        Args:
            name: the schedule's name.
            at: the next time that it must have, in Unix seconds.
            to: the new next time.

        Returns:
            False if another worker moved, replaced or deleted it.
        """
        ...

    @abstractmethod
    async def delete_schedule(self, name: str) -> bool:
        """Delete a schedule. Its runs stay.

        Args:
            name: the schedule's name.

        Returns:
            False if there is no schedule with this name.
        """
        ...

    @abstractmethod
    async def compact(self) -> int:
        """Give the space of deleted runs back to the system, and remove what is left of them in indexes.

        This works in short steps, between which other writes happen.

        Returns:
            The number of bytes given back.
        """
        ...

    @abstractmethod
    async def check(self, *, repair: bool = False) -> list[Finding]:
        """Find inconsistencies in the store, apart from the journals of its runs.

        Args:
            repair: whether to repair what can be repaired without losing anything.

        Returns:
            The findings, each with its repair.
        """
        ...

    @abstractmethod
    async def close(self) -> None:
        """Finish all writes and release files and threads. Closing again does nothing; writing raises StoreError."""
        ...


@runtime_checkable
class Archivable(Protocol):
    """A store whose runs can be archived. Every write may be repeated, like those of `Store`."""

    @abstractmethod
    async def ended(self, *, before: float | None = None, after: str | None = None, limit: int = 500) -> Page:
        """Return a page of the runs that have ended and whose records are in the store, oldest `created` first.

        Runs that are archived already cost nothing.

        Args:
            before: Unix seconds: only runs whose last record is older; None: any.
            after: the cursor of the previous page; None: the first page.
            limit: maximum number of runs on a page.
        """
        ...

    @abstractmethod
    async def note_object(self, run_id: str, noted: Archived) -> Archived:
        """Record which object is going to be written for a run.

        Args:
            run_id: the run's id.
            noted: the object.

        Returns:
            The object to write: `noted`, or one of the same archive and content that was noted before.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    @abstractmethod
    async def move_out(self, run_id: str, where: Archived, *, head: int) -> None:
        """Delete the records and snapshots of a run, which are in the archive, and record this in its row.

        Repeated, it returns without an error.

        Args:
            run_id: the run's id.
            where: an object that was noted.
            head: the number of the last record in it.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run has not ended, has another head, is held, or is in another object; nothing was changed.
        """
        ...

    @abstractmethod
    async def move_back(self, run_id: str, records: Sequence[Record], where: Archived) -> None:
        """Store the records of an archived run again. Its objects stay noted.

        If the records are in the store already, nothing is changed.

        Args:
            run_id: the run's id.
            records: all of its records.
            where: the object that contains them.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run is in another object.
        """
        ...

    @abstractmethod
    async def objects(self, run_id: str) -> list[Archived]:
        """Return all objects that were noted for a run, the oldest first.

        This includes objects that its row no longer names, and those of deleted runs with this id.

        Args:
            run_id: the run's id.
        """
        ...

    @abstractmethod
    async def left_objects(self) -> list[Archived]:
        """Return the objects of deleted runs, the oldest first."""
        ...

    @abstractmethod
    async def forget_objects(self, names: Collection[str]) -> None:
        """Forget deleted objects. Objects of existing runs are not forgotten.

        Args:
            names: the names of the objects.
        """
        ...


@runtime_checkable
class Archiving(Protocol):
    """A store that has an archive: its ended runs can be moved there, and are read as if they were in the store."""

    @abstractmethod
    async def ended(self, *, before: float | None = None, after: str | None = None, limit: int = 500) -> Page:
        """See `Archivable.ended`."""
        ...

    @abstractmethod
    async def archive_run(self, run_id: str) -> Archived:
        """Write an ended run to the archive, and remove its records from the store once they were read back.

        Interrupted at any point, the run is whole in the store, or whole in the archive. A run that is archived
        already is not changed.

        Args:
            run_id: the run's id.

        Returns:
            The object that contains its records.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run has not ended, is held, or was changed meanwhile; its records are in the store.
            StoreCorrupt: a record is damaged.
            StoreUnavailable: the archive cannot be reached or written.
        """
        ...

    @abstractmethod
    async def restore_run(self, run_id: str) -> bool:
        """Store the records of an archived run again. The object stays, for copies of the store that name it.

        Args:
            run_id: the run's id.

        Returns:
            Whether the records were in the archive.

        Raises:
            RunUnknown: the store has no such run.
            StoreCorrupt: the object is missing or was changed.
            StoreUnavailable: the archive cannot be reached.
        """
        ...

    @abstractmethod
    async def reach(self, run_id: str) -> None:
        """Check, before a run is deleted, that the archive with its objects can be reached.

        Args:
            run_id: the run's id.

        Raises:
            StoreError: the archive cannot be reached or read.
        """
        ...
