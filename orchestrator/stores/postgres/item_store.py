"""The part of `PostgresStore` that keeps items."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from orchestrator.stores.items import Area, FoundItem, Item, ItemUsage, ItemWrite, Namespace
from orchestrator.stores.postgres import items
from orchestrator.stores.postgres.connections import Connection

T = TypeVar("T")


class PostgresItems:
    """Items in a PostgreSQL database."""

    @property
    def url(self) -> str:
        """See `Store.url`."""
        raise NotImplementedError

    async def _read(self, action: Callable[[Connection], T]) -> T:
        raise NotImplementedError

    async def _change(self, change: Callable[[Connection], T]) -> T:
        raise NotImplementedError

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
