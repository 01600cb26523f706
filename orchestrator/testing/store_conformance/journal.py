"""Checks of the journal: runs are created, appended to, read, ended and reopened, each in one write."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import uuid4

import anyio

from orchestrator.errors import GraphUnknown, RunConflict, RunEnded, RunExists, RunUnknown
from orchestrator.kernel.records import Ended, Reopened
from orchestrator.stores.base import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.stores.rows import NOTICE
from orchestrator.testing.store_conformance.helpers import (
    a_lease,
    append,
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


async def check_create_and_read(store: Store) -> None:
    """A created run is read back, row and records, from both sides of the event loop."""
    info, records = new_run(labels={"user": "ann", "kind": "test"}, due=12.5, waiting=2)
    await store.create(NewRun(info, records))
    equal(await store.info(info.run_id), info, "the row of a new run")
    equal(await store.read(info.run_id), records, "the records of a new run")
    equal(store.read_now(info.run_id), records, "the records of a new run, by read_now")


async def check_create_is_exclusive(store: Store) -> None:
    """An id is taken once: a second run with the id is refused, and the first stays unchanged."""
    info, records = new_run()
    won: list[int] = []
    refused: list[Exception] = []

    async def attempt(number: int) -> None:
        try:
            await store.create(NewRun(replace(info, graph=f"graph {number}"), records))
            won.append(number)
        except RunExists as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(attempt, number)
    equal((len(won), len(refused)), (1, 4), "five concurrent creations of one run: successes and RunExists")
    equal((await store.info(info.run_id)).graph, f"graph {won[0]}", "the graph of the run that was created first")


async def check_append_and_read(store: Store) -> None:
    """Records come back in order, whole or in parts, and the row follows the head."""
    run_id = await created(store)
    equal(await store.append(Append(run_id, events(2, 2), after=1)), 3, "the new head")
    equal(await store.append(Append(run_id, events(4, 1), after=3)), 4, "the new head")
    everything = await store.read(run_id)
    equal([record.seq for record in everything], [1, 2, 3, 4], "seq of all records")
    equal(everything[1:], events(2, 3), "the records appended")
    equal(await store.read(run_id, after=2), everything[2:], "read(after=2)")
    equal(await store.read(run_id, upto=2), everything[:2], "read(upto=2)")
    equal(await store.read(run_id, after=1, upto=3), everything[1:3], "read(after=1, upto=3)")
    equal(await store.read(run_id, after=1, limit=2), everything[1:3], "read(after=1, limit=2)")
    equal(await store.read(run_id, after=4), [], "read(after=head)")
    equal(await store.read(run_id, upto=0), [], "read(upto=0)")
    equal(store.read_now(run_id, after=1, upto=3), everything[1:3], "read_now(after=1, upto=3)")
    info = await store.info(run_id)
    equal((info.head, info.updated), (4, everything[-1].ts), "head and updated of the row")


async def check_long_texts(store: Store) -> None:
    """Long texts come back as written, in every run that has them, even after other runs with them are deleted."""
    texts = ['say "hi" \\ \n\0' * 10_000, "ä€😀" * 20_000, "\\" * 100_001, "~0+40000\n" * 5_000, "x" * 200_000]
    values: list[object] = [{"all": texts}, {texts[4]: texts[0]}, texts[4], "short", texts[1] + texts[1]]
    first, second = await created(store), await created(store)
    records = [event(seq, data) for seq, data in enumerate(values, 2)]
    for record in records:
        await store.append(Append(first, [record], after=record.seq - 1))
    await store.append(Append(second, records, after=1))
    info, beginning = new_run()
    await store.create(NewRun(replace(info, head=1 + len(records)), [*beginning, *records]))
    for run_id in (first, second, info.run_id):
        equal((await store.read(run_id))[1:], records, "records with long texts")
        equal(await store.read(run_id, after=3, limit=2), records[2:4], "some of them")
        equal(store.read_now(run_id, after=2, upto=3), records[1:2], "one of them, by read_now")
    await store.delete(first)
    equal((await store.read(second))[1:], records, "records with long texts after another run with them was deleted")
    await store.delete(info.run_id)
    await store.append(Append(second, [event(7, values[0])], after=6))
    equal((await store.read(second))[1:], [*records, event(7, values[0])], "and after all others were deleted")


async def check_append_moves_the_row(store: Store) -> None:
    """An append keeps `status` and `waiting` if they are None; `due` is replaced only together with a status."""
    run_id = await created(store)

    async def row() -> tuple[str, float | None, int]:
        info = await store.info(run_id)
        return info.status, info.due, info.waiting

    await store.append(Append(run_id, events(2), after=1, status="paused", due=99.0, waiting=3))
    equal(await row(), ("paused", 99.0, 3), "status, due and waiting as given")
    await store.append(Append(run_id, events(3), after=2))
    equal(await row(), ("paused", 99.0, 3), "status, due and waiting left as they were")
    await store.append(Append(run_id, events(4), after=3, due=50.0))
    equal(await row(), ("paused", 50.0, 3), "due alone")
    await store.append(Append(run_id, events(5), after=4, status="running", waiting=0))
    equal(await row(), ("running", None, 0), "a status without due clears it")
    equal(await store.append(Append(run_id, [], after=5, status="failed")), 5, "the head after no records")
    equal(await row(), ("failed", None, 0), "status moved without a record")


async def check_compare_and_set(store: Store) -> None:
    """If two append after the same head, exactly one succeeds; the other gets RunConflict and changes nothing."""
    run_id = await created(store)
    for after in range(1, 21):
        outcomes = await together(*[append(store, run_id, after, data=f"{after} by {writer}") for writer in range(3)])
        lost = [outcome for outcome in outcomes if isinstance(outcome, RunConflict)]
        equal(len(lost), 2, f"RunConflicts among three that append after {after}")
        winner = next(index for index, outcome in enumerate(outcomes) if outcome == after + 1)
        (record,) = await store.read(run_id, after=after)
        equal(getattr(record, "data", None), f"{after} by {winner}", "the record that is there")
    await raises(
        RunConflict, store.append(Append(run_id, events(2), after=1, status="failed")), "append behind an old head"
    )
    await raises(RunConflict, store.append(Append(run_id, events(51), after=50)), "append behind a head to come")
    info = await store.info(run_id)
    equal((info.head, info.status), (21, "running"), "the row after conflicts")


async def check_the_fence(store: Store) -> None:
    """A write that names a lease succeeds only while the run has it. A write that names none is not checked."""
    run_id, other = await created(store), await created(store)
    message = await store.post(run_id, {})

    async def refused(after: int, token: str, what: str) -> None:
        before = await store.info(run_id)
        write = store.append(
            Append(run_id, events(after + 1), after=after, status="failed", waiting=7, consumed=[message], lease=token)
        )
        error = await raises(RunConflict, write, what)
        that(run_id in str(error), f"{what}: the message names the run: {error}")
        equal(await store.info(run_id), before, f"the row after {what}")
        equal(len(await store.read(run_id)), after, f"the records after {what}")
        equal([left.id for left in await store.inbox([run_id])], [message], f"the messages after {what}")

    await refused(1, "a", "append under a lease that was never taken")
    await store.take_lease(a_lease(run_id, "a"), ttl=0.001)
    await store.take_lease(a_lease(other, "o"), ttl=60.0)
    await anyio.sleep(0.01)
    equal(
        await store.append(Append(run_id, events(2), after=1, lease="a")), 2, "the head after an append of the holder's"
    )
    equal(
        await store.append(Append(run_id, events(3), after=2, lease="a")),
        3,
        "and after its next, though the lease is old",
    )
    await refused(3, "o", "append under the lease of another run")
    await refused(3, "", "append under an empty token")
    late = store.append(Append(run_id, [event(3, "other")], after=2, lease="a"))
    await raises(RunConflict, late, "append of the holder, old head")
    equal(await store.take_lease(a_lease(run_id, "a"), ttl=60.0, replaces="a"), True, "keep a lease that expired")
    equal(await store.append(Append(run_id, events(4), after=3, lease="a")), 4, "the head after the lease was kept")
    await store.take_lease(a_lease(run_id, "b"), ttl=60.0, replaces="a")
    await refused(4, "a", "append by an executor that lost its lease, with the right head")
    both = await together(
        store.append(Append(run_id, [event(5, "old")], after=4, lease="a")),
        store.append(Append(run_id, [event(5, "new")], after=4, lease="b")),
        store.append(Append(other, events(2), after=1, lease="o")),
    )
    equal([type(one) if isinstance(one, Exception) else one for one in both], [RunConflict, 5, 2], "old, new, another")
    equal(await store.append(Append(run_id, events(6), after=5)), 6, "the head after an append that names no lease")
    await store.drop_lease(run_id, "b")
    await refused(6, "b", "append under a lease that was given back")
    equal(
        await store.append(Append(run_id, events(7), after=6)), 7, "the head after an append to a run without a holder"
    )
    await raises(
        RunUnknown,
        store.append(Append("no run " + uuid4().hex, events(2), after=1, lease="a")),
        "append to no run, under a lease",
    )


async def check_one_conflict_fails_alone(store: Store) -> None:
    """An append that conflicts does not disturb concurrent appends to other runs."""
    runs = [await created(store) for _ in range(10)]
    outcomes = await together(
        *[append(store, run_id, 7 if index == 4 else 1) for index, run_id in enumerate(runs)],
        append(store, "no run " + uuid4().hex, 1),
    )
    kinds = [type(outcome) if isinstance(outcome, Exception) else outcome for outcome in outcomes]
    equal(kinds, [2, 2, 2, 2, RunConflict, 2, 2, 2, 2, 2, RunUnknown], "outcomes of eleven appends")


async def check_order_among_many(store: Store) -> None:
    """In concurrent appends to many runs, the records of each run are its own and in its own order."""
    runs = [await created(store) for _ in range(20)]

    async def work(run_id: str) -> None:
        for after in range(1, 16):
            await store.append(Append(run_id, [event(after + 1, f"{run_id} {after + 1}")], after=after))

    async with anyio.create_task_group() as group:
        for run_id in runs:
            group.start_soon(work, run_id)
    for run_id in runs:
        found = [getattr(record, "data", None) for record in await store.read(run_id, after=1)]
        equal(found, [f"{run_id} {seq}" for seq in range(2, 17)], "the records of one run among many")


async def check_wrong_numbers_are_refused(store: Store) -> None:
    """Records that do not follow the head, or a row that does not fit them, are an error of the caller."""
    info, records = new_run()
    await raises(ValueError, store.create(NewRun(replace(info, head=5), records)), "create with a wrong head")
    await store.create(NewRun(info, records))
    await raises(ValueError, store.append(Append(info.run_id, events(3), after=1)), "append with a gap")
    await raises(
        ValueError, store.append(Append(info.run_id, [*events(2), *events(2)], after=1)), "append with a repeat"
    )
    equal((await store.info(info.run_id)).head, 1, "the head after refused appends")


async def check_unknown_runs(store: Store) -> None:
    """Every request about a run that does not exist raises RunUnknown, naming it."""
    run_id = "no run " + uuid4().hex
    lease = a_lease(run_id, "token")
    for what, call in (
        ("append", store.append(Append(run_id, events(2), after=1))),
        ("read", store.read(run_id)),
        ("info", store.info(run_id)),
        ("post", store.post(run_id, {})),
        ("put_snapshot", store.put_snapshot(run_id, 1, b"")),
        ("take_lease", store.take_lease(lease, ttl=60.0)),
        ("copy", store.copy(run_id, MemoryStore())),
    ):
        error = await raises(RunUnknown, call, what)
        that(run_id in str(error), f"{what}: the message names the run: {error}")
    try:
        store.read_now(run_id)
    except RunUnknown:
        pass
    else:
        raise AssertionError("read_now of a run that is not there must raise RunUnknown")
    equal(await store.lease(run_id), None, "the lease of a run that is not there")
    equal(await store.snapshot(run_id), None, "the snapshot of a run that is not there")
    await store.drop_lease(run_id, "token")
    await store.drop_lease(run_id, "token", fault="why")
    equal(await store.heads([run_id]), {}, "the head of a run that is not there")
    equal(await store.delete(run_id), False, "delete, of a run that is not there")


async def check_unicode(store: Store) -> None:
    """Any text is kept unchanged: in ids, names, labels, records, messages, graphs."""
    text = "naïve 日本語 🧭 \u202eabc\u202c 'quoted' \"double\" %s ? \\ \n\t\x00 behind a zero"
    info, _ = new_run(labels={text: text, "": ""})
    info = replace(info, run_id=info.run_id + text, graph=info.graph + text, head=2)
    records = [started(info), event(2, {text: [text, "\x00\x1f"]})]
    await store.create(NewRun(info, records))
    equal(await store.info(info.run_id), info, "a row of any text")
    equal(await store.read(info.run_id), records, "records of any text")
    equal(
        (await store.runs(RunQuery(graph=info.graph, labels={text: text}))).runs,
        (info,),
        "a run found by a label of any text",
    )
    await store.post(info.run_id, {"text": text})
    equal([message.body for message in await store.inbox([info.run_id])], [{"text": text}], "a message of any text")
    name = uuid4().hex
    await store.put_graph(name, {"text": text})
    equal(await store.graph(name), {"text": text}, "a graph of any text")
    await store.delete(info.run_id)
    await store.create(NewRun(replace(info, labels={}), records))
    equal((await store.runs(RunQuery(labels={text: text}))).runs, (), "runs found by a label of one that was deleted")
    equal(await store.inbox([info.run_id]), [], "messages of a run that was deleted")


async def check_ten_thousand_records(store: Store) -> None:
    """A long run is stored, and read in parts."""
    run_id = await created(store)
    after = 1
    while after < 10_000:
        count = min(1000, 10_000 - after)
        after = await store.append(Append(run_id, events(after + 1, count), after=after))
    records = await store.read(run_id)
    equal([record.seq for record in records], list(range(1, 10_001)), "seq of 10,000 records")
    equal(await store.read(run_id, after=9_990), records[9_990:], "the last ten")
    equal(len(await store.read(run_id, after=5_000, limit=100)), 100, "a hundred in the middle")


async def check_cancelled_append(store: Store) -> None:
    """An append that is cancelled while it waits has happened or not, and the store continues to work."""
    run_id = await created(store)
    known = 1
    for _ in range(20):
        with anyio.CancelScope() as scope:
            scope.cancel()
            known = await store.append(Append(run_id, events(known + 1), after=known))
        head = (await store.info(run_id)).head
        that(head in (known, known + 1), f"the head is {head}, it was {known} before a cancelled append")
        equal(len(await store.read(run_id)), head, "records after a cancelled append")
        known = head
    equal(await store.append(Append(run_id, events(known + 1), after=known)), known + 1, "the head afterwards")


async def check_begun_at_once(store: Store) -> None:
    """A run is created with its graph and a lease in one write; the graph may exist, or graph and lease be omitted."""
    data = {"name": "essay", "nodes": [{"kind": "think", "text": "naïve 🧭", "deep": {"a": [1, True, None]}}]}
    digest = uuid4().hex
    for number in range(3):
        info, _ = new_run(labels={"user": "ann"})
        info = replace(info, content=digest)
        lease = a_lease(info.run_id, f"token {number}")
        await store.create(NewRun(info, [started(info)], graph=data, lease=lease))
        equal(await store.info(info.run_id), info, "the row of a run that was created with a lease")
        equal(await store.read(info.run_id), [started(info)], "the records of a run that was created with a lease")
        equal(await store.lease(info.run_id), lease, "the lease that a run was created with")
        equal(await store.graph(digest), data, "the graph that a run was created with")
        taken = await store.take_lease(a_lease(info.run_id, "other"), ttl=60.0)
        equal(taken, False, "take the lease of a run that was created with one")
        await raises(
            RunConflict, store.append(Append(info.run_id, events(2), after=1, lease="other")), "append of another"
        )
        equal(
            await store.append(Append(info.run_id, events(2), after=1, lease=lease.token)), 2, "the head, by the holder"
        )
        equal(await store.beat(lease.holder, 90.0), True, "renew the lease of the creation")
        await store.drop_lease(info.run_id, lease.token)
        equal(await store.lease(info.run_id), None, "the lease of the creation, given back")
    changed = {**data, "name": "other"}
    info, _ = new_run()
    info = replace(info, content=uuid4().hex)
    await store.create(NewRun(info, [started(info)], graph=changed))
    equal(await store.graph(info.content), changed, "another graph, which a run was created with")
    equal(await store.lease(info.run_id), None, "the lease of a run that was created with a graph only")


async def check_all_or_nothing(store: Store) -> None:
    """A refused creation leaves nothing: no graph, no lease, and existing ones unchanged."""
    info, _ = new_run()
    info = replace(info, content=uuid4().hex)
    first = a_lease(info.run_id, "first")
    await store.create(NewRun(info, [started(info)], graph={"name": "first"}, lease=first))
    other = replace(info, content=uuid4().hex, graph="other", labels={"user": "bob"})
    second = a_lease(info.run_id, "second")
    refused = store.create(NewRun(other, [started(other)], graph={"name": "second"}, lease=second))
    await raises(RunExists, refused, "create with an id that is taken")
    equal(await store.lease(info.run_id), first, "the lease after a creation was refused")
    equal(await store.info(info.run_id), info, "the row after a creation was refused")
    equal(await store.read(info.run_id), [started(info)], "the records after a creation was refused")
    equal(await store.graph(info.content), {"name": "first"}, "the graph after a creation was refused")
    await raises(GraphUnknown, store.graph(other.content), "the graph of a creation that was refused")
    equal(
        (await store.runs(RunQuery(graph="other", labels={"user": "bob"}, limit=5))).runs, (), "runs that were refused"
    )

    info, _ = new_run()
    info = replace(info, content=uuid4().hex)
    fitting = a_lease(info.run_id, "t")
    for what, call in (
        ("a lease on another run", store.create(NewRun(info, [started(info)], lease=first))),
        (
            "a head that does not fit",
            store.create(NewRun(replace(info, head=2), [started(info)], graph={}, lease=fitting)),
        ),
        ("a graph without a digest", store.create(NewRun(replace(info, content=""), [started(info)], graph={}))),
    ):
        await raises(ValueError, call, f"create with {what}")
        await raises(RunUnknown, store.info(info.run_id), f"the row after create with {what}")
    await raises(GraphUnknown, store.graph(info.content), "the graph of a creation that did not fit")

    leases = [a_lease(info.run_id, f"t{number}") for number in range(5)]
    records = [started(info)]
    outcomes = await together(*[store.create(NewRun(info, records, graph={}, lease=lease)) for lease in leases])
    won = [lease for lease, outcome in zip(leases, outcomes, strict=True) if outcome is None]
    equal(len(won), 1, "successes of five concurrent creations of one run")
    equal(await store.lease(info.run_id), won[0], "the lease after five concurrent creations")


async def check_release(store: Store) -> None:
    """`release` removes the lease with the append, and a final status the run's messages; otherwise both stay."""
    run_id, other = await created(store), await created(store)
    kept = [await store.post(other, {"n": 1})]
    mine = [await store.post(run_id, {"n": number}) for number in range(3)]

    async def messages() -> list[int]:
        return [message.id for message in await store.inbox([run_id, other])]

    await store.take_lease(a_lease(run_id, "a"), ttl=60.0)
    theirs = a_lease(other, "o")
    await store.take_lease(theirs, ttl=60.0)
    for what, token in (("a foreign token", "o"), ("an empty token", "")):
        before = await store.info(run_id)
        call = store.append(Append(run_id, [_ended(2)], after=1, status="completed", lease=token, release=True))
        await raises(RunConflict, call, f"release with {what}")
        equal(await store.info(run_id), before, f"the row after release with {what}")
        equal(len(await store.read(run_id)), 1, f"the records after release with {what}")
        equal(await messages(), [*kept, *mine], f"the messages after release with {what}")
        that((await store.lease(run_id)) is not None, f"release with {what} gave the lease back")
    await raises(ValueError, store.append(Append(run_id, events(2), after=1, release=True)), "release without a lease")
    call = store.append(Append(run_id, [_ended(8)], after=7, status="completed", lease="a", release=True))
    await raises(RunConflict, call, "release behind an old head")
    that((await store.lease(run_id)) is not None, "an append that lost gave the lease back")

    head = await store.append(
        Append(run_id, events(2), after=1, status="paused", lease="a", release=True, consumed=mine[:1])
    )
    equal(head, 2, "the head after a pause that gives the lease back")
    equal(await store.lease(run_id), None, "the lease that was given back with an append")
    equal(await messages(), [*kept, *mine[1:]], "the messages of a run that pauses")
    await raises(
        RunConflict, store.append(Append(run_id, events(3), after=2, lease="a")), "append under a lease given back"
    )
    equal(await store.take_lease(a_lease(run_id, "b"), ttl=60.0), True, "take a lease that was given back")
    equal(await store.append(Append(run_id, events(3), after=2, status="failed", lease="b")), 3, "the head, lease kept")
    that((await store.lease(run_id)) is not None, "an append without release gave the lease back")
    equal(await messages(), [*kept, *mine[1:]], "the messages after a final status without release")
    head = await store.append(
        Append(run_id, [_ended(4)], after=3, status="completed", waiting=0, lease="b", release=True, consumed=mine[1:2])
    )
    info = await store.info(run_id)
    equal((head, info.head, info.status, info.due, info.waiting), (4, 4, "completed", None, 0), "the row at the end")
    equal(await store.read(run_id, after=3), [_ended(4)], "the last record of a run")
    equal(await store.lease(run_id), None, "the lease of a run that ended")
    equal(await messages(), kept, "the messages after a run ended: only those of other runs")
    equal(await store.lease(other), theirs, "the lease of another run")
    await raises(RunEnded, store.post(run_id, {"late": True}), "post to a run that has ended")
    equal(await messages(), kept, "the messages of a run that has ended")
    message = await store.post(run_id, {"type": NOTICE})
    equal(await messages(), [*kept, message], "a notice that was posted after the end")
    await store.discard([message])
    equal(await append(store, other, 1), 2, "the head of another run")


async def check_a_message_is_read_or_refused(store: Store) -> None:
    """A message posted while a run ends is either stored before the end, or refused with `RunEnded`."""
    for _ in range(15):
        run_id = await created(store)
        lease = a_lease(run_id, "t")
        await store.take_lease(lease, ttl=60.0)
        end = partial(store.append, Append(run_id, [_ended(2)], after=1, status="completed", lease="t", release=True))
        posts = [store.post(run_id, {"n": number}) for number in range(3)]
        told = await together(posts[0], end(), *posts[1:])
        equal(told[1], 2, "the head after the end of a run to which messages come")
        for one in (told[0], *told[2:]):
            that(isinstance(one, int | RunEnded), f"a message to a run that ends is {one!r}")
        equal(await store.inbox([run_id]), [], "the messages of a run to which some came while it ended")


async def check_release_without_records(store: Store) -> None:
    """A lease that an append without records releases is released once, also if the call is repeated."""
    for status, due in ((None, None), ("paused", 5.0), ("paused", None)):
        run_id = await created(store)
        await store.take_lease(a_lease(run_id, "t"), ttl=60.0)
        give_back = partial(
            store.append, Append(run_id, [], after=1, status=status, due=due, waiting=0, lease="t", release=True)
        )
        for what in ("given back", "asked again"):
            equal(await give_back(), 1, f"the head, {what}")
            equal(await store.lease(run_id), None, f"the lease, {what}")
        info = await store.info(run_id)
        equal((info.status, info.due), (status or "running", due), "the row of a run that was given back twice")
        call = store.append(Append(run_id, [], after=1, status="cancelled", lease="t", release=True))
        await raises(RunConflict, call, "another change under a lease that was given back")
        await store.take_lease(a_lease(run_id, "other"), ttl=60.0)
        await raises(RunConflict, give_back(), "give a lease back that another one has taken over")
        equal(
            await store.append(Append(run_id, events(2), after=1, lease="other", release=True)),
            2,
            "the head of the other",
        )
        await raises(RunConflict, give_back(), "give a lease back of a run that has moved on")


def _ended(seq: int) -> Ended:
    return Ended(seq=seq, ts=1000.0 + seq, status="completed", output=1)


async def check_reopened(store: Store) -> None:
    """A run that has ended continues: it is held again, has another status, and ends once more."""
    run_id = await created(store)
    head = (await store.info(run_id)).head
    for number in range(2):
        lease = a_lease(run_id, f"drive {number}")
        equal(await store.take_lease(lease, ttl=60.0), True, "take the lease of a run that had ended")
        if number:
            again = Reopened(seq=head + 1, ts=20.0, status="failed")
            head = await store.append(
                Append(run_id, [again], after=head, status="running", due=None, lease=lease.token)
            )
            found = await store.info(run_id)
            equal((found.status, found.head, found.updated), ("running", head, 20.0), "the row of a reopened run")
            equal(
                [one.run_id for one in (await store.runs(RunQuery(status="failed"))).runs if one.run_id == run_id],
                [],
                "failed",
            )
            await store.post(run_id, {"type": "pause"})
            equal(len(await store.inbox([run_id])), 1, "messages for a reopened run")
        end = Ended(seq=head + 1, ts=10.0 + 20 * number, status="failed" if not number else "completed")
        head = await store.append(Append(run_id, [end], after=head, status=end.status, lease=lease.token, release=True))
        equal(await store.lease(run_id), None, "the lease after an end")
        equal((await store.info(run_id)).status, end.status, "the status after an end")
    equal(await store.inbox([run_id]), [], "messages after the second end")
    types = [record.type for record in await store.read(run_id)]
    equal(types[-3:], ["ended", "reopened", "ended"], "the records of a run that ended twice")
