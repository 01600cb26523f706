"""The lines of exported runs, and reading them.

{"type": "export", "version": 1, "redacted": false}
{"type": "graph", "digest": "...", "data": {...}}     once, before the first run that names it
{"type": "run", "run_id": "...", "records": 12}
{"type": "run_started", "seq": 1, ...}                the records of this run, without seals
...
{"type": "end", "runs": 1, "sha256": "..."}           the digest of all lines before it
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.errors import InvalidExport, OrchestratorError
from orchestrator.graph.codec import shown
from orchestrator.graph.versions import content_digest
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.records import RECORD_TYPES, Record, decode
from orchestrator.values import MAX_RECORD_BYTES

VERSION = 1
_TIMES = ("ts", "started", "ended", "next_at")
_MOST = 3
"""Faults of one record that an error names."""


@dataclass(slots=True)
class ExportedRun:
    """One run of an exported file."""

    run_id: str
    records: list[Record] = field(default_factory=list)
    line: int = 0
    """The number of its first line, from 1."""


def read_runs(file: IO[bytes], graphs: dict[str, JsonObject]) -> Iterator[ExportedRun]:
    """The runs of a file from its beginning, each when all of its records are read; fills in the graphs.

    Raises:
        InvalidExport: the file is not a whole export.
    """
    file.seek(0)
    digest, number, count = hashlib.sha256(), 0, 0
    run: ExportedRun | None = None
    missing = 0
    while line := file.readline(MAX_RECORD_BYTES + 1):
        number += 1
        if len(line) > MAX_RECORD_BYTES:
            raise InvalidExport(number, f"it is longer than {MAX_RECORD_BYTES:,} bytes")
        if not line.strip():
            continue
        if run is not None and missing:
            run.records.append(_record(line, number, len(run.records) + 1))
            missing -= 1
            digest.update(line.rstrip(b"\r\n") + b"\n")
            if not missing:
                yield run
                run = None
            continue
        fields = _fields(line, number)
        kind = fields.get("type")
        if number == 1:
            _check_head(fields)
        elif kind == "graph":
            name, data = fields.get("digest"), fields.get("data")
            if not isinstance(name, str) or not isinstance(data, dict) or not _is_digest(name, data):
                raise InvalidExport(number, "the graph does not have the digest that it is stored under")
            graphs[name] = data
        elif kind == "run":
            name, records = fields.get("run_id"), fields.get("records")
            if not isinstance(name, str) or not isinstance(records, int) or records < 1:
                raise InvalidExport(number, "a run needs `run_id` and the number of its `records`")
            run, missing, count = ExportedRun(name, line=number), records, count + 1
        elif kind == "end":
            if fields.get("sha256") != digest.hexdigest() or fields.get("runs") != count:
                raise InvalidExport(number, "the lines are not those that were exported (another digest)")
            if file.readline().strip():
                raise InvalidExport(number + 1, "there are lines behind the end of the export")
            return
        else:
            raise InvalidExport(number, f"{kind!r} is not a line of an export of version {VERSION}")
        digest.update(line.rstrip(b"\r\n") + b"\n")
    raise InvalidExport(number, "the export ends here without its last line: it was cut off")


def _check_head(fields: JsonObject) -> None:
    version = fields.get("version")
    if fields.get("type") != "export" or not isinstance(version, int):
        raise InvalidExport(1, "this is not an export of runs; make one with `orchestrator export RUN -o FILE`")
    if version > VERSION:
        raise InvalidExport(1, f"its version is {version}, this library reads up to {VERSION}; update the library")
    if fields.get("redacted"):
        raise InvalidExport(1, "it is redacted: its records have changed, so no run can be made of them")


def _record(line: bytes, number: int, seq: int) -> Record:
    try:
        record = decode(line)
    except (ValueError, RecursionError) as error:
        raise InvalidExport(number, _fault_of(line, error)) from error
    fault = _odd_number(json.loads(line))
    if fault:
        raise InvalidExport(number, f"record {record.seq} ({record.type}): {fault}")
    if record.seq != seq:
        raise InvalidExport(number, f"record {record.seq} is where record {seq} belongs")
    return record.model_copy(update={"seal": ""}) if record.seal else record


def _odd_number(fields: JsonObject) -> str:
    """What is wrong with the times and the usage of a record, which no run writes like this; empty for nothing."""
    for name in _TIMES:
        value = fields.get(name)
        if value is not None and not (_is_number(value) and value >= 0):  # type: ignore[operator]
            return f"field {name!r}: Unix seconds are expected, a number of 0 or more, and it is {shown(value)}"
    used: list[tuple[str, object]] = [("usage", fields.get("usage"))]
    aside = fields.get("set_aside")
    if isinstance(aside, dict):
        used += [(f"set_aside.{key}.usage", one.get("usage")) for key, one in aside.items() if isinstance(one, dict)]
    for name, usage in used:
        for part, value in usage.items() if isinstance(usage, dict) else ():
            if part != "estimated" and not (_is_number(value) and value >= 0):
                return f"field '{name}.{part}': a number of 0 or more is expected, and it is {shown(value)}"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _fault_of(line: bytes, error: Exception) -> str:
    """Why a line is no record: its type, and each field that does not fit."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return f"it is not JSON: {brief(error)}" if not isinstance(error, ValidationError) else "it is not JSON"
    if not isinstance(fields, dict):
        return "it is not a JSON object, and a record belongs here"
    kind = fields.get("type")
    if kind is None:
        return "it has no `type`, and a record belongs here"
    if kind not in RECORD_TYPES:
        return f"this version knows no record of type {shown(kind)}; if a newer one wrote it, update the library"
    record = f"record {shown(fields.get('seq'))} ({kind})"
    if not isinstance(error, ValidationError):
        return f"{record}: {brief(error)}"
    faults = error.errors(include_url=False, include_context=False)
    more = f"; and {len(faults) - _MOST} more" if len(faults) > _MOST else ""
    return f"{record}: {'; '.join(_field_fault(one) for one in faults[:_MOST])}{more}"


def _field_fault(fault: ErrorDetails) -> str:
    """What is wrong with a field of a record."""
    name = ".".join(str(part) for part in fault["loc"][1:])  # behind the record's type
    match fault["type"]:
        case "missing":
            return f"field {name!r} is missing"
        case "extra_forbidden":
            return f"this version knows no field {name!r}"
        case "value_error":
            return f"field {name!r}: {fault['msg'].removeprefix('Value error, ')}"
        case _:
            message = fault["msg"][:1].lower() + fault["msg"][1:]
            return f"field {name!r}: {message}, and it is {shown(fault['input'])}"


def _fields(line: bytes, number: int) -> JsonObject:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidExport(number, f"it is not JSON: {brief(error)}") from error
    if not isinstance(value, dict):
        raise InvalidExport(number, "it is not a JSON object")
    return value


def _is_digest(name: str, data: JsonObject) -> bool:
    try:
        return content_digest(data) == name
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OrchestratorError):
        return False


def brief(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
