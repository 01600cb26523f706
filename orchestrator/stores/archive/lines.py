"""The object of an archived run: JSON Lines, as an export of this run has them, but as the store keeps the records.

Seals are kept, and encrypted values stay encrypted. So the object of a run that is not encrypted can be imported by
`orchestrator import` into any store, also if nothing else is left.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from orchestrator.errors import StoreCorrupt, StoreError
from orchestrator.json import JsonObject, json_text
from orchestrator.kernel import records as r
from orchestrator.stores.shared import read_record
from orchestrator.values import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record

_VERSION = 1

GZIP = b"\x1f\x8b"
"""What a compressed object begins with."""

_DENSEST = 100
"""Bytes of text that a byte of a compressed object may stand for, if they are more than a record may have."""

_MOST = 4 << 30
"""Bytes of an object. S3 takes 5 GB in one request."""


def object_of(run_id: str, records: Sequence[Record], graphs: Mapping[str, JsonObject], *, compress: bool) -> bytes:
    """The bytes of an object. The same run has the same bytes.

    Args:
        run_id: the run's id.
        records: all of its records.
        graphs: the graphs that it names, by digest.
        compress: whether they are compressed by gzip. What gets so small that `records_of` would not unpack it is not.

    Raises:
        StoreError: the run is too large for an object.
    """
    lines = [json_text({"type": "export", "version": _VERSION, "redacted": False})]
    lines += [json_text({"type": "graph", "digest": name, "data": data}) for name, data in graphs.items()]
    lines.append(json_text({"type": "run", "run_id": run_id, "records": len(records)}))
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
    """The text of an object: a few bytes can be packed that need gigabytes when they are read.

    Raises:
        ValueError: it cannot be decompressed, or has more text than `object_of` packs.
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
    """The records of a run in its object.

    Raises:
        ValueError: the bytes are not an object of this run.
        StoreTooNew: a newer version of this library wrote a record.
    """
    if data.startswith(GZIP):
        data = _unpacked(data)
    lines = BytesIO(data)  # not all of them at once: an object of line ends alone has millions
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
