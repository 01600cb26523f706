"""Which ended runs are deleted by age and number."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from orchestrator.errors import RunArchived, RunConflict, RunUnknown, StoreError
from orchestrator.executor.host.deletion import check_objects, delete
from orchestrator.executor.host.host import Host
from orchestrator.kernel.records import FINAL
from orchestrator.stores.archivable import Archiving
from orchestrator.stores.base import Placing, RunInfo
from orchestrator.stores.items import AREAS
from orchestrator.stores.requests import RunQuery
from orchestrator.values import check_labels


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning did."""

    runs: tuple[str, ...] = ()
    """Ids of the deleted runs; with `dry_run`, of those that would be deleted. Without the runs they started."""
    children: tuple[str, ...] = ()
    """Ids of the runs that those had started and that were deleted with them; not known for a `dry_run`."""
    items: int = 0
    """Expired items of memory and cache that were removed; with `dry_run`, that would be."""
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    """Id -> why a run was not deleted, or not whole: its archive is not given, or failed, which ends a pruning."""


async def prune(
    host: Host,
    *,
    older_than: timedelta | datetime | None,
    status: Collection[str] | str | None,
    labels: Mapping[str, str] | None,
    graph: str | None,
    keep: int | None,
    dry_run: bool,
) -> Pruned:
    """See `Executor.prune`."""
    if older_than is None and keep is None:
        raise ValueError("prune() needs older_than= or keep=: without them it would delete every run that has ended")
    if keep is not None and keep < 0:
        raise ValueError(f"keep={keep}: use 0 or more")
    before = time_of(older_than, host.resources.clock.now())
    found = await _found(host, before, final_statuses(status, "pruned"), check_labels(labels or {}), graph, keep or 0)
    deleted: list[str] = []
    children: list[str] = []
    skipped: dict[str, str] = {}
    for run_id in found:
        try:
            if dry_run:
                await check_objects(host.store, run_id)
                deleted.append(run_id)
                continue
            first, *others = await delete(host, run_id, children=True)
        except (RunUnknown, RunConflict):  # another process deleted it, or took it up again
            continue
        except StoreError as error:
            skipped[run_id] = str(error)
            if isinstance(error, RunArchived):
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
    """The ids of the runs to prune, the newest first."""
    found: list[str] = []
    # Runs that were created later were written to later, too: they are counted to `keep`, and else not looked at.
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
    """Whether a graph tool of a run that is still in the store started this one: it is deleted with its caller."""
    caller = info.labels.get("parent")
    if caller is None:
        return False
    try:
        (first,) = await host.store.read(info.run_id, limit=1)
        if getattr(first, "caller", None) is None:
            return False  # a run that only has such a label
        await host.store.info(caller)
    except (RunUnknown, RunArchived, ValueError):  # an archived one is refused when it is to be deleted
        return False
    return True


def time_of(older_than: timedelta | datetime | None, now: float) -> float | None:
    """The time, in Unix seconds, before which a run's last record must lie."""
    if isinstance(older_than, datetime):
        if older_than.tzinfo is None:
            raise ValueError(f"older_than={older_than!r} has no time zone; use an aware datetime or a timedelta")
        return older_than.timestamp()
    if isinstance(older_than, timedelta):
        if older_than < timedelta(0):
            raise ValueError(f"older_than={older_than!r}: use an age of 0 or more")
        return now - older_than.total_seconds()
    return None


def final_statuses(status: Collection[str] | str | None, what: str) -> frozenset[str]:
    """The statuses of runs that have ended, or some of them. `what`: what is done to such runs, for the error."""
    statuses = FINAL if status is None else frozenset([status] if isinstance(status, str) else status)
    if not statuses or statuses - FINAL:
        named = ", ".join(sorted(statuses - FINAL)) or "none"
        raise ValueError(f"status={named}: only runs that have ended are {what}; use {', '.join(sorted(FINAL))}")
    return statuses
