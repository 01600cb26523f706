"""Copying all runs and schedules of a store into another one, of any kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.errors import GraphUnknown, RunUnknown
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.stores.rows import MAX_NOTES, NOTICE
from orchestrator.stores.shared import graphs_named, whole_row

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of copying a store. The first four fields contain ids of runs, oldest first."""

    runs: tuple[str, ...] = ()
    """Runs that were added."""
    extended: tuple[str, ...] = ()
    """Existing runs to which missing records were added."""
    skipped: tuple[str, ...] = ()
    """Existing runs with the same records."""
    differing: tuple[str, ...] = ()
    """Runs left unchanged, because the other store has different records under these ids."""
    schedules: tuple[str, ...] = ()
    """Names of schedules that were added or resumed."""
    differing_schedules: tuple[str, ...] = ()
    """Schedules with these names exist with other content. They were left unchanged."""
    items: int = 0
    """Items of memory that were added."""
    differing_items: tuple[str, ...] = ()
    """Namespaces and keys that have other values. They were left unchanged."""


async def copy_store(
    source: Store,
    to: Store,
    progress: Callable[[int, int], object] | None = None,
    *,
    start_schedules: bool = False,
) -> Copied:
    """Copy all runs of a store, with graphs, notes and unread messages, all schedules, and the memory into another one.

    Each run is copied in one write, so an interrupted copy leaves whole runs, and continues where it stopped when
    repeated. A run that is driven meanwhile is copied up to its current record; copying again brings the rest. Leases,
    snapshots and results of cached nodes are not copied.

    Unfinished runs are then in both stores. Workers would continue them in each, and repeat their calls: let them
    work on one of the stores only.

    Args:
        source: the store to read.
        to: the store to add runs to.
        progress: called with the number of copied runs and the number of all runs.
        start_schedules: whether copied schedules start runs, like those of the source. False: they are paused, because
            otherwise each time would fire in both stores. True also resumes schedules that an earlier copy paused.

    Raises:
        StoreCorrupt: a run is damaged; the runs before it are copied.
        StoreError: one of the stores fails.
    """
    found: dict[str, list[str]] = {"runs": [], "extended": [], "skipped": [], "differing": []}
    ids = await _all_runs(source)
    graphs: set[str] = set()
    for done, run_id in enumerate(ids):
        if progress is not None:
            progress(done, len(ids))
        try:
            found[await _copy(source, run_id, to, graphs)].append(run_id)
        except RunUnknown:
            continue  # deleted meanwhile
    if progress is not None:
        progress(len(ids), len(ids))
    found |= await _copy_schedules(source, to, start=start_schedules)
    items, differing = await _copy_items(source, to)
    done_with = {name: tuple(some) for name, some in found.items()}
    return Copied(**done_with, items=items, differing_items=differing)


async def _copy_schedules(source: Store, to: Store, *, start: bool) -> dict[str, list[str]]:
    there = {one.name: one for one in await to.schedules()}
    added: list[str] = []
    differing: list[str] = []
    for one in await source.schedules():
        known = there.get(one.name)
        if known is not None and replace(one, next_at=known.next_at, paused=known.paused) != known:
            differing.append(one.name)
        elif known is None or (start and known.paused and not one.paused):
            await to.put_schedule(one if start else replace(one, paused=True))
            added.append(one.name)
    return {"schedules": added, "differing_schedules": differing}


async def _copy_items(source: Store, to: Store) -> tuple[int, tuple[str, ...]]:
    """Copy the memory, and proofs of deletions; return how many items of memory were added, and which ones differ."""
    added, differing = 0, []
    after: tuple[str, str] | None = None
    while page := await source.items("audit", after=after, limit=_AT_ONCE):
        for item in page:
            await to.add_item("audit", item)
        after = page[-1].place
    after = None
    while page := await source.items("memory", after=after, limit=_AT_ONCE):
        for item in page:
            if await to.add_item("memory", item):
                added += 1
                continue
            there = await to.item("memory", item.namespace, item.key)
            if there is not None and (there.data, there.text, there.vector) != (item.data, item.text, item.vector):
                differing.append(f"{'/'.join(item.namespace)} {item.key}")
        after = page[-1].place
    return added, tuple(differing)


async def _all_runs(store: Store) -> list[str]:
    """Return the ids of all runs, oldest first, so that runs that started at the same time keep their order."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.runs(RunQuery(after=cursor, limit=_AT_ONCE))
        found += [info.run_id for info in page.runs]
        cursor = page.cursor
        if cursor is None:
            return found[::-1]


async def _copy(source: Store, run_id: str, to: Store, graphs: set[str]) -> str:
    """Copy one run; return the field of `Copied` to which its id belongs."""
    info = await source.info(run_id)
    records = await source.read(run_id, upto=info.head)
    for name in graphs_named(info, records):
        if name not in graphs:
            graphs.add(name)
            try:
                await to.put_graph(name, await source.graph(name))
            except GraphUnknown:
                continue  # the digest of a structure, under which no graph is stored
    try:
        there: RunInfo | None = await to.info(run_id)
    except RunUnknown:
        there = None
    if there is None:
        await to.create(NewRun(await whole_row(source, info), records, notes=await source.notes(run_id)))
        kind = "runs"
    elif there.head > info.head or await to.read(run_id, upto=there.head) != records[: there.head]:
        return "differing"
    elif there.head < info.head:
        whole = await whole_row(source, info)
        await to.append(
            Append(
                run_id,
                records[there.head :],
                after=there.head,
                status=info.status,
                due=info.due,
                waiting=info.waiting,
                summary=info.summary,
                totals=whole.totals,
                questions=whole.questions,
            )
        )
        kind = "extended"
    else:
        kind = "skipped"
    if kind != "runs":
        for note in await source.notes(run_id):  # those that were written since; an added one is not added again
            await to.add_note(note, most=MAX_NOTES)
    for message in await source.inbox([run_id]):  # repeated, each message is added once
        if message.body.get("type") != NOTICE and info.status not in FINAL:
            await to.post(run_id, message.body, key=f"copy of {message.id} in {source.url}")
    return kind
