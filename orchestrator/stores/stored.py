"""What databases keep of a run, in the form in which every one of them keeps it: records with checksums, and labels.

Long strings of records are kept beside them, see `payloads`. The checksum of a row is that of the whole record.

Schedules as the rows of databases have them: what they do is one text.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.archived import Archived
from orchestrator.errors import InvalidValue, StoreError
from orchestrator.jsontypes import canonical
from orchestrator.kernel import records as r
from orchestrator.stores.base import Schedule
from orchestrator.stores.payloads import LEAST, Parted, Payloads, split
from orchestrator.stores.rows import MARK, MAX_TEXT
from orchestrator.stores.shared import corrupt, read_record
from orchestrator.values import MAX_RECORD_BYTES, cut, in_calendar

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


_MOST_CODED = 64 * MAX_TEXT
"""Characters of a text in a row that is encrypted."""

Row: TypeAlias = tuple[int, int, bytes]
"""seq, checksum of the record, and what is stored as its data: its bytes, or a skeleton of them."""


def checksum(run_id: str, seq: int, data: bytes) -> int:
    """CRC-32 of a row; its run and `seq` are in it so that a row in the wrong place is found too."""
    return zlib.crc32(data, zlib.crc32(run_id.encode(), seq & 0xFFFFFFFF))


def record_of(run_id: str, seq: int, crc: object, data: object, before: Sequence[Record]) -> Record:
    """A record that was read, after its checksum was compared.

    Args:
        run_id: the run's id.
        seq: the record's number.
        crc: its checksum, as it is stored.
        data: its bytes, or a `Parted`.
        before: the records that were read before it.

    Raises:
        StoreCorrupt: it is not what was written.
        StoreTooNew: a newer version of this library wrote it.
    """
    if isinstance(data, bytes) and checksum(run_id, seq, data) == crc:
        return read_record(run_id, seq, data, before)
    if isinstance(data, Parted):
        found = checksum(run_id, seq, b"")
        for piece in data.pieces:
            found = zlib.crc32(piece, found)
        if found == crc:
            return read_record(run_id, seq, data.json, before, data.texts)
    raise corrupt(run_id, seq, "its checksum does not match", before)


def rows_of(run_id: str, records: Sequence[Record]) -> tuple[list[Row], Payloads]:
    """Records as rows, and the payloads that are kept beside them.

    Raises:
        StoreError: a record is larger than `MAX_RECORD_BYTES`.
    """
    rows: list[Row] = []
    payloads: dict[bytes, bytes] = {}
    for record in records:
        data = r.encode(record)
        if len(data) > MAX_RECORD_BYTES:
            raise StoreError(
                f"run {run_id!r}: record {record.seq} ({record.type}) has {len(data):,} bytes, and the limit is "
                f"{MAX_RECORD_BYTES:,}; store large values elsewhere, and keep their addresses"
            )
        crc = checksum(run_id, record.seq, data)
        if len(data) >= LEAST:
            data, found = split(data)
            payloads.update(found)
        rows.append((record.seq, crc, data))
    return rows, payloads


async def rows_of_new(run_id: str, records: Sequence[Record]) -> tuple[list[Row], Payloads]:
    """The same of a run that is created: a fork or an import has all its records at once."""
    if len(records) == 1:
        return rows_of(run_id, records)
    from orchestrator.away import away

    return await away(lambda: rows_of(run_id, records), records)


def labels_of(text: object) -> dict[str, str] | None:
    """The labels in a run's row; None if they are damaged."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return None
    return found


def row_text(text: object) -> str:
    """A text of a run's row. A longer one than is written is cut, as it is shown in lists and searched for secrets."""
    if text is None or text == "":
        return ""
    found = str(text)
    return found if len(found) <= MAX_TEXT else cut(found, _MOST_CODED if found.startswith(MARK) else MAX_TEXT)


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
        return Archived(archive, name, sha256, int(found["size"]), in_calendar(found["at"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Archived("", "", "", 0, 0.0)


def schedule_text(schedule: Schedule) -> str:
    """All of a schedule but its name and its next time."""
    data = {
        "graph": schedule.graph, "cron": schedule.cron, "timezone": schedule.timezone, "catch_up": schedule.catch_up,
        "values": dict(schedule.values), "labels": dict(schedule.labels), "approve": schedule.approve,
        "paused": schedule.paused,
    }  # fmt: skip
    return canonical(data)


def schedule_of(name: str, next_at: object, data: object) -> Schedule:
    """A schedule by its row.

    Raises:
        InvalidValue: the row is damaged.
    """
    try:
        fields = json.loads(str(data))
        if not isinstance(next_at, float) or in_calendar(next_at) != next_at:
            raise ValueError(f"its next time is {next_at!r}")
        return Schedule(name=name, next_at=next_at, **fields)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidValue(str(error), where=name) from error
