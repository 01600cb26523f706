"""Items: named JSON values that a store keeps in addition to its runs.

An item is in one of three areas: `memory` (what `ctx.memory` keeps), `cache` (results of cached nodes), and `audit`
(proofs of deletions, and names of exports). It has a namespace, which is a tuple of names, and a key. Items belong to
no run: a store keeps them when it deletes one.

Times are those of the store's clock. An expired item no longer exists for any method but `prune_items`,
which removes it; stores also remove some expired items with each write.

The scores of items in a search are the same in every store.

By words: Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009) with
k1 = 1.2 and b = 0.75, over the items in the range of the search only, so that the contents of other namespaces
change no score. By meaning: the cosine of the angle between two vectors.
"""

from __future__ import annotations

import heapq
import json
import math
import struct
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from orchestrator.errors import InvalidValue, MemoryFull
from orchestrator.stores.requests import words

Area: TypeAlias = Literal["memory", "cache", "audit"]
Namespace: TypeAlias = tuple[str, ...]

AREAS: tuple[Area, ...] = ("memory", "cache", "audit")

MAX_TERMS = 64
"""Maximum number of words of a search; the others are ignored."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item as stored."""

    namespace: Namespace
    """At least one name. Names are not empty, and all of their characters are printable."""
    key: str
    data: str
    """The value as canonical JSON."""
    text: str = ""
    """The text for searches by words; if it is empty, no such search finds the item."""
    vector: bytes = b""
    """The vector for searches by meaning, see `packed`; if it is empty, no such search finds the item."""
    created: float = 0.0
    """Unix seconds. Set by the store, like the next two."""
    updated: float = 0.0
    expires: float | None = None
    """Unix seconds; None: never."""

    @property
    def size(self) -> int:
        """Size in bytes that counts for a limit."""
        texts = (*self.namespace, self.key, self.data, self.text)
        return sum(len(text.encode()) for text in texts) + len(self.vector)

    @property
    def place(self) -> tuple[str, str]:
        """Sort key of items."""
        return namespace_text(self.namespace), self.key


class FoundItem(Struct, frozen=True):
    """An item that a search found."""

    item: Item
    score: float
    """The higher, the better the match. Rounded to 6 digits, so that all stores agree."""


@dataclass(frozen=True, slots=True)
class ItemWrite:
    """The call in a run that writes an item. A store makes each write once, and keeps it until the run is deleted."""

    run_id: str
    key: str
    """The idempotency key of the call."""


class ItemUsage(Struct, frozen=True):
    """The size of an area."""

    items: int = 0
    bytes: int = 0
    expired: int = 0
    """Expired items among them that are not removed yet."""


class ItemStore(Protocol):
    """The part of a store that keeps items. Writes are atomic, and durable when the call returns."""

    @abstractmethod
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
        """Store an item, replacing one with the same namespace and key, but keeping its `created`.

        Args:
            area: the area.
            item: the item. Its times are ignored.
            lifetime: seconds after which it expires; None: never.
            write: the call of a run that writes. When repeated for the same call, nothing is changed, whatever happened
                to the item since.
            most: maximum bytes of all items of the area that have not expired; None: no limit.
            evict: whether to delete items, those not written for the longest time first, until the item fits.

        Raises:
            MemoryFull: the item does not fit; nothing was changed.
            RunUnknown: the store has no run of `write`.
        """
        ...

    @abstractmethod
    async def item(self, area: Area, namespace: Namespace, key: str) -> Item | None:
        """Return an item; None if it does not exist.

        Raises:
            StoreError: the item is damaged.
        """
        ...

    @abstractmethod
    async def delete_item(self, area: Area, namespace: Namespace, key: str, *, write: ItemWrite | None = None) -> bool:
        """Delete an item.

        Args:
            area: the area.
            namespace: the item's namespace.
            key: its key.
            write: the call of a run that deletes. When repeated for the same call, nothing is changed.

        Returns:
            Whether the item existed; when repeated for the same `write`, the result of the first call.

        Raises:
            RunUnknown: the store has no run of `write`.
        """
        ...

    @abstractmethod
    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        """Return items ordered by namespace and key. Damaged items are left out.

        Args:
            area: the area.
            prefix: the first names of their namespaces; empty: any.
            after: the `place` of the item before the first one to return.
            limit: maximum number of items to return.
        """
        ...

    @abstractmethod
    async def item_namespaces(self, area: Area, prefix: Namespace = ()) -> list[Namespace]:
        """Return the namespaces that have items, in order.

        Args:
            area: the area.
            prefix: their first names; empty: any.
        """
        ...

    @abstractmethod
    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        """Return the items whose texts contain a word of `text`, best first. Damaged items are left out.

        Words are those of `stores.requests.words`, scores those of this module. Items with equal scores are ordered by
        namespace and key. There is no query syntax.

        Args:
            area: the area.
            prefix: the first names of their namespaces; empty: any.
            text: the words; only the first 64 count.
            limit: maximum number of items to return.
        """
        ...

    @abstractmethod
    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        """Return the items whose vectors have the smallest angle to a vector, the nearest first.

        The score is the cosine of the angle. Items without a vector, or with one of another length, are left out.

        Args:
            area: the area.
            prefix: the first names of their namespaces; empty: any.
            vector: see `packed`.
            limit: maximum number of items to return.
        """
        ...

    @abstractmethod
    async def prune_items(self, area: Area, prefix: Namespace = (), *, older_than: float | None = None) -> int:
        """Remove expired items, in short steps.

        Args:
            area: the area.
            prefix: the first names of their namespaces; empty: any.
            older_than: also remove items that were not written for this many seconds; 0: all.

        Returns:
            The number of removed items.
        """
        ...

    @abstractmethod
    async def item_usage(self, area: Area) -> ItemUsage:
        """Return the size of an area."""
        ...

    @abstractmethod
    async def add_item(self, area: Area, item: Item) -> bool:
        """Store an item with its times, unless one with its namespace and key exists. For copies of stores.

        Returns:
            Whether it was stored.
        """
        ...


# -- names -------------------------------------------------------------------------------------------------------------

_END = "\x1f"
"""Ends each name in a namespace's text. It is not printable, so no name contains it."""


def namespace_text(namespace: Sequence[str]) -> str:
    """Return a namespace as one string. Those of a prefix start with the string of the prefix."""
    return "".join(f"{name}{_END}" for name in namespace)


def namespace_of(text: str) -> Namespace:
    """Return the namespace that a result of `namespace_text` represents."""
    return tuple(text.split(_END)[:-1])


def prefix_range(prefix: Sequence[str]) -> tuple[str, str]:
    """Return the range of the strings of a prefix's namespaces: from the first, up to but without the second."""
    low = namespace_text(prefix)
    return low, f"{low[:-1]} " if low else "\U0010ffff"  # the space sorts directly after the end character


# -- vectors -----------------------------------------------------------------------------------------------------------


def packed(numbers: Sequence[float]) -> bytes:
    """Return a vector as bytes: each number as 4 bytes, little-endian.

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
    """Return the numbers of a vector; empty if its bytes are damaged."""
    return struct.unpack(f"<{len(vector) // 4}f", vector) if len(vector) % 4 == 0 else ()


# -- shared by all stores ----------------------------------------------------------------------------------------------


def is_whole(item: Item) -> bool:
    """Return True if the value of a stored item can be read."""
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
        most: maximum bytes of all items.
        evict: whether other items are deleted for it.

    Raises:
        MemoryFull: the item does not fit.
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
    """Return the distinct words that a search looks for, at most `MAX_TERMS`."""
    return [*dict.fromkeys(words(text))][:MAX_TERMS]


class Candidate(Struct, frozen=True):
    """The facts about an item with one of the words on which its score depends."""

    place: tuple[str, str]
    """Sort key of items with equal scores."""
    counts: tuple[int, ...]
    """Number of occurrences of each word."""
    length: int
    """The number of words."""


def candidate(place: tuple[str, str], text: str, terms: Sequence[str]) -> Candidate | None:
    """Return an item as a candidate; None if it contains none of the words."""
    there = words(text)
    known = Counter(there)
    counts = tuple(known[term] for term in terms)
    return Candidate(place, counts, len(there)) if any(counts) else None


def best(candidates: Sequence[Candidate], items: int, length: int, limit: int) -> list[tuple[float, Candidate]]:
    """Return the best candidates with their scores, best first.

    Args:
        candidates: all items in the range of the search that contain one of the words.
        items: number of items in the range that have a text.
        length: total number of words of these items.
        limit: maximum number of results.
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
    """Return the rows whose vectors have the smallest angle to a vector, with its cosine, nearest first."""
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
    """Return the items that contain a word of `text`, best first: a search without an index."""
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
    """Return the items whose vectors have the smallest angle to a vector, nearest first: a search without an index."""
    found = nearest(vector, items, lambda item: item.vector, lambda item: item.place, limit)
    return [FoundItem(item, score) for score, item in found]


def _norm(numbers: Sequence[float]) -> float:
    return math.sqrt(math.fsum(number * number for number in numbers))
