"""Deleting runs, with the runs that their calls of graphs as tools began."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.errors import RunArchived, RunConflict, RunUnknown, StoreCorrupt
from orchestrator.executor import lease as leases
from orchestrator.executor.effects.limits import child_id
from orchestrator.executor.host.host import Host
from orchestrator.kernel.records import EffectIntended, Record
from orchestrator.kernel.records.coded import check_readable
from orchestrator.stores.archivable import Archivable, Archiving
from orchestrator.stores.base import Store
from orchestrator.stores.requests import RunQuery


async def delete(host: Host, run_id: str, *, children: bool) -> list[str]:
    """See `Executor.delete`."""
    holds: dict[str, leases.LeaseHandle] = {}
    try:
        # A run that is held by its deleter begins no further children: so the parents' leases come first.
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
                continue  # deleted meanwhile
            if children:
                todo += await children_of(host, name)
        for name in holds:
            await check_objects(host.store, name)
        # Children first: interrupted in between, the run is still there and names those that are left.
        for name in reversed(holds):
            await host.store.delete(name)
    finally:
        for hold in holds.values():
            await host.give_back(hold)
    return list(holds)


async def check_objects(store: Store, run_id: str) -> None:
    """Refuse to delete a run whose objects in an archive would stay.

    Raises:
        RunArchived: no archive is given.
        StoreError: the archive cannot be reached.
    """
    if isinstance(store, Archiving):
        await store.reach(run_id)
        return
    rows = getattr(store, "inner", store)  # a codec is around it
    for left in await rows.objects(run_id) if isinstance(rows, Archivable) else ():
        raise RunArchived(run_id, left)


async def children_of(host: Host, run_id: str) -> list[str]:
    """The runs that calls of a run began, as its journal says; a run that only bears its label is none of them."""
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
    except StoreCorrupt as error:  # a damaged run can be deleted, too
        records = vars(error).get("records", ())
    check_readable(records)
    keys = [one.key for one in records if isinstance(one, EffectIntended) and one.kind == "tool"]
    begun = {name for key in keys for name in (child_id(run_id, key), f"{run_id}.{key}")}  # the latter of old
    return [name for name in labelled if name in begun]
