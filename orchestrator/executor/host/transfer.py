"""Runs out of a store and into another one, as the lines that `export_format` describes.

An import reads the whole file before it writes anything. Imported records carry no seal, and their approvals do not
count: the run asks again before it makes the calls that they allow.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, TypeAlias

from orchestrator.away import away
from orchestrator.errors import InvalidExport, OrchestratorError, RunExists, RunUnknown, StoreCorrupt, StoreError
from orchestrator.executor.host.deletion import children_of
from orchestrator.executor.host.export_format import VERSION, ExportedRun, brief, read_runs
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.loader import RunLoader
from orchestrator.executor.host.start import check_run_id
from orchestrator.executor.run_row import row_of
from orchestrator.executor.snapshots import Snapshots
from orchestrator.jsontypes import ORDERED, JsonObject, cut_up, in_pieces
from orchestrator.kernel.machine import apply_stored
from orchestrator.kernel.records import Record, encode_unsealed
from orchestrator.redaction import redacted
from orchestrator.seals import Audit
from orchestrator.stores.base import RunInfo
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import NewRun
from orchestrator.stores.shared import graphs_named
from orchestrator.values import new_labels

Source: TypeAlias = "str | os.PathLike[str] | Iterable[str]"
"""The path of an exported file, or its lines."""


# -- out ---------------------------------------------------------------------------------------------------------


async def exported(host: Host, run_ids: Iterable[str], *, children: bool, redact: bool) -> AsyncIterator[str]:
    """See `Executor.export`."""
    digest, count, known = hashlib.sha256(), 0, set[str]()

    def line(value: object) -> str:
        text = "".join(in_pieces(value, ORDERED))
        for piece in cut_up(text):
            digest.update(piece.encode())
        digest.update(b"\n")
        return text

    def line_of(record: Record) -> str:
        fields = {
            **record.model_dump(mode="json", exclude_defaults=True, exclude={"seal", "type"}),
            "type": record.type,
        }
        return line(redacted(fields) if redact else fields)

    found = await _with_children(host, run_ids, children=children)  # unknown runs are reported before the first line
    yield line({"type": "export", "version": VERSION, "redacted": redact})
    for run_id in found:
        info = await host.store.info(run_id)
        records = await host.store.read(run_id, upto=info.head)
        for name in graphs_named(info, records):
            if name not in known:
                known.add(name)
                data = await _graph(host, name)
                if data is not None:
                    yield line({"type": "graph", "digest": name, "data": redacted(data) if redact else data})
        yield line({"type": "run", "run_id": run_id, "records": len(records)})
        for record in records:
            yield await away(partial(line_of, record), record)
        count += 1
    yield json.dumps({"type": "end", "runs": count, "sha256": digest.hexdigest()})


async def _with_children(host: Host, run_ids: Iterable[str], *, children: bool) -> list[str]:
    """The runs, each followed by the runs that its calls began."""
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
    """A graph of the store; None: a digest of a structure, under which no graph is stored."""
    try:
        return await host.store.graph(digest)
    except OrchestratorError:
        return None


# -- in ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    runs: tuple[str, ...] = ()
    """Ids of the runs that were added."""
    skipped: tuple[str, ...] = ()
    """Ids of the runs that the store has already, with the same records."""


async def imported(host: Host, source: Source) -> Imported:
    """See `Executor.import_`."""
    with _opened(source) as file:
        seen, skipped = set[str](), set[str]()
        graphs: dict[str, JsonObject] = {}
        for run in read_runs(file, graphs):
            if run.run_id in seen:
                raise InvalidExport(run.line, f"run {run.run_id!r} is there twice")
            seen.add(run.run_id)
            await _row(host, run, graphs)
            if await _is_there(host, run):
                skipped.add(run.run_id)
        done: list[str] = []
        stored = set[str]()
        for run in read_runs(file, graphs):  # known to be whole now
            if run.run_id in skipped:
                continue
            info, records = await _row(host, run, graphs)
            for name in graphs_named(info, records):
                if name in graphs and name not in stored:
                    stored.add(name)
                    await host.store.put_graph(name, graphs[name])
            await host.store.create(NewRun(info, records))
            done.append(run.run_id)
    return Imported(tuple(done), tuple(sorted(skipped)))


async def _row(host: Host, run: ExportedRun, graphs: Mapping[str, JsonObject]) -> tuple[RunInfo, list[Record]]:
    """The row of a run and its records, with one that takes away approvals; the fold is the check."""
    try:
        started = run.records[0]
        if started.type != "run_started":
            raise ValueError("its first record is not run_started")
        check_run_id(run.run_id)
        if started.content not in graphs:
            raise ValueError(f"its graph {started.content!r} is not in the export")
        info = RunInfo(
            run.run_id, started.graph, "running", created=started.ts, head=len(run.records),
            structure=started.structure, content=started.content,
        )  # fmt: skip
        scratch = MemoryStore()
        for name in graphs_named(info, run.records):
            if name in graphs:
                await scratch.put_graph(name, graphs[name])
        await scratch.create(NewRun(info, run.records))
        loader = RunLoader(scratch, host.resources, Snapshots(scratch))
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
    """Whether the store has this run already, at the same position or further.

    Raises:
        RunExists: it has another run of this id, or this one before its last records.
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
    """The source as a file that can be read twice."""
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
