"""Items of a store with a codec. No index can look into them, so a search decodes all items of its prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator

from orchestrator.errors import StoreError
from orchestrator.stores.codec import Damaged
from orchestrator.stores.coded.values import Values
from orchestrator.stores.items import Area, FoundItem, Item, ItemWrite, Namespace
from orchestrator.stores.ranking import nearest_of, ranked
from orchestrator.stores.wrapper import StoreWrapper

_AT_ONCE = 500


class CodedItems(StoreWrapper):
    """The part of `CodedStore` that keeps items."""

    _values: Values

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
