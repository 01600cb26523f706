"""Long strings of records, which databases keep beside the records, once each, by their digest.

`split` takes the long string literals out of a record's JSON and leaves a skeleton; `pieces` has them again. A skeleton
is readable. It begins with `~` and the places of its holes, and has the digest of what belongs there in each hole:

    ~33+204800
    {"seq":3,"ts":1.0,"key":"a","x":"sha256:9f86d081884c7d659a2feaa0c55ad015...","type":"effect_settled"}

Nothing in a record can be taken for a hole, since the places say where holes are, and nothing for a skeleton, since
records begin with `{`. The end of a skeleton is the end of its record if that is no long string.

A record can have a payload thousands of times, and so can a thousand records of a run: a small store says what takes
gigabytes as text. So records are not always put together to be read: see `Assembly`.

Which runs have which payloads, by their records and by what a store has noted: for the check of a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from orchestrator.stores.rows import Finding
from orchestrator.values import MAX_RECORD_BYTES

Payloads: TypeAlias = Mapping[bytes, bytes]
"""SHA-256 digest -> the bytes that have it."""

LEAST = 1 << 15
"""Bytes between the quotes of a string, as it is encoded, from which on it is a payload."""

MARK = b"~"
"""The beginning of each skeleton."""

_NOTHING: Payloads = {}
_NAME = b"sha256:"
_HOLE = len(_NAME) + 64

_PLACES = re.compile(rb"~(?:[0-9]{1,15}\+[0-9]{1,15}(?:,[0-9]{1,15}\+[0-9]{1,15})*)?\n")
_DIGEST = re.compile(rb"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Hole:
    """A place of a skeleton where a payload was."""

    at: int
    """Where it begins in the skeleton, behind the first line."""
    size: int
    """Bytes of the payload."""
    digest: bytes


def split(data: bytes) -> tuple[bytes, Payloads]:
    """Take the long strings out of the bytes of a record.

    Takes time in proportion to the number of bytes, whatever they are; the same bytes give the same.

    Args:
        data: the record's JSON. Any other bytes come back from `join` as well.

    Returns:
        What to store as the record, and the payloads to keep beside it: the data itself and none if it has no long
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
    """The bounds of the long strings, without their quotes.

    A jump over two quotes or more goes nearly as far as a long string, so there are few steps, however many quotes.
    """
    plain = data.replace(b"\\\\", b"..").replace(b'\\"', b"..")  # as long, and all of its quotes begin or end a string
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
    """The holes of what is stored as a record, in their order; none if it is whole.

    Raises:
        ValueError: it is a damaged skeleton.
    """
    return _parsed(stored)[1] if stored.startswith(MARK) else ()


def pieces(stored: bytes, payloads: Payloads) -> list[bytes]:
    """What `split` was given, as the parts between the holes and the payloads in turn.

    Raises:
        KeyError: a payload is missing; its argument is the digest.
        ValueError: the skeleton is damaged, does not fit the payloads, or says more than a record has.
    """
    first, found = _parsed(stored) if stored.startswith(MARK) else (0, [])
    size = len(stored) - first + sum(hole.size - _HOLE for hole in found)
    if size > MAX_RECORD_BYTES:
        raise ValueError(f"it has {size:,} bytes with its payloads, and a record has at most {MAX_RECORD_BYTES:,}")
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
"""Bytes of payloads that records of one read may have beside the first of each: then they are not put together."""


@dataclass(frozen=True, slots=True)
class Parted:
    """A record whose payloads are not put into it: however often it has one, it is in memory once."""

    pieces: Sequence[bytes]
    """The bytes of the record."""
    json: bytes
    """The record with a name in place of each payload."""
    texts: Mapping[str, str]
    """Name -> the payload as a string. Nothing else in the record is such a name."""


class Assembly:
    """Makes the records of one read from their skeletons, in memory in proportion to what is stored."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._texts: dict[bytes, str] = {}
        self._repeated = 0

    def record(self, stored: bytes, payloads: Payloads) -> bytes | Parted:
        """A record from its skeleton; parted if payloads are repeated a lot, as finding their names takes time.

        Args:
            stored: the skeleton.
            payloads: its payloads, and maybe others.

        Raises:
            KeyError, ValueError: see `pieces`; or a payload is no string of JSON.
        """
        parts, found = pieces(stored, payloads), holes(stored)
        for hole in found:
            self._repeated += hole.size if hole.digest in self._seen else 0
            self._seen.add(hole.digest)
        if self._repeated <= _REPEATED:
            return b"".join(parts)
        named = [*parts]
        own = sha256(stored).hexdigest()  # nothing contains its own digest, so nothing in it is taken for a name
        texts: dict[str, str] = {}
        for at, hole in enumerate(found):
            name = f"{own}:{hole.digest.hex()}"
            texts[name] = self._text(hole.digest, payloads)
            named[2 * at + 1] = name.encode()
        return Parted(parts, b"".join(named), texts)

    def _text(self, digest: bytes, payloads: Payloads) -> str:
        from pydantic_core import from_json  # late: stores are opened by commands that read no payload

        if digest not in self._texts:
            self._texts[digest] = from_json(b'"%b"' % payloads[digest])
        return self._texts[digest]


_AT_ONCE = 100
"""Records whose payloads are read at once."""
_BYTES_AT_ONCE = 8 << 20
"""About so many bytes of payloads are read at once."""


def ahead(wanted: set[bytes], coming: Iterable[object]) -> set[bytes]:
    """The digests of payloads to be read together: those of a record, and within bounds those of the ones behind it.

    Args:
        wanted: the digests of the first record.
        coming: what is stored as the records behind it, in their order. Asked for no further than needed.
    """
    found, size = {*wanted}, 0
    for stored, _ in zip(coming, range(10 * _AT_ONCE), strict=False):
        try:
            some = holes(stored) if isinstance(stored, bytes) else ()
        except ValueError:
            break  # damaged: this is reported when its turn comes
        size += sum(hole.size for hole in some if hole.digest not in found)
        if size > _BYTES_AT_ONCE or len(found) + len(some) > _AT_ONCE:
            break
        found.update(hole.digest for hole in some)
    return found


def _parsed(skeleton: bytes) -> tuple[int, list[Hole]]:
    """Where the first line of a skeleton ends, and its holes."""
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
    """True if a payload as it is stored is what its digest says."""
    return isinstance(data, bytes) and sha256(data).digest() == digest


def shown(digest: object) -> str:
    """A digest as messages show it, and as skeletons have it. What a damaged file has in its place is shown, too."""
    return f"{_NAME.decode()}{digest.hex()}" if isinstance(digest, bytes) else repr(digest)


def size_of(rows: Iterable[tuple[int, int, bytes]], payloads: Payloads) -> int:
    """Bytes of rows that are to be stored, with their payloads."""
    size = sum(len(data) for _, _, data in rows)
    return size + sum(map(len, payloads.values())) if payloads else size


@dataclass(frozen=True, slots=True)
class Disorder:
    """Rows that do not belong together. The runs are numbers."""

    unnoted: dict[int, set[bytes]]
    """Runs whose records have payloads that are not noted -> these payloads."""
    stale: set[int]
    """Runs for which payloads are noted, and whose records are not in the store."""
    unused: list[bytes]
    """Payloads that no record has and that are noted for no run whose records are in the store; sorted."""
    missing: dict[bytes, int]
    """Payloads that are not there -> the first run whose records have them."""

    @property
    def wrong(self) -> list[int]:
        """The runs for which something is to be noted or removed, sorted."""
        return sorted({*self.unnoted, *self.stale})


def disorder(
    records: Iterable[tuple[int, object]], noted: Iterable[tuple[int, bytes, object]], there: AbstractSet[bytes]
) -> Disorder:
    """Compare what records have with what is noted.

    What is noted for a run whose records are in the store is never wrong: a record that is damaged may have had it.

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
    """The digests of the payloads of stored records. Of one that is damaged there are none: reading it reports it."""
    found: set[bytes] = set()
    for data in records:
        with suppress(ValueError):
            found |= {hole.digest for hole in holes(data)} if isinstance(data, bytes) else set()
    return found


def damage(damaged: Iterable[object], missing: dict[bytes, str]) -> list[Finding]:
    """Damage that cannot be repaired.

    Args:
        damaged: digests of payloads that do not have these digests.
        missing: see `Disorder`; with the ids of runs.
    """
    found = [Finding(f"payload {shown(digest)} is damaged; restore the store from a copy") for digest in damaged]
    found += [
        Finding(f"payload {shown(digest)} of run {run_id!r} is missing; restore the store from a copy")
        for digest, run_id in sorted(missing.items())
    ]
    return found
