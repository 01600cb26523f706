"""How well items fit a search, the same in every store.

By words: Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009) with
k1 = 1.2 and b = 0.75, over the items that the search looks through and no others, so that what lies in other namespaces
changes no score. By meaning: the cosine of the angle between two vectors.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.stores.items import MAX_TERMS, FoundItem, Item, unpacked
from orchestrator.stores.words import words

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
    """What orders equally good ones."""
    counts: tuple[int, ...]
    """How often it has each word."""
    length: int
    """How many words it has."""


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
