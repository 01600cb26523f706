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
from typing import TYPE_CHECKING

from orchestrator.errors import StoreCorrupt
from orchestrator.jsontypes import JsonObject, json_text
from orchestrator.kernel import records as r
from orchestrator.stores.shared import read_record

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record

_VERSION = 1


def object_of(run_id: str, records: Sequence[Record], graphs: Mapping[str, JsonObject], *, compress: bool) -> bytes:
    """The bytes of an object. The same run has the same bytes.

    Args:
        run_id: the run's id.
        records: all of its records.
        graphs: the graphs that it names, by digest.
        compress: whether they are compressed by gzip.
    """
    lines = [json_text({"type": "export", "version": _VERSION, "redacted": False})]
    lines += [json_text({"type": "graph", "digest": name, "data": data}) for name, data in graphs.items()]
    lines.append(json_text({"type": "run", "run_id": run_id, "records": len(records)}))
    data = b"".join(line.encode() + b"\n" for line in lines) + b"".join(r.encode(one) + b"\n" for one in records)
    end = json_text({"type": "end", "runs": 1, "sha256": hashlib.sha256(data).hexdigest()})
    data += end.encode() + b"\n"
    return gzip.compress(data, mtime=0) if compress else data


def records_of(run_id: str, data: bytes) -> list[Record]:
    """The records of a run in its object.

    Raises:
        ValueError: the bytes are not an object of this run.
        StoreTooNew: a newer version of this library wrote a record.
    """
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"it cannot be decompressed: {error}") from error
    lines = data.split(b"\n")
    at = 0
    while at < len(lines):
        fields = _fields(lines[at])
        at += 1
        if fields.get("type") == "run":
            count = fields.get("records")
            if fields.get("run_id") != run_id or not isinstance(count, int):
                raise ValueError(f"it has the records of run {fields.get('run_id')!r}")
            return _records(run_id, lines[at : at + count], count)
        if fields.get("type") not in ("export", "graph"):
            break
    raise ValueError("it has no run")


def _records(run_id: str, lines: Sequence[bytes], count: int) -> list[Record]:
    if len(lines) != count:
        raise ValueError(f"it has {len(lines)} of {count} records")
    found: list[Record] = []
    for seq, line in enumerate(lines, 1):
        try:
            found.append(read_record(run_id, seq, line, found))
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
