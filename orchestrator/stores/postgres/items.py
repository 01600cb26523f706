"""Items, as functions of a connection inside a transaction.

An item is found by the digest of its area, namespace and key, and listed by its `place`: namespace and key as one text
that sorts as the two do. Indexes contain only the start of a place, because PostgreSQL refuses long ones. The words of
an item's text are in its row and in a separate index.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

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
from orchestrator.stores.postgres.changes import locked
from orchestrator.stores.postgres.schema import LOCK
from orchestrator.stores.postgres.statements import execute, index_key, key_of, keys_of, reading, streamed, walking
from orchestrator.stores.requests import words

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection

AT_ONCE = 500
"""Maximum number of items that one write removes."""

_REMOVED = 20
"""Maximum number of expired items that a write of another item removes."""

_Row: TypeAlias = tuple[Any, ...]
"""A row of `_COLUMNS`."""

_COLUMNS = "id, area, place, data, text, vector, created, updated, expires, crc"
_NOW = "extract(epoch FROM statement_timestamp())::float8"
_LIVING = f"(expires IS NULL OR expires > {_NOW})"
_SHORT = 500
"""Characters of a place that its index contains."""
_START = f"left(place, {_SHORT})"
_WITHIN = (
    f"area = %s AND {_START} >= left(%s, {_SHORT}) AND {_START} <= left(%s, {_SHORT}) AND place >= %s AND place < %s"
    f" AND {_LIVING}"
)
_SEPARATOR = "\0"
"""Between namespace and key. No name of a namespace contains it, and all other characters sort after it."""


# -- names -------------------------------------------------------------------------------------------------------------


def place_of(place: tuple[str, str]) -> str:
    """Return a namespace's text and a key as one text, which sorts as they do."""
    return f"{place[0]}{_SEPARATOR}{place[1]}"


def _digest(area: Area, place: str) -> bytes:
    return hashlib.sha256(f"{area}\0{place}".encode("utf-8", "surrogatepass")).digest()[:16]


def _within(area: Area, prefix: Namespace) -> tuple[str, ...]:
    """Return the parameters of `_WITHIN`."""
    low, high = prefix_range(prefix)
    return area, low, high, low, high


def checksum(area: str, item: Item) -> int:
    """Return the CRC-32 of an item; it includes its names, so that a value in the wrong place is found too."""
    names = "\0".join((area, namespace_text(item.namespace), item.key, item.text))
    return zlib.crc32(item.data.encode(), zlib.crc32(item.vector, zlib.crc32(names.encode())))


# -- writing -----------------------------------------------------------------------------------------------------------


def put(
    connection: Connection,
    area: Area,
    item: Item,
    lifetime: float | None,
    write: ItemWrite | None,
    most: int | None,
    evict: bool,
) -> None:
    """See `ItemStore.put_item`."""
    if _written(connection, write) is not None:
        return
    place = place_of(item.place)
    digest = _digest(area, place)
    if most is not None:
        _make_room(connection, area, item, digest, most, evict=evict)
    _remove_some(connection)
    known = connection.execute(
        f"SELECT created FROM items WHERE digest = %s AND {_LIVING} FOR UPDATE", (digest,)
    ).fetchone()
    execute(
        connection,
        f"INSERT INTO items ({_WRITTEN}) VALUES ({_VALUES}, coalesce(%s, {_NOW}), {_NOW}, {_NOW} + %s)"
        f" ON CONFLICT (digest) DO UPDATE SET {_REPLACED}",
        (*_values(area, item, place, digest), None if known is None else known[0], lifetime),
    )
    _note(connection, write, there=known is not None)


def add(connection: Connection, area: Area, item: Item) -> bool:
    """See `ItemStore.add_item`."""
    place = place_of(item.place)
    digest = _digest(area, place)
    done = execute(
        connection,
        f"INSERT INTO items ({_WRITTEN}) VALUES ({_VALUES}, %s, %s, %s)"
        f" ON CONFLICT (digest) DO UPDATE SET {_REPLACED} WHERE items.expires <= {_NOW}",
        (*_values(area, item, place, digest), item.created, item.updated, item.expires),
    )
    return done.rowcount == 1


_WRITTEN = "area, digest, place, data, text, vector, size, words, terms, crc, created, updated, expires"
_VALUES = ", ".join(["%s"] * 10)
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in _WRITTEN.split(", ")[2:])


def _values(area: Area, item: Item, place: str, digest: bytes) -> tuple[object, ...]:
    """Return the parameters of `_VALUES` for an item."""
    found = words(item.text)
    return (
        area,
        digest,
        place,
        item.data,
        item.text,
        item.vector,
        item.size,
        len(found),
        keys_of([item.text]),
        checksum(area, item),
    )


def delete(connection: Connection, area: Area, namespace: Namespace, key: str, write: ItemWrite | None) -> bool:
    """See `ItemStore.delete_item`."""
    before = _written(connection, write)
    if before is not None:
        return before
    digest = _digest(area, place_of((namespace_text(namespace), key)))
    row = connection.execute(f"DELETE FROM items WHERE digest = %s RETURNING {_LIVING}", (digest,)).fetchone()
    there = row is not None and bool(row[0])
    _note(connection, write, there=there)
    return there


def prune(connection: Connection, area: Area, prefix: Namespace, before: float | None) -> int:
    """Remove some items that have expired, or were last written at or before a time; return how many.

    All are removed if that is fewer than `AT_ONCE`.
    """
    where = _WITHIN.replace(_LIVING, f"(expires <= {_NOW} OR updated <= %s)")
    return execute(
        connection,
        f"DELETE FROM items WHERE id IN (SELECT id FROM items WHERE {where} LIMIT %s)",
        (*_within(area, prefix), before, AT_ONCE),
    ).rowcount


def _make_room(connection: Connection, area: Area, item: Item, digest: bytes, most: int, *, evict: bool) -> None:
    """Refuse an item that does not fit, or with `evict` remove the oldest items until it fits."""
    # Only one write at a time in an area with a limit: two that fit alone may not fit together.
    connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK, area))
    others = f"area = %s AND {_LIVING} AND digest <> %s"
    row = connection.execute(f"SELECT coalesce(sum(size), 0) FROM items WHERE {others}", (area, digest)).fetchone()
    used = 0 if row is None else int(row[0])
    check_room(item, used, most, evict=evict)
    while used + item.size > most:
        oldest = connection.execute(
            f"SELECT id, size FROM items WHERE {others} ORDER BY updated, place LIMIT %s", (area, digest, AT_ONCE)
        ).fetchall()
        if not oldest:
            return
        removed = []
        for number, size in oldest:
            if used + item.size <= most:
                break
            used -= size
            removed.append(number)
        connection.execute("DELETE FROM items WHERE id = ANY(%s)", (removed,))


def _remove_some(connection: Connection) -> None:
    """Remove some items that have expired, except those that another transaction is writing."""
    connection.execute(
        f"DELETE FROM items WHERE id IN (SELECT id FROM items WHERE expires <= {_NOW} ORDER BY expires LIMIT %s"
        " FOR UPDATE SKIP LOCKED)",
        (_REMOVED,),
    )


def _written(connection: Connection, write: ItemWrite | None) -> bool | None:
    """Return the result of an earlier write by the same call of a run; None if there is none: a repetition then waits.

    Raises:
        RunUnknown: the store has no such run.
    """
    if write is None:
        return None
    number = locked(connection, write.run_id)
    done = connection.execute(
        "INSERT INTO item_writes (key, run, found) VALUES (%s, %s, FALSE) ON CONFLICT (key) DO NOTHING",
        (index_key(write.key), number),
    )
    if done.rowcount:
        return None
    row = connection.execute("SELECT found FROM item_writes WHERE key = %s", (index_key(write.key),)).fetchone()
    return row is not None and bool(row[0])


def _note(connection: Connection, write: ItemWrite | None, *, there: bool) -> None:
    """Record the result of a call."""
    if write is not None and there:
        connection.execute("UPDATE item_writes SET found = TRUE WHERE key = %s", (index_key(write.key),))


# -- reading -----------------------------------------------------------------------------------------------------------


def get(connection: Connection, area: Area, namespace: Namespace, key: str, url: str) -> Item | None:
    """See `ItemStore.item`."""
    digest = _digest(area, place_of((namespace_text(namespace), key)))
    row = connection.execute(f"SELECT {_COLUMNS} FROM items WHERE digest = %s AND {_LIVING}", (digest,)).fetchone()
    if row is None:
        return None
    item = _item(row)
    if item is None:
        raise StoreError(f"store {url}: item {key!r} in {'/'.join(namespace)} is damaged; delete it, or put it again")
    return item


def listed(
    connection: Connection, area: Area, prefix: Namespace, after: tuple[str, str] | None, limit: int
) -> list[Item]:
    """See `ItemStore.items`."""
    found: list[Item] = []
    place = "" if after is None else place_of(after)
    query = (
        f"SELECT {_COLUMNS} FROM items WHERE {_WITHIN} AND {_START} >= left(%s, {_SHORT}) AND place > %s"
        f" ORDER BY {_START}, place LIMIT %s"
    )
    with walking(connection):
        while len(found) < limit:
            values = (*_within(area, prefix), place, place, limit - len(found))
            rows = execute(connection, query, values).fetchall()
            if not rows:
                break
            place = rows[-1][2]
            found += [item for item in map(_item, rows) if item is not None]
    return found


def namespaces(connection: Connection, area: Area, prefix: Namespace) -> list[Namespace]:
    """See `ItemStore.item_namespaces`. One index lookup for each."""
    first = f"SELECT place FROM items WHERE {_WITHIN} ORDER BY {_START}, place LIMIT 1"
    after = f"{_START} >= left(steps.bound, {_SHORT}) AND place >= steps.bound"
    following = first.replace(" ORDER BY", f" AND {after} ORDER BY")
    bound = "split_part(found.place, %s, 1) || %s"  # after all items of the namespace
    values = (*_BOUND, *_within(area, prefix))
    query = (
        f"WITH RECURSIVE steps (place, bound) AS (SELECT place, {bound} FROM ({first}) AS found"
        f" UNION ALL SELECT found.place, {bound} FROM steps CROSS JOIN LATERAL ({following}) AS found)"
        " SELECT place FROM steps"
    )
    with walking(connection):
        rows = execute(connection, query, (*values, *values)).fetchall()
    return [namespace_of(_names_of(place)[0]) for (place,) in rows]


_BOUND = (_SEPARATOR, "\x01")


def now(connection: Connection) -> float:
    """Return the time by the clock of the database, in Unix seconds."""
    row = connection.execute(f"SELECT {_NOW}").fetchone()
    return 0.0 if row is None else float(row[0])


def usage(connection: Connection, area: Area) -> ItemUsage:
    """See `ItemStore.item_usage`."""
    row = connection.execute(
        f"SELECT count(*), coalesce(sum(size), 0), count(*) FILTER (WHERE NOT {_LIVING}) FROM items WHERE area = %s",
        (area,),
    ).fetchone()
    return ItemUsage() if row is None else ItemUsage(*map(int, row))


def close_by(connection: Connection, area: Area, prefix: Namespace, vector: bytes, limit: int) -> list[FoundItem]:
    """See `ItemStore.nearest_items`."""
    query = f"SELECT id, vector, place FROM items WHERE {_WITHIN} AND length(vector) = %s"
    with reading(connection):
        rows = streamed(connection, query, (*_within(area, prefix), len(vector)))
        found = nearest(vector, rows, lambda row: bytes(row[1]), lambda row: row[2], limit)
        return _fetched(connection, [(score, row[0]) for score, row in found])


def search(connection: Connection, area: Area, prefix: Namespace, text: str, limit: int) -> list[FoundItem]:
    """See `ItemStore.search_items`. The index gives the items with one of the words, and their texts the scores."""
    wanted = terms_of(text)
    if not wanted:
        return []
    where = _within(area, prefix)
    of_all = f"SELECT count(*), coalesce(sum(words), 0) FROM items WHERE {_WITHIN} AND words > 0"
    having = f"SELECT id, place, text FROM items WHERE {_WITHIN} AND terms && %s::text[]"
    numbers: dict[tuple[str, str], int] = {}
    candidates = []
    with reading(connection):
        items, length = map(int, execute(connection, of_all, where).fetchone() or (0, 0))
        for number, place, text_of in streamed(connection, having, (*where, [*map(key_of, wanted)])):
            one = candidate(_names_of(place), text_of, wanted)
            if one is not None:
                numbers[one.place] = number
                candidates.append(one)
        found = best(candidates, items, length, limit)
        return _fetched(connection, [(score, numbers[one.place]) for score, one in found])


def _fetched(connection: Connection, found: Iterable[tuple[float, int]]) -> list[FoundItem]:
    scores = [*found]
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM items WHERE id = ANY(%s)", ([number for _, number in scores],)
    ).fetchall()
    items = {row[0]: _item(row) for row in rows}
    return [FoundItem(item, score) for score, number in scores for item in [items.get(number)] if item is not None]


def _names_of(place: str) -> tuple[str, str]:
    """Return the text of the namespace, and the key."""
    namespace, _, key = place.partition(_SEPARATOR)
    return namespace, key


def _item(row: _Row) -> Item | None:
    """Return a row of `_COLUMNS` as an item; None if it is damaged."""
    _, area, place, data, text, vector, created, updated, expires, crc = row
    namespace, key = _names_of(place)
    item = Item(namespace_of(namespace), key, data, text, bytes(vector), created, updated, expires)
    return item if checksum(area, item) == crc and is_whole(item) else None


def damaged(connection: Connection) -> Iterator[tuple[int, str, str]]:
    """Yield the number, area and names of each damaged item."""
    for row in streamed(connection, f"SELECT {_COLUMNS} FROM items ORDER BY id", ()):
        if _item(row) is None:
            namespace, key = _names_of(row[2])
            yield row[0], row[1], f"{key!r} in {'/'.join(namespace_of(namespace))}"


def remove(connection: Connection, numbers: list[int]) -> int:
    """Delete items; return how many."""
    return connection.execute("DELETE FROM items WHERE id = ANY(%s)", (numbers,)).rowcount
