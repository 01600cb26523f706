"""Export of runs from a store, and import into another one, as lines of JSON.

{"type": "export", "version": 1, "redacted": false}
{"type": "graph", "digest": "...", "data": {...}}     once, before the first run that names it
{"type": "run", "run_id": "...", "records": 12, "notes": [...]}    its notes, if there are any
{"type": "run_started", "seq": 1, ...}                the records of this run, without seals
...
{"type": "end", "runs": 1, "sha256": "..."}           the digest of all lines before it

An import reads the whole file before it writes anything. Imported records carry no seal, and their approvals do not
count: the run asks again before it makes the calls that they allow.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TypeAlias

from msgspec import Struct, structs
from pydantic import BaseModel

from orchestrator.errors import InvalidExport, OrchestratorError, RunExists, RunUnknown, StoreCorrupt, StoreError
from orchestrator.executor.deletion import keep_proof, note_export
from orchestrator.executor.host import Host
from orchestrator.executor.journal import row_of
from orchestrator.executor.loader import RunLoader
from orchestrator.executor.notes import checked_note
from orchestrator.executor.retention import children_of
from orchestrator.executor.start import check_run_id
from orchestrator.graph.codec import shown
from orchestrator.graph.versions import content_digest
from orchestrator.json import ORDERED, JsonObject, cut_up, in_pieces
from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.records import RECORD_TYPES, InvalidRecord, Record, as_json, decode, encode_unsealed
from orchestrator.kernel.seals import Audit
from orchestrator.redaction import redacted
from orchestrator.stores.base import RunInfo
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import NewRun
from orchestrator.stores.rows import MAX_NOTES, Note, note_of
from orchestrator.stores.shared import graphs_named, run_line
from orchestrator.tasks import away
from orchestrator.values import MAX_RECORD_BYTES, MAX_TOKENS, new_labels

VERSION = 1
_TIMES = ("ts", "started", "ended", "next_at")
_MOST = 3
"""Maximum number of faults of one record in an error."""
_LARGEST = (1 << 63) - 1


@dataclass(slots=True)
class ExportedRun:
    """A run in an exported file."""

    run_id: str
    records: list[Record] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    line: int = 0
    """The number of its first line, from 1."""


def read_runs(file: IO[bytes], graphs: dict[str, JsonObject]) -> Iterator[ExportedRun]:
    """Yield the runs of a file from its start, each when all of its records are read; fills in the graphs.

    Raises:
        InvalidExport: the file is not a complete export.
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
            notes = _notes(name, fields.get("notes", []), records, number)
            run, missing, count = ExportedRun(name, notes=notes, line=number), records, count + 1
        elif kind == "end":
            if fields.get("sha256") != digest.hexdigest() or fields.get("runs") != count:
                raise InvalidExport(number, "the lines have changed since they were exported (another digest)")
            if file.readline().strip():
                raise InvalidExport(number + 1, "there are lines after the end of the export")
            return
        else:
            raise InvalidExport(number, f"unknown line type {kind!r} in an export of version {VERSION}")
        digest.update(line.rstrip(b"\r\n") + b"\n")
    raise InvalidExport(number, "the export ends here without its last line: it was cut off")


def _notes(run_id: str, given: object, records: int, number: int) -> list[Note]:
    """Return the notes of a run.

    Args:
        run_id: the run's id.
        given: the notes, as in its line.
        records: the number of its records.
        number: the number of its line.
    """
    if not isinstance(given, list) or len(given) > MAX_NOTES:
        raise InvalidExport(number, f"`notes` of a run are a list of at most {MAX_NOTES}")
    found: dict[str, Note] = {}
    for one in given:
        try:
            note = checked_note(note_of(run_id, one))
        except ValueError as error:
            raise InvalidExport(number, f"run {run_id!r}: a note of it cannot be read: {brief(error)}") from error
        if note.id in found or (note.step or 0) > records:
            raise InvalidExport(number, f"run {run_id!r}: its note {note.id!r} occurs twice, or is about no step of it")
        found[note.id] = note
    return list(found.values())


def _check_head(fields: JsonObject) -> None:
    version = fields.get("version")
    if fields.get("type") != "export" or not isinstance(version, int):
        raise InvalidExport(1, "this is not an export of runs; make one with `orchestrator export RUN -o FILE`")
    if version > VERSION:
        raise InvalidExport(
            1,
            f"its version is {version}, but this version of the library supports {VERSION} at most; update it",
        )
    if fields.get("redacted"):
        raise InvalidExport(1, "it is redacted: its records have been changed, so no run can be made from them")


def _record(line: bytes, number: int, seq: int) -> Record:
    try:
        record = decode(line)
    except (ValueError, RecursionError) as error:
        raise InvalidExport(number, _fault_of(line, error)) from error
    fault = _too_large(record) or _odd_number(json.loads(line))
    if fault:
        raise InvalidExport(number, f"record {record.seq} ({record.type}): {fault}")
    if record.seq != seq:
        raise InvalidExport(number, f"record {record.seq} is where record {seq} belongs")
    return structs.replace(record, seal="") if record.seal else record


def _too_large(record: Struct | BaseModel, place: str = "") -> str:
    """Return the name of a number in a record that no store accepts; empty if there is none."""
    for name, kind in _types(record).items():
        value = getattr(record, name)
        if isinstance(value, Struct | BaseModel):
            if fault := _too_large(value, f"{place}{name}."):
                return fault
        elif kind in (int, int | None) and value is not None and not -_LARGEST <= value <= _LARGEST:
            return f"field '{place}{name}': a number of at most 19 digits is expected"
    return ""


def _types(record: Struct | BaseModel) -> dict[str, object]:
    """Return the types of the fields of a record, or of a model in it."""
    if isinstance(record, BaseModel):
        return {name: info.annotation for name, info in type(record).model_fields.items()}
    return {one.name: one.type for one in structs.fields(record)}


def _odd_number(fields: JsonObject) -> str:
    """Return the fault in the times and the usage of a record, which no run writes; empty if there is none."""
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
            if part != "estimated" and not value < MAX_TOKENS:
                return f"field '{name}.{part}': a number below {MAX_TOKENS:,} is expected"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def _fault_of(line: bytes, error: Exception) -> str:
    """Return why a line is not a record: its type, and each field that does not fit."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return f"it is not JSON: {brief(error)}"
    if not isinstance(fields, dict):
        return "it is not a JSON object, and a record is expected here"
    kind = fields.get("type")
    if kind is None:
        return "it has no `type`, and a record is expected here"
    if kind not in RECORD_TYPES:
        return f"this version has no record of type {shown(kind)}; if a newer one wrote it, update the library"
    record = f"record {shown(fields.get('seq'))} ({kind})"
    if not isinstance(error, InvalidRecord):
        return f"{record}: {brief(error)}"
    more = f"; and {len(error.faults) - _MOST} more" if len(error.faults) > _MOST else ""
    return f"{record}: {'; '.join(error.faults[:_MOST])}{more}"


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
    """Return an error as one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


Source: TypeAlias = "str | os.PathLike[str] | Iterable[str]"
"""The path of an exported file, or its lines."""


# -- export ------------------------------------------------------------------------------------------------------


async def exported(
    host: Host, run_ids: Iterable[str], *, children: bool, redact: bool, notes: bool, to: str, by: str
) -> AsyncIterator[str]:
    """See `Executor.export`."""
    digest, count, known = hashlib.sha256(), 0, set[str]()

    def line(value: object) -> str:
        text = "".join(in_pieces(value, ORDERED))
        for piece in cut_up(text):
            digest.update(piece.encode())
        digest.update(b"\n")
        return text

    def line_of(record: Record) -> str:
        fields = {name: value for name, value in as_json(record).items() if name != "seal"}
        return line(redacted(fields) if redact else fields)

    found = await _with_children(host, run_ids, children=children)  # unknown runs are reported before the first line
    yield line({"type": "export", "version": VERSION, "redacted": redact})
    for run_id in found:
        info = await host.store.info(run_id)
        if to:
            await note_export(host, run_id, to, by)
        records = await host.store.read(run_id, upto=info.head)
        for name in graphs_named(info, records):
            if name not in known:
                known.add(name)
                data = await _graph(host, name)
                if data is not None:
                    yield line({"type": "graph", "digest": name, "data": redacted(data) if redact else data})
        written = [note.data() for note in await host.store.notes(run_id)] if notes else []
        yield line(run_line(run_id, len(records), [redacted(one) for one in written] if redact else written))
        for record in records:
            yield await away(partial(line_of, record), record)
        count += 1
    yield json.dumps({"type": "end", "runs": count, "sha256": digest.hexdigest()})


async def _with_children(host: Host, run_ids: Iterable[str], *, children: bool) -> list[str]:
    """Return the ids of runs, each followed by those of the runs that its calls started."""
    found: dict[str, None] = {}
    todo = list(dict.fromkeys(run_ids))
    for name in todo:
        await host.store.info(name)
    while todo:
        name = todo.pop(0)
        if name not in found:
            found[name] = None
            if children:
                todo[:0] = await children_of(host, name)
    return list(found)


async def _graph(host: Host, digest: str) -> JsonObject | None:
    """Return a graph of the store; None for a digest of a structure, under which no graph is stored."""
    try:
        return await host.store.graph(digest)
    except OrchestratorError:
        return None


# -- import ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    runs: tuple[str, ...] = ()
    """Ids of the runs that were added."""
    skipped: tuple[str, ...] = ()
    """Ids of the runs that the store already has, with the same records."""


async def imported(host: Host, source: Source) -> Imported:
    """See `Executor.import_`."""
    with _opened(source) as file:
        seen, skipped = set[str](), set[str]()
        graphs: dict[str, JsonObject] = {}
        for run in read_runs(file, graphs):
            if run.run_id in seen:
                raise InvalidExport(run.line, f"run {run.run_id!r} occurs twice")
            seen.add(run.run_id)
            await _row(host, run, graphs)
            if await _is_there(host, run):
                skipped.add(run.run_id)
        done: list[str] = []
        stored = set[str]()
        for run in read_runs(file, graphs):  # now known to be complete
            if run.run_id in skipped:
                continue
            info, records = await _row(host, run, graphs)
            for name in graphs_named(info, records):
                if name in graphs and name not in stored:
                    stored.add(name)
                    await host.store.put_graph(name, graphs[name])
            await keep_proof(host, info)
            await host.store.create(NewRun(info, records, notes=run.notes))
            done.append(run.run_id)
    return Imported(tuple(done), tuple(sorted(skipped)))


async def _row(host: Host, run: ExportedRun, graphs: Mapping[str, JsonObject]) -> tuple[RunInfo, list[Record]]:
    """Return the row of a run and its records, with one that withdraws approvals; folding them is the check."""
    try:
        started = run.records[0]
        if started.type != "run_started":
            raise ValueError("its first record is not run_started")
        check_run_id(run.run_id)
        if started.content not in graphs:
            raise ValueError(f"its graph {started.content!r} is not in the export")
        info = RunInfo(
            run.run_id,
            started.graph,
            "running",
            created=started.ts,
            head=len(run.records),
            structure=started.structure,
            content=started.content,
        )
        scratch = MemoryStore()
        for name in graphs_named(info, run.records):
            if name in graphs:
                await scratch.put_graph(name, graphs[name])
        await scratch.create(NewRun(info, run.records))
        loader = RunLoader(scratch, host.resources)
        machine = await loader.machine_of(info, await loader.stored_graph(info))
        if machine.run_id != run.run_id:
            raise ValueError(f"its records are those of run {machine.run_id!r}")
        new_labels(started.labels)
        new_labels(machine.labels)
        now = host.resources.clock.now()
        withdrawal = Audit(frozenset(), None, run.records).withdrawal(machine, now) if machine.ended is None else None
        records = list(run.records)
        if withdrawal is not None:
            apply_stored(machine, withdrawal)
            records.append(withdrawal)
    except (OrchestratorError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        seq = error.seq if isinstance(error, StoreCorrupt) else 0  # its records follow its first line
        raise InvalidExport(run.line + seq, f"run {run.run_id!r} cannot be read: {brief(error)}") from error
    return row_of(machine, structure=info.structure, content=info.content), records


async def _is_there(host: Host, run: ExportedRun) -> bool:
    """Return True if the store has this run already, at the same position or further.

    Raises:
        RunExists: it has another run with this id, or this run without its last records.
    """
    try:
        records = await host.store.read(run.run_id, limit=len(run.records))
    except RunUnknown:
        return False
    same = [encode_unsealed(one) for one in records] == [encode_unsealed(one) for one in run.records]
    if not same:
        raise RunExists(run.run_id, "its records differ from those in the export; nothing was imported")
    return True


@contextmanager
def _opened(source: Source) -> Iterator[IO[bytes]]:
    """Return the source as a file that can be read twice."""
    if isinstance(source, str | os.PathLike):
        with ExitStack() as stack:
            try:
                file = stack.enter_context(open(source, "rb"))
            except OSError as error:
                raise StoreError(f"{os.fspath(source)!r} cannot be read: {error.strerror}") from error
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        copy.writelines(line.rstrip("\r\n").encode() + b"\n" for line in source)
        yield copy
