"""The store around another one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

from anyio import CancelScope

from orchestrator.errors import EncryptionKeyMissing, InvalidValue, RunConflict, RunExists, StoreCorrupt, StoreError
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.records import Record
from orchestrator.kernel.records.coded import as_coded
from orchestrator.stores.base import Lease, Message, Page, RunInfo, Schedule, Store
from orchestrator.stores.codec import Codec, Damaged
from orchestrator.stores.coded.values import Values, log
from orchestrator.stores.items import Area, FoundItem, Item, ItemWrite, Namespace, nearest_of, ranked
from orchestrator.stores.owner import held_here
from orchestrator.stores.requests import Append, ClaimRequest, NewRun, QuestionQuery, RunQuery
from orchestrator.stores.rows import OpenQuestion, QuestionPage
from orchestrator.stores.shared import copy_run, corrupt
from orchestrator.stores.wrapper import StoreWrapper

__all__ = ["CodedStore"]

_MOST_KNOWN = 10_000
_AT_ONCE = 500


class CodedStore(StoreWrapper):
    """A store whose values are encoded in another store.

    It keeps every promise that the store inside keeps, but one: a search of runs finds labels only.

    Args:
        inner: the store that keeps the encoded values. It is closed with this one.
        codec: encodes and decodes.
    """

    packs_snapshots = False
    """Whether the executor compresses snapshots for this store."""

    def __init__(self, inner: Store, codec: Codec) -> None:
        if isinstance(inner, CodedStore):
            raise InvalidValue(f"store {inner.url} has a codec already: give one of them", where="codec")
        super().__init__(inner)
        self._values = Values(codec)
        self._clear_runs: OrderedDict[str, int] = OrderedDict()
        """Run that began before the codec was set -> how many of its first records are known to be clear."""

    # ------------------------------------------------------------------------------- journal

    async def create(self, new: NewRun) -> None:
        info, lease, records = new.info, new.lease, new.records
        run_id = info.run_id
        coded = [self._values.record(run_id, one) for one in records]
        row = self._values.summary(run_id, info)
        if info.questions:
            row = replace(row, questions=tuple(self._values.question(run_id, one) for one in info.questions))
        if info.fault:
            row = replace(row, fault=self._values.fault(run_id, info.fault))
        try:
            await self.inner.create(replace(new, info=row, records=coded))
        except RunExists:
            # Asked again, the same records are other bytes: the store inside cannot compare them.
            if lease is None or not await self._is_same(run_id, records, 0, lease.token):
                raise
        self._clear_runs.pop(run_id, None)

    async def append(self, append: Append) -> int:
        run_id, values = append.run_id, self._values
        summary, questions, snapshot = append.summary, append.questions, append.snapshot
        coded = replace(
            append,
            records=[values.record(run_id, one) for one in append.records],
            summary=None if summary is None else values.summary(run_id, summary),
            questions=None if questions is None else [values.question(run_id, one) for one in questions],
            snapshot=None if snapshot is None else values.snapshot(run_id, append.head, snapshot),
        )
        try:
            return await self.inner.append(coded)
        except RunConflict:
            lease, records = append.lease, append.records
            if lease is None or not records:
                raise
            if not await self._is_same(run_id, records, append.after, lease, release=append.release):
                raise
            return append.head

    async def _is_same(
        self, run_id: str, records: Sequence[Record], after: int, token: str, *, release: bool = False
    ) -> bool:
        """Whether a write was made before: the run has these records at its end, or beginning, under this lease."""
        held = await self.inner.lease(run_id)
        if not release if held is None else held.token != token:
            return False
        upto = after + len(records) if after == 0 else None
        try:
            return await self.read(run_id, after=after, upto=upto) == list(records)
        except StoreError:
            return False

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        try:
            stored = await self.inner.read(run_id, after=after, upto=upto, limit=limit)
        except StoreCorrupt as error:
            raise self._partly(run_id, error) from error
        known = self._clear_before(run_id, after, stored)
        if known is not None:
            self._check_clear(run_id, stored, await self.inner.read(run_id, after=known, upto=after))
        return self._values.records(run_id, stored)

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        try:
            stored = self.inner.read_now(run_id, after=after, upto=upto)
        except StoreCorrupt as error:
            raise self._partly(run_id, error) from error
        known = self._clear_before(run_id, after, stored)
        if known is not None:
            self._check_clear(run_id, stored, self.inner.read_now(run_id, after=known, upto=after))
        return self._values.records(run_id, stored)

    def _partly(self, run_id: str, error: StoreCorrupt) -> StoreCorrupt:
        """The error of the store inside, with the readable records as they were written."""
        stored = vars(error).get("records", ())
        vars(error)["records"] = tuple(self._values.records(run_id, stored))
        return error

    def _clear_before(self, run_id: str, after: int, stored: Sequence[Record]) -> int | None:
        """How many of a run's first records are known to be clear, if those between them and these are to be looked at,
        which begin with a clear one; else None."""
        if not stored or as_coded(stored[0]) is not None:
            return None
        known = self._clear_runs.get(run_id, 0)
        if after > known:
            return known
        self._note_clear(run_id, stored)
        return None

    def _check_clear(self, run_id: str, stored: Sequence[Record], before: Sequence[Record]) -> None:
        """Refuse clear records behind encrypted ones: their author had no key."""
        if any(as_coded(one) is not None for one in before):
            raise corrupt(run_id, stored[0].seq, "it is not encrypted, and those before it are", ())
        self._note_clear(run_id, stored)

    def _note_clear(self, run_id: str, stored: Sequence[Record]) -> None:
        """Note that records are clear, from the first of these on until one is not, and all before them."""
        last = stored[0].seq - 1 + sum(1 for _ in takewhile(lambda one: as_coded(one) is None, stored))
        self._clear_runs[run_id] = max(self._clear_runs.get(run_id, 0), last)
        if len(self._clear_runs) > _MOST_KNOWN:
            self._clear_runs.popitem(last=False)

    # ---------------------------------------------------------------------------------- runs

    async def info(self, run_id: str) -> RunInfo:
        return self._values.row(await self.inner.info(run_id))

    async def runs(self, query: RunQuery) -> Page:
        page = await self.inner.runs(query)
        return replace(page, runs=tuple(map(self._values.row, page.runs)))

    async def claim(self, request: ClaimRequest) -> list[tuple[RunInfo, Lease]]:
        found = await self.inner.claim(request)
        try:
            return [(self._values.row(info), lease) for info, lease in found]
        except StoreError:  # the codec failed: the caller does not learn of these leases, and would keep them
            with CancelScope(shield=True):
                for _, lease in found:
                    held_here.pop(lease.token, None)
                    with suppress(StoreError):
                        await self.inner.drop_lease(lease.run_id, lease.token)
            raise

    async def parked(self, *, limit: int = 100) -> list[RunInfo]:
        return [self._values.row(info) for info in await self.inner.parked(limit=limit)]

    async def unsettled(self, graphs: Collection[str] | None) -> list[RunInfo]:
        return [self._values.row(info) for info in await self.inner.unsettled(graphs)]

    async def drop_lease(self, run_id: str, token: str, *, fault: str | None = None) -> None:
        coded = None if fault is None else self._values.fault(run_id, fault)
        await self.inner.drop_lease(run_id, token, fault=coded)

    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        found = await self.inner.open_questions(run_id)
        return None if found is None else tuple(self._values.asked(run_id, one) for one in found)

    async def questions(self, query: QuestionQuery) -> QuestionPage:
        page = await self.inner.questions(query)
        rows = [replace(row, question=self._values.asked(row.run_id, row.question)) for row in page.questions]
        return replace(page, questions=tuple(rows))

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        await self.inner.put_snapshot(run_id, seq, self._values.snapshot(run_id, seq, data))

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        found = await self.inner.snapshot(run_id, upto=upto)
        data = None if found is None else self._values.folded(run_id, *found)
        return None if found is None or data is None else (found[0], data)

    async def delete(self, run_id: str) -> bool:
        self._clear_runs.pop(run_id, None)
        return await self.inner.delete(run_id)

    async def copy(self, run_id: str, to: Store) -> None:
        await copy_run(self, run_id, to)

    # -------------------------------------------------------------------- messages, schedules

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        return await self.inner.post(run_id, self._values.body(run_id, body), key=key)

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        return self._messages(await self.inner.inbox(run_ids), several=len(run_ids) > 1)

    async def notices(self) -> list[Message]:
        return self._messages(await self.inner.notices(), several=True)

    def _messages(self, stored: Sequence[Message], *, several: bool) -> list[Message]:
        """The messages. One whose key is missing stays in the inbox, and does not keep those of other runs from them.

        Raises:
            EncryptionKeyMissing: the key of one is missing, and only one run was asked about.
        """
        found: list[Message] = []
        for one in stored:
            try:
                message = self._values.message(one)
            except EncryptionKeyMissing as error:
                if not several:
                    raise
                log.warning("run %s: message %d is left in its inbox: %s", one.run_id, one.id, error)
                continue
            found.append(message or replace(one, body={"type": "damaged"}))
        return found

    async def put_schedule(self, schedule: Schedule) -> None:
        await self.inner.put_schedule(self._values.schedule(schedule))

    async def schedules(self) -> list[Schedule]:
        return [self._values.scheduled(one) for one in await self.inner.schedules()]

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
        coded = self._values.item(area, item)
        await self.inner.put_item(area, coded, lifetime=lifetime, write=write, most=most, evict=evict)

    async def item(self, area: Area, namespace: Namespace, key: str) -> Item | None:
        found = await self.inner.item(area, namespace, key)
        try:
            return None if found is None else self._values.kept(area, found)
        except Damaged as error:
            raise StoreError(f"item {key!r} in {'/'.join(namespace)} is damaged ({error}); delete it") from error

    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        found: list[Item] = []
        while len(found) < limit:  # damaged ones are left out, and must not end a list early
            wanted = limit - len(found)
            page = await self.inner.items(area, prefix, after=after, limit=wanted)
            found += self._whole(area, page)
            if len(page) < wanted:
                break
            after = page[-1].place
        return found

    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        return ranked([item async for item in self._all(area, prefix)], text, limit)

    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        return nearest_of([item async for item in self._all(area, prefix)], vector, limit)

    async def add_item(self, area: Area, item: Item) -> bool:
        return await self.inner.add_item(area, self._values.item(area, item))

    async def _all(self, area: Area, prefix: Namespace) -> AsyncIterator[Item]:
        after: tuple[str, str] | None = None
        while page := await self.inner.items(area, prefix, after=after, limit=_AT_ONCE):
            for item in self._whole(area, page):
                yield item
            after = page[-1].place

    def _whole(self, area: Area, page: list[Item]) -> list[Item]:
        found: list[Item] = []
        for item in page:
            try:
                found.append(self._values.kept(area, item))
            except Damaged:
                continue
        return found
