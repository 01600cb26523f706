"""Removal of ended runs: deletion, pruning by age and number, and moves to the archive and back.

A run is deleted with the runs that its calls of graphs as tools started.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import anyio

from orchestrator.errors import RunArchived, RunConflict, RunUnknown, StoreCorrupt, StoreError, StoreTooNew
from orchestrator.executor import lease as leases
from orchestrator.executor.calls.limits import child_id
from orchestrator.executor.deletion import Deletion, copies_of, delete_run, traces_of
from orchestrator.executor.host import Host
from orchestrator.json import canonical
from orchestrator.kernel.records import EffectIntended, Record, check_readable
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Archivable, Archiving, Placing, RunInfo, Store
from orchestrator.stores.items import AREAS
from orchestrator.stores.requests import RunQuery
from orchestrator.values import check_labels, utc


async def delete(host: Host, run_id: str, order: Deletion, *, children: bool, forks: bool = False) -> list[str]:
    """See `Executor.delete`."""
    holds: dict[str, leases.LeaseHandle] = {}
    try:
        # A run whose lease its deleter holds starts no further children, so the parents' leases come first.
        todo = [run_id]
        while todo:
            name = todo.pop(0)
            if name in holds:
                continue
            try:
                holds[name] = await host.take(name)
            except RunConflict:
                if name in host.live:
                    raise RunConflict(name, "this executor drives it; cancel or pause it, then delete it") from None
                raise
            except RunUnknown:
                if name == run_id:
                    raise
                continue  # deleted since then
            if children:
                todo += await children_of(host, name)
            if forks:
                todo += [one async for one in copies_of(host, name)]
        for name in holds:
            await check_objects(host.store, name)
        found = [await traces_of(host, name) for name in holds]  # what cannot be read is refused first
        # Children first: if interrupted, the run is still stored and refers to the remaining ones.
        for one in reversed(found):
            await delete_run(host, one, order)
    finally:
        for hold in holds.values():
            await host.give_back(hold)
    return list(holds)


async def check_objects(store: Store, run_id: str) -> None:
    """Refuse to delete a run whose objects in an archive would remain.

    Raises:
        RunArchived: no archive is given.
        StoreError: the archive cannot be reached.
    """
    if isinstance(store, Archiving):
        await store.reach(run_id)
        return
    rows = getattr(store, "inner", store)  # a codec wraps the store
    for left in await rows.objects(run_id) if isinstance(rows, Archivable) else ():
        raise RunArchived(run_id, left)


async def children_of(host: Host, run_id: str) -> list[str]:
    """Return the ids of the runs that calls of a run started, by its journal; its label alone does not count."""
    labelled: list[str] = []
    cursor: str | None = None
    while True:
        page = await host.store.runs(RunQuery(labels={"parent": run_id}, after=cursor, limit=200))
        labelled += [info.run_id for info in page.runs]
        cursor = page.cursor
        if cursor is None:
            break
    if not labelled:
        return []
    try:
        records: Iterable[Record] = await host.store.read(run_id)
    except StoreCorrupt as error:  # a damaged run can also be deleted
        records = vars(error).get("records", ())
    check_readable(records)
    keys = [one.key for one in records if isinstance(one, EffectIntended) and one.kind == "tool"]
    begun = {name for key in keys for name in (child_id(run_id, key), f"{run_id}.{key}")}  # the latter in old versions
    return [name for name in labelled if name in begun]


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of pruning."""

    runs: tuple[str, ...] = ()
    """Ids of the deleted runs; with `dry_run`, of those that would be deleted. Without the runs they started."""
    children: tuple[str, ...] = ()
    """Ids of the runs that those had started and that were deleted with them; empty for a `dry_run`."""
    items: int = 0
    """Number of removed expired items of memory and cache; with `dry_run`, of those that would be removed."""
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    """Id -> why a run was not deleted, or not completely: a newer version wrote it, its archive is missing, or its
    archive failed, which ends a pruning.
    """


async def prune(
    host: Host,
    *,
    older_than: timedelta | datetime | None,
    status: Collection[str] | str | None,
    labels: Mapping[str, str] | None,
    graph: str | None,
    keep: int | None,
    dry_run: bool,
    by: str,
) -> Pruned:
    """See `Executor.prune`."""
    if older_than is None and keep is None:
        raise ValueError("prune() needs older_than= or keep=: without them it would delete every run that has ended")
    if keep is not None and keep < 0:
        raise ValueError(f"keep={keep}: use 0 or more")
    before = time_of(older_than, host.resources.clock.now())
    statuses, wanted = final_statuses(status, "pruned"), check_labels(labels or {})
    found = await _found(host, before, statuses, wanted, graph, keep or 0)
    chosen: dict[str, object] = {
        "older_than": None if before is None else f"{utc(before):%Y-%m-%dT%H:%M:%SZ}",
        "keep": keep,
    }
    chosen |= {"status": ",".join(sorted(statuses)), "labels": wanted or None, "graph": graph}
    rule = f"prune {canonical({name: value for name, value in chosen.items() if value is not None})}"
    deleted: list[str] = []
    children: list[str] = []
    skipped: dict[str, str] = {}
    for run_id in found:
        try:
            if dry_run:
                await check_objects(host.store, run_id)
                deleted.append(run_id)
                continue
            first, *others = await delete(host, run_id, Deletion(by, rule), children=True)
        except (RunUnknown, RunConflict):  # another process deleted or resumed it
            continue
        except StoreError as error:
            skipped[run_id] = str(error)
            if isinstance(error, RunArchived | StoreTooNew):
                continue
            if not deleted:
                raise
            break
        deleted.append(first)
        children += others
    if dry_run:
        expired = [(await host.store.item_usage(area)).expired for area in AREAS]
        return Pruned(tuple(deleted), items=sum(expired), skipped=skipped)
    items = sum([await host.store.prune_items(area) for area in AREAS])
    if deleted or items or isinstance(host.store, Archiving):  # an archive may have objects of runs deleted before
        await host.store.compact()
    return Pruned(tuple(deleted), tuple(children), items, skipped)


async def _found(
    host: Host,
    before: float | None,
    statuses: frozenset[str],
    labels: Mapping[str, str],
    graph: str | None,
    keep: int,
) -> list[str]:
    """Return the ids of the runs to prune, the newest first."""
    found: list[str] = []
    # Runs created later were also written to later: they count for `keep`, and are not checked otherwise.
    ahead = store.cursor_before(before) if before is not None and isinstance(store := host.store, Placing) else None
    cursor = None if keep else ahead
    matching = 0
    while True:
        page = await host.store.runs(RunQuery(status=statuses, graph=graph, labels=labels, after=cursor, limit=500))
        for info in page.runs:
            if await _is_called(host, info):
                continue
            matching += 1
            if matching > keep and (before is None or info.updated < before):
                found.append(info.run_id)
        cursor = page.cursor
        if cursor is None:
            return found
        enough = matching >= keep and bool(page.runs)
        if enough and before is not None and ahead is not None and page.runs[-1].created >= before:
            cursor = ahead


async def _is_called(host: Host, info: RunInfo) -> bool:
    """Return True if a graph tool of a run still in the store started this one: it is deleted with its caller."""
    caller = info.labels.get("parent")
    if caller is None:
        return False
    try:
        (first,) = await host.store.read(info.run_id, limit=1)
        if getattr(first, "caller", None) is None:
            return False  # the run only has such a label
        await host.store.info(caller)
    except (RunUnknown, RunArchived, ValueError):  # for an archived run, the deletion itself raises the error
        return False
    return True


def time_of(given: timedelta | datetime | None, now: float, name: str = "older_than") -> float | None:
    """Return the time that an argument names by itself or by its age, in Unix seconds; None: any.

    Args:
        given: the argument.
        now: the time from which ages count, Unix seconds.
        name: the argument's name, for the error.

    Raises:
        ValueError: the time has no time zone, or the age is negative.
    """
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError(f"{name}={given!r} has no time zone; use an aware datetime or a timedelta")
        return given.timestamp()
    if isinstance(given, timedelta):
        if given < timedelta(0):
            raise ValueError(f"{name}={given!r}: use an age of 0 or more")
        return now - given.total_seconds()
    return None


def final_statuses(status: Collection[str] | str | None, what: str) -> frozenset[str]:
    """Return the given statuses of ended runs; None: all of them.

    Args:
        what: the operation on such runs, for the error.

    Raises:
        ValueError: no status is given, or one of a run that has not ended.
    """
    statuses = FINAL if status is None else frozenset([status] if isinstance(status, str) else status)
    if not statuses or statuses - FINAL:
        named = ", ".join(sorted(statuses - FINAL)) or "none"
        raise ValueError(f"status={named}: only runs that have ended are {what}; use {', '.join(sorted(FINAL))}")
    return statuses


_AT_ONCE = 16
"""Maximum number of runs archived at the same time: most of the time is spent waiting for the archive."""


@dataclass(slots=True)
class ArchivedRuns:
    """The result of archiving."""

    runs: list[str] = field(default_factory=list)
    """Ids of the archived runs, roughly oldest first; with `dry_run`, of those that would be archived."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Id -> why a run was left unchanged: it was resumed meanwhile, or is damaged."""
    written: int = 0
    """Number of bytes of the objects."""
    freed: int = 0
    """Number of bytes that the store freed."""


async def archive(
    host: Host,
    *,
    older_than: timedelta | datetime | None,
    status: Collection[str] | str | None,
    labels: Mapping[str, str] | None,
    graph: str | None,
    run_ids: Collection[str] | None,
    dry_run: bool,
) -> ArchivedRuns:
    """See `Executor.archive`."""
    store = archiving(host)
    before = time_of(older_than, host.resources.clock.now())
    statuses, wanted = final_statuses(status, "archived"), check_labels(labels or {})
    done = ArchivedRuns()

    def fits(info: RunInfo) -> bool:
        right = info.status in statuses and graph in (None, info.graph)
        return right and all(info.labels.get(name) == value for name, value in wanted.items())

    if run_ids is not None:
        infos = [await host.store.info(run_id) for run_id in dict.fromkeys(run_ids)]
        open_ones = [info for info in infos if info.status not in FINAL]
        done.skipped = {one.run_id: f"it is {one.status}: only runs that have ended are archived" for one in open_ones}
        here = [info for info in infos if info.archived is None and (before is None or info.updated < before)]
        await _take(host, store, list(filter(fits, here)), done, dry_run=dry_run)
        return done
    cursor: str | None = None
    while True:
        page = await store.ended(before=before, after=cursor)
        await _take(host, store, list(filter(fits, page.runs)), done, dry_run=dry_run)
        cursor = page.cursor
        if cursor is None:
            break
    if not dry_run:
        done.freed = await host.store.compact()
    return done


async def _take(host: Host, store: Archiving, found: list[RunInfo], done: ArchivedRuns, *, dry_run: bool) -> None:
    """Archive some runs, or only note that they would be."""
    if dry_run:
        done.runs += [info.run_id for info in found]
    else:
        await _archive_all(host, store, found, done)


async def _archive_all(host: Host, store: Archiving, found: list[RunInfo], done: ArchivedRuns) -> None:
    """Archive some runs, several at a time. A failure of the archive itself stops all."""
    todo = iter(found)
    failed: list[Exception] = []

    async def work() -> None:
        for info in todo:
            if failed:
                return
            try:
                if info.lease is not None:
                    await _release(host, info.run_id)
                archived = await store.archive_run(info.run_id)
                done.written += archived.size
                done.runs.append(info.run_id)
            except RunUnknown:
                continue  # deleted since then
            except (RunConflict, StoreCorrupt) as error:
                done.skipped[info.run_id] = str(error)
            except Exception as error:
                failed.append(error)

    async with anyio.create_task_group() as tasks:
        for _ in range(min(_AT_ONCE, len(found))):
            tasks.start_soon(work)
    if failed:
        raise failed[0]


async def _release(host: Host, run_id: str) -> None:
    """Release a lease whose holder is dead.

    Raises:
        RunConflict: its holder is alive.
    """
    await host.give_back(await host.take(run_id))


async def restore(host: Host, run_id: str) -> bool:
    """See `Executor.restore`."""
    info = await host.store.info(run_id)
    return info.archived is not None and await archiving(host).restore_run(run_id)


def archiving(host: Host) -> Archiving:
    """Return the store, if it has an archive.

    Raises:
        StoreError: it has no archive.
    """
    if not isinstance(host.store, Archiving):
        raise StoreError(
            f"store {host.store.url} has no archive: give one, Executor(archive=...), or set ORCHESTRATOR_ARCHIVE"
        )
    return host.store
