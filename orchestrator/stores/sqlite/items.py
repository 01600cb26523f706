"""Items, as functions of a connection inside a transaction.

The full-text index is a cache, created by the first search and updated by each, like that of runs.
`items.indexed` says whether an item is in it: 0 not yet, 1 yes, 2 it has no words.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from orchestrator.errors import StoreError
from orchestrator.stores.items import (
    Area,
    FoundItem,
    Item,
    ItemUsage,
    ItemWrite,
    Namespace,
    best,
    candidate,
    check_room,
    is_whole,
    namespace_of,
    namespace_text,
    nearest,
    prefix_range,
    terms_of,
)
from orchestrator.stores.requests import words
from orchestrator.stores.sqlite.reads import run_number

AT_ONCE = 500
"""Maximum number of items that one write indexes or removes."""

_REMOVED = 20
"""Maximum number of expired items that a write of another item removes."""

_Row: TypeAlias = tuple[Any, ...]
"""A row of `_COLUMNS`. Values in a damaged file may be of any type."""

_COLUMNS = "namespace, key, data, text, vector, created, updated, expires, area, crc"
_LIVING = "area = ? AND namespace >= ? AND namespace < ? AND (expires IS NULL OR expires > ?)"


def checksum(area: str, item: Item) -> int:
    """Return the CRC-32 of an item; it includes its names, so that a value in the wrong place is found too."""
    names = "\0".join((area, namespace_text(item.namespace), item.key, item.text))
    return zlib.crc32(item.data.encode(), zlib.crc32(item.vector, zlib.crc32(names.encode())))


# -- writing -----------------------------------------------------------------------------------------------------------


def put(
    connection: sqlite3.Connection,
    now: float,
    area: Area,
    item: Item,
    lifetime: float | None,
    write: ItemWrite | None,
    most: int | None,
    evict: bool,
) -> None:
    """See `ItemStore.put_item`. `now`: the file's clock."""
    run, before = _written(connection, write)
    if before is not None:
        return
    space, key = item.place
    known = connection.execute(
        "SELECT id, created FROM items WHERE area = ? AND namespace = ? AND key = ?"
        " AND (expires IS NULL OR expires > ?)",
        (area, space, key, now),
    ).fetchone()
    if most is not None:
        used = _used(connection, area, now, None if known is None else known[0])
        check_room(item, used, most, evict=evict)
        remove(connection, [number for number, _ in _evicted(connection, area, now, item, used, most)])
    remove(connection, _expired(connection, now))
    same = connection.execute(
        "SELECT id FROM items WHERE area = ? AND namespace = ? AND key = ?", (area, space, key)
    ).fetchall()
    remove(connection, [number for (number,) in same])
    created = known[1] if known is not None and isinstance(known[1], float) else now
    _insert(connection, area, item, created, now, None if lifetime is None else now + lifetime)
    _remember(connection, run, write, known is not None)


def _insert(
    connection: sqlite3.Connection, area: Area, item: Item, created: float, updated: float, expires: float | None
) -> None:
    space, key = item.place
    count = len(words(item.text))
    connection.execute(
        "INSERT INTO items (area, namespace, key, data, text, vector, created, updated, expires, size, words, crc,"
        " indexed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            area,
            space,
            key,
            item.data,
            item.text,
            item.vector,
            created,
            updated,
            expires,
            item.size,
            count,
            checksum(area, item),
            0 if count else 2,
        ),
    )


def add(connection: sqlite3.Connection, now: float, area: Area, item: Item) -> bool:
    """See `ItemStore.add_item`."""
    if _row(connection, now, area, item.namespace, item.key) is not None:
        return False
    delete(connection, now, area, item.namespace, item.key, None)
    _insert(connection, area, item, item.created, item.updated, item.expires)
    return True


def delete(
    connection: sqlite3.Connection, now: float, area: Area, namespace: Namespace, key: str, write: ItemWrite | None
) -> bool:
    """See `ItemStore.delete_item`."""
    run, before = _written(connection, write)
    if before is not None:
        return before
    row = connection.execute(
        "SELECT id, expires IS NULL OR expires > ? FROM items WHERE area = ? AND namespace = ? AND key = ?",
        (now, area, namespace_text(namespace), key),
    ).fetchone()
    if row is not None:
        remove(connection, [row[0]])
    there = row is not None and bool(row[1])
    _remember(connection, run, write, there)
    return there


def prune(connection: sqlite3.Connection, now: float, area: Area, prefix: Namespace, before: float | None) -> int:
    """Remove some items that have expired, or were last written at or before a time; return how many.

    All are removed if that is fewer than `AT_ONCE`.
    """
    rows = connection.execute(
        "SELECT id FROM items WHERE area = ? AND namespace >= ? AND namespace < ? AND (expires <= ? OR updated <= ?)"
        " LIMIT ?",
        (area, *prefix_range(prefix), now, before, AT_ONCE),
    )
    return remove(connection, [number for (number,) in rows.fetchall()])


def _used(connection: sqlite3.Connection, area: Area, now: float, but: int | None) -> int:
    """Return the bytes of the items of an area except one."""
    (found,) = connection.execute(
        "SELECT total(size) FROM items WHERE area = ? AND (expires IS NULL OR expires > ?) AND id IS NOT ?",
        (area, now, but),
    ).fetchone()
    return int(found)


def _evicted(
    connection: sqlite3.Connection, area: Area, now: float, item: Item, used: int, most: int
) -> Iterator[tuple[int, int]]:
    """Yield the items to remove so that another one fits, each by its number and its size in bytes."""
    rows = connection.execute(
        "SELECT id, size, namespace, key FROM items WHERE area = ? AND (expires IS NULL OR expires > ?)"
        " ORDER BY updated, namespace, key",
        (area, now),
    )
    for number, size, *place in rows:
        if used + item.size <= most:
            break
        if tuple(place) != item.place:
            used -= size
            yield number, size


def _expired(connection: sqlite3.Connection, now: float) -> list[int]:
    rows = connection.execute("SELECT id FROM items WHERE expires <= ? ORDER BY expires LIMIT ?", (now, _REMOVED))
    return [number for (number,) in rows.fetchall()]


def _written(connection: sqlite3.Connection, write: ItemWrite | None) -> tuple[int, bool | None]:
    """Return the number of the writing run, and the result of an earlier write by the same call.

    Raises:
        RunUnknown: the store has no such run.
    """
    if write is None:
        return 0, None
    number = run_number(connection, write.run_id)
    row = connection.execute("SELECT found FROM item_writes WHERE key = ?", (write.key,)).fetchone()
    return number, None if row is None else bool(row[0])


def _remember(connection: sqlite3.Connection, run: int, write: ItemWrite | None, there: bool) -> None:
    if write is not None:
        connection.execute("INSERT INTO item_writes (key, run, found) VALUES (?, ?, ?)", (write.key, run, int(there)))


# -- reading -----------------------------------------------------------------------------------------------------------


def get(
    connection: sqlite3.Connection, now: float, area: Area, namespace: Namespace, key: str, url: str
) -> Item | None:
    """See `ItemStore.item`."""
    row = _row(connection, now, area, namespace, key)
    if row is None:
        return None
    item = _item(row)
    if item is None:
        raise StoreError(f"store {url}: item {key!r} in {'/'.join(namespace)} is damaged; delete it, or put it again")
    return item


def listed(
    connection: sqlite3.Connection, now: float, area: Area, prefix: Namespace, after: tuple[str, str] | None, limit: int
) -> list[Item]:
    """See `ItemStore.items`."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM items WHERE {_LIVING} AND (namespace, key) > (?, ?) ORDER BY namespace, key",
        (area, *prefix_range(prefix), now, *(after or ("", ""))),
    )
    found: list[Item] = []
    for item in map(_item, rows):
        if len(found) >= limit:
            break
        if item is not None:
            found.append(item)
    return found


def namespaces(connection: sqlite3.Connection, now: float, area: Area, prefix: Namespace) -> list[Namespace]:
    """See `ItemStore.item_namespaces`."""
    rows = connection.execute(
        f"SELECT DISTINCT namespace FROM items WHERE {_LIVING} ORDER BY namespace", (area, *prefix_range(prefix), now)
    )
    return [namespace_of(text) for (text,) in rows if isinstance(text, str)]


def usage(connection: sqlite3.Connection, now: float, area: Area) -> ItemUsage:
    """See `ItemStore.item_usage`."""
    items, size, expired = connection.execute(
        "SELECT count(*), total(size), total(expires IS NOT NULL AND expires <= ?) FROM items WHERE area = ?",
        (now, area),
    ).fetchone()
    return ItemUsage(int(items), int(size), int(expired))


def close_by(
    connection: sqlite3.Connection, now: float, area: Area, prefix: Namespace, vector: bytes, limit: int
) -> list[FoundItem]:
    """See `ItemStore.nearest_items`."""
    rows = connection.execute(
        f"SELECT id, vector, namespace, key FROM items WHERE {_LIVING} AND length(vector) = ?",
        (area, *prefix_range(prefix), now, len(vector)),
    )
    found = nearest(vector, rows, lambda row: bytes(row[1]), lambda row: (row[2], row[3]), limit)
    return _fetched(connection, [(score, row[0]) for score, row in found])


def search(
    connection: sqlite3.Connection, now: float, area: Area, prefix: Namespace, text: str, limit: int
) -> list[FoundItem]:
    """See `ItemStore.search_items`. The index gives the items with one of the words, and their texts the scores."""
    terms = terms_of(text)
    if not terms:
        return []
    where = (area, *prefix_range(prefix), now)
    items, length = connection.execute(
        f"SELECT count(*), total(words) FROM items WHERE {_LIVING} AND words > 0", where
    ).fetchone()
    conditions, values = ["indexed = 0"], []
    if has_index(connection):
        conditions.append("id IN (SELECT rowid FROM item_words WHERE item_words MATCH ?)")
        values.append(" OR ".join(f'"{term}"' for term in terms))
    else:
        conditions.append("indexed = 1")
    rows = connection.execute(
        f"SELECT id, namespace, key, text FROM items WHERE {_LIVING} AND ({' OR '.join(conditions)})",
        (*where, *values),
    )
    numbers: dict[tuple[str, str], int] = {}
    candidates = []
    for number, *place, words_of in rows:
        one = candidate((str(place[0]), str(place[1])), str(words_of), terms)
        if one is not None:
            numbers[one.place] = number
            candidates.append(one)
    found = best(candidates, int(items), int(length), limit)
    return _fetched(connection, [(score, numbers[one.place]) for score, one in found])


def _fetched(connection: sqlite3.Connection, found: Iterable[tuple[float, int]]) -> list[FoundItem]:
    items: list[FoundItem] = []
    for score, number in found:
        row = connection.execute(f"SELECT {_COLUMNS} FROM items WHERE id = ?", (number,)).fetchone()
        item = _item(row)
        if item is not None:
            items.append(FoundItem(item, score))
    return items


def _row(connection: sqlite3.Connection, now: float, area: Area, namespace: Namespace, key: str) -> _Row | None:
    row: _Row | None = connection.execute(
        f"SELECT {_COLUMNS} FROM items WHERE area = ? AND namespace = ? AND key = ?"
        " AND (expires IS NULL OR expires > ?)",
        (area, namespace_text(namespace), key, now),
    ).fetchone()
    return row


def _item(row: _Row) -> Item | None:
    """Return a row of `_COLUMNS` as an item; None if it is damaged."""
    space, key, data, text, vector, created, updated, expires, area, crc = row
    texts = all(isinstance(one, str) for one in (space, key, data, text, area))
    times = isinstance(created, float) and isinstance(updated, float) and isinstance(expires, float | None)
    if not texts or not times or not isinstance(vector, bytes):
        return None
    item = Item(namespace_of(space), key, data, text, vector, created, updated, expires)
    try:
        whole = checksum(area, item) == crc and is_whole(item)
    except UnicodeError:
        return None
    return item if whole else None


def damaged(connection: sqlite3.Connection) -> list[tuple[int, str, str]]:
    """Return the number, area and names of each damaged item."""
    found: list[tuple[int, str, str]] = []
    for number, *row in connection.execute(f"SELECT id, {_COLUMNS} FROM items ORDER BY id"):
        if _item(tuple(row)) is None:
            found.append((number, str(row[8]), f"{str(row[1])!r} in {'/'.join(namespace_of(str(row[0])))}"))
    return found


def remove(connection: sqlite3.Connection, numbers: Sequence[int]) -> int:
    """Delete items and their words in the index; return how many."""
    if numbers and has_index(connection):
        connection.executemany("DELETE FROM item_words WHERE rowid = ?", [(number,) for number in numbers])
    connection.executemany("DELETE FROM items WHERE id = ?", [(number,) for number in numbers])
    return len(numbers)


# -- the full-text index -----------------------------------------------------------------------------------------------


def has_index(connection: sqlite3.Connection) -> bool:
    """Return True if the index exists."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'item_words'").fetchone() is not None


def is_indexed(connection: sqlite3.Connection) -> bool:
    """Return True if every item is in the index."""
    if connection.execute("SELECT 1 FROM items WHERE indexed = 0 LIMIT 1").fetchone() is not None:
        return False
    return has_index(connection) or connection.execute("SELECT 1 FROM items LIMIT 1").fetchone() is None


def index_some(connection: sqlite3.Connection) -> bool:
    """Index some of the items that are not indexed; return whether others may be left."""
    if not has_index(connection):
        connection.execute("UPDATE items SET indexed = 0 WHERE indexed = 1")
        connection.execute("CREATE VIRTUAL TABLE item_words USING fts5 (words)")
    rows = connection.execute("SELECT id, text FROM items WHERE indexed = 0 LIMIT ?", (AT_ONCE,)).fetchall()
    connection.executemany("DELETE FROM item_words WHERE rowid = ?", [(number,) for number, _ in rows])
    connection.executemany(
        "INSERT INTO item_words (rowid, words) VALUES (?, ?)",
        [(number, " ".join(words(str(text)))) for number, text in rows],
    )
    connection.executemany("UPDATE items SET indexed = 1 WHERE id = ?", [(number,) for number, _ in rows])
    return len(rows) == AT_ONCE
