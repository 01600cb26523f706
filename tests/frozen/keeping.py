"""Runs as they would be found in a store, with fixed times, so that what is made of them is the same each time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from orchestrator import Executor, Graph, Run
from orchestrator.kernel.records import Record
from orchestrator.stores import RunInfo, Store, open_store
from orchestrator.stores.requests import NewRun
from tests.frozen.blanking import frames
from tests.frozen.staging import Piece, staged

BEGAN = 1_700_000_000.0
"""Unix seconds of every first record; each further one comes a quarter of a second later."""
STEP = 0.25


@dataclass
class Kept:
    """A run with fixed times."""

    info: RunInfo
    graph: Graph
    records: Sequence[Record]


async def kept(piece: Piece) -> Kept:
    """Run a piece, and fix its times."""
    run, found, _ = await staged(replace(piece, brief=True))
    records = [_fixed(record) for record in found]
    started: Any = records[0]
    info = RunInfo(
        piece.name, run.graph, run.machine.status, dict(run.labels), created=BEGAN, updated=records[-1].ts,
        head=len(records), structure=started.structure, content=started.content, waiting=len(run.waiting),
    )  # fmt: skip
    return Kept(info, piece.graph, records)


def _fixed(record: Record) -> Record:
    ts = BEGAN + STEP * (record.seq - 1)
    fields: dict[str, Any] = {"ts": ts, "started": ts - STEP, "ended": ts, "next_at": ts + STEP, "holder": "holder"}
    present = {name: value for name, value in fields.items() if getattr(record, name, None)}
    error = getattr(record, "error", None)
    if error is not None and error.traceback:
        present["error"] = error.model_copy(update={"traceback": frames(error.traceback)})
    return structs.replace(record, **present)


@asynccontextmanager
async def looking(url: str, runs: Sequence[Kept]) -> AsyncIterator[Executor]:
    """An executor without any code over a store that holds these runs."""
    store = open_store(url)
    try:
        for one in runs:
            await put(store, one)
        async with Executor(store) as executor:
            yield executor
    finally:
        await store.close()


async def put(store: Store, one: Kept) -> None:
    """Add a run to a store."""
    await store.create(NewRun(one.info, one.records, graph=one.graph.data()))


def named(text: str, runs: Sequence[Kept | Run]) -> str:
    """The text with the digests of what nodes' code is, which change with it, under fixed names."""
    for one in runs:
        content = one.info.content if isinstance(one, Kept) else one.definition.content
        text = text.replace(content, "content")
    return re.sub(r'("code"\s*:\s*")[0-9a-f]{8,}', r"\1code", text)
