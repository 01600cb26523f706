"""Which ended runs are moved to the archive, by age, and moving runs back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import anyio

from orchestrator.errors import RunConflict, RunUnknown, StoreCorrupt, StoreError
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.pruning import final_statuses, time_of
from orchestrator.stores.archivable import Archiving
from orchestrator.stores.base import RunInfo
from orchestrator.values import check_labels

_AT_ONCE = 16
"""Runs that are archived at the same time: most of it is waiting for the place."""


@dataclass(slots=True)
class ArchivedRuns:
    """What an archiving did."""

    runs: list[str] = field(default_factory=list)
    """Ids of the archived runs, about the oldest first; with `dry_run`, of those that would be."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Id -> why a run was left as it is: it was taken up meanwhile, or is damaged."""
    written: int = 0
    """Bytes of the objects."""
    freed: int = 0
    """Bytes that the store gave back."""


async def archive(
    host: Host,
    *,
    older_than: timedelta | datetime | None,
    status: Collection[str] | str | None,
    labels: Mapping[str, str] | None,
    graph: str | None,
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

    cursor: str | None = None
    while True:
        page = await store.ended(before=before, after=cursor)
        found = [info for info in page.runs if fits(info)]
        if dry_run:
            done.runs += [info.run_id for info in found]
        else:
            await _archive_all(host, store, found, done)
        cursor = page.cursor
        if cursor is None:
            break
    if not dry_run:
        done.freed = await host.store.compact()
    return done


async def _archive_all(host: Host, store: Archiving, found: list[RunInfo], done: ArchivedRuns) -> None:
    """Archive some runs, several at a time. What fails in the place itself stops all."""
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
                continue  # deleted meanwhile
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
    """Give back a lease whose holder is dead.

    Raises:
        RunConflict: its holder is alive.
    """
    await host.give_back(await host.take(run_id))


async def restore(host: Host, run_id: str) -> bool:
    """See `Executor.restore`."""
    info = await host.store.info(run_id)
    return info.archived is not None and await archiving(host).restore_run(run_id)


def archiving(host: Host) -> Archiving:
    """The store, if it has an archive.

    Raises:
        StoreError: it has none.
    """
    if not isinstance(host.store, Archiving):
        raise StoreError(
            f"store {host.store.url} has no archive: give one, Executor(archive=...), or set ORCHESTRATOR_ARCHIVE"
        )
    return host.store
