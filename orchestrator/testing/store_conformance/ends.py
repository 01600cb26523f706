"""Checks of a run's first write, which holds it too, and of its last, which gives it back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import uuid4

from orchestrator.errors import GraphUnknown, RunConflict, RunEnded, RunExists, RunUnknown
from orchestrator.kernel.records import Ended, Reopened
from orchestrator.stores.base import Store
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.stores.rows import NOTICE
from orchestrator.testing.store_conformance.helpers import (
    a_lease,
    append,
    created,
    equal,
    events,
    new_run,
    raises,
    started,
    that,
    together,
)


async def check_begun_at_once(store: Store) -> None:
    """A run is created with its graph and a lease in one write; the same graph may come again, and a run without."""
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
    """A creation that is refused leaves nothing behind: no graph, no lease, and those that are there as they are."""
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
    """With `release` the lease goes with the append; with a final status so do the run's messages. Else neither."""
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
    """A lease that is given back by an append without records is given back once, also if that is asked for again."""
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
    """A run that has ended goes on: it is held again, has another status, and ends once more."""
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
