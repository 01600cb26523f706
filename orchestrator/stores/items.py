"""Items: JSON values under names, which a store keeps beside its runs.

An item lies in one of two areas, `memory` (what `ctx.memory` keeps) and `cache` (results of cached nodes). It has a
namespace, which is a tuple of names, and a key. Items belong to no run: they stay when a run is deleted.

Times are those of the store's clock. An expired item no longer exists for any method but `prune_items`,
which removes it; stores also remove some expired items with each write.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from orchestrator.errors import InvalidValue, MemoryFull

Area: TypeAlias = Literal["memory", "cache"]
Namespace: TypeAlias = tuple[str, ...]

AREAS: tuple[Area, ...] = ("memory", "cache")

MAX_TERMS = 64
"""Words of a search that are looked for: the first ones."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item as a store keeps it."""

    namespace: Namespace
    """At least one name. Names are not empty, and all of their characters are printable."""
    key: str
    data: str
    """The value as canonical JSON."""
    text: str = ""
    """What a search by words looks through; empty: it finds the item never."""
    vector: bytes = b""
    """What a search by meaning compares, see `packed`; empty: it finds the item never."""
    created: float = 0.0
    """Unix seconds. The store sets it, and the next two."""
    updated: float = 0.0
    expires: float | None = None
    """None: never."""

    @property
    def size(self) -> int:
        """Bytes that count for a limit."""
        texts = (*self.namespace, self.key, self.data, self.text)
        return sum(len(text.encode()) for text in texts) + len(self.vector)

    @property
    def place(self) -> tuple[str, str]:
        """What items are ordered by."""
        return namespace_text(self.namespace), self.key


@dataclass(frozen=True, slots=True)
class FoundItem:
    """An item that a search found."""

    item: Item
    score: float
    """The higher, the better it fits. Rounded to 6 digits, so that all stores agree."""


@dataclass(frozen=True, slots=True)
class ItemWrite:
    """Which call of a run writes. A store makes each write once, and remembers it until the run is deleted."""

    run_id: str
    key: str
    """The idempotency key of the call."""


@dataclass(frozen=True, slots=True)
class ItemUsage:
    """How much lies in an area."""

    items: int = 0
    bytes: int = 0
    expired: int = 0
    """Items among them that have expired and are still to be removed."""


class ItemStore(Protocol):
    """The part of a store that keeps items. Writes are atomic, and durable when the call returns."""

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
        """Store an item; one of the same namespace and key is replaced, and keeps its `created`.

        Args:
            area: the area.
            item: the item. Its times are ignored.
            lifetime: seconds after which it expires; None: never.
            write: the call of a run that writes. Asked again for the same call, nothing is changed, whatever happened
                to the item since.
            most: bytes that all items of the area may have, without those that have expired; None: no limit.
            evict: whether to delete items, those not written for the longest time first, until it fits.

        Raises:
            MemoryFull: the item does not fit; nothing was changed.
            RunUnknown: the store has no run of `write`.
        """
        ...

    async def item(self, area: Area, namespace: Namespace, key: str) -> Item | None:
        """Return an item; None: there is none.

        Raises:
            StoreError: it is damaged.
        """
        ...

    async def delete_item(self, area: Area, namespace: Namespace, key: str, *, write: ItemWrite | None = None) -> bool:
        """Delete an item.

        Args:
            area: the area.
            namespace: the item's namespace.
            key: its key.
            write: the call of a run that deletes. Asked again for the same call, nothing is changed.

        Returns:
            Whether it was there; asked again for the same `write`, what the first time returned.

        Raises:
            RunUnknown: the store has no run of `write`.
        """
        ...

    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        """Return items ordered by namespace and key. Damaged ones are left out.

        Args:
            area: the area.
            prefix: the first names of their namespaces; empty: any.
            after: the `place` of the item before the first one to return.
            limit: the most items to return.
        """
        ...

    async def item_namespaces(self, area: Area, prefix: Namespace = ()) -> list[Namespace]:
        """Return the namespaces that have items, in order.

        Args:
            area: the area.
            prefix: their first names; empty: any.
        """
        ...

    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        """Return the items whose texts have one of the words of a text, the best first. Damaged ones are left out.

        Words are those of `stores.words`, scores those of `stores.ranking`. Equally good items are ordered by namespace
        and key. No text is a query: every character has no meaning but that of its word.

        Args:
            area: the area.
            prefix: the first names of their namespaces; empty: any.
            text: the words; of more than 64 the first 64 count.
            limit: the most items to return.
        """
        ...

    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        """Return the items whose vectors have the smallest angle to a vector, the nearest first.

        The score is the cosine of the angle. Items without a vector, or with one of another length, are left out.

        Args:
            area: the area.
            prefix: the first names of their namespaces; empty: any.
            vector: see `packed`.
            limit: the most items to return.
        """
        ...

    async def prune_items(self, area: Area, prefix: Namespace = (), *, older_than: float | None = None) -> int:
        """Remove expired items, in short steps.

        Args:
            area: the area.
            prefix: the first names of their namespaces; empty: any.
            older_than: also remove items that were not written for so many seconds; 0: all.

        Returns:
            How many were removed.
        """
        ...

    async def item_usage(self, area: Area) -> ItemUsage:
        """Return how much lies in an area."""
        ...

    async def add_item(self, area: Area, item: Item) -> bool:
        """Store an item as it is, with its times, unless there is one of its namespace and key. For copies of stores.

        Returns:
            Whether it was stored.
        """
        ...


# -- names -------------------------------------------------------------------------------------------------------------

_END = "\x1f"
"""Ends each name of a namespace's text. It is not printable, so no name contains it."""


def namespace_text(namespace: Sequence[str]) -> str:
    """A namespace as one text. Those of a prefix begin with the text of the prefix."""
    return "".join(f"{name}{_END}" for name in namespace)


def namespace_of(text: str) -> Namespace:
    """The namespace of a text."""
    return tuple(text.split(_END)[:-1])


def prefix_range(prefix: Sequence[str]) -> tuple[str, str]:
    """Between which texts those of the namespaces of a prefix lie: at or after the first, before the second."""
    low = namespace_text(prefix)
    return low, f"{low[:-1]} " if low else "\U0010ffff"  # the space follows the end


# -- vectors -----------------------------------------------------------------------------------------------------------


def packed(numbers: Sequence[float]) -> bytes:
    """A vector as bytes: each number as 4 bytes, little-endian.

    Raises:
        InvalidValue: a number is not finite, or is too large.
    """
    try:
        found = struct.pack(f"<{len(numbers)}f", *numbers)
    except (struct.error, OverflowError, TypeError) as error:
        raise InvalidValue(f"a vector of an embedding: {error}; give finite numbers") from None
    if not all(map(math.isfinite, unpacked(found))):
        raise InvalidValue("a vector of an embedding contains NaN or an infinity; give finite numbers")
    return found


def unpacked(vector: bytes) -> tuple[float, ...]:
    """The numbers of a vector; none if its bytes are damaged."""
    return struct.unpack(f"<{len(vector) // 4}f", vector) if len(vector) % 4 == 0 else ()


# -- what every store does ---------------------------------------------------------------------------------------------


def is_whole(item: Item) -> bool:
    """Whether the value of a stored item can be read."""
    try:
        json.loads(item.data)
    except (ValueError, RecursionError):
        return False
    return bool(item.namespace) and all(item.namespace)


def check_room(item: Item, used: int, most: int | None, *, evict: bool) -> None:
    """Refuse an item that does not fit.

    Args:
        item: the item.
        used: bytes of the other items of its area.
        most: bytes that all may have.
        evict: whether others are deleted for it.

    Raises:
        MemoryFull: it does not fit.
    """
    if most is not None and (0 if evict else used) + item.size > most:
        others = "" if evict else f"; the others have {used:,}"
        raise MemoryFull(
            f"item {item.key!r} in {'/'.join(item.namespace)} has {item.size:,} bytes{others}, and the limit of the "
            f"store's items is {most:,}: delete some, or raise the limit"
        )
