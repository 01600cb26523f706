"""Items of the store in memory."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import RLock
from typing import TypeAlias

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunUnknown
from orchestrator.stores.items import (
    Area,
    FoundItem,
    Item,
    ItemUsage,
    ItemWrite,
    Namespace,
    check_room,
    namespace_of,
    namespace_text,
    nearest_of,
    prefix_range,
    ranked,
)

_Place: TypeAlias = tuple[str, str]


class MemoryItems:
    """The part of `MemoryStore` that keeps items."""

    _lock: RLock

    def __init__(self) -> None:
        self._areas: dict[Area, dict[_Place, Item]] = {"memory": {}, "cache": {}}
        self._first_end: dict[Area, float] = {"memory": math.inf, "cache": math.inf}
        """No item of an area expires before this time."""
        self._item_writes: dict[str, dict[str, bool]] = {}
        """Id of each run -> key of each call that wrote, and whether there was an item before."""

    def _writing(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def _has_run(self, run_id: str) -> bool:
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
        with self._writing():
            if self._written(write) is not None:
                return
            now, there, place = SYSTEM_CLOCK.now(), self._areas[area], item.place
            others: dict[_Place, Item] = {}
            if most is not None:
                others = {key: one for key, one in there.items() if key != place and not _is_over(one, now)}
                used = sum(one.size for one in others.values())
                check_room(item, used, most, evict=evict)
                for oldest in sorted(others, key=lambda key: (others[key].updated, key)):
                    if used + item.size <= most:
                        break
                    used -= there.pop(oldest).size
            self._remove_expired(area, now)
            expires = None if lifetime is None else now + lifetime
            known = there.get(place)
            there[place] = replace(item, created=now if known is None else known.created, updated=now, expires=expires)
            if expires is not None:
                self._first_end[area] = min(self._first_end[area], expires)
            self._remember(write, known is not None)

    async def item(self, area: Area, namespace: Namespace, key: str) -> Item | None:
        with self._lock:
            found = self._areas[area].get((namespace_text(namespace), key))
            return None if found is None or _is_over(found, SYSTEM_CLOCK.now()) else found

    async def delete_item(self, area: Area, namespace: Namespace, key: str, *, write: ItemWrite | None = None) -> bool:
        with self._writing():
            before = self._written(write)
            if before is not None:
                return before
            found = self._areas[area].pop((namespace_text(namespace), key), None)
            there = found is not None and not _is_over(found, SYSTEM_CLOCK.now())
            self._remember(write, there)
            return there

    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        found = [item for item in self._in(area, prefix) if after is None or item.place > after]
        return found[: max(limit, 0)]

    async def item_namespaces(self, area: Area, prefix: Namespace = ()) -> list[Namespace]:
        return [namespace_of(text) for text in dict.fromkeys(item.place[0] for item in self._in(area, prefix))]

    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        return ranked(self._in(area, prefix), text, limit)

    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        return nearest_of(self._in(area, prefix), vector, limit)

    async def prune_items(self, area: Area, prefix: Namespace = (), *, older_than: float | None = None) -> int:
        low, high = prefix_range(prefix)
        with self._writing():
            now, there = SYSTEM_CLOCK.now(), self._areas[area]
            old = [
                place
                for place, item in there.items()
                if low <= place[0] < high
                and (_is_over(item, now) or (older_than is not None and item.updated <= now - older_than))
            ]
            for place in old:
                del there[place]
            return len(old)

    async def item_usage(self, area: Area) -> ItemUsage:
        with self._lock:
            now, items = SYSTEM_CLOCK.now(), [*self._areas[area].values()]
        return ItemUsage(len(items), sum(one.size for one in items), sum(_is_over(one, now) for one in items))

    async def add_item(self, area: Area, item: Item) -> bool:
        with self._writing():
            self._remove_expired(area, SYSTEM_CLOCK.now())
            if item.place in self._areas[area]:
                return False
            self._areas[area][item.place] = item
            if item.expires is not None:
                self._first_end[area] = min(self._first_end[area], item.expires)
            return True

    # ------------------------------------------------------------------------------- helpers

    def _in(self, area: Area, prefix: Namespace) -> list[Item]:
        """The items of a prefix, in order."""
        low, high = prefix_range(prefix)
        with self._lock:
            there, now = self._areas[area], SYSTEM_CLOCK.now()
            found = [place for place, item in there.items() if low <= place[0] < high and not _is_over(item, now)]
            return [there[place] for place in sorted(found)]

    def _remove_expired(self, area: Area, now: float) -> None:
        if self._first_end[area] <= now:
            there = self._areas[area]
            for place in [place for place, one in there.items() if _is_over(one, now)]:
                del there[place]
            ends = (one.expires for one in there.values() if one.expires is not None)
            self._first_end[area] = min(ends, default=math.inf)

    def _written(self, write: ItemWrite | None) -> bool | None:
        """What a call that wrote before returned; None: it did not write."""
        if write is None:
            return None
        if not self._has_run(write.run_id):
            raise RunUnknown(write.run_id)
        return self._item_writes.get(write.run_id, {}).get(write.key)

    def _remember(self, write: ItemWrite | None, there: bool) -> None:
        if write is not None:
            self._item_writes.setdefault(write.run_id, {})[write.key] = there


def _is_over(item: Item, now: float) -> bool:
    return item.expires is not None and item.expires <= now
