"""Checks of leases: holders of runs, by the store's clock; claims, also among graphs and in turns; repeated calls."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel

from orchestrator.errors import RunConflict, RunEnded, RunExists
from orchestrator.kernel.records import StepDone
from orchestrator.stores.base import Holder, RunInfo, Store
from orchestrator.stores.fair_claims import Turns
from orchestrator.stores.requests import Append, ClaimRequest, NewRun, RunQuery
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.testing.store_conformance.helpers import (
    a_lease,
    an_owner,
    claim,
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


async def check_leases(store: Store) -> None:
    """A lease has one holder: it is taken when free, expired or named for replacement, and kept only by its holder."""
    run_id = await created(store)
    equal(await store.lease(run_id), None, "the lease of a run without a holder")
    equal(await store.take_lease(a_lease(run_id, "a"), ttl=0.05), True, "take a free lease")
    found = await store.lease(run_id)
    equal(found, a_lease(run_id, "a"), "the lease that was taken")
    that(found is not None and found.left <= 0.05 and found.ttl == 0.05, f"what is left of a lease: {found}")
    equal(await store.take_lease(a_lease(run_id, "a"), ttl=60.0), True, "take a lease, asked again")
    found = await store.lease(run_id)
    that(found is not None and 50 < found.left <= 60.0, f"what is left of a lease that was taken again: {found}")
    equal(await store.take_lease(a_lease(run_id, "b"), ttl=60.0), False, "take a lease that is held")
    equal(
        await store.take_lease(a_lease(run_id, "b"), ttl=60.0, replaces="x"), False, "replace a lease by a wrong name"
    )
    equal(await store.take_lease(a_lease(run_id, "b"), ttl=60.0, replaces="b"), False, "keep a lease never held")
    equal(await store.take_lease(a_lease(run_id, "b"), ttl=60.0, replaces="a"), True, "replace a lease by its name")
    equal(await store.take_lease(a_lease(run_id, "a"), ttl=60.0, replaces="a"), False, "keep a lease that was lost")
    equal(await store.take_lease(a_lease(run_id, "c"), ttl=60.0), False, "take a lease that has not expired")
    equal(await store.take_lease(a_lease(run_id, "b"), ttl=0.05), True, "shorten a lease that is held")
    await anyio.sleep(0.06)
    found = await store.lease(run_id)
    that(found is not None and found.left <= 0, f"what is left of a lease that expired: {found}")
    equal(await store.take_lease(a_lease(run_id, "c"), ttl=60.0), True, "take a lease that expired")
    await store.drop_lease(run_id, "b")
    equal(await store.lease(run_id), a_lease(run_id, "c"), "the lease after another's was dropped")
    await store.drop_lease(run_id, "c")
    equal(await store.lease(run_id), None, "the lease after it was dropped")
    equal(await store.take_lease(a_lease(run_id, "c"), ttl=60.0, replaces="c"), False, "keep a lease given back")
    taken = await together(*[store.take_lease(a_lease(run_id, f"t{n}"), ttl=60.0) for n in range(5)])
    equal(
        sorted(outcome is True for outcome in taken),
        [False] * 4 + [True],
        "five concurrent attempts to take one free lease",
    )


async def check_beats(store: Store) -> None:
    """A heartbeat renews all leases of a holder; False means that they had expired, or that one was taken over."""
    one, two = await created(store), await created(store)
    holder = f"holder {uuid4().hex}"
    equal(await store.beat(holder, 60.0), False, "a beat of a holder that never held anything")
    for run_id in (one, two):
        await store.take_lease(a_lease(run_id, "a", holder), ttl=0.3)
    before = await store.lease(one)
    equal(await store.beat(holder, 60.0), True, "a beat of a living holder")
    for run_id in (one, two):
        found = await store.lease(run_id)
        that(found is not None and found.left > 50, f"what is left of a lease after a beat: {found}")
    found = await store.lease(one)
    that(before is not None and found is not None and before.beat != found.beat, "`Lease.beat` changes with each beat")
    equal(await store.take_lease(a_lease(two, "b"), ttl=60.0, replaces="a"), True, "take a lease over by its name")
    equal(await store.beat(holder, 60.0), False, "the beat after one of two leases was taken over")
    equal(await store.take_lease(a_lease(one, "a", holder), ttl=60.0, replaces="a"), True, "keep the other lease")
    equal(await store.take_lease(a_lease(two, "a", holder), ttl=60.0, replaces="a"), False, "keep the one taken over")
    equal(await store.beat(holder, 0.02), True, "the beat after that")
    await anyio.sleep(0.03)
    equal(await store.beat(holder, 60.0), False, "a beat behind the end of the leases")
    equal(await store.take_lease(a_lease(one, "c"), ttl=60.0), True, "take a lease whose holder's beat came too late")
    await store.beat(holder, 0.0)
    equal(await store.beat(holder, 60.0), False, "a beat of a holder that gave its row up")


async def check_fence_race(store: Store) -> None:
    """A take-over is a fence: once it returned, no append under the earlier lease is committed, in any order."""
    for number in range(10):
        run_id = await created(store)
        await store.take_lease(a_lease(run_id, "old"), ttl=0.0)
        heads: list[int] = []

        async def take_over(run_id: str = run_id, heads: list[int] = heads) -> None:
            equal(await store.take_lease(a_lease(run_id, "new"), ttl=60.0), True, "take a lease that expired")
            heads.append((await store.info(run_id)).head)

        async def write(run_id: str = run_id) -> None:
            after = 1
            while True:
                await anyio.lowlevel.checkpoint()
                try:
                    after = await store.append(Append(run_id, [event(after + 1, "old")], after=after, lease="old"))
                except RunConflict:
                    return

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await anyio.sleep(0.0002 * number)
            group.start_soon(take_over)
        equal((await store.info(run_id)).head, heads[0], "the head after a take-over, when the old holder has ended")
        after = heads[0]
        equal(
            await store.append(Append(run_id, events(after + 1), after=after, lease="new")),
            after + 1,
            "the successor's head",
        )


async def check_asked_again(store: Store) -> None:
    """A caller that does not know the outcome of its write repeats it, and there is one write."""
    info, _ = new_run()
    first, lease = [started(info)], a_lease(info.run_id, "t")
    for _ in range(2):
        await store.create(NewRun(info, first, lease=lease))
    other = replace(info, labels={"other": "yes"})
    await raises(
        RunExists, store.create(NewRun(other, [started(other)], lease=lease)), "create of another run, same lease"
    )
    await raises(
        RunExists, store.create(NewRun(info, first, lease=a_lease(info.run_id, "u"))), "create under another lease"
    )
    await raises(RunExists, store.create(NewRun(info, first)), "create without a lease")
    for _ in range(2):
        equal(await store.append(Append(info.run_id, events(2, 3), after=1, lease="t")), 4, "the head after an append")
    equal(await store.read(info.run_id), [*first, *events(2, 3)], "the records after an append was asked again")
    for what, records, after in (
        ("other records", [event(2, "x"), *events(3, 2)], 1),
        ("fewer records", events(2, 2), 1),
        ("only the last", [event(4, "x")], 3),
    ):
        call = store.append(Append(info.run_id, records, after=after, lease="t"))
        await raises(RunConflict, call, f"an append behind an old head, with {what}")
    await raises(
        RunConflict, store.append(Append(info.run_id, events(2, 3), after=1)), "the same append without a lease"
    )
    await raises(
        RunConflict, store.append(Append(info.run_id, events(2, 3), after=1, lease="x")), "under another lease"
    )
    for _ in range(2):
        head = await store.append(Append(info.run_id, events(5), after=4, status="failed", lease="t", release=True))
        equal(head, 5, "the head after an append that gives the lease back")
    equal(len(await store.read(info.run_id)), 5, "the records after that was asked again")
    await store.drop_lease(info.run_id, "t")
    await store.drop_lease(info.run_id, "t", fault="late")
    equal((await store.info(info.run_id)).deaths, 0, "the deaths after a lease was dropped that was given back")


async def check_deaths(store: Store) -> None:
    """Drives that fail or die are counted and delay the next; a drive that ends normally clears all that."""
    run_id = await created(store)

    async def row() -> tuple[int, str, float | None]:
        info = await store.info(run_id)
        return info.deaths, info.fault, info.retry_at

    async def backs_off(what: str, deaths: int, delay: float, since: float) -> None:
        found, _, retry_at = await row()
        equal(found, deaths, f"the deaths {what}")
        that(
            retry_at is not None and since + delay - 0.5 < retry_at < time.time() + delay + 0.5,
            f"the run is given out at {retry_at} {what}, and not {delay} seconds after {since}",
        )

    equal(await row(), (0, "", None), "a new run")
    delays = [1, 2, 4, 8, 16, 32]
    for deaths, delay in enumerate(delays, 1):
        await store.take_lease(a_lease(run_id, f"t{deaths}"), ttl=60.0)
        since = time.time()
        await store.drop_lease(run_id, f"t{deaths}", fault=f"fault {deaths}")
        await backs_off(f"after {deaths} drives were given up", deaths, delay, since)
        equal((await row())[1], f"fault {deaths}", f"the fault after {deaths} drives were given up")
    await store.take_lease(a_lease(run_id, "a"), ttl=0.0)
    equal((await row())[0], 6, "the deaths after a free lease was taken")
    since = time.time()
    await store.take_lease(a_lease(run_id, "b"), ttl=0.0)
    await backs_off("after a lease was taken over that was never given back", 7, 64, since)
    that((await row())[1] not in ("", "fault 6"), "the row does not say that the holder died")
    await store.take_lease(a_lease(run_id, "b"), ttl=60.0, replaces="b")
    equal((await row())[0], 7, "the deaths after a lease was kept")
    await store.drop_lease(run_id, "b")
    equal(await row(), (0, "", None), "after a lease was given back")
    await store.take_lease(a_lease(run_id, "c"), ttl=60.0)
    await store.drop_lease(run_id, "c", fault="again")
    await store.take_lease(a_lease(run_id, "d"), ttl=60.0)
    await store.append(Append(run_id, events(2), after=1, lease="d", status="paused", release=True))
    equal(await row(), (0, "", None), "after a lease was given back with an append")
    head = (await store.info(run_id)).head
    for number, (record, deaths) in enumerate(
        (
            (event(head + 1), 1),
            (event(head + 2), 2),
            (StepDone(seq=head + 3, ts=1.0, activation="a", path="p", node="n"), 1),
            (event(head + 4), 2),
        )
    ):
        await store.take_lease(a_lease(run_id, f"e{number}"), ttl=60.0)
        await store.append(Append(run_id, [record], after=head + number, lease=f"e{number}"))
        await store.drop_lease(run_id, f"e{number}", fault="gave up")
        equal((await row())[0], deaths, f"the deaths after a drive that wrote {record.type} was given up")


async def check_holders(store: Store) -> None:
    """An executor is listed with its runs from its announcement or first lease on, until it gives up its row."""

    async def row(holder: str, runs: int = 20) -> Holder | None:
        found = await store.holders(runs=runs)
        equal([one.holder for one in found], sorted(one.holder for one in found), "the order of holders")
        return next((one for one in found if one.holder == holder), None)

    owner = replace(an_owner(), worker={"graphs": ["g"], "slots": 2})
    equal(await row(owner.executor), None, "an executor that never said anything")
    await store.announce(owner, ttl=60.0)
    found = await row(owner.executor)
    that(found is not None, "an executor that announced itself is not listed")
    assert found is not None
    equal((found.owner, found.held, found.runs, found.ttl), (owner.data(), 0, (), 60.0), "what it says of itself")
    that(50.0 < found.left <= 60.0, f"what is left of its row: {found.left}")
    equal(await store.beat(owner.executor, 90.0), True, "a beat of an executor that announced itself")
    mark = uuid4().hex
    ids = []
    for _ in range(3):
        info, records = new_run()
        await store.create(NewRun(replace(info, graph=mark), records))
        ids.append(info.run_id)
    owner = replace(owner, worker={"graphs": [mark], "slots": 3})
    taken = await claim(store, owner, [mark])
    found = await row(owner.executor, runs=2)
    that(found is not None and len({*found.runs} & {*ids}) == 2, f"two of its runs: {found}")
    assert found is not None
    equal(
        (found.held, found.owner["worker"]), (3, owner.worker), "the runs that it holds, and what it says, by a claim"
    )
    for info, lease in taken:
        await store.drop_lease(info.run_id, lease.token)
    found = await row(owner.executor)
    equal(None if found is None else (found.held, found.runs), (0, ()), "what it holds after it gave its runs back")
    await store.announce(replace(owner, worker=None), ttl=0.01)
    await anyio.sleep(0.05)
    found = await row(owner.executor)
    that(found is not None and found.left < 0 and "worker" not in found.owner, f"a row that expired: {found}")
    await store.beat(owner.executor, 0.0)
    equal(await row(owner.executor), None, "an executor that gave its row up")
    other = a_lease(ids[0], "t")
    await store.take_lease(other, ttl=60.0)
    found = await row(other.holder)
    equal(None if found is None else found.runs, (ids[0],), "the runs of an executor that never announced itself")
    await store.take_lease(a_lease(ids[0], "u"), ttl=60.0, replaces="t")
    await store.announce(replace(an_owner(), executor=other.holder), ttl=60.0)
    equal(await store.beat(other.holder, 60.0), False, "the beat after a lease was taken over, and an announcement")


async def check_parked(store: Store) -> None:
    """Runs whose drives were given up too often are listed until they are continued."""
    run_id, other = await created(store), await created(store)
    for number in range(MAX_DEATHS):
        equal(await found_parked(store, run_id), None, f"whether a run is parked after {number} deaths")
        await store.take_lease(a_lease(run_id, f"t{number}"), ttl=60.0)
        await store.drop_lease(run_id, f"t{number}", fault="gave up")
    await store.take_lease(a_lease(other, "t"), ttl=60.0)
    await store.drop_lease(other, "t", fault="gave up")
    equal(await found_parked(store, other), None, "whether a run is parked after its first death")
    found = await found_parked(store, run_id)
    equal(found, await store.info(run_id), "the row of a parked run")
    equal(await store.parked(limit=0), [], "no parked runs")
    await store.take_lease(a_lease(run_id, "by hand"), ttl=60.0)
    await store.drop_lease(run_id, "by hand")
    equal(await found_parked(store, run_id), None, "whether a run is parked after a drive that ended as it should")


async def found_parked(store: Store, run_id: str) -> RunInfo | None:
    return next((info for info in await store.parked(limit=10_000) if info.run_id == run_id), None)


async def check_claims(store: Store) -> None:
    """Runs that can continue and have no driver are given out, each to one claimer."""
    mark, past = uuid4().hex, time.time() - 10
    owner = an_owner()

    async def run(what: str, status: str = "running", **row: Any) -> str:
        info, records = new_run(labels={"what": what})
        info = replace(info, graph=mark, status=status, **row)
        await store.create(NewRun(info, records))
        return info.run_id

    free = await run("enqueued")
    paused = await run("paused", "paused", waiting=1)
    addressed = await run("addressed", "paused", waiting=1)
    await store.post(addressed, {"answer": 1})
    ended = await run("ended", "completed")
    await raises(RunEnded, store.post(ended, {"late": 1}), "post to a run that has ended")
    overdue = await run("overdue", "paused", due=past)
    later = await run("later", "paused", due=past + 3600)
    enqueued, for_later = await run("enqueued", due=past), await run("enqueued for later", due=past + 1800)
    expired, held = await run("expired"), await run("held")
    await store.take_lease(a_lease(expired, "t"), ttl=0.0)
    await store.take_lease(a_lease(held, "t"), ttl=60.0)
    poison = await run("killed its holders", deaths=MAX_DEATHS - 1)
    await store.take_lease(a_lease(poison, "t"), ttl=0.0)
    backs_off, dead = await run("backs off", deaths=3), await run("dead", deaths=MAX_DEATHS)
    await store.take_lease(a_lease(backs_off, "t"), ttl=60.0)
    await store.drop_lease(backs_off, "t", fault="gave up")
    retried = await run("retried", deaths=2, retry_at=past)
    equal(await claim(store, owner, [uuid4().hex]), [], "runs of a graph without runs")
    equal(await claim(store, owner, []), [], "runs of no graph")
    equal(await claim(store, owner, [mark], 0), [], "no runs")
    (first,) = await claim(store, owner, [mark], 1)
    equal(first[0].run_id, addressed, "the run that is given out first: one that has messages")
    rest = await claim(store, owner, [mark, uuid4().hex], 100)
    given = {info.run_id: (info, lease) for info, lease in [first, *rest]}
    mine = {addressed, overdue, expired, free, retried, enqueued}
    equal(set(given), mine, "the runs that are given out")
    for out in (paused, ended, later, for_later, held, backs_off, dead, poison):
        that(out not in given, f"a run is given out that nothing can be done with: {(await store.info(out)).labels}")
    for run_id, (info, lease) in given.items():
        equal(await store.lease(run_id), lease, "the lease of a run that was given out")
        equal(lease.holder, owner.executor, "its holder")
        equal(await store.info(run_id), info, "its row")
        that(lease.left > 50, f"what is left of it: {lease}")
        equal(await store.append(Append(run_id, events(2), after=1, lease=lease.token)), 2, "the head, by the claimer")
    row = await store.info(poison)
    equal((row.deaths, row.lease), (MAX_DEATHS, None), "the deaths and lease of a run whose drive died the last time")
    equal(given[expired][0].deaths, 1, "the deaths of a run whose holder's lease expired")
    equal(await claim(store, an_owner(), [mark]), [], "runs that are given out already")
    unsettled = [info.run_id for info in await store.unsettled([mark])]
    that(mine | {later, held} <= {*unsettled}, "runs that may have something to do are unsettled")
    that(not {paused, ended} & {*unsettled}, "a run that only waits, or has ended, is unsettled")
    ages = [(await store.info(run_id)).created for run_id in unsettled]
    equal(ages, sorted(ages), "when unsettled runs were created, the oldest first")
    equal(await store.unsettled([uuid4().hex]), [], "unsettled runs of a graph without runs")
    due = await store.next_due([mark])
    retry_at = (await store.info(backs_off)).retry_at
    that(due is not None and retry_at is not None, "the next run is due when its back-off ends")
    equal(due, retry_at, "when the next run is due")
    equal(await store.next_due([uuid4().hex]), None, "when the next run of a graph without runs is due")
    await store.drop_lease(overdue, given[overdue][1].token)
    that((await store.next_due([mark]) or math.inf) <= past, "an overdue run that is given back is due at once")


async def check_new_runs_are_claimed_last(store: Store) -> None:
    """Started runs are claimed before enqueued ones, no matter how many of those wait or how long."""
    mark, now = uuid4().hex, time.time()

    async def run(what: str, **row: Any) -> str:
        info, records = new_run(labels={"what": what})
        info = replace(info, graph=mark, **row)
        await store.create(NewRun(info, records))
        return info.run_id

    backlog = [await run("enqueued", created=now - 900 + n, due=now - 900 + n) for n in range(30)]
    addressed = await run("addressed", status="paused", created=now - 500, waiting=1)
    await store.post(addressed, {"answer": 1})
    answered = await run("answered", created=now - 500, due=now - 20)
    timer = await run("timer", status="paused", created=now - 500, due=now - 10, waiting=1)
    for_later = await run("enqueued for later", created=now - 500, due=now - 5)
    died = await run("its process died", created=now - 500)
    await store.take_lease(a_lease(died, "t"), ttl=0.0)
    left, retried = await run("given back", created=now - 500), await run("retried", deaths=1, retry_at=now - 1)
    wanted = [addressed, answered, timer, for_later, died, left, retried, *backlog]
    order: list[str] = []
    while taken := await claim(store, an_owner(), [mark], 3 if len(order) < 9 else 100):
        order += [info.run_id for info, _ in taken]
    equal([wanted.index(one) for one in order], [*range(len(wanted))], "the order in which runs are given out")


async def check_claims_are_disjoint(store: Store) -> None:
    """Concurrent claims never share a run, and all runs are given out."""
    mark = uuid4().hex
    ids: set[str] = set()
    for _ in range(40):
        info, records = new_run()
        await store.create(NewRun(replace(info, graph=mark), records))
        ids.add(info.run_id)
    owners = [an_owner() for _ in range(6)]
    given: list[tuple[RunInfo, str]] = []

    async def claims(number: int) -> None:
        while True:
            taken = await claim(store, owners[number], [mark], 3)
            if not taken:
                return
            that(len(taken) <= 3, "more runs than the limit are given out")
            given.extend((info, lease.token) for info, lease in taken)

    async with anyio.create_task_group() as group:
        for number in range(len(owners)):
            group.start_soon(claims, number)
    equal(len(given), 40, "runs that were given out")
    equal({info.run_id for info, _ in given}, ids, "the runs that were given out")
    equal(len({token for _, token in given}), 40, "tokens")
    for info, token in given:
        equal(await store.append(Append(info.run_id, events(2), after=1, lease=token)), 2, "the head, by the claimer")


async def check_interrupted(store: Store) -> None:
    """The list contains the holder of each run, and finds the runs without one, in one query."""
    mark = uuid4().hex
    ids: dict[str, str] = {}
    for what in ("free", "held", "expired", "paused"):
        info, records = new_run(labels={"mark": mark})
        await store.create(NewRun(replace(info, status="paused" if what == "paused" else "running"), records))
        ids[info.run_id] = what
        if what in ("held", "expired"):
            await store.take_lease(a_lease(info.run_id, "t"), ttl=60.0 if what == "held" else 0.0)

    async def found(**filters: Any) -> set[str]:
        page = await store.runs(RunQuery(labels={"mark": mark}, **filters))
        for info in page.runs:
            equal(info.lease, await store.lease(info.run_id), "the lease in the list")
            held = info.lease is not None and info.lease.left > 0
            equal(held, ids[info.run_id] == "held", f"whether the list says that a run is held: {ids[info.run_id]}")
        return {ids[info.run_id] for info in page.runs}

    equal(await found(status="interrupted"), {"free", "expired"}, "interrupted runs")
    equal(await found(status="running"), {"free", "held", "expired"}, "running runs")
    equal(await found(), {"free", "held", "expired", "paused"}, "all runs")


async def check_claims_of_graphs_are_bounded(store: Store) -> None:
    """A claim returns no more runs of a graph than requested; the others are left to other claims."""
    many, few = uuid4().hex, uuid4().hex
    past = time.time() - 10
    for number in range(6):
        await _run(store, many, created=float(number))
        await _run(store, many, due=past - number, created=100.0)
    for _ in range(2):
        await _run(store, few, created=1000.0)
    addressed = await _run(store, many, status="paused", waiting=1)
    await store.post(addressed, {"answer": 1})
    graphs = [many, few]

    async def claimed(limit: int, **most: int) -> Counter[str]:
        bounds = {
            name: count for name, count in ((many, most.get("many")), (few, most.get("few"))) if count is not None
        }
        taken = await store.claim(ClaimRequest(an_owner(), graphs=graphs, limit=limit, ttl=60.0, most=bounds))
        return Counter("many" if info.graph == many else "few" for info, _ in taken)

    equal(await claimed(10, many=0, few=0), {}, "runs of graphs of which none may be taken")
    equal(await claimed(3, many=1), {"many": 1, "few": 2}, "runs, of one graph one at most")
    equal(await claimed(3, many=2, few=5), {"many": 2}, "runs of a graph, two at most")
    equal(await claimed(4, few=0), {"many": 4}, "runs where the other graph is left out")
    equal(await claimed(100), {"many": 6}, "what the bounds left to others")


async def check_the_oldest_runs_of_all_graphs_are_given_out_first(store: Store) -> None:
    """However many runs of one graph wait, those of another graph are given out when they are the oldest of their kind.

    New runs of the first graph arrive all the time: in the order of names, the other would wait for ever.
    """
    mark, now = uuid4().hex, time.time()
    flood, rare = f"{mark} a", f"{mark} z"
    kinds: dict[str, dict[str, Any]] = {
        "due": {"status": "paused", "due": now - 500},
        "waits to be begun": {"created": now - 500},
        "waits to be begun again": {"created": now - 900, "retry_at": now - 500, "deaths": 1},
    }
    for by in (None, "tenant"):
        for what, row in kinds.items():
            turns = None if by is None else Turns(by)
            for number in range(8):
                # the even ones are older than the run of the other graph
                age = 600 - number if number % 2 == 0 else 400 - number
                await _run(store, flood, **_aged(row, now - age))
            one = await _run(store, rare, **row)
            order: list[str] = []
            for _ in range(3):
                taken = await store.claim(
                    ClaimRequest(an_owner(), graphs=[flood, rare], limit=2, ttl=60.0, turns=turns)
                )
                order += [info.run_id for info, _ in taken]
                for number in range(2):
                    await _run(store, flood, **_aged(row, now - 300 + number))
            place = order.index(one) if one in order else None
            equal(place, 4, f"the place of a run of a graph with few that {what}, in turns by {by}")
            rest = await store.claim(ClaimRequest(an_owner(), graphs=[flood, rare], limit=100, ttl=60.0, turns=turns))
            equal(len(rest), 9, f"the other runs of the graph with many that {what}, in turns by {by}")
    bounds = {flood: 1}
    for _ in range(3):
        await _run(store, flood, created=now - 600)
    late = [await _run(store, rare, created=now - number) for number in (20, 10)]
    taken = await store.claim(ClaimRequest(an_owner(), graphs=[flood, rare], limit=3, ttl=60.0, most=bounds))
    equal([info.run_id for info, _ in taken][1:], late, "runs behind the only one that may be taken of another graph")


def _aged(row: dict[str, Any], at: float) -> dict[str, Any]:
    """Return the columns of a run, changed so that it has waited since `at`."""
    last = next(name for name in ("due", "retry_at", "created") if name in row)
    return row | {last: at}


async def check_values_take_turns(store: Store) -> None:
    """However many runs of one value wait, a run of another value is given out within a claim or two."""
    mark = uuid4().hex
    for number in range(30):
        await _run(store, mark, {"tenant": "big"}, created=float(number))
        await _run(store, mark, {"tenant": "big"}, due=time.time() - 1000 + number, created=100.0)
    small = [
        await _run(store, mark, {"tenant": one}, due=time.time() - 1, created=1e9) for one in ("a", "\u00e4", "z\0")
    ]
    plain = await _run(store, mark, created=2e9)
    owner, turns = an_owner(), Turns("tenant")

    async def claim(limit: int) -> list[RunInfo]:
        return [
            info
            for info, _ in await store.claim(ClaimRequest(owner, graphs=[mark], limit=limit, ttl=60.0, turns=turns))
        ]

    order = [(await claim(1))[0] for _ in range(6)]
    that(
        {*small, plain} <= {info.run_id for info in order},
        f"the runs of the first six claims: {[_tenant(one) for one in order]}",
    )
    values = [_tenant(info) for info in order]
    equal(Counter(values)["big"], 2, "runs of the value of which most wait, in the first six claims")
    rest = await claim(10)
    equal({_tenant(info) for info in rest}, {"big"}, "the values that are left")
    equal(len(rest), 10, "runs of the only value that is left")
    for one in ("b", "c"):
        for _ in range(3):
            await _run(store, mark, {"tenant": one})
    equal(Counter(_tenant(info) for info in await claim(6)), {"big": 2, "b": 2, "c": 2}, "runs of three values")
    bounded = await store.claim(ClaimRequest(owner, graphs=[mark], limit=9, ttl=60.0, turns=turns, most={mark: 2}))
    equal(len(bounded), 2, "runs of a graph that may have two, in turns")
    equal(
        await store.claim(ClaimRequest(owner, graphs=[uuid4().hex], limit=9, ttl=60.0, turns=turns)),
        [],
        "runs of no graph, in turns",
    )


async def check_turns_pass_over_what_cannot_be_claimed(store: Store) -> None:
    """Runs that are held, back off, are due later or have ended take no turn; those of dead holders and messages do."""
    mark, past = uuid4().hex, time.time() - 10
    held = await _run(store, mark, {"tenant": "held"})
    await store.take_lease(a_lease(held, "t"), ttl=60.0)
    backs_off = await _run(store, mark, {"tenant": "backs off"}, deaths=3)  # for 8 seconds
    await store.take_lease(a_lease(backs_off, "t"), ttl=60.0)
    await store.drop_lease(backs_off, "t", fault="gave up")
    await _run(store, mark, {"tenant": "later"}, status="paused", due=time.time() + 3600)
    await _run(store, mark, {"tenant": "asks"}, status="paused", waiting=1)
    await _run(store, mark, {"tenant": "ended"}, status="completed")
    expired = await _run(store, mark, {"tenant": "expired"})
    await store.take_lease(a_lease(expired, "t"), ttl=0.0)
    answered = await _run(store, mark, {"tenant": "answered"}, status="paused", waiting=1)
    await store.post(answered, {"answer": 1})
    due = await _run(store, mark, {"tenant": "due"}, status="paused", due=past)
    turns = Turns("tenant")
    taken = await store.claim(ClaimRequest(an_owner(), graphs=[mark], limit=10, ttl=60.0, turns=turns))
    equal({info.run_id for info, _ in taken}, {expired, answered, due}, "the runs that are given out in turns")


async def _run(store: Store, graph: str, labels: dict[str, str] | None = None, **row: Any) -> str:
    info, records = new_run(labels=labels)
    info = replace(info, graph=graph, **row)
    await store.create(NewRun(info, records))
    return info.run_id


def _tenant(info: RunInfo) -> str:
    return info.labels.get("tenant", "")
