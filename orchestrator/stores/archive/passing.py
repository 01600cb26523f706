"""What an archive does not touch, handed on to the store inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.lineage import Relation
from orchestrator.stores.base import Lease, Message, Page, RunInfo, Schedule
from orchestrator.stores.coded.passing import PassedOn
from orchestrator.stores.items import Area, FoundItem, Item, ItemWrite, Namespace
from orchestrator.stores.owner import Owner
from orchestrator.stores.rows import OpenQuestion, QuestionPage
from orchestrator.stores.turns import Turns

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


class PassedThrough(PassedOn):
    """The part of `ArchivedStore` that asks the store inside and returns what it says."""

    async def create(
        self,
        info: RunInfo,
        records: Sequence[Record],
        *,
        graph: JsonObject | None = None,
        lease: Lease | None = None,
        ttl: float = 30.0,
    ) -> None:
        await self.inner.create(info, records, graph=graph, lease=lease, ttl=ttl)

    async def info(self, run_id: str) -> RunInfo:
        return await self.inner.info(run_id)

    async def runs(
        self,
        *,
        status: Collection[str] | str | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent: str | None = None,
        relation: Relation | None = None,
        search: str | None = None,
        since: float | None = None,
        waiting: bool | None = None,
        failed_tool: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        return await self.inner.runs(
            status=status,
            graph=graph,
            labels=labels,
            parent=parent,
            relation=relation,
            search=search,
            since=since,
            waiting=waiting,
            failed_tool=failed_tool,
            after=after,
            limit=limit,
        )

    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        return await self.inner.open_questions(run_id)

    async def questions(
        self,
        *,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        kinds: Collection[str] | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> QuestionPage:
        return await self.inner.questions(graph=graph, labels=labels, kinds=kinds, after=after, limit=limit)

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        await self.inner.put_snapshot(run_id, seq, data)

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        return await self.inner.snapshot(run_id, upto=upto)

    async def drop_lease(self, run_id: str, token: str, *, fault: str | None = None) -> None:
        await self.inner.drop_lease(run_id, token, fault=fault)

    async def claim(
        self,
        owner: Owner,
        *,
        graphs: Collection[str] | None,
        limit: int,
        ttl: float,
        most: Mapping[str, int] | None = None,
        turns: Turns | None = None,
    ) -> list[tuple[RunInfo, Lease]]:
        return await self.inner.claim(owner, graphs=graphs, limit=limit, ttl=ttl, most=most, turns=turns)

    async def parked(self, *, limit: int = 100) -> list[RunInfo]:
        return await self.inner.parked(limit=limit)

    async def unsettled(self, graphs: Collection[str] | None) -> list[RunInfo]:
        return await self.inner.unsettled(graphs)

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        return await self.inner.post(run_id, body, key=key)

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        return await self.inner.inbox(run_ids)

    async def notices(self) -> list[Message]:
        return await self.inner.notices()

    async def put_schedule(self, schedule: Schedule) -> None:
        await self.inner.put_schedule(schedule)

    async def schedules(self) -> list[Schedule]:
        return await self.inner.schedules()

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

    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        return await self.inner.items(area, prefix, after=after, limit=limit)

    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        return await self.inner.search_items(area, prefix, text, limit=limit)

    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        return await self.inner.nearest_items(area, prefix, vector, limit=limit)

    async def add_item(self, area: Area, item: Item) -> bool:
        return await self.inner.add_item(area, item)
