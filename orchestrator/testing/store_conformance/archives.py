"""Checks of stores whose ended runs can be archived. They ask nothing of a store that is not `Archivable`."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from orchestrator.errors import Archived, RunArchived, RunConflict, RunUnknown
from orchestrator.kernel.records import Ended, Record
from orchestrator.stores.base import Archivable, RunInfo, Store
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.testing.store_conformance.helpers import a_lease, equal, event, new_run, raises, that


def an_object(run_id: str, *, at: float = 5.0) -> Archived:
    name = f"2026/01/02/{uuid4().hex}.2.jsonl"
    return Archived("file:///archive", name, f"digest of {run_id}", 100, at)


async def ended_run(store: Store, *, created: float = 1.5) -> tuple[RunInfo, list[Record]]:
    info, records = new_run(labels={"team": "blue"})
    records.append(Ended(seq=2, ts=2.5, status="completed"))
    info = replace(info, status="completed", head=2, created=created, output="done")
    await store.create(NewRun(info, records))
    return info, records


async def check_archiving(store: Store) -> None:
    """The records of an ended run are moved out and back; its row stays, and holds where they are."""
    if not isinstance(store, Archivable):
        return
    info, records = await ended_run(store)
    run_id = info.run_id
    where = await store.note_object(run_id, an_object(run_id))
    equal(await store.note_object(run_id, an_object(run_id)), where, "an object of the same content, noted again")
    await store.put_snapshot(run_id, 2, b"folded")
    for _ in range(2):  # asked again, it returns
        await store.move_out(run_id, where, head=2)
    row = await store.info(run_id)
    equal(row.archived, where, "where an archived run's row says that its records are")
    equal(row, info, "the row of an archived run")
    equal(
        (await store.runs(RunQuery(labels={"team": "blue"}, graph=info.graph))).runs,
        (info,),
        "the list with an archived run",
    )
    equal(await store.heads([run_id]), {run_id: (2, "completed")}, "the head of an archived run")
    for call in (store.read(run_id), store.read(run_id, after=2), store.append(Append(run_id, [event(3)], after=2))):
        error = await raises(RunArchived, call, "touching the records of an archived run")
        equal(getattr(error, "archived", None), where, "where the error says that the records are")
    await store.put_snapshot(run_id, 2, b"folded")
    equal(await store.snapshot(run_id), None, "the snapshot of an archived run")
    other = replace(where, sha256="another", name=f"2026/01/02/{uuid4().hex}.2.jsonl")
    await raises(RunConflict, store.move_back(run_id, records, other), "restoring a run from another object")
    for _ in range(2):
        await store.move_back(run_id, records, where)
    equal(await store.read(run_id), records, "the records of a restored run")
    equal((await store.info(run_id)).archived, None, "where a restored run's row says that its records are")
    await store.append(Append(run_id, [event(3)], after=2, status="running"))
    await raises(RunConflict, store.move_out(run_id, where, head=2), "archiving a run that went on")
    equal(await store.objects(run_id), [where], "the objects of a run that was restored")


async def check_archiving_is_refused(store: Store) -> None:
    """A run that has not ended, moved, or is held keeps its records."""
    if not isinstance(store, Archivable):
        return
    running, records = new_run()
    await store.create(NewRun(running, records))
    where = await store.note_object(running.run_id, an_object(running.run_id))
    await raises(RunConflict, store.move_out(running.run_id, where, head=1), "archiving a running run")
    equal(await store.read(running.run_id), records, "the records of a running run")
    info, records = await ended_run(store)
    run_id = info.run_id
    where = an_object(run_id)
    await raises(RunConflict, store.move_out(run_id, where, head=2), "archiving into an object that was not noted")
    where = await store.note_object(run_id, where)
    await raises(RunConflict, store.move_out(run_id, where, head=1), "archiving the beginning of a run")
    lease = a_lease(run_id, "reopens")
    that(await store.take_lease(lease, ttl=30.0), "the lease of an ended run must be free")
    await raises(RunConflict, store.move_out(run_id, where, head=2), "archiving a run that is held")
    equal(await store.read(run_id), records, "the records of a run that is held")
    await store.drop_lease(run_id, lease.token)
    await store.move_out(run_id, where, head=2)
    that(await store.take_lease(lease, ttl=30.0), "the lease of an archived run must be free")
    call = store.append(Append(run_id, [event(3)], after=2, status="running", lease=lease.token))
    await raises(RunArchived, call, "an append to an archived run under a lease")
    await raises(RunUnknown, store.note_object("no such run", where), "noting an object for no run")
    await raises(RunUnknown, store.move_out("no such run", where, head=2), "archiving no run")
    await raises(RunUnknown, store.move_back("no such run", records, where), "restoring no run")


async def check_ended_runs(store: Store) -> None:
    """The list of runs to archive has those that have ended and whose records are here, oldest first."""
    if not isinstance(store, Archivable):
        return
    runs = [await ended_run(store, created=at) for at in (-30.0, -20.0, -10.0)]
    running, records = new_run()
    await store.create(NewRun(replace(running, created=-15.0), records))
    oldest, middle, newest = (info.run_id for info, _ in runs)

    async def own(before: float = 1e12, limit: int = 2) -> list[str]:
        """The runs of this check, from all pages."""
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await store.ended(before=before, after=cursor, limit=limit)
            that(len(page.runs) <= limit, f"{len(page.runs)} ended runs on a page of {limit}")
            found += [info.run_id for info in page.runs if info.run_id in (oldest, middle, newest, running.run_id)]
            cursor = page.cursor
            if cursor is None:
                return found

    that((await store.ended(limit=1)).cursor is not None, "more ended runs must follow")
    equal(await own(), [oldest, middle, newest], "the ended runs, page by page")
    where = await store.note_object(oldest, an_object(oldest))
    await store.move_out(oldest, where, head=2)
    equal(await own(limit=50), [middle, newest], "the runs to archive")
    equal(await own(before=2.5), [], "ended runs whose last record is older than the last record")


async def check_objects_of_deleted_runs(store: Store) -> None:
    """The objects of a deleted run stay noted until they are forgotten, also if another run takes its id."""
    if not isinstance(store, Archivable):
        return
    info, records = await ended_run(store)
    run_id = info.run_id
    where = await store.note_object(run_id, an_object(run_id))
    await store.forget_objects([where.name])
    equal(await store.objects(run_id), [where], "the objects of a run that is there, after they were to be forgotten")
    await store.move_out(run_id, where, head=2)
    await store.delete(run_id)
    that(where in await store.left_objects(), "the object of a deleted run must be left")
    await store.create(NewRun(info, records))
    fresh = await store.note_object(run_id, an_object(run_id, at=6.0))
    that(fresh != where, "a run must not have the object of a deleted one of its id")
    equal(await store.objects(run_id), [where, fresh], "all objects of runs of this id")
    that(fresh not in await store.left_objects(), "the object of a run that is there must not be left")
    await store.forget_objects([where.name, fresh.name])
    that(where not in await store.left_objects(), "a forgotten object must not be left")
    equal(await store.objects(run_id), [fresh], "the objects of a run that is there")
