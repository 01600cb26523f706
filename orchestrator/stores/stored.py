"""What databases keep of a run, in the form in which every one of them keeps it: records with checksums, and labels."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.archived import Archived
from orchestrator.jsontypes import canonical
from orchestrator.kernel import records as r

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record

Row: TypeAlias = tuple[int, int, bytes]
"""seq, checksum, data."""


def checksum(run_id: str, seq: int, data: bytes) -> int:
    """CRC-32 of a row; its run and `seq` are in it so that a row in the wrong place is found too."""
    return zlib.crc32(data, zlib.crc32(run_id.encode(), seq & 0xFFFFFFFF))


def rows_of(run_id: str, records: Sequence[Record]) -> list[Row]:
    """Records as rows."""
    rows: list[Row] = []
    for record in records:
        data = r.encode(record)
        rows.append((record.seq, checksum(run_id, record.seq, data), data))
    return rows


def labels_of(text: object) -> dict[str, str] | None:
    """The labels in a run's row; None if they are damaged."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return None
    return found


def archived_text(archived: Archived) -> str:
    """Where the records of a run are, as its row says it."""
    return canonical(asdict(archived))


def archived_of(text: object) -> Archived | None:
    """The same, read back; None: the records are in the store. What is damaged names no object."""
    if text is None:
        return None
    try:
        found = dict(json.loads(text)) if isinstance(text, str) else {}
        archive, name, sha256 = str(found["archive"]), str(found["name"]), str(found["sha256"])
        return Archived(archive, name, sha256, int(found["size"]), float(found["at"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Archived("", "", "", 0, 0.0)
