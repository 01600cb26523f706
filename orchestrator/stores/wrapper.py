"""The base class of stores that wrap another one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from orchestrator.json import JsonObject
from orchestrator.stores.base import (
    Alerting,
    Archiving,
    Changing,
    Finding,
    Holder,
    Lease,
    Message,
    Note,
    Page,
    Placing,
    Reopening,
    RunInfo,
    Schedule,
    StatsRow,
    Store,
)
from orchestrator.stores.items import Area, FoundItem, Item, ItemUsage, ItemWrite, Namespace
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import Append, ClaimRequest, NewRun, QuestionQuery, RunQuery, StatsQuery
from orchestrator.stores.rows import OpenQuestion, QuestionPage, RunTotals

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record

_OPTIONAL = (Alerting, Archiving, Changing, Placing, Reopening)
"""Protocols that a store may implement in addition to `Store`. A wrapper implements those of its inner store."""


class StoreWrapper:
    """A store that passes every call to an inner store. A subclass overrides the methods that it changes.

    Args:
        inner: the inner store. It is closed with this one.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        """The inner store."""
        for protocol in _OPTIONAL:
            if isinstance(inner, protocol):
                for name in vars(protocol):
                    if not name.startswith("_") and not hasattr(type(self), name):
                        setattr(self, name, getattr(inner, name))

    @property
    def url(self) -> str:
        return self.inner.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    # ------------------------------------------------------------------------------- journal

    async def create(self, new: NewRun) -> None:
        await self.inner.create(new)

    async def append(self, append: Append) -> int:
        return await self.inner.append(append)

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        return await self.inner.read(run_id, after=after, upto=upto, limit=limit)

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        return self.inner.read_now(run_id, after=after, upto=upto)

    # ---------------------------------------------------------------------------------- runs

    async def info(self, run_id: str) -> RunInfo:
        return await self.inner.info(run_id)

    async def heads(self, run_ids: Collection[str]) -> dict[str, tuple[int, str]]:
        return await self.inner.heads(run_ids)

    async def runs(self, query: RunQuery) -> Page:
        return await self.inner.runs(query)

    async def totals(self, run_id: str) -> RunTotals | None:
        return await self.inner.totals(run_id)

    async def stats(self, query: StatsQuery) -> list[StatsRow]:
        return await self.inner.stats(query)

    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        return await self.inner.open_questions(run_id)

    async def questions(self, query: QuestionQuery) -> QuestionPage:
        return await self.inner.questions(query)

    async def delete(self, run_id: str) -> bool:
        return await self.inner.delete(run_id)

    async def copy(self, run_id: str, to: Store) -> None:
        await self.inner.copy(run_id, to)

    # -------------------------------------------------------------------- graphs and snapshots

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        await self.inner.put_graph(digest, data)

    async def graph(self, digest: str) -> JsonObject:
        return await self.inner.graph(digest)

    def graph_now(self, digest: str) -> JsonObject:
        return self.inner.graph_now(digest)

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        await self.inner.put_snapshot(run_id, seq, data)

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        return await self.inner.snapshot(run_id, upto=upto)

    # -------------------------------------------------------------------- leases and messages

    async def lease(self, run_id: str) -> Lease | None:
        return await self.inner.lease(run_id)

    async def take_lease(self, lease: Lease, *, ttl: float, replaces: str | None = None) -> bool:
        return await self.inner.take_lease(lease, ttl=ttl, replaces=replaces)

    async def beat(self, holder: str, ttl: float) -> bool:
        return await self.inner.beat(holder, ttl)

    async def announce(self, owner: Owner, *, ttl: float) -> None:
        await self.inner.announce(owner, ttl=ttl)

    async def holders(self, *, runs: int = 20) -> list[Holder]:
        return await self.inner.holders(runs=runs)

    async def drop_lease(self, run_id: str, token: str, *, fault: str | None = None) -> None:
        await self.inner.drop_lease(run_id, token, fault=fault)

    async def claim(self, request: ClaimRequest) -> list[tuple[RunInfo, Lease]]:
        return await self.inner.claim(request)

    async def parked(self, *, limit: int = 100) -> list[RunInfo]:
        return await self.inner.parked(limit=limit)

    async def unsettled(self, graphs: Collection[str] | None) -> list[RunInfo]:
        return await self.inner.unsettled(graphs)

    async def next_due(self, graphs: Collection[str] | None) -> float | None:
        return await self.inner.next_due(graphs)

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        return await self.inner.post(run_id, body, key=key)

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        return await self.inner.inbox(run_ids)

    async def notices(self) -> list[Message]:
        return await self.inner.notices()

    async def discard(self, ids: Sequence[int]) -> None:
        await self.inner.discard(ids)

    # --------------------------------------------------------------------------------- notes

    async def add_note(self, note: Note, *, most: int) -> None:
        await self.inner.add_note(note, most=most)

    async def notes(self, run_id: str) -> list[Note]:
        return await self.inner.notes(run_id)

    def notes_now(self, run_id: str) -> list[Note]:
        return self.inner.notes_now(run_id)

    async def delete_note(self, run_id: str, note: str) -> bool:
        return await self.inner.delete_note(run_id, note)

    # ----------------------------------------------------------------------------- schedules

    async def put_schedule(self, schedule: Schedule) -> None:
        await self.inner.put_schedule(schedule)

    async def schedules(self) -> list[Schedule]:
        return await self.inner.schedules()

    async def move_schedule(self, name: str, *, at: float, to: float) -> bool:
        return await self.inner.move_schedule(name, at=at, to=to)

    async def delete_schedule(self, name: str) -> bool:
        return await self.inner.delete_schedule(name)

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
        await self.inner.put_item(area, item, lifetime=lifetime, write=write, most=most, evict=evict)

    async def item(self, area: Area, namespace: Namespace, key: str) -> Item | None:
        return await self.inner.item(area, namespace, key)

    async def delete_item(self, area: Area, namespace: Namespace, key: str, *, write: ItemWrite | None = None) -> bool:
        return await self.inner.delete_item(area, namespace, key, write=write)

    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        return await self.inner.items(area, prefix, after=after, limit=limit)

    async def item_namespaces(self, area: Area, prefix: Namespace = ()) -> list[Namespace]:
        return await self.inner.item_namespaces(area, prefix)

    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        return await self.inner.search_items(area, prefix, text, limit=limit)

    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        return await self.inner.nearest_items(area, prefix, vector, limit=limit)

    async def prune_items(self, area: Area, prefix: Namespace = (), *, older_than: float | None = None) -> int:
        return await self.inner.prune_items(area, prefix, older_than=older_than)

    async def item_usage(self, area: Area) -> ItemUsage:
        return await self.inner.item_usage(area)

    async def add_item(self, area: Area, item: Item) -> bool:
        return await self.inner.add_item(area, item)

    # --------------------------------------------------------------------------- maintenance

    async def compact(self) -> int:
        return await self.inner.compact()

    async def check(self, *, repair: bool = False) -> list[Finding]:
        return await self.inner.check(repair=repair)

    async def close(self) -> None:
        await self.inner.close()
