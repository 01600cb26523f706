"""Items: JSON values under names, which a store keeps beside its runs.

An item lies in one of two areas, `memory` (what `ctx.memory` keeps) and `cache` (results of cached nodes). It has a
namespace, which is a tuple of names, and a key. Items belong to no run: they stay when a run is deleted.

Times are those of the store's clock. An expired item no longer exists for any method but `prune_items`,
which removes it; stores also remove some expired items with each write.

How well items fit a search, the same in every store.

By words: Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009) with
k1 = 1.2 and b = 0.75, over the items that the search looks through and no others, so that what lies in other namespaces
changes no score. By meaning: the cosine of the angle between two vectors.
"""

from __future__ import annotations

import heapq
import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

from orchestrator.errors import InvalidValue, MemoryFull
from orchestrator.stores.requests import words

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
    """The text that a search by words reads; if it is empty, no such search finds the item."""
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
        """The order of items."""
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
    """The size of an area."""

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

        Words are those of `stores.requests.words`, scores those of this module. Equally good items are ordered by
        namespace and key. No text is a query: every character has no meaning but that of its word.

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
    """True if the value of a stored item can be read."""
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


T = TypeVar("T")

_K1 = 1.2
_B = 0.75


def terms_of(text: str) -> list[str]:
    """The words that a search looks for, each once, the first `MAX_TERMS`."""
    return [*dict.fromkeys(words(text))][:MAX_TERMS]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item that has one of the words, as far as its score depends on it."""

    place: tuple[str, str]
    """The order of equally good ones."""
    counts: tuple[int, ...]
    """The count of each word."""
    length: int
    """The number of words."""


def candidate(place: tuple[str, str], text: str, terms: Sequence[str]) -> Candidate | None:
    """An item as a candidate; None: it has none of the words."""
    there = words(text)
    known = Counter(there)
    counts = tuple(known[term] for term in terms)
    return Candidate(place, counts, len(there)) if any(counts) else None


def best(candidates: Sequence[Candidate], items: int, length: int, limit: int) -> list[tuple[float, Candidate]]:
    """The best candidates with their scores, the best first.

    Args:
        candidates: all items with one of the words, of those that the search looks through.
        items: how many items with a text it looks through.
        length: how many words these have together.
        limit: how many are returned.
    """
    if not candidates:
        return []
    average = max(length / max(items, 1), 1.0)
    having = [sum(1 for one in candidates if one.counts[at]) for at in range(len(candidates[0].counts))]
    weights = [math.log(1.0 + (max(items - many, 0) + 0.5) / (many + 0.5)) for many in having]
    scored = []
    for one in candidates:
        norm = _K1 * (1.0 - _B + _B * one.length / average)
        parts = (
            weight * count * (_K1 + 1.0) / (count + norm)
            for weight, count in zip(weights, one.counts, strict=True)
            if count
        )
        scored.append((round(math.fsum(parts), 6), one))
    return heapq.nsmallest(max(limit, 0), scored, key=lambda found: (-found[0], found[1].place))


def nearest(
    vector: bytes, rows: Iterable[T], vector_of: Callable[[T], bytes], place_of: Callable[[T], object], limit: int
) -> list[tuple[float, T]]:
    """The rows whose vectors have the smallest angle to a vector, with its cosine, the nearest first."""
    wanted = unpacked(vector)
    norm = _norm(wanted)
    if not norm:
        return []

    def scored() -> Iterable[tuple[float, T]]:
        for row in rows:
            data = vector_of(row)
            if len(data) == len(vector):
                own = unpacked(data)
                size = _norm(own)
                if size:
                    yield round(math.fsum(a * b for a, b in zip(wanted, own, strict=True)) / (norm * size), 6), row

    return heapq.nsmallest(max(limit, 0), scored(), key=lambda found: (-found[0], place_of(found[1])))


def ranked(items: Sequence[Item], text: str, limit: int) -> list[FoundItem]:
    """The items that have one of the words of a text, the best first: a search without an index."""
    terms = terms_of(text)
    if not terms:
        return []
    there = {item.place: item for item in items}
    lengths = [len(words(item.text)) for item in there.values()]
    found = [one for item in there.values() if (one := candidate(item.place, item.text, terms)) is not None]
    return [
        FoundItem(there[one.place], score) for score, one in best(found, sum(map(bool, lengths)), sum(lengths), limit)
    ]


def nearest_of(items: Iterable[Item], vector: bytes, limit: int) -> list[FoundItem]:
    """The items whose vectors have the smallest angle to a vector, the nearest first: a search without an index."""
    found = nearest(vector, items, lambda item: item.vector, lambda item: item.place, limit)
    return [FoundItem(item, score) for score, item in found]


def _norm(numbers: Sequence[float]) -> float:
    return math.sqrt(math.fsum(number * number for number in numbers))
