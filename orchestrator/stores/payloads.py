"""Long strings of records, which databases store next to the records, once each, by their digest.

`split` takes the long string literals out of a record's JSON and leaves a skeleton; `pieces` puts them back. A skeleton
is readable. It starts with `~` and the positions of its holes; each hole contains the digest of its string:

    ~33+204800
    {"seq":3,"ts":1.0,"key":"a","x":"sha256:9f86d081884c7d659a2feaa0c55ad015...","type":"effect_settled"}

Nothing in a record can be taken for a hole, since the positions of holes are listed, and no record for a skeleton,
since records start with `{`. A skeleton ends like its record, unless that ends with a long string.

A record can contain a payload thousands of times, and so can a thousand records of a run: a small store can stand for
gigabytes of text. So records are not always assembled to be read: see `Assembly`.

`disorder` compares the payloads of records with those that a store has noted: for the check of a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from hashlib import sha256
from typing import TypeAlias

from msgspec import Struct

from orchestrator.stores.rows import Finding
from orchestrator.values import MAX_RECORD_BYTES

Payloads: TypeAlias = Mapping[bytes, bytes]
"""SHA-256 digest -> bytes."""

LEAST = 1 << 15
"""Minimum number of bytes of a payload, as an encoded string without its quotes."""

MARK = b"~"
"""First characters of each skeleton."""

_NOTHING: Payloads = {}
_NAME = b"sha256:"
_HOLE = len(_NAME) + 64

_PLACES = re.compile(rb"~(?:[0-9]{1,15}\+[0-9]{1,15}(?:,[0-9]{1,15}\+[0-9]{1,15})*)?\n")
_DIGEST = re.compile(rb"sha256:([0-9a-f]{64})")


class Hole(Struct, frozen=True):
    """A position in a skeleton where a payload was."""

    at: int
    """Offset in the skeleton, after its first line."""
    size: int
    """Bytes of the payload."""
    digest: bytes


def split(data: bytes) -> tuple[bytes, Payloads]:
    """Take the long strings out of the bytes of a record.

    Takes time in proportion to the number of bytes; equal bytes give equal results.

    Args:
        data: the record's JSON. Any other bytes come back from `join` as well.

    Returns:
        The record to store, and the payloads to store next to it: the unchanged data and none if it has no long
        strings.
    """
    if len(data) < LEAST and not data.startswith(MARK):
        return data, _NOTHING
    parts: list[bytes] = []
    places: list[bytes] = []
    payloads: dict[bytes, bytes] = {}
    done = length = 0
    for first, last in _long_strings(data):
        payload = data[first:last]
        digest = sha256(payload).digest()
        payloads[digest] = payload
        length += first - done
        places.append(b"%d+%d" % (length, last - first))
        parts += data[done:first], _NAME, digest.hex().encode()
        length += _HOLE
        done = last
    if not payloads and not data.startswith(MARK):
        return data, _NOTHING
    return b"".join((MARK, b",".join(places), b"\n", *parts, data[done:])), payloads


def _long_strings(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the long strings, without their quotes.

    Each jump over two or more quotes is nearly as long as a long string, so there are few steps, however many quotes.
    """
    plain = data.replace(b"\\\\", b"..").replace(b'\\"', b"..")  # same length, and all of its quotes delimit strings
    quote, begins = plain.find(b'"'), True
    while quote >= 0:
        least = quote + 1 + LEAST
        last = plain.rfind(b'"', quote + 1, least)
        if last >= 0:
            begins ^= plain.count(b'"', quote + 1, last + 1) % 2 == 1
            quote = last
            continue
        end = plain.find(b'"', least)
        if begins and end >= 0:
            yield quote + 1, end
        quote, begins = end, not begins


def holes(stored: bytes) -> Sequence[Hole]:
    """Return the holes of a stored record, in their order; empty if it is whole.

    Raises:
        ValueError: the skeleton is damaged.
    """
    return _parsed(stored)[1] if stored.startswith(MARK) else ()


def pieces(stored: bytes, payloads: Payloads) -> list[bytes]:
    """Return the bytes that `split` was given, as the parts between the holes and the payloads in turn.

    Raises:
        KeyError: a payload is missing; its argument is the digest.
        ValueError: the skeleton is damaged, does not fit the payloads, or describes more than a record may have.
    """
    first, found = _parsed(stored) if stored.startswith(MARK) else (0, [])
    size = len(stored) - first + sum(hole.size - _HOLE for hole in found)
    if size > MAX_RECORD_BYTES:
        raise ValueError(f"it has {size:,} bytes with its payloads, and the limit for a record is {MAX_RECORD_BYTES:,}")
    parts: list[bytes] = []
    done = first
    for hole in found:
        payload = payloads[hole.digest]
        if len(payload) != hole.size:
            raise ValueError(f"payload {shown(hole.digest)} has {len(payload)} bytes, not {hole.size}")
        parts += stored[done : first + hole.at], payload
        done = first + hole.at + _HOLE
    return [*parts, stored[done:]]


_REPEATED = 16 << 20
"""Maximum bytes of repeated payloads in the records of one read; beyond it, records are not assembled."""


class Parted(Struct, frozen=True):
    """A record whose payloads are not inserted, so that each is in memory only once."""

    pieces: Sequence[bytes]
    """The bytes of the record."""
    json: bytes
    """The record with a name in place of each payload."""
    texts: Mapping[str, str]
    """Name -> the payload as a string. Nothing else in the record is such a name."""


class Assembly:
    """Makes the records of one read from their skeletons; memory grows only with the stored bytes."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._texts: dict[bytes, str] = {}
        self._repeated = 0

    def record(self, stored: bytes, payloads: Payloads) -> bytes | Parted:
        """Return a record; a `Parted` only if payloads are repeated a lot, since choosing their names takes time.

        Args:
            stored: the skeleton.
            payloads: its payloads, and possibly others.

        Raises:
            KeyError, ValueError: see `pieces`; or a payload is not a JSON string.
        """
        parts, found = pieces(stored, payloads), holes(stored)
        for hole in found:
            self._repeated += hole.size if hole.digest in self._seen else 0
            self._seen.add(hole.digest)
        if self._repeated <= _REPEATED:
            return b"".join(parts)
        named = [*parts]
        own = sha256(stored).hexdigest()  # nothing contains its own digest, so nothing in it equals a name
        texts: dict[str, str] = {}
        for at, hole in enumerate(found):
            name = f"{own}:{hole.digest.hex()}"
            texts[name] = self._text(hole.digest, payloads)
            named[2 * at + 1] = name.encode()
        return Parted(parts, b"".join(named), texts)

    def _text(self, digest: bytes, payloads: Payloads) -> str:
        from pydantic_core import from_json  # imported late: commands that read no payload do not need it

        if digest not in self._texts:
            self._texts[digest] = from_json(b'"%b"' % payloads[digest])
        return self._texts[digest]


_AT_ONCE = 100
"""Maximum number of records whose payloads are read together."""
_BYTES_AT_ONCE = 8 << 20
"""Approximate maximum of bytes of payloads that are read together."""


def ahead(wanted: set[bytes], coming: Iterable[object]) -> set[bytes]:
    """Return the digests of payloads to read together: those of a record, and within bounds those of the next ones.

    Args:
        wanted: the digests of the first record.
        coming: the records after it as stored, in their order. Consumed no further than needed.
    """
    found, size = {*wanted}, 0
    for stored, _ in zip(coming, range(10 * _AT_ONCE), strict=False):
        try:
            some = holes(stored) if isinstance(stored, bytes) else ()
        except ValueError:
            break  # damaged: reported when it is read
        size += sum(hole.size for hole in some if hole.digest not in found)
        if size > _BYTES_AT_ONCE or len(found) + len(some) > _AT_ONCE:
            break
        found.update(hole.digest for hole in some)
    return found


def _parsed(skeleton: bytes) -> tuple[int, list[Hole]]:
    """Return where the first line of a skeleton ends, and its holes."""
    line = _PLACES.match(skeleton)
    if line is None:
        raise ValueError("the places of its payloads cannot be read")
    first = end = line.end()
    found: list[Hole] = []
    for place in line.group()[len(MARK) : -1].split(b",") if first > len(MARK) + 1 else ():
        at, size = map(int, place.split(b"+"))
        digest = _DIGEST.match(skeleton, first + at)
        if digest is None or first + at < end:
            raise ValueError(f"there is no digest at {at}")
        found.append(Hole(at, size, bytes.fromhex(digest.group(1).decode())))
        end = digest.end()
    return first, found


def is_sound(digest: object, data: object) -> bool:
    """Return True if a stored payload matches its digest."""
    return isinstance(data, bytes) and sha256(data).digest() == digest


def shown(digest: object) -> str:
    """Return a digest as shown in messages and skeletons, or the value that a damaged file has in its place."""
    return f"{_NAME.decode()}{digest.hex()}" if isinstance(digest, bytes) else repr(digest)


def size_of(rows: Iterable[tuple[int, int, bytes]], payloads: Payloads) -> int:
    """Return the number of bytes of rows to be stored, with their payloads."""
    size = sum(map(len, payloads.values()))
    for _, _, data in rows:
        size += len(data)
    return size


class Disorder(Struct, frozen=True):
    """Inconsistent rows. Runs are given by number."""

    unnoted: dict[int, set[bytes]]
    """Runs whose records have payloads that are not noted -> these payloads."""
    stale: set[int]
    """Runs for which payloads are noted, but whose records are not in the store."""
    unused: list[bytes]
    """Payloads that no record has and that are noted for no run whose records are in the store; sorted."""
    missing: dict[bytes, int]
    """Missing payloads -> the first run whose records have them."""

    @property
    def wrong(self) -> list[int]:
        """The numbers of the runs for which notes must be added or removed, sorted."""
        return sorted({*self.unnoted, *self.stale})


def disorder(
    records: Iterable[tuple[int, object]], noted: Iterable[tuple[int, bytes, object]], there: AbstractSet[bytes]
) -> Disorder:
    """Compare the payloads of records with the noted ones.

    A note for a run whose records are in the store is never wrong: a damaged record may have had the payload.

    Args:
        records: number of the run, and stored bytes, of all records with payloads of runs that exist.
        noted: number of the run, digest, and whether the records of this run are in the store, of all uses.
        there: the digests of all payloads.
    """
    wanted: dict[int, set[bytes]] = {}
    missing: dict[bytes, int] = {}
    for run, data in records:
        for digest in digests_of([data]):
            if digest in there:
                wanted.setdefault(run, set()).add(digest)
            else:
                missing.setdefault(digest, run)
    used = set().union(*wanted.values())
    stale: set[int] = set()
    for run, digest, here in noted:
        if not here:
            stale.add(run)
            continue
        used.add(digest)
        if run in wanted:
            wanted[run].discard(digest)
    return Disorder({run: some for run, some in wanted.items() if some}, stale, sorted(there - used), missing)


def digests_of(records: Iterable[object]) -> set[bytes]:
    """Return the digests of the payloads of stored records. Damaged records are skipped: reading reports them."""
    found: set[bytes] = set()
    for data in records:
        with suppress(ValueError):
            found |= {hole.digest for hole in holes(data)} if isinstance(data, bytes) else set()
    return found


def damage(damaged: Iterable[object], missing: dict[bytes, str]) -> list[Finding]:
    """Return findings for damage that cannot be repaired.

    Args:
        damaged: digests of payloads that do not match them.
        missing: see `Disorder`; with the ids of runs.
    """
    found = [Finding(f"payload {shown(digest)} is damaged; restore the store from a copy") for digest in damaged]
    found += [
        Finding(f"payload {shown(digest)} of run {run_id!r} is missing; restore the store from a copy")
        for digest, run_id in sorted(missing.items())
    ]
    return found
