"""Runs in a PostgreSQL database, for many machines.

One thread of each process writes, for all of its runs; requests during a write share the next statement and commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from anyio import CancelScope, to_thread

from orchestrator.errors import Archived
from orchestrator.json import JsonObject, canonical, json_text
from orchestrator.stores.base import Finding, Holder, Lease, Message, Page, RunInfo, Schedule, Store
from orchestrator.stores.items import Area, FoundItem, Item, ItemUsage, ItemWrite, Namespace
from orchestrator.stores.owner import Owner
from orchestrator.stores.postgres import changes, items, leases, listing, maintenance, reads
from orchestrator.stores.postgres.changes import Writer
from orchestrator.stores.postgres.connection_threads import BatchStatistics, Listener, Readers
from orchestrator.stores.postgres.connections import address_of
from orchestrator.stores.postgres.fair_index import OVERDUE, TurnIndexes
from orchestrator.stores.postgres.reads import RunNumbers
from orchestrator.stores.postgres.related_rows import RelatedRows
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.postgres.writes import AppendJob, CreateJob
from orchestrator.stores.requests import Append, ClaimRequest, NewRun, QuestionQuery, RunQuery, StatsQuery
from orchestrator.stores.rows import Note, OpenQuestion, QuestionPage, RunTotals, StoredRun
from orchestrator.stores.shared import check_append, check_key, check_new, copy_run, page_cursor
from orchestrator.stores.statistics import By, StatsRow
from orchestrator.stores.stored import rows_of_new, rows_of_next
from orchestrator.stores.threads import watch

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


T = TypeVar("T")

_TEXTS = 8
"""Maximum number of graphs whose texts are cached."""


class PostgresStore:
    """A store in a PostgreSQL database; see `Store` for the promises of each method.

    Safe to use from several threads, event loops, processes and machines. Missing tables are created when it is
    opened. If the server goes away while the store is open, calls wait for it for `patience` seconds.

    Args:
        url: `postgresql://USER@HOST:PORT/DATABASE`, with the parameters of libpq and these: `patience` (seconds for
            which a server that is away is waited for, 30), `prepare` and `listen` (1; 0 for a pooler that hands out
            connections by transaction).

    Raises:
        StoreError: the URL is not valid, or the database has tables of another program.
        StoreTooNew: a newer version of this library made the tables.
        StoreUnavailable: the server cannot be reached, or refuses this URL.
    """

    def __init__(self, url: str) -> None:
        self._address = address_of(url)
        self.reopen()

    def reopen(self) -> None:
        """See `Reopening`."""
        self._readers = Readers(self._address)
        self._writer = Writer(self._address)
        self._texts: tuple[tuple[JsonObject, str], ...] = ()
        self._numbers = RunNumbers()
        self._turn_indexes = TurnIndexes(self._address)
        self._listener = Listener(self._address)
        watch(self._readers)
        watch(self._listener)
        watch(self._turn_indexes)
        # without patience: if the server cannot be reached at first, this is an error
        self._readers.read_now(lambda connection: None, patience=0.0)

    @property
    def url(self) -> str:
        return self._address.url

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r})"

    def statistics(self) -> BatchStatistics:
        """Return the number of appends and new runs, and of the batches that wrote them."""
        return self._writer.statistics()

    def alerts(self) -> int | None:
        """See `Alerting`."""
        return self._listener.alerts()

    async def wait_for_alert(self, seen: int) -> None:
        """See `Alerting`."""
        await self._listener.wait(seen)

    async def _read(self, action: Callable[[Connection], T]) -> T:
        return await self._readers.read(action)

    async def _change(self, change: Callable[[Connection], T]) -> T:
        return await self._writer.change(change)

    # ------------------------------------------------------------------------------- journal

    async def create(self, new: NewRun) -> None:
        check_new(new)
        if new.lease is not None:
            self._writer.note_lease(new.ttl)
        info = new.info
        written = await rows_of_new(info.run_id, new.records)
        waits = info.questions or None, info.waiting or None
        related = RelatedRows(*written, info.summary, info.totals, *waits, new.notes)
        await self._writer.create(CreateJob(new, related, None if new.graph is None else self._text_of(new.graph)))

    async def append(self, append: Append) -> int:
        check_append(append)
        rows, payloads = await rows_of_next(append.run_id, append.records)
        related = RelatedRows(rows, payloads, append.summary, append.totals, append.questions, append.waiting)
        return await self._writer.append(AppendJob(append, related))

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        return await self._read(lambda connection: reads.records(connection, run_id, after, upto, limit, self._numbers))

    async def load(self, run_id: str, *, after: int | None = None, upto: int | None = None) -> StoredRun:
        """See `Loading`."""
        return await self._read(lambda connection: reads.load(connection, run_id, after, upto, self._numbers))

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        numbers = self._numbers
        return self._readers.read_now(lambda connection: reads.records(connection, run_id, after, upto, None, numbers))

    # ---------------------------------------------------------------------------------- runs

    async def info(self, run_id: str) -> RunInfo:
        return await self._read(partial(reads.info, run_id=run_id))

    async def heads(self, run_ids: Collection[str]) -> dict[str, tuple[int, str]]:
        wanted = frozenset(run_ids)
        return await self._read(partial(reads.heads, run_ids=wanted)) if wanted else {}

    async def delete(self, run_id: str) -> bool:
        return await self._change(partial(changes.delete, run_id=run_id))

    async def copy(self, run_id: str, to: Store) -> None:
        await copy_run(self, run_id, to)

    # -------------------------------------------------------------------- graphs and snapshots

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        await self._change(partial(changes.put_graph, digest=digest, data=json_text(data)))

    def _text_of(self, graph: JsonObject) -> str:
        """Return the graph's text, cached for an object with which runs are started repeatedly."""
        for known, text in self._texts:
            if known is graph:
                return text
        text = json_text(graph)
        self._texts = ((graph, text), *self._texts[: _TEXTS - 1])
        return text

    async def graph(self, digest: str) -> JsonObject:
        return await self._read(partial(reads.graph, digest=digest, url=self.url))

    def graph_now(self, digest: str) -> JsonObject:
        return self._readers.read_now(partial(reads.graph, digest=digest, url=self.url))

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        await self._change(partial(changes.put_snapshot, run_id=run_id, seq=seq, data=bytes(data)))

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        return await self._read(partial(reads.snapshot, run_id=run_id, upto=upto))

    # -------------------------------------------------------------------- leases and messages

    async def lease(self, run_id: str) -> Lease | None:
        return await self._read(partial(leases.read, run_id=run_id))

    async def take_lease(self, lease: Lease, *, ttl: float, replaces: str | None = None) -> bool:
        self._writer.note_lease(ttl)
        return await self._change(partial(leases.take, lease=lease, ttl=ttl, replaces=replaces))

    async def beat(self, holder: str, ttl: float) -> bool:
        self._writer.note_lease(ttl)
        return await self._writer.beat(partial(leases.beat, holder=holder, ttl=ttl))

    async def drop_lease(self, run_id: str, token: str, *, fault: str | None = None) -> None:
        await self._change(partial(changes.drop_lease, run_id=run_id, token=token, fault=fault))

    async def claim(self, request: ClaimRequest) -> list[tuple[RunInfo, Lease]]:
        if request.limit < 1 or not await self._read(partial(leases.claimable, request=request)):
            return []  # the usual case: nothing is locked
        if request.turns is None:
            self._turn_indexes.want(OVERDUE)
        elif not await self._turn_indexes.ready(request.turns.label):
            request = replace(request, turns=None)  # without an index, each value would be searched for among all runs
        self._writer.note_lease(request.ttl)
        return await self._change(partial(leases.claim, request=request))

    async def announce(self, owner: Owner, *, ttl: float) -> None:
        self._writer.note_lease(ttl)
        text = canonical(owner.data())
        await self._writer.beat(partial(leases.hold, holder=owner.executor, owner=text, ttl=ttl))

    async def holders(self, *, runs: int = 20) -> list[Holder]:
        return await self._read(partial(leases.holders, runs=runs))

    async def parked(self, *, limit: int = 100) -> list[RunInfo]:
        return await self._read(partial(reads.parked, limit=limit))

    async def unsettled(self, graphs: Collection[str] | None) -> list[RunInfo]:
        return await self._read(partial(reads.unsettled, graphs=graphs))

    async def next_due(self, graphs: Collection[str] | None) -> float | None:
        return await self._read(partial(leases.next_due, graphs=graphs))

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        check_key("the key of a message", key or "")
        return await self._change(partial(changes.post, run_id=run_id, body=canonical(body), key=key))

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        wanted = frozenset(run_ids)
        return await self._read(partial(reads.inbox, run_ids=wanted)) if wanted else []

    async def notices(self) -> list[Message]:
        return await self._read(reads.notices)

    async def discard(self, ids: Sequence[int]) -> None:
        if ids:
            await self._change(partial(changes.discard, ids=[*ids]))

    # --------------------------------------------------------------------------------- notes

    async def add_note(self, note: Note, *, most: int) -> None:
        await self._change(partial(changes.add_note, note=note, most=most))

    async def notes(self, run_id: str) -> list[Note]:
        return await self._read(partial(reads.notes, run_id=run_id))

    def notes_now(self, run_id: str) -> list[Note]:
        return self._readers.read_now(partial(reads.notes, run_id=run_id))

    async def delete_note(self, run_id: str, note: str) -> bool:
        return await self._change(partial(changes.delete_note, run_id=run_id, note=note))

    # ------------------------------------------------------------------------------- archive

    async def ended(self, *, before: float | None = None, after: str | None = None, limit: int = 500) -> Page:
        """See `Archivable`."""
        return await self._read(partial(maintenance.ended, before=before, after=after, limit=limit))

    async def note_object(self, run_id: str, noted: Archived) -> Archived:
        """See `Archivable`."""
        return await self._change(partial(maintenance.note, run_id=run_id, noted=noted))

    async def move_out(self, run_id: str, where: Archived, *, head: int) -> None:
        """See `Archivable`."""
        await self._change(partial(maintenance.move_out, run_id=run_id, archived=where, head=head))

    async def move_back(self, run_id: str, records: Sequence[Record], where: Archived) -> None:
        """See `Archivable`."""
        rows, payloads = await rows_of_new(run_id, records)
        await self._change(partial(maintenance.move_back, run_id=run_id, rows=rows, payloads=payloads, archived=where))

    async def objects(self, run_id: str) -> list[Archived]:
        """See `Archivable`."""
        return await self._read(partial(maintenance.objects, run_id=run_id))

    async def left_objects(self) -> list[Archived]:
        """See `Archivable`."""
        return await self._read(maintenance.left)

    async def forget_objects(self, names: Collection[str]) -> None:
        """See `Archivable`."""
        await self._change(partial(maintenance.forget, names=tuple(names)))

    # ------------------------------------------------------ lists, schedules and maintenance

    def cursor_before(self, created: float) -> str:
        """See `Placing`."""
        return page_cursor(created, 0)

    async def runs(self, query: RunQuery) -> Page:
        return await self._read(partial(listing.runs, wanted=query))

    async def totals(self, run_id: str) -> RunTotals | None:
        return await self._read(partial(listing.totals, run_id=run_id))

    async def stats(self, query: StatsQuery) -> list[StatsRow]:
        return await self._read(partial(listing.stats, by=By.of(query.by), wanted=query))

    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        return await self._read(partial(listing.open_questions, run_id=run_id))

    async def questions(self, query: QuestionQuery) -> QuestionPage:
        return await self._read(partial(listing.questions, query=query))

    # ----------------------------------------------------------------------------- schedules

    async def put_schedule(self, schedule: Schedule) -> None:
        check_key("the name of a schedule", schedule.name)
        await self._change(partial(listing.put_schedule, schedule=schedule))

    async def schedules(self) -> list[Schedule]:
        return await self._read(partial(listing.schedules, url=self.url))

    async def move_schedule(self, name: str, *, at: float, to: float) -> bool:
        return await self._change(partial(listing.move_schedule, name=name, at=at, to=to))

    async def delete_schedule(self, name: str) -> bool:
        return await self._change(partial(listing.delete_schedule, name=name))

    # --------------------------------------------------------------------------- maintenance

    async def compact(self) -> int:
        return await self._read(maintenance.compact)

    async def check(self, *, repair: bool = False) -> list[Finding]:
        found = await self._read(maintenance.look)
        if not repair:
            return found
        done = {one.what: one for one in await self._change(maintenance.tidy)}
        return [done.pop(one.what, one) for one in found] + list(done.values())

    # --------------------------------------------------------------------------------- items

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
        await self._change(lambda connection: items.put(connection, area, item, lifetime, write, most, evict=evict))

    async def item(self, area: Area, namespace: Namespace, key: str) -> Item | None:
        return await self._read(lambda connection: items.get(connection, area, namespace, key, self.url))

    async def delete_item(self, area: Area, namespace: Namespace, key: str, *, write: ItemWrite | None = None) -> bool:
        return await self._change(lambda connection: items.delete(connection, area, namespace, key, write))

    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        return await self._read(lambda connection: items.listed(connection, area, prefix, after, limit))

    async def item_namespaces(self, area: Area, prefix: Namespace = ()) -> list[Namespace]:
        return await self._read(lambda connection: items.namespaces(connection, area, prefix))

    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        return await self._read(lambda connection: items.search(connection, area, prefix, text, limit))

    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        return await self._read(lambda connection: items.close_by(connection, area, prefix, vector, limit))

    async def prune_items(self, area: Area, prefix: Namespace = (), *, older_than: float | None = None) -> int:
        before = None if older_than is None else await self._read(items.now) - older_than
        removed = 0
        while True:
            step = await self._change(partial(items.prune, area=area, prefix=prefix, before=before))
            removed += step
            if step < items.AT_ONCE:
                return removed

    async def item_usage(self, area: Area) -> ItemUsage:
        return await self._read(lambda connection: items.usage(connection, area))

    async def add_item(self, area: Area, item: Item) -> bool:
        return await self._change(lambda connection: items.add(connection, area, item))

    # --------------------------------------------------------------------------------- close

    async def close(self) -> None:
        threads = [*self._writer.stop(), self._listener.stop(), *self._turn_indexes.stop()]
        with CancelScope(shield=True):
            for thread in filter(None, threads):
                await to_thread.run_sync(thread.join)
        self._readers.close()

    def __del__(self) -> None:
        # a store that was not closed: end its threads and connections before the process ends
        if hasattr(self, "_writer"):
            self._writer.stop()
            self._listener.stop()
            self._turn_indexes.stop()
            self._readers.close()
