"""Checks of items: memory across runs, and results of cached nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

from orchestrator.errors import MemoryFull, RunUnknown
from orchestrator.stores.base import Store
from orchestrator.stores.items import AREAS, FoundItem, Item, ItemUsage, ItemWrite, packed
from orchestrator.testing.store_conformance.helpers import created, equal, raises, that, together

_AT_ONCE = 1e-9
"""Lifetime in seconds after which an item has expired before it can be read."""


def _item(*names: str, value: object = 1, text: str = "", vector: bytes = b"") -> Item:
    return Item(names[:-1], names[-1], json.dumps(value), text, vector)


def _names(found: list[FoundItem]) -> list[str]:
    return [one.item.key for one in found]


async def check_items(store: Store) -> None:
    """An item exists until it is deleted, in its area only, and is replaced as a whole."""
    top = uuid4().hex
    item = _item(
        top, "naïve 日本語 🧭", "a key", value={"text": "\x00 'quoted' 🧭", "list": [1, 2.5, None, True]}, text="t"
    )
    for area in AREAS:
        equal(await store.item(area, item.namespace, item.key), None, "an item that is not there")
        equal(await store.delete_item(area, item.namespace, item.key), False, "the deletion of one that is not there")
    await store.put_item("memory", item)
    first = await store.item("memory", item.namespace, item.key)
    assert first is not None
    that(first.created == first.updated > 1.0, f"its times are the same: {first}")
    equal(first, replace(item, created=first.created, updated=first.updated), "an item")
    equal(await store.item("cache", item.namespace, item.key), None, "it in the other area")
    await store.put_item("memory", replace(item, data="[]", text=""), lifetime=1e6)
    second = await store.item("memory", item.namespace, item.key)
    assert second is not None
    equal((second.data, second.text, second.created), ("[]", "", first.created), "an item that was replaced")
    that(second.updated >= first.updated, "it was written later")
    that(second.expires is not None and second.expires >= second.updated + 9e5, f"when it expires: {second.expires}")
    that(await store.delete_item("memory", item.namespace, item.key), "it was there")
    equal(await store.item("memory", item.namespace, item.key), None, "an item that was deleted")


async def check_item_namespaces(store: Store) -> None:
    """Items are listed by namespace and key, page by page, those of a prefix alone."""
    top = uuid4().hex
    places = [("a",), ("a", "b"), ("a", "b c"), ("ab",), ("b",), ("é",), ("🧭", "1"), ("a", "b", "c")]
    for place in places:
        for key in ("2", "1", "10", "Ä"):
            await store.put_item("memory", _item(top, *place, key, value=key))
    ordered = sorted(places, key=lambda names: "".join(f"{name}\x1f" for name in names))
    equal(await store.item_namespaces("memory", (top,)), [(top, *names) for names in ordered], "namespaces, in order")
    equal(
        await store.item_namespaces("memory", (top, "a")),
        [(top, *names) for names in ordered if names[0] == "a"],
        "namespaces of a prefix",
    )
    equal(await store.item_namespaces("memory", (top[:-1],)), [], "namespaces of a part of a name")
    wanted = [(top, *names, key) for names in ordered for key in ("1", "10", "2", "Ä")]
    found: list[tuple[str, ...]] = []
    after: tuple[str, str] | None = None
    while page := await store.items("memory", (top,), after=after, limit=5):
        that(len(page) <= 5, "a page is not longer than its limit")
        found += [(*item.namespace, item.key) for item in page]
        after = page[-1].place
    equal(found, wanted, "all items, page by page")
    equal([one.key for one in await store.items("memory", (top, "ab"))], ["1", "10", "2", "Ä"], "items of a prefix")
    equal(await store.items("memory", (top,), limit=0), [], "no items")
    equal(await store.items("cache", (top,)), [], "items of the other area")


async def check_item_expiry(store: Store) -> None:
    """An item that has expired does not exist for any method, and is eventually removed."""
    top, vector = uuid4().hex, packed([1.0, 0.0])
    for key, lifetime in (("gone", _AT_ONCE), ("later", 1e6), ("never", None)):
        await store.put_item("memory", _item(top, key, text="tea", vector=vector), lifetime=lifetime)
    left = ["later", "never"]
    equal(await store.item("memory", (top,), "gone"), None, "an item that has expired")
    equal([one.key for one in await store.items("memory", (top,))], left, "the list without it")
    equal(_names(await store.search_items("memory", (top,), "tea", limit=9)), left, "the search without it")
    equal(_names(await store.nearest_items("memory", (top,), vector, limit=9)), left, "the nearest without it")
    equal(await store.delete_item("memory", (top,), "gone"), False, "the deletion of an item that has expired")
    await store.put_item("memory", _item(top, "alone", "gone"), lifetime=_AT_ONCE)
    equal(await store.item_namespaces("memory", (top, "alone")), [], "a namespace of an item that has expired")
    equal(await store.prune_items("memory", (top,)), 1, "expired items that were removed")
    equal(await store.prune_items("memory", (top,)), 0, "none are left")
    await store.put_item("memory", _item(top, "gone", value=2), lifetime=_AT_ONCE)
    before = await store.item("memory", (top,), "later")
    await store.put_item("memory", _item(top, "gone", value=3))
    again = await store.item("memory", (top,), "gone")
    assert again is not None
    assert before is not None
    that(again.created >= before.updated, "an item in place of one that has expired is new")
    equal(again.expires, None, "an item without a lifetime, in place of one that has expired")
    equal(await store.prune_items("memory", (top,), older_than=1e6), 0, "items that were not written for long")
    equal(await store.prune_items("memory", (top, "none"), older_than=0), 0, "items of a prefix that has none")
    equal(await store.prune_items("memory", (top,), older_than=0), 3, "all items")
    equal(await store.items("memory", (top,)), [], "no items are left")


async def check_item_writes(store: Store) -> None:
    """A call of a run writes once, even if repeated after other writes; its run is deleted without the item."""
    top, run_id = uuid4().hex, await created(store)
    first, second, third = (ItemWrite(run_id, uuid4().hex) for _ in range(3))

    async def value() -> object:
        found = await store.item("memory", (top,), "n")
        return None if found is None else json.loads(found.data)

    await store.put_item("memory", _item(top, "n", value="by the run"), write=first)
    await store.put_item("memory", _item(top, "n", value="by others"))
    await store.put_item("memory", _item(top, "n", value="by the run"), write=first)
    equal(await value(), "by others", "an item after a call of a run was asked again")
    that(await store.delete_item("memory", (top,), "n", write=second), "a call of a run deleted an item")
    await store.put_item("memory", _item(top, "n", value="again"))
    that(await store.delete_item("memory", (top,), "n", write=second), "asked again it returns the same")
    equal(await value(), "again", "an item after a deletion was asked again")
    await store.delete_item("memory", (top,), "n")
    equal(await store.delete_item("memory", (top,), "n", write=third), False, "a deletion that found nothing")
    await store.put_item("memory", _item(top, "n", value="more"))
    equal(await store.delete_item("memory", (top,), "n", write=third), False, "asked again")
    await store.delete(run_id)
    equal(await value(), "more", "an item whose run was deleted")
    for call in (
        store.put_item("memory", _item(top, "n", value="late"), write=first),
        store.delete_item("memory", (top,), "n", write=second),
    ):
        await raises(RunUnknown, call, "a call of a run that is not there")
    equal(await value(), "more", "an item after a call of a run that is not there")
    await together(*(store.put_item("memory", _item(top, "n", value=number)) for number in range(20)))
    that(await value() in range(20), "one of several writes at the same time is the last")


async def check_item_room(store: Store) -> None:
    """A limit of bytes refuses a write, and counts the items that have not expired."""
    top = uuid4().hex
    items = [_item(top, str(number), value="x" * 100, text="é", vector=packed([1.0])) for number in range(5)]
    size = items[0].size
    equal(size, len(top) + 1 + 102 + 2 + 4, "bytes of an item")
    await store.prune_items("memory")  # expired items; items of other checks stay
    before = await store.item_usage("memory")
    for item in items[:3]:
        await store.put_item("memory", item, most=before.bytes + 3 * size)
    now = ItemUsage(before.items + 3, before.bytes + 3 * size, 0)
    equal(await store.item_usage("memory"), now, "what lies in an area")
    await raises(MemoryFull, store.put_item("memory", items[3], most=now.bytes + size - 1), "an item too many")
    equal(len(await store.items("memory", (top,))), 3, "items after one was refused")
    await store.put_item("memory", items[2], most=now.bytes)
    await store.put_item("memory", items[1], lifetime=_AT_ONCE)
    await store.put_item("memory", items[3], most=now.bytes)
    equal([one.key for one in await store.items("memory", (top,))], ["0", "2", "3"], "expired items need no room")
    await store.prune_items("memory", (top,), older_than=0)


async def check_item_eviction(store: Store) -> None:
    """If a write may make room, the items that were not written for the longest time are removed; others stay."""
    top = uuid4().hex
    items = [_item(top, str(number), value="x" * 100) for number in range(4)]
    size = items[0].size
    for item in (*items[:3], items[0]):
        await store.put_item("cache", item)
    await store.put_item("cache", items[3], most=3 * size, evict=True)
    left = [one.key for one in await store.items("cache", (top,))]
    equal(left, ["0", "2", "3"], "items after the oldest made room")
    large = _item(top, "large", value="x" * 100 + "y" * size)
    await raises(MemoryFull, store.put_item("cache", large, most=size, evict=True), "an item larger than the limit")
    equal([one.key for one in await store.items("cache", (top,))], left, "items after one that never fits")
    await store.prune_items("cache", (top,), older_than=0)


async def check_item_search(store: Store) -> None:
    """Items are found by any of the words, best first; there is no query syntax."""
    top = uuid4().hex
    texts = {
        "fox": "The quick brown fox, the FOX",
        "dog": "one lazy dog beside some fox",
        "löwe": "Löwe straße 3.14 日本語",
        "odd": 'NEAR AND OR NOT fox* "quoted" (col:on) -minus ^caret words: a_b c--d; DROP TABLE items;',
        "none": "",
    }
    for key, text in texts.items():
        await store.put_item("memory", _item(top, "a", key, text=text))
    await store.put_item("memory", _item(top, "b", "other", text="fox fox fox"))
    await store.put_item("memory", _item(f"{top}s", "sibling", text="fox"))

    async def found(text: str, limit: int = 9) -> list[str]:
        return _names(await store.search_items("memory", (top, "a"), text, limit=limit))

    equal(await found("fox"), ["fox", "dog", "odd"], "items with a word, the best first")
    equal(await found("fox", limit=1), ["fox"], "the best one")
    equal(await found("fox", limit=0), [], "none of them")
    equal(await found("lazy FOX quick"), ["fox", "dog", "odd"], "items with one of several words")
    equal(await found("Lowe STRASSE"), ["löwe"], "words without regard to case and diacritics")
    equal(await found("3.14 日本語"), ["löwe"], "numbers and other scripts")
    equal(await found("fo missing"), [], "a part of a word")
    for text in ('"', "'", "*", "()", "", " ", "-", "\x00", "^", ":", "🧭", "\ud800"):
        equal(await found(text), [], f"items with the words of {text!r}: it has none")
    for text in (
        '"quoted"',
        "near(",
        "col:on",
        "a_b",
        "NOT",
        '"caret',
        "words:x",
        "drop table items; --",
        "{odd} +minus",
    ):
        equal(await found(text), ["odd"], f"items with the words of {text!r}")
    equal(await found(" ".join(f"w{number}" for number in range(500)) + " fox"), [], "words behind the first 64")
    equal(_names(await store.search_items("memory", (top,), "fox", limit=1)), ["other"], "items of a shorter prefix")
    equal(await store.search_items("cache", (top,), "fox", limit=9), [], "items of the other area")
    (best, *_) = await store.search_items("memory", (top, "a"), "fox", limit=1)
    equal((best.score, best.item.text), (0.537982, texts["fox"]), "the score of an item, by BM25")
    await store.put_item("memory", _item(top, "a", "fox", text="tiger"))
    await store.delete_item("memory", (top, "a"), "dog")
    await store.put_item("memory", _item(top, "a", "new", text="Fox"))
    equal(await found("fox"), ["new", "odd"], "items after one was changed, one deleted and one added")
    equal(await found("tiger"), ["fox"], "a word that has come")
    equal(await found("lazy"), [], "a word that is gone")


async def check_item_vectors(store: Store) -> None:
    """Items are found by the angle between vectors, the nearest first."""
    top = uuid4().hex
    for key, numbers in {
        "east": [1.0, 0.0],
        "north": [0.0, 2.0],
        "north-east": [3.0, 3.0],
        "west": [-1.0, 0.0],
        "also east": [5.0, 0.0],
        "zero": [0.0, 0.0],
        "longer": [1.0, 0.0, 0.0],
    }.items():
        await store.put_item("memory", _item(top, key, vector=packed(numbers)))
    await store.put_item("memory", _item(top, "without"))
    found = await store.nearest_items("memory", (top,), packed([1.0, 0.0]), limit=9)
    equal(
        [(one.item.key, one.score) for one in found],
        [("also east", 1.0), ("east", 1.0), ("north-east", 0.707107), ("north", 0.0), ("west", -1.0)],
        "items by the cosine of the angle",
    )
    equal(found[1].item.vector, packed([1.0, 0.0]), "the vector of an item")
    near = await store.nearest_items("memory", (top,), packed([0.1, 1.0]), limit=1)
    equal(_names(near), ["north"], "the nearest item")
    equal(await store.nearest_items("memory", (top,), packed([0.0, 0.0]), limit=9), [], "nothing is near to zero")
    equal(await store.nearest_items("memory", ("none",), packed([1.0, 0.0]), limit=9), [], "items of another prefix")


async def check_item_copies(store: Store) -> None:
    """An item is added unchanged, with its times, unless it exists."""
    top = uuid4().hex
    item = replace(_item(top, "a", text="tea", vector=packed([0.5])), created=5.5, updated=7.5, expires=4e9)
    that(await store.add_item("memory", item), "it was added")
    equal(await store.item("memory", item.namespace, item.key), item, "an item that was added")
    equal(await store.add_item("memory", replace(item, data="2")), False, "an item that is there")
    equal(await store.item("memory", item.namespace, item.key), item, "an item after another one was not added")
    equal(_names(await store.search_items("memory", (top,), "tea", limit=1)), ["a"], "an item that was added is found")
    over = replace(_item(top, "b"), created=5.5, updated=7.5, expires=8.5)
    await store.add_item("memory", over)
    equal(await store.item("memory", over.namespace, over.key), None, "an item that had expired")
    that(await store.add_item("memory", replace(over, expires=None)), "one in place of an item that had expired")
