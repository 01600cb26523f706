"""Runs in one SQLite file.

One thread writes, for all runs of the process; writes that queue up during a commit share the next one. Any
number of processes may use the file: a write holds SQLite's lock, and compare-and-set decides which one wins.

    schema.py       the tables, and checking those of a file
    files.py        opening the file, refused file systems, logs left by crashes, and the meaning of SQLite's errors
    connections.py  the connection that writes, for many changes at once, and those that read
    writes.py       writes, as functions of a connection
    reads.py        reads of a run, as functions of a connection
    listing.py      lists over all runs: runs, open questions, sums; the full-text index that they search; schedules
    payloads.py     long values that records share
    leases.py       leases and their clock: take, beat, drop
    claims.py       runs that are given out to workers
    items.py        items of the memory and the cache
    maintenance.py  giving space back, finding and repairing damage, moving runs to an archive

`SQLiteStore` puts these together. Most processes need neither claims nor items, lists or maintenance: these modules
are loaded when they are first used.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from sqlite3 import Connection, Error
from typing import TYPE_CHECKING, TypeVar

from anyio import CancelScope, to_thread

from orchestrator._lazy import lazy_modules
from orchestrator.errors import Archived, StoreError, StoreUnavailable
from orchestrator.json import PIECE, JsonObject, canonical, is_small, json_text
from orchestrator.private import keep_private
from orchestrator.stores.base import (
    Finding,
    Holder,
    Lease,
    Message,
    Page,
    RunInfo,
    Schedule,
    Store,
)
from orchestrator.stores.items import Area, FoundItem, Item, ItemUsage, ItemWrite, Namespace
from orchestrator.stores.owner import Owner
from orchestrator.stores.payloads import Payloads, size_of
from orchestrator.stores.requests import Append, ClaimRequest, NewRun, QuestionQuery, RunQuery, StatsQuery
from orchestrator.stores.rows import Note, OpenQuestion, QuestionPage, RunTotals, StoredRun
from orchestrator.stores.shared import (
    check_append,
    check_key,
    check_new,
    copy_run,
    page_cursor,
)
from orchestrator.stores.sqlite import leases, reads, writes
from orchestrator.stores.sqlite.connections import BYTES_HERE, Readers, Write, Writer, WriterStatistics
from orchestrator.stores.sqlite.files import (
    StoreFile,
    check_filesystem,
    check_log,
    open_to_write,
    patiently,
    store_error,
)
from orchestrator.stores.sqlite.leases import StoreClock
from orchestrator.stores.sqlite.payloads import UnreadablePayload
from orchestrator.stores.sqlite.payloads import replace as replace_payload
from orchestrator.stores.statistics import By, StatsRow
from orchestrator.stores.stored import rows_of_new, rows_of_next
from orchestrator.stores.threads import watch

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record
    from orchestrator.stores.sqlite import claims, items, listing, maintenance
else:
    claims, items, listing, maintenance = lazy_modules("orchestrator.stores.sqlite", "claims items listing maintenance")


T = TypeVar("T")

_TEXTS = 8
"""Maximum number of graphs whose texts are cached."""


class SQLiteStore:
    """A store in the SQLite file at `path`; see `Store` for the promises of each method.

    Safe to use from several threads, event loops and processes. An existing file is opened at once; a missing one is
    created (readable by this user only) by the first write. A file that cannot be written can be read. If the file
    is removed, renamed or replaced while the store is open, calls raise `StoreUnavailable` until it is back.

    Args:
        path: the file.
        url: name of the store in messages.
        network: allow a file on a network file system, if only one machine ever uses it.

    Raises:
        StoreError: the file is not a store, or its log is damaged.
        StoreTooNew: a newer version of this library wrote it.
        StoreUnavailable: it cannot be opened.
        StoreUnsupported: it is on a network file system (detected on Linux only).
    """

    def __init__(self, path: str | Path, *, url: str | None = None, network: bool = False) -> None:
        self.path = Path(path).absolute()  # a later change of directory must not lead to another file
        self._url = url if url is not None else f"sqlite:///{path}"
        check_filesystem(self.path, self._url, allowed=network)
        keep_private(self.path, endings=("-wal", "-shm", "-journal", "-damaged-log"))
        self.reopen()

    def reopen(self) -> None:
        """See `Reopening`."""
        check_log(self.path, self._url)
        file = StoreFile(self.path, self._url)
        self._readers = Readers(self.path, self._url, file)
        self._writer = Writer(self.path, self._url, file)
        self._clock = StoreClock()
        self._numbers: dict[str, int] = {}  # used only in the writer's thread
        self._texts: tuple[tuple[JsonObject, str], ...] = ()
        self._inbox_seen: tuple[object, frozenset[str], tuple[Message, ...]] | None = None
        self._notices_seen: tuple[object, tuple[Message, ...]] | None = None
        self._heads_seen: tuple[object, frozenset[str], dict[str, tuple[int, str]]] | None = None
        watch(self._readers)
        watch(self._writer)
        self._readers.read_now(_nothing)

    @property
    def url(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    def statistics(self) -> WriterStatistics:
        """Return the number of writes, and of the commits that they took."""
        return self._writer.statistics()

    # ------------------------------------------------------------------------------- journal

    async def create(self, new: NewRun) -> None:
        check_new(new)
        rows, payloads = await rows_of_new(new.info.run_id, new.records)
        text = None if new.graph is None else self._text_of(new.graph)
        lease = new.lease
        owner = "" if lease is None else canonical(lease.owner)

        def write(connection: Connection) -> None:
            writes.create(connection, self._numbers, new, rows, payloads, text)
            if lease is not None:
                leases.hold(connection, self._clock, lease.holder, owner, new.ttl)

        await self._write_rows(write, payloads, size_of(rows, payloads) + len(text or ""))

    async def append(self, append: Append) -> int:
        check_append(append)
        rows, payloads = await rows_of_next(append.run_id, append.records)
        size = size_of(rows, payloads) + len(append.snapshot or b"")
        if append.questions is not None and not is_small(append.questions, PIECE):
            size += 1 + BYTES_HERE
        return await self._write_rows(
            lambda connection: writes.append(connection, self._numbers, append, rows, payloads), payloads, size
        )

    async def _write_rows(self, write: Write[T], payloads: Payloads, size: int) -> T:
        """Make a change that stores these payloads; those in the file that cannot be read are replaced first."""
        replaced = set[bytes]()
        while True:
            try:
                return await self._writer.write(write, size=size)
            except StoreError as error:
                damage = error.__cause__
                if not isinstance(damage, UnreadablePayload) or damage.digest in replaced:
                    raise
            digest = damage.digest
            replaced.add(digest)
            data = payloads[digest]
            await self._writer.write(partial(replace_payload, digest=digest, data=data), size=len(data))

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        return await self._readers.read(
            lambda connection: reads.records(connection, run_id, after, upto, limit),
            small=lambda connection: reads.records(connection, run_id, after, upto, limit, few=True),
        )

    async def load(self, run_id: str, *, after: int | None = None, upto: int | None = None) -> StoredRun:
        """See `Loading`."""

        def some(connection: Connection, *, few: bool = False) -> StoredRun:
            return reads.load(connection, run_id, self._clock.now(connection), after, upto, few=few)

        return await self._readers.read(some, small=partial(some, few=True))

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        return self._readers.read_now(lambda connection: reads.records(connection, run_id, after, upto, None))

    # ---------------------------------------------------------------------------------- runs

    async def info(self, run_id: str) -> RunInfo:
        def row(connection: Connection) -> RunInfo:
            return reads.info(connection, run_id, self._clock.now(connection))

        return await self._readers.read(row, small=row)

    async def heads(self, run_ids: Collection[str]) -> dict[str, tuple[int, str]]:
        wanted = frozenset(run_ids)
        changes = self._readers.changes()  # read first: changes in between are then read twice
        seen = self._heads_seen
        if seen is not None and changes is not None and seen[:2] == (changes, wanted):
            return dict(seen[2])
        look = partial(reads.heads, run_ids=wanted)
        found = await self._readers.read(look, small=partial(look, few=True))
        self._heads_seen = (changes, wanted, found)
        return dict(found)

    def changes(self) -> object | None:
        """See `Changing`."""
        return self._readers.changes()

    def cursor_before(self, created: float) -> str:
        """See `Placing`."""
        return page_cursor(created, 0)

    async def runs(self, query: RunQuery) -> Page:
        if query.words:
            await self._index()
        return await self._readers.read(lambda connection: listing.runs(connection, self._clock, query))

    async def totals(self, run_id: str) -> RunTotals | None:
        return await self._readers.read(partial(listing.totals, run_id=run_id))

    async def stats(self, query: StatsQuery) -> list[StatsRow]:
        by = By.of(query.by)
        return await self._readers.read(lambda connection: listing.stats(connection, by, query))

    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        return await self._readers.read(
            lambda connection: listing.open_questions(connection, reads.run_number(connection, run_id))
        )

    async def questions(self, query: QuestionQuery) -> QuestionPage:
        return await self._readers.read(lambda connection: listing.questions(connection, query))

    async def _index(self) -> None:
        """Update the full-text index. In a file that cannot be written, runs are searched without it."""
        if await self._readers.read(listing.is_complete):
            return
        with suppress(StoreUnavailable):
            while await self._writer.write(listing.index_some):
                pass

    async def delete(self, run_id: str) -> bool:
        # the log would keep the run's text until it is next emptied
        return await self._writer.write(partial(writes.delete, run_id=run_id), checkpoint=True)

    async def copy(self, run_id: str, to: Store) -> None:
        await copy_run(self, run_id, to)

    # -------------------------------------------------------------------- graphs and snapshots

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        text = json_text(data)
        await self._writer.write(partial(writes.put_graph, digest=digest, data=text), size=len(text))

    def _text_of(self, graph: JsonObject) -> str:
        """Return the graph's text, cached for an object with which runs are started repeatedly."""
        for known, text in self._texts:
            if known is graph:
                return text
        text = json_text(graph)
        self._texts = ((graph, text), *self._texts[: _TEXTS - 1])
        return text

    async def graph(self, digest: str) -> JsonObject:
        return await self._readers.read(partial(reads.graph, digest=digest, url=self._url))

    def graph_now(self, digest: str) -> JsonObject:
        return self._readers.read_now(partial(reads.graph, digest=digest, url=self._url))

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        write = partial(writes.put_snapshot, run_id=run_id, seq=seq, data=bytes(data))
        await self._writer.write(write, size=len(data))

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        find = partial(reads.snapshot, run_id=run_id, upto=upto)
        return await self._readers.read(find, small=partial(find, few=True))

    # -------------------------------------------------------------------- leases and messages

    async def lease(self, run_id: str) -> Lease | None:
        def find(connection: Connection) -> Lease | None:
            return leases.read(connection, self._clock, run_id)

        return await self._readers.read(find, small=find)

    async def take_lease(self, lease: Lease, *, ttl: float, replaces: str | None = None) -> bool:
        return await self._writer.write(lambda connection: leases.take(connection, self._clock, lease, ttl, replaces))

    async def beat(self, holder: str, ttl: float) -> bool:
        return await self._writer.write(lambda connection: leases.beat(connection, self._clock, holder, ttl))

    async def announce(self, owner: Owner, *, ttl: float) -> None:
        text = canonical(owner.data())
        await self._writer.write(lambda connection: leases.hold(connection, self._clock, owner.executor, text, ttl))

    async def holders(self, *, runs: int = 20) -> list[Holder]:
        return await self._readers.read(lambda connection: leases.holders(connection, self._clock, runs))

    async def drop_lease(self, run_id: str, token: str, *, fault: str | None = None) -> None:
        await self._writer.write(partial(leases.drop, run_id=run_id, token=token, fault=fault))

    async def claim(self, request: ClaimRequest) -> list[tuple[RunInfo, Lease]]:
        def anything(connection: Connection) -> bool:
            return claims.claimable(connection, self._clock, request)

        if request.limit < 1 or not await self._readers.read(anything):
            return []  # the usual case: the writer is not disturbed

        def claim(connection: Connection) -> list[tuple[RunInfo, Lease]]:
            now = self._clock.now(connection, write=True)
            return claims.claim(connection, self._clock, request, lambda run_id: reads.found(connection, run_id, now))

        return await self._writer.write(claim)

    async def parked(self, *, limit: int = 100) -> list[RunInfo]:
        return await self._readers.read(lambda connection: listing.parked(connection, self._clock, max(limit, 0)))

    async def unsettled(self, graphs: Collection[str] | None) -> list[RunInfo]:
        return await self._readers.read(lambda connection: listing.unsettled(connection, self._clock, graphs))

    async def next_due(self, graphs: Collection[str] | None) -> float | None:
        return await self._readers.read(lambda connection: claims.next_due(connection, self._clock, graphs))

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        text = canonical(body)
        check_key("the key of a message", key or "")
        return await self._writer.write(partial(writes.post, run_id=run_id, body=text, key=key), size=len(text))

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        wanted = frozenset(run_ids)
        changes = self._readers.changes()  # read first: changes in between are then read twice
        seen = self._inbox_seen
        if seen is not None and changes is not None and seen[:2] == (changes, wanted):
            return list(seen[2])
        look = partial(reads.inbox, run_ids=wanted)
        messages = await self._readers.read(look, small=partial(look, few=True))
        self._inbox_seen = (changes, wanted, tuple(messages))
        return messages

    async def notices(self) -> list[Message]:
        changes = self._readers.changes()  # read first, as above
        seen = self._notices_seen
        if seen is not None and changes is not None and seen[0] == changes:
            return list(seen[1])
        notices = await self._readers.read(reads.notices)
        self._notices_seen = (changes, tuple(notices))
        return notices

    async def discard(self, ids: Sequence[int]) -> None:
        if ids:
            await self._writer.write(partial(writes.discard, ids=tuple(ids)))

    # ----------------------------------------------------------------------------- schedules

    async def put_schedule(self, schedule: Schedule) -> None:
        check_key("the name of a schedule", schedule.name)
        await self._writer.write(partial(listing.put_schedule, schedule=schedule))

    async def schedules(self) -> list[Schedule]:
        return await self._readers.read(partial(listing.schedules, url=self._url))

    async def move_schedule(self, name: str, *, at: float, to: float) -> bool:
        return await self._writer.write(partial(listing.move_schedule, name=name, at=at, to=to))

    async def delete_schedule(self, name: str) -> bool:
        return await self._writer.write(partial(listing.delete_schedule, name=name))

    # --------------------------------------------------------------------------------- notes

    async def add_note(self, note: Note, *, most: int) -> None:
        await self._writer.write(partial(writes.add_note, note=note, most=most))

    async def notes(self, run_id: str) -> list[Note]:
        return await self._readers.read(partial(reads.notes, run_id=run_id))

    def notes_now(self, run_id: str) -> list[Note]:
        return self._readers.read_now(partial(reads.notes, run_id=run_id))

    async def delete_note(self, run_id: str, note: str) -> bool:
        # the log would keep the note's text until it is next emptied
        return await self._writer.write(partial(writes.delete_note, run_id=run_id, note=note), checkpoint=True)

    # ------------------------------------------------------------------------------- archive

    async def ended(self, *, before: float | None = None, after: str | None = None, limit: int = 500) -> Page:
        """See `Archivable`."""
        return await self._readers.read(
            lambda connection: maintenance.ended(connection, self._clock.now(connection), before, after, limit)
        )

    async def note_object(self, run_id: str, noted: Archived) -> Archived:
        """See `Archivable`."""
        return await self._writer.write(partial(maintenance.note, run_id=run_id, noted=noted))

    async def move_out(self, run_id: str, where: Archived, *, head: int) -> None:
        """See `Archivable`."""
        await self._writer.write(partial(maintenance.move_out, run_id=run_id, archived=where, head=head))

    async def move_back(self, run_id: str, records: Sequence[Record], where: Archived) -> None:
        """See `Archivable`."""
        rows, payloads = await rows_of_new(run_id, records)
        move = partial(maintenance.move_back, run_id=run_id, rows=rows, payloads=payloads, archived=where)
        await self._write_rows(move, payloads, size_of(rows, payloads))

    async def objects(self, run_id: str) -> list[Archived]:
        """See `Archivable`."""
        return await self._readers.read(partial(maintenance.objects, run_id=run_id))

    async def left_objects(self) -> list[Archived]:
        """See `Archivable`."""
        return await self._readers.read(maintenance.left)

    async def forget_objects(self, names: Collection[str]) -> None:
        """See `Archivable`."""
        await self._writer.write(partial(maintenance.forget, names=tuple(names)))

    # --------------------------------------------------------------------------- maintenance

    async def compact(self) -> int:
        if not self.path.exists():
            return 0
        for index in maintenance.INDEXES:
            merge = partial(maintenance.merge_index, index=index)
            while await self._readers.read(partial(maintenance.has_index, index=index)):
                if not await self._writer.write(merge):
                    break
        given = 0
        while await self._readers.read(maintenance.free_pages):
            step = await self._writer.write(maintenance.give_back)
            if not step:
                break
            given += step
        if given:
            await self._writer.write(_nothing, checkpoint=True)
        return given

    async def check(self, *, repair: bool = False) -> list[Finding]:
        faults = await self._readers.read(maintenance.faults)
        if faults:
            return faults
        found = await self._readers.read(maintenance.look)
        if not repair or not self.path.exists():
            return found
        payloads = await self._readers.read(maintenance.look_at_payloads)
        tidy = partial(maintenance.tidy, payloads=payloads)
        done = {one.what: one for one in await self._writer.write(tidy)}
        if not await self._readers.read(maintenance.can_shrink):
            with CancelScope(shield=True):
                done |= {one.what: one for one in await to_thread.run_sync(self._rewrite, found)}
        return [done.pop(one.what, one) for one in found] + list(done.values())

    def _rewrite(self, found: list[Finding]) -> list[Finding]:
        """Rewrite the file in the format of this version, so that it can give space back."""
        kept = [one for one in found if one.note]
        try:
            with closing(open_to_write(self.path, self._url)) as connection:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                patiently(lambda: connection.execute("VACUUM"))
        except Error as error:
            raise store_error(error, self._url) from error
        return [replace(one, repaired="written again, and it gives space back from now on") for one in kept]

    # --------------------------------------------------------------------------------- items

    def _now(self, connection: Connection, *, write: bool = False) -> float:
        return self._clock.now(connection, write=write)

    async def put_item(
        self,
        area: Area,
        item: Item,
        *,
        lifetime: float | None = None,
        write: ItemWrite | None = None,
        most: int | None = None,
        evict: bool = False,
    ) -> None:
        await self._writer.write(
            lambda connection: items.put(
                connection, self._now(connection, write=True), area, item, lifetime, write, most, evict
            ),
            size=item.size,
        )

    async def item(self, area: Area, namespace: Namespace, key: str) -> Item | None:
        return await self._readers.read(
            lambda connection: items.get(connection, self._now(connection), area, namespace, key, self.url)
        )

    async def delete_item(self, area: Area, namespace: Namespace, key: str, *, write: ItemWrite | None = None) -> bool:
        return await self._writer.write(
            lambda connection: items.delete(connection, self._now(connection, write=True), area, namespace, key, write),
            checkpoint=write is None,  # the log would keep the item's text until it is next emptied
        )

    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        return await self._readers.read(
            lambda connection: items.listed(connection, self._now(connection), area, prefix, after, limit)
        )

    async def item_namespaces(self, area: Area, prefix: Namespace = ()) -> list[Namespace]:
        return await self._readers.read(
            lambda connection: items.namespaces(connection, self._now(connection), area, prefix)
        )

    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        if not await self._readers.read(items.is_indexed):
            with suppress(StoreUnavailable):  # a file that cannot be written is searched without its index
                while await self._writer.write(items.index_some):
                    pass
        return await self._readers.read(
            lambda connection: items.search(connection, self._now(connection), area, prefix, text, limit)
        )

    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        return await self._readers.read(
            lambda connection: items.close_by(connection, self._now(connection), area, prefix, vector, limit)
        )

    async def prune_items(self, area: Area, prefix: Namespace = (), *, older_than: float | None = None) -> int:
        if not await self._readers.read(_has_items):
            return 0

        def some(connection: Connection, started: float) -> int:
            before = None if older_than is None else started - older_than
            return items.prune(connection, self._now(connection, write=True), area, prefix, before)

        write = partial(some, started=await self._readers.read(self._now))
        removed = 0
        while True:
            step = await self._writer.write(write)
            removed += step
            if step < items.AT_ONCE:
                return removed

    async def item_usage(self, area: Area) -> ItemUsage:
        return await self._readers.read(lambda connection: items.usage(connection, self._now(connection), area))

    async def add_item(self, area: Area, item: Item) -> bool:
        return await self._writer.write(
            lambda connection: items.add(connection, self._now(connection, write=True), area, item), size=item.size
        )

    # --------------------------------------------------------------------------------- close

    async def close(self) -> None:
        self._readers.close()  # first: the last connection to close moves the log into the file and removes it
        thread = self._writer.stop()
        if thread is not None:
            with CancelScope(shield=True):
                await to_thread.run_sync(thread.join)

    def __del__(self) -> None:
        # a store that was not closed: end its thread and connections before the process ends
        if hasattr(self, "_writer"):
            self._writer.stop()
            self._readers.close()


def _nothing(connection: Connection) -> None:
    """Do nothing: opening the file already reports what is wrong with it."""


def _has_items(connection: Connection) -> bool:
    return connection.execute("SELECT 1 FROM items LIMIT 1").fetchone() is not None
