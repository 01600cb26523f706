"""Checks of the data that a store keeps in addition to journals and rows, of copies, archives, and closing it.

A store that is not `Archivable` passes the checks of archived runs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

from orchestrator.errors import (
    Archived,
    GraphUnknown,
    InvalidValue,
    RunArchived,
    RunConflict,
    RunExists,
    RunUnknown,
    StoreError,
)
from orchestrator.kernel.records import Ended, Record, Resumed
from orchestrator.stores.base import Archivable, Loading, RunInfo, Schedule, Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import Append, ClaimRequest, NewRun, RunQuery
from orchestrator.stores.rows import NOTICE, Note
from orchestrator.testing.store_conformance.helpers import (
    a_lease,
    created,
    equal,
    event,
    events,
    new_run,
    raises,
    started,
    that,
    together,
)


async def check_graphs(store: Store) -> None:
    """A graph is kept once under its digest and stays when runs are deleted."""
    name = uuid4().hex
    data = {"name": "essay", "nodes": [{"kind": "think", "wait": 1.5, "none": None, "deep": {"a": [1, True]}}]}
    error = await raises(GraphUnknown, store.graph(name), "a graph that is not there")
    that(name in str(error), f"the message names the digest: {error}")
    await store.put_graph(name, data)
    await store.put_graph(name, data)
    equal(await store.graph(name), data, "the graph")
    equal(store.graph_now(name), data, "the graph, by graph_now")
    for found in (await store.graph(name), store.graph_now(name)):
        equal(json.dumps(found), json.dumps(data), "the graph with its keys in order")


async def check_snapshots(store: Store) -> None:
    """The latest snapshot at or before a position is found; a snapshot may be replaced."""
    run_id = await created(store)
    await store.append(Append(run_id, events(2, 9), after=1))
    equal(await store.snapshot(run_id), None, "no snapshot yet")
    for seq in (3, 8, 6):
        await store.put_snapshot(run_id, seq, b"\x00\xff fold %d" % seq)
    equal(await store.snapshot(run_id), (8, b"\x00\xff fold 8"), "the latest snapshot")
    equal(await store.snapshot(run_id, upto=7), (6, b"\x00\xff fold 6"), "the latest snapshot up to 7")
    equal(await store.snapshot(run_id, upto=6), (6, b"\x00\xff fold 6"), "the latest snapshot up to 6")
    equal(await store.snapshot(run_id, upto=2), None, "no snapshot up to 2")
    await store.put_snapshot(run_id, 8, b"again")
    equal(await store.snapshot(run_id), (8, b"again"), "a snapshot that was replaced")


async def check_snapshot_of_append(store: Store) -> None:
    """A snapshot is stored with the records of an append, at the last of them, or not at all."""
    run_id = await created(store)
    equal(await store.append(Append(run_id, events(2, 3), after=1, snapshot=b"\x00\xff four")), 4, "the new head")
    equal(await store.snapshot(run_id), (4, b"\x00\xff four"), "the snapshot of an append")
    await raises(
        RunConflict, store.append(Append(run_id, events(4), after=3, snapshot=b"lost")), "an append that loses"
    )
    equal(await store.snapshot(run_id), (4, b"\x00\xff four"), "the snapshot after an append that loses")
    await store.append(Append(run_id, events(5), after=4))
    equal(await store.snapshot(run_id), (4, b"\x00\xff four"), "the snapshot after an append without one")
    lease = a_lease(run_id, "a")
    that(await store.take_lease(lease, ttl=30.0), "a free run is taken")
    for _ in range(2):
        ended = store.append(
            Append(run_id, events(6), after=5, lease=lease.token, status="paused", release=True, snapshot=b"six")
        )
        equal(await ended, 6, "the head of an append that is asked again")
        equal(await store.snapshot(run_id), (6, b"six"), "the snapshot of an append with `release`")
    equal(await store.snapshot(run_id, upto=5), (4, b"\x00\xff four"), "the snapshot before it")


async def check_load(store: Store) -> None:
    """A run that is read at once is the same as in pieces: its row, its snapshot, and the records after that."""
    if not isinstance(store, Loading):
        return
    run_id = await created(store)
    for snapshot in (None, 3, 8):
        if snapshot is None:
            await store.append(Append(run_id, events(2, 9), after=1))
        else:
            await store.put_snapshot(run_id, snapshot, b"\x00\xff fold %d" % snapshot)
        for upto in (None, 1, 3, 7, 8, 9, 12):
            for after in (None, 0, 2, 9, 12):
                found = await store.load(run_id, after=after, upto=upto)
                where = f"after {after} up to {upto}, with a snapshot of {snapshot}"
                equal(found.info, await store.info(run_id), f"the row, read {where}")
                kept = await store.snapshot(run_id, upto=upto) if after is None else None
                equal(found.snapshot, kept, f"the snapshot, read {where}")
                first = after or (kept[0] if kept else 0)
                equal(found.records, await store.read(run_id, after=first, upto=upto), f"the records {where}")
    await store.delete(run_id)
    await raises(RunUnknown, store.load(run_id), "a deleted run")


async def check_inbox(store: Store) -> None:
    """Messages reach their run in order, stay until they are consumed or discarded, and are deleted with the append."""
    one, two = await created(store), await created(store)
    equal(await store.inbox([one, two]), [], "an empty inbox")
    ids = [await store.post(run_id, {"n": number}) for number, run_id in enumerate((one, two, one))]
    equal(ids, sorted(set(ids)), "message ids grow")
    equal([message.id for message in await store.inbox([one, two])], ids, "the messages of both, oldest first")
    equal(
        [(message.run_id, message.body) for message in await store.inbox([one])],
        [(one, {"n": 0}), (one, {"n": 2})],
        "the messages of one run",
    )
    equal(await store.inbox([]), [], "the messages of no run")
    equal(len(await store.inbox([one, "no such run"])), 2, "messages when one of the runs is not there")
    await raises(RunConflict, store.append(Append(one, events(9), after=8, consumed=ids)), "an append that loses")
    equal(len(await store.inbox([one, two])), 3, "messages after an append that lost")
    await store.append(Append(one, events(2), after=1, consumed=[ids[0], ids[1]]))
    equal(
        [message.id for message in await store.inbox([one, two])],
        ids[1:],
        "messages after an append consumed one of its run and named one of another",
    )
    await store.discard([ids[2], ids[2], 10**9])
    equal([message.id for message in await store.inbox([one, two])], [ids[1]], "messages after discard")
    await store.discard([])
    key = uuid4().hex
    once = await store.post(one, {"n": 7}, key=key)
    equal(await store.post(one, {"n": 7}, key=key), once, "the id of a message that is posted again under its key")
    that(await store.post(two, {"n": 7}, key=key) != once, "a message to another run under the same key is another")
    equal([message.id for message in await store.inbox([one])], [once], "messages after one was posted twice")
    await store.discard([once])
    that(await store.post(one, {"n": 8}, key=key) > once, "a key is free when its message is gone")


async def check_notices(store: Store) -> None:
    """Notices are in the inbox of their run, do not make it claimable, and stay when it ends."""
    one, two = await created(store), await created(store)
    for run_id in (one, two):
        await store.append(Append(run_id, events(2), after=1, status="paused"))
    mark = uuid4().hex
    notice = await store.post(one, {"type": NOTICE, "mark": mark})
    await store.post(two, {"type": "event", "data": {"type": NOTICE, "mark": mark}})

    async def marked() -> list[tuple[int, str]]:
        return [(found.id, found.run_id) for found in await store.notices() if found.body.get("mark") == mark]

    equal(await marked(), [(notice, one)], "the notices")
    equal([found.id for found in await store.inbox([one])], [notice], "the inbox of a run with a notice")
    graphs = [info.graph for run_id in (one, two) if (info := await store.info(run_id)) is not None]
    taken = await store.claim(ClaimRequest(Owner.here(), graphs=graphs, limit=100, ttl=60.0))
    claimed = {info.run_id for info, _ in taken} & {one, two}
    equal(claimed, {two}, "the claimed ones of a paused run with a notice and one with an event")
    for info, lease in taken:
        await store.drop_lease(info.run_id, lease.token)
    lease = a_lease(one, mark)
    await store.take_lease(lease, ttl=60.0)
    await store.append(Append(one, events(3), after=2, status="completed", lease=lease.token, release=True))
    equal(await marked(), [(notice, one)], "the notices after the end of their run")
    await store.discard([notice])
    equal(await marked(), [], "the notices after one was discarded")
    await store.post(one, {"type": NOTICE, "mark": mark})
    await store.delete(one)
    equal(await marked(), [], "the notices of a run that was deleted")


async def check_copy(store: Store) -> None:
    """A run is copied with its graphs and unread messages, whole, into another kind of store and back."""
    names = [uuid4().hex for _ in range(3)]
    for name in names:
        await store.put_graph(name, {"graph": name})
    info, _ = new_run(labels={"user": "ann"})
    info = replace(info, structure=names[0], content=names[1], head=3, status="paused", waiting=1, due=5.0)
    records = [started(info), Resumed(seq=2, ts=2.0, content=names[2]), Ended(seq=3, ts=3.0, status="completed")]
    await store.create(NewRun(info, records))
    await store.post(info.run_id, {"kind": "answer"})
    other = MemoryStore()
    await store.copy(info.run_id, other)
    equal(await other.info(info.run_id), info, "the row of a copy")
    equal(await other.read(info.run_id), records, "the records of a copy")
    equal([await other.graph(name) for name in names], [{"graph": name} for name in names], "the graphs of a copy")
    equal([message.body for message in await other.inbox([info.run_id])], [{"kind": "answer"}], "unread messages")
    await raises(RunExists, store.copy(info.run_id, other), "a copy onto itself")
    await store.delete(info.run_id)
    await other.copy(info.run_id, store)
    equal(await store.info(info.run_id), info, "the row of a copy that came back")
    equal(await store.read(info.run_id), records, "the records of a copy that came back")


async def check_notes(store: Store) -> None:
    """Notes of a run are kept in the order of their times, once each, up to a limit, and deleted with the run."""
    run_id, other = await created(store), await created(store)
    missing = f"no-run-{uuid4().hex}"
    await raises(RunUnknown, store.notes(missing), "the notes of a missing run")
    await raises(RunUnknown, store.add_note(Note(missing, text="x", id="a"), most=9), "a note on a missing run")
    await raises(RunUnknown, store.delete_note(missing, "a"), "deleting a note of a missing run")
    equal(await store.notes(run_id), [], "no notes yet")
    notes = [
        Note(run_id, None, "later \u202e \x00 <b>\U0001f600", None, "", "ann", 20.5, "b"),
        Note(run_id, 1, "", -0.25, "correctness", "", 10.0, "z"),
        Note(run_id, None, "at the same time", 1e300, "", "bob", 20.5, "a"),
    ]
    for note in (*notes, notes[0]):
        await store.add_note(note, most=3)
    equal(await store.notes(run_id), [notes[1], notes[2], notes[0]], "the notes in their order")
    equal(store.notes_now(run_id), [notes[1], notes[2], notes[0]], "the notes in their order, by notes_now")
    await raises(InvalidValue, store.add_note(Note(run_id, text="x", id="c"), most=3), "a note beyond the limit")
    full = await together(*(store.add_note(Note(other, text="x", id=str(n)), most=5) for n in range(12)))
    equal(sum(isinstance(one, InvalidValue) for one in full), 7, "notes that are refused, of 12 at the same time")
    equal(len(await store.notes(other)), 5, "notes of the other run")
    await store.append(Append(run_id, events(2, 3), after=1, status="completed"))
    equal(len(await store.notes(run_id)), 3, "the notes of a run that has ended")
    equal(await store.delete_note(run_id, "a"), True, "deleting a note")
    equal(await store.delete_note(run_id, "a"), False, "deleting a note again")
    equal(await store.delete_note(other, "z"), False, "deleting a note of another run")
    equal(await store.notes(run_id), [notes[1], notes[0]], "the notes that are left")
    await store.delete(run_id)
    await raises(RunUnknown, store.notes(run_id), "the notes of a deleted run")
    again = replace(new_run()[0], run_id=run_id)
    await store.create(NewRun(again, [started(again)]))
    equal(await store.notes(run_id), [], "the notes of another run with the id of a deleted one")
    equal(len(await store.notes(other)), 5, "the notes of another run")


async def check_copied_notes(store: Store) -> None:
    """A run is copied with its notes, and a new run has those that come with it."""
    info, records = new_run()
    note = Note(info.run_id, 1, "good", 1.0, "quality", "ann", 5.0, "n1")
    await store.create(NewRun(info, records, notes=[note]))
    equal(await store.notes(info.run_id), [note], "the notes of a new run")
    other = MemoryStore()
    await store.copy(info.run_id, other)
    equal(await other.notes(info.run_id), [note], "the notes of a copy")


async def check_archived_notes(store: Store) -> None:
    """An archived run keeps its notes, and can have more."""
    if not isinstance(store, Archivable):
        return
    info, records = await ended_run(store)
    run_id = info.run_id
    await store.add_note(Note(run_id, text="before", at=1.0, id="a"), most=9)
    where = await store.note_object(run_id, an_object(run_id))
    await store.move_out(run_id, where, head=2)
    await store.add_note(Note(run_id, text="after", at=2.0, id="b"), most=9)
    equal([note.text for note in await store.notes(run_id)], ["before", "after"], "the notes of an archived run")
    await store.move_back(run_id, records, where)
    equal([note.text for note in await store.notes(run_id)], ["before", "after"], "the notes of a restored run")


async def check_schedules(store: Store) -> None:
    """A schedule is stored whole, replaced by one with the same name, and moved by only one of several workers."""
    a, b = (f"check-{uuid4().hex}-{letter}" for letter in "ab")
    first = Schedule(
        name=a,
        graph="g",
        cron="0 * * * *",
        next_at=60.5,
        timezone="Europe/Vienna",
        catch_up="all",
        values={"n": [1, None]},
        labels={"k": "v"},
        approve="read",
    )
    second = Schedule(name=b, graph="g", cron="* * * * *", next_at=1.0)

    async def own() -> dict[str, Schedule]:
        return {one.name: one for one in await store.schedules() if one.name in (a, b)}

    await store.put_schedule(second)
    await store.put_schedule(first)
    names = [one.name for one in await store.schedules()]
    equal(names, sorted(names), "the names of the schedules")
    equal(await own(), {a: first, b: second}, "the schedules")
    moved = [await store.move_schedule(a, at=60.5, to=120.0) for _ in range(2)]
    equal(moved, [True, False], "moving one time twice")
    await store.put_schedule(replace(first, cron="5 * * * *"))
    equal(await own(), {a: replace(first, cron="5 * * * *"), b: second}, "the schedules after one was replaced")
    await store.put_schedule(replace(second, paused=True))
    equal({name: one.paused for name, one in (await own()).items()}, {a: False, b: True}, "which schedules are paused")
    await store.put_schedule(second)
    equal([await store.delete_schedule(a) for _ in range(2)], [True, False], "deleting one twice")
    that(not await store.move_schedule(a, at=60.5, to=120.0), "a deleted schedule was moved")
    equal(await own(), {b: second}, "the schedules after one was deleted")
    await store.delete_schedule(b)


async def check_maintenance(store: Store) -> None:
    """Giving space back changes no run, and a repaired store needs no second repair."""
    kept, gone = await created(store), await created(store)
    await store.append(Append(gone, [event(seq, "x" * 10_000) for seq in range(2, 50)], after=1))
    await store.append(Append(kept, events(2), after=1))
    await store.delete(gone)
    before = await store.info(kept), await store.read(kept)
    that(await store.compact() >= 0, "compact gives a negative number of bytes")
    equal(await store.compact(), 0, "the bytes that are given back when there are none")
    await store.check(repair=True)
    equal([one for one in await store.check(repair=True) if one.repaired], [], "what is left to be repaired")
    equal((await store.info(kept), await store.read(kept)), before, "a run after the space of another was given back")


async def check_close(store: Store) -> None:
    """Closing twice is harmless, and a closed store takes no write."""
    run_id = await created(store)
    await store.close()
    await store.close()
    await raises(StoreError, store.append(Append(run_id, events(2), after=1)), "append to a closed store")


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
    """The records of an ended run are moved out and back; its row stays, and names their object."""
    if not isinstance(store, Archivable):
        return
    info, records = await ended_run(store)
    run_id = info.run_id
    where = await store.note_object(run_id, an_object(run_id))
    equal(await store.note_object(run_id, an_object(run_id)), where, "an object of the same content, noted again")
    await store.put_snapshot(run_id, 2, b"folded")
    for _ in range(2):  # repeated, it returns
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
    """A run keeps its records if it has not ended, has changed, or is held."""
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
    """`Store.ended` lists the runs that have ended and whose records are in the store, oldest first."""
    if not isinstance(store, Archivable):
        return
    runs = [await ended_run(store, created=at) for at in (-30.0, -20.0, -10.0)]
    running, records = new_run()
    await store.create(NewRun(replace(running, created=-15.0), records))
    oldest, middle, newest = (info.run_id for info, _ in runs)

    async def own(before: float = 1e12, limit: int = 2) -> list[str]:
        """Return the runs of this check, from all pages."""
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
    """The objects of a deleted run stay noted until they are forgotten, even if another run takes its id."""
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
