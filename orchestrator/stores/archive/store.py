"""A store wrapper that keeps the records of ended runs in an archive, and reads them from there.

The object of an archived run is JSON Lines, like an export of the run, but with the records in their stored form:
seals are kept, and encrypted values stay encrypted. So the object of an unencrypted run can be imported by
`orchestrator import` into any store, even if nothing else is left.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from orchestrator.errors import (
    Archived,
    GraphUnknown,
    InvalidValue,
    RunArchived,
    RunConflict,
    RunUnknown,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from orchestrator.json import JsonObject, json_text
from orchestrator.kernel import records as r
from orchestrator.kernel.status import FINAL
from orchestrator.stores.archive import Archive, is_name, new_name
from orchestrator.stores.base import Archivable, Archiving, Store
from orchestrator.stores.requests import Append
from orchestrator.stores.rows import Note, Page, StoredRun
from orchestrator.stores.shared import copy_run, corrupt, graphs_named, load_of, read_apart, read_record, run_line
from orchestrator.stores.wrapper import StoreWrapper
from orchestrator.values import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


_VERSION = 1

GZIP = b"\x1f\x8b"
"""The first bytes of a compressed object."""

_DENSEST = 100
"""Maximum ratio of text to compressed bytes, if the text is longer than a record may be."""

_MOST = 4 << 30
"""Maximum number of bytes of an object. S3 accepts 5 GB in one request."""


def object_of(
    run_id: str,
    records: Sequence[Record],
    graphs: Mapping[str, JsonObject],
    *,
    compress: bool,
    notes: Sequence[Note] = (),
) -> bytes:
    """Return the bytes of the archive object of a run. The same run, with the same notes, always gives the same bytes.

    Args:
        run_id: the run's id.
        records: all of its records.
        graphs: the graphs that the run names, by digest.
        notes: its notes. They stay in the store; here they are for an import of the object.
        compress: whether to compress with gzip. Data that `records_of` would refuse to decompress stays uncompressed.

    Raises:
        StoreError: the run is too large for an object.
    """
    lines = [json_text({"type": "export", "version": _VERSION, "redacted": False})]
    lines += [json_text({"type": "graph", "digest": name, "data": data}) for name, data in graphs.items()]
    lines.append(json_text(run_line(run_id, len(records), [note.data() for note in notes])))
    data = bytearray(b"".join(line.encode() + b"\n" for line in lines))
    for one in records:
        data += r.encode(one) + b"\n"
        if len(data) > _MOST:
            raise StoreError(f"run {run_id!r} has more than {_MOST:,} bytes, the limit for archived runs; keep it here")
    end = json_text({"type": "end", "runs": 1, "sha256": hashlib.sha256(data).hexdigest()})
    data += end.encode() + b"\n"
    if compress and len(data) <= _most_text(packed := gzip.compress(data, mtime=0)):
        return packed
    return bytes(data)


def _most_text(packed: bytes) -> int:
    return max(MAX_RECORD_BYTES, _DENSEST * len(packed))


def _unpacked(data: bytes) -> bytes:
    """Return the unpacked text of an object, within a limit: a few compressed bytes can expand to gigabytes.

    Raises:
        ValueError: the object cannot be decompressed, or has more text than `object_of` packs.
    """
    packed, most = zlib.decompressobj(zlib.MAX_WBITS | 16), _most_text(data)
    try:
        text = packed.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if len(text) > most:
        raise ValueError(f"it has more than {most:,} bytes when it is decompressed")
    if not packed.eof:
        raise ValueError("it cannot be decompressed: it is cut off")
    return text


def records_of(run_id: str, data: bytes) -> list[Record]:
    """Return the records of a run, read from the run's archive object.

    Raises:
        ValueError: the bytes are not an object of this run.
        StoreTooNew: a newer version of this library wrote a record.
    """
    if data.startswith(GZIP):
        data = _unpacked(data)
    lines = BytesIO(data)  # not split at once: an object of line ends alone has millions
    while True:
        fields = _fields(lines.readline())
        if fields.get("type") == "run":
            count = fields.get("records")
            if fields.get("run_id") != run_id or not isinstance(count, int):
                raise ValueError(f"it has the records of run {fields.get('run_id')!r}")
            return _records(run_id, lines, count)
        if fields.get("type") not in ("export", "graph"):
            break
    raise ValueError("it has no run")


def _records(run_id: str, lines: BytesIO, count: int) -> list[Record]:
    found: list[Record] = []
    for seq in range(1, count + 1):
        line = lines.readline()
        if not line:
            raise ValueError(f"it has {seq - 1} of {count} records")
        try:
            found.append(read_record(run_id, seq, line.removesuffix(b"\n"), found))
        except StoreCorrupt as error:
            raise ValueError(f"record {seq} cannot be read") from error
    return found


def _fields(line: bytes) -> dict[str, object]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError("a line of it is not JSON") from error
    if not isinstance(found, dict):
        raise ValueError("a line of it is not a JSON object")
    return found


T = TypeVar("T")
log = logging.getLogger("orchestrator")

_THREADS = 16
_TRIES = 3
_KEPT_RUNS, _KEPT_BYTES = 32, 64 << 20
_KEPT_GRAPHS = 32
_LONGEST_WRITE = 86_400.0
"""Seconds after which no process can still be writing an object that was noted for a run deleted since."""

_limiter: RunVar[CapacityLimiter] = RunVar("orchestrator.stores.archive")


class ArchivedStore(StoreWrapper):
    """A store whose ended runs can be moved to an archive. They are read as if their records were in the store.

    An append to an archived run moves its records back first.

    Args:
        inner: the store of all other data. It is closed with this one.
        archive: the archive of the records of archived runs.
    """

    def __init__(self, inner: Store, archive: Archive) -> None:
        super().__init__(inner)
        if isinstance(inner, Archiving):
            raise InvalidValue(f"store {inner.url} has an archive already: give one of them", where="archive")
        if not isinstance(inner, Archivable):
            raise InvalidValue(
                f"store {inner.url} cannot be archived: it has a codec, which belongs around the archive, or lacks the "
                "methods of `orchestrator.stores.base.Archivable`",
                where="archive",
            )
        self.archive = archive
        self._rows: Archivable = inner
        self._load = load_of(inner)
        self._kept = _Kept()
        self._graphs: OrderedDict[str, JsonObject] = OrderedDict()

    # --------------------------------------------------------------------------------- moving

    async def ended(self, *, before: float | None = None, after: str | None = None, limit: int = 500) -> Page:
        """See `Archiving`."""
        return await self._rows.ended(before=before, after=after, limit=limit)

    async def archive_run(self, run_id: str) -> Archived:
        """See `Archiving`."""
        info = await self.inner.info(run_id)
        if info.archived is not None:
            return info.archived
        if info.status not in FINAL:
            raise RunConflict(run_id, f"it has not ended (it is {info.status}), so it cannot be archived")
        if info.lease is not None:
            raise RunConflict(run_id, "an executor holds it, so it cannot be archived now")
        try:
            records = await self.inner.read(run_id, upto=info.head)
        except RunArchived as elsewhere:  # another process has archived the run
            return elsewhere.archived
        found = {name: await self._graph(name) for name in graphs_named(info, records)}
        graphs = {name: graph for name, graph in found.items() if graph is not None}
        notes = await self.inner.notes(run_id)
        data = object_of(run_id, records, graphs, compress=self.archive.gzip, notes=notes)
        name = new_name(run_id, info.head, info.created, gzip=data.startswith(GZIP))
        sha256 = hashlib.sha256(data).hexdigest()
        noted = await self._rows.note_object(
            run_id, Archived(self.archive.url, name, sha256, len(data), round(time.time(), 3))
        )
        if (await self.inner.info(run_id)).created != info.created:  # `move_out` detects a later deletion
            raise RunConflict(run_id, "it was deleted meanwhile, and another run has its id")
        _check_name(run_id, noted)
        await _in_thread(lambda: self._write(run_id, noted, data, records, again=noted.name != name))
        try:
            await self._rows.move_out(run_id, noted, head=info.head)
        except RunUnknown:  # deleted meanwhile, maybe before the object was written
            await self._remove([noted])
            raise
        except RunConflict:
            now = await self.inner.info(run_id)
            if now.archived is None:
                raise
            return now.archived
        return noted

    async def restore_run(self, run_id: str) -> bool:
        """See `Archiving`."""
        for _ in range(_TRIES):
            info = await self.inner.info(run_id)
            if info.archived is None:
                return False
            try:
                await self._move_back(run_id, info.archived)
            except RunConflict:
                continue  # restored, continued and archived again meanwhile
            return True
        raise RunConflict(run_id, "other processes keep archiving and restoring it: try again later")

    async def _move_back(self, run_id: str, archived: Archived) -> None:
        records = await _in_thread(lambda: self._read(run_id, archived), abandon=True)
        await self._rows.move_back(run_id, records, archived)

    # -------------------------------------------------------------------------------- journal

    async def append(self, append: Append) -> int:
        for _ in range(_TRIES):
            try:
                return await self.inner.append(append)
            except RunArchived:
                await self.restore_run(append.run_id)
        raise RunConflict(append.run_id, "another process keeps archiving it: try again later")

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        try:
            return await self.inner.read(run_id, after=after, upto=upto, limit=limit)
        except RunArchived as elsewhere:
            archived = elsewhere.archived
        try:
            found = self._kept.get(run_id, archived)
            if found is None:
                found = await _in_thread(lambda: self._read(run_id, archived), abandon=True)
        except StoreUnavailable:
            raise
        except Exception:
            await self.inner.info(run_id)  # RunUnknown: deleted meanwhile, with its object
            raise
        return _part(found, after, upto, limit)

    async def load(self, run_id: str, *, after: int | None = None, upto: int | None = None) -> StoredRun:
        """See `Loading`."""
        try:
            return await self._load(run_id, after=after, upto=upto)
        except RunArchived:
            return await read_apart(self, run_id, after=after, upto=upto)

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        try:
            return self.inner.read_now(run_id, after=after, upto=upto)
        except RunArchived as elsewhere:
            records = self._kept.get(run_id, elsewhere.archived) or self._read(run_id, elsewhere.archived)
        return _part(records, after, upto, None)

    # --------------------------------------------------------------------- deletion and copies

    async def delete(self, run_id: str) -> bool:
        objects = await self._rows.objects(run_id)  # also objects left from an earlier run with this id
        await self.reach(run_id)
        deleted = await self.inner.delete(run_id)
        try:
            missing = await self._remove(objects)
        except StoreError as error:
            raise StoreUnavailable(
                f"run {run_id!r} was deleted, but not its objects in the archive {self.archive.url}, which failed "
                f"({error}); a later `delete`, `prune` or `archive` with this archive removes them"
            ) from error
        for one in missing if deleted else ():
            log.warning(
                "run %s was deleted; its object %s was not in the archive %s (it was written to %s)",
                run_id,
                one.name,
                self.archive.url,
                one.place,
            )
        return deleted

    async def reach(self, run_id: str) -> None:
        """See `Archiving`."""
        for one in (await self._rows.objects(run_id))[:1]:
            if is_name(one.name):
                await _in_thread(partial(self.archive.get, one.name, most=0), abandon=True)

    async def compact(self) -> int:
        try:
            await self._sweep()
        except StoreError as error:  # earlier changes, such as a deletion, remain
            log.warning("objects of deleted runs are left in the archive until it can be written: %s", error)
        return await self.inner.compact()

    async def copy(self, run_id: str, to: Store) -> None:
        await copy_run(self, run_id, to)

    async def _sweep(self) -> None:
        """Remove objects of deleted runs that were left by a process that died or had no archive."""
        old = time.time() - _LONGEST_WRITE
        await self._remove([one for one in await self._rows.left_objects() if one.at < old])

    async def _remove(self, objects: Sequence[Archived]) -> list[Archived]:
        """Remove the objects of a deleted run, and return those that are not in this archive.

        New objects stay noted, because a slow process may still write them. So do missing objects that were written to
        another archive, which may be given later.
        """
        old = time.time() - _LONGEST_WRITE
        missing: list[Archived] = []
        for one in objects:
            self._kept.forget(one)
            here = False
            if is_name(one.name):
                here = await _in_thread(partial(self.archive.get, one.name, most=0)) is not None
                await _in_thread(partial(self.archive.remove, one.name))
            if not here:
                missing.append(one)
            if one.at < old and (here or one.archive == self.archive.url):
                await self._rows.forget_objects([one.name])
        return missing

    # --------------------------------------------------------------------------------- objects

    async def _graph(self, digest: str) -> JsonObject | None:
        """Return a graph of the store; None if the digest is that of a structure, under which no graph is stored."""
        if digest not in self._graphs:
            try:
                self._graphs[digest] = await self.inner.graph(digest)
            except GraphUnknown:
                return None
            if len(self._graphs) > _KEPT_GRAPHS:
                self._graphs.popitem(last=False)
        return self._graphs.get(digest)

    def _write(self, run_id: str, noted: Archived, data: bytes, records: Sequence[Record], *, again: bool) -> None:
        """Write an object, read it back, and compare it. Blocks. `again`: the object was noted before.

        Raises:
            StoreUnavailable: the object differs from what was written.
        """
        most = len(data)
        # The object may exist: written by a process that died, or left when the run was restored.
        there = False
        if again:
            with suppress(StoreUnavailable):  # the folder may not exist yet; `put` reports other causes
                there = self.archive.get(noted.name, most=most) == data
        if not there:
            self.archive.put(noted.name, data)
            if self.archive.get(noted.name, most=most) != data:
                raise StoreUnavailable(
                    f"archive {self.archive.url}: object {noted.name!r} is not what was written to it; the records of "
                    f"run {run_id!r} stay in the store"
                )
        if records_of(run_id, data) != [*records]:
            raise StoreUnavailable(
                f"run {run_id!r}: its records cannot be read back unchanged from the archive; they stay in the store"
            )

    def _read(self, run_id: str, archived: Archived) -> list[Record]:
        """Return the records in an object, after checking it. Blocks.

        Raises:
            StoreCorrupt: the object is missing or was changed.
        """
        _check_name(run_id, archived)
        what = f"object {archived.name!r} of the archive {self.archive.url}"
        data = self.archive.get(archived.name, most=archived.size)
        if data is None:
            moved = "" if archived.archive == self.archive.url else f"; it was written to {archived.place}"
            raise StoreCorrupt(run_id, 0, f"{what} is missing{moved}", archive=True)
        if hashlib.sha256(data).hexdigest() != archived.sha256:
            has = f"more than {archived.size}" if len(data) > archived.size else f"{len(data)} of {archived.size}"
            cut = f" (it has {has} bytes)" if len(data) != archived.size else ""
            why = f"{what} was changed{cut}: its SHA-256 is not {archived.sha256}"
            raise StoreCorrupt(run_id, 0, why, archive=True)
        try:
            records = records_of(run_id, data)
        except ValueError as error:
            raise StoreCorrupt(run_id, 0, f"{what} cannot be read: {error}", archive=True) from error
        self._kept.put(run_id, archived, records, len(data))
        return records


class _Kept:
    """A cache of the records of the runs that were read last: views read a run in pieces. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: OrderedDict[str, tuple[str, str, list[Record], int]] = OrderedDict()
        """Name of the object -> the run and the digest for which it was checked, its records, and its size."""
        self._bytes = 0

    def get(self, run_id: str, archived: Archived) -> list[Record] | None:
        with self._lock:
            found = self._runs.get(archived.name)
            if found is None or found[:2] != (run_id, archived.sha256):
                return None
            self._runs.move_to_end(archived.name)
            return found[2]

    def put(self, run_id: str, archived: Archived, records: list[Record], size: int) -> None:
        self.forget(archived)
        with self._lock:
            self._runs[archived.name] = run_id, archived.sha256, records, size
            self._bytes += size
            while len(self._runs) > _KEPT_RUNS or (self._bytes > _KEPT_BYTES and len(self._runs) > 1):
                self._bytes -= self._runs.popitem(last=False)[1][3]

    def forget(self, archived: Archived) -> None:
        with self._lock:
            found = self._runs.pop(archived.name, None)
            self._bytes -= 0 if found is None else found[3]


def _check_name(run_id: str, archived: Archived) -> None:
    """Refuse a stored name that could lead out of the archive.

    Raises:
        StoreCorrupt: `new_name` cannot have made this name.
    """
    if not is_name(archived.name):
        raise corrupt(run_id, 0, f"it names no object of an archive, but {archived.name!r}", ())


def _part(records: list[Record], after: int, upto: int | None, limit: int | None) -> list[Record]:
    first = max(after, 0)
    last = len(records) if upto is None else max(upto, 0)
    return records[first : last if limit is None else min(last, first + max(limit, 0))]


async def _in_thread(action: Callable[[], T], *, abandon: bool = False) -> T:
    """Run a blocking call in a thread. `abandon`: a cancelled caller does not wait for it, since it changes nothing."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_THREADS)
        _limiter.set(limiter)
    return await to_thread.run_sync(action, limiter=limiter, abandon_on_cancel=abandon)
