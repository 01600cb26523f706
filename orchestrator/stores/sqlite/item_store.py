"""The part of `SQLiteStore` that keeps items."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from sqlite3 import Connection
from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_modules
from orchestrator.errors import StoreUnavailable
from orchestrator.stores.items import Area, FoundItem, Item, ItemUsage, ItemWrite, Namespace
from orchestrator.stores.sqlite.leases import StoreClock
from orchestrator.stores.sqlite.readers import Readers
from orchestrator.stores.sqlite.writer import Writer

if TYPE_CHECKING:
    from orchestrator.stores.sqlite import items
else:
    (items,) = lazy_modules("orchestrator.stores.sqlite", "items")


class SQLiteItems:
    """Items in an SQLite file."""

    _readers: Readers
    _writer: Writer
    _clock: StoreClock

    @property
    def url(self) -> str:
        """See `Store.url`."""
        raise NotImplementedError

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


def _has_items(connection: Connection) -> bool:
    return connection.execute("SELECT 1 FROM items LIMIT 1").fetchone() is not None
