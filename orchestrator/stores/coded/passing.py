"""What a codec does not touch: leases, graphs, statistics and all other methods, handed on to the store inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orchestrator.jsontypes import JsonObject
from orchestrator.stores.archivable import Archiving
from orchestrator.stores.base import Alerting, Changing, Finding, Holder, Lease, Placing, Reopening, StatsRow, Store
from orchestrator.stores.items import Area, ItemUsage, ItemWrite, Namespace
from orchestrator.stores.owner import Owner
from orchestrator.stores.rows import RunTotals

_OPTIONAL = (Alerting, Archiving, Changing, Placing, Reopening)
"""Protocols that a store may have beside `Store`. The store around it has those that it has."""


class PassedOn:
    """The part of `CodedStore` that asks the store inside and returns what it says."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        """The store that keeps the encoded values."""
        for protocol in _OPTIONAL:
            if isinstance(inner, protocol):
                for name in vars(protocol):
                    if not name.startswith("_"):
                        setattr(self, name, getattr(inner, name))

    @property
    def url(self) -> str:
        return self.inner.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    async def heads(self, run_ids: Collection[str]) -> dict[str, tuple[int, str]]:
        return await self.inner.heads(run_ids)

    async def totals(self, run_id: str) -> RunTotals | None:
        return await self.inner.totals(run_id)

    async def stats(
        self,
        *,
        by: Sequence[str] = (),
        since: float | None = None,
        until: float | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[StatsRow]:
        return await self.inner.stats(by=by, since=since, until=until, graph=graph, labels=labels)

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        await self.inner.put_graph(digest, data)

    async def graph(self, digest: str) -> JsonObject:
        return await self.inner.graph(digest)

    def graph_now(self, digest: str) -> JsonObject:
        return self.inner.graph_now(digest)

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

    async def next_due(self, graphs: Collection[str] | None) -> float | None:
        return await self.inner.next_due(graphs)

    async def discard(self, ids: Sequence[int]) -> None:
        await self.inner.discard(ids)

    async def move_schedule(self, name: str, *, at: float, to: float) -> bool:
        return await self.inner.move_schedule(name, at=at, to=to)

    async def delete_schedule(self, name: str) -> bool:
        return await self.inner.delete_schedule(name)

    async def delete_item(self, area: Area, namespace: Namespace, key: str, *, write: ItemWrite | None = None) -> bool:
        return await self.inner.delete_item(area, namespace, key, write=write)

    async def item_namespaces(self, area: Area, prefix: Namespace = ()) -> list[Namespace]:
        return await self.inner.item_namespaces(area, prefix)

    async def prune_items(self, area: Area, prefix: Namespace = (), *, older_than: float | None = None) -> int:
        return await self.inner.prune_items(area, prefix, older_than=older_than)

    async def item_usage(self, area: Area) -> ItemUsage:
        return await self.inner.item_usage(area)

    async def compact(self) -> int:
        return await self.inner.compact()

    async def check(self, *, repair: bool = False) -> list[Finding]:
        return await self.inner.check(repair=repair)

    async def close(self) -> None:
        await self.inner.close()
