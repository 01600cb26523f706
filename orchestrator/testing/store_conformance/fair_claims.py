"""Checks of claims among several graphs, and of claims in which the values of a label take turns."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import uuid4

from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.fair_claims import Turns
from orchestrator.stores.requests import ClaimRequest, NewRun
from orchestrator.testing.store_conformance.helpers import a_lease, an_owner, equal, new_run, that


async def check_claims_of_graphs_are_bounded(store: Store) -> None:
    """A claim returns no more runs of a graph than it asks for; the others are left to other claims."""
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
    """However many runs of one graph wait, those of another one are given out when they are the oldest of their kind.

    New runs of the first graph come all the time: in the order of names, the other would wait for ever.
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
    """Columns of a run that waits since another time."""
    last = next(name for name in ("due", "retry_at", "created") if name in row)
    return row | {last: at}


async def check_values_take_turns(store: Store) -> None:
    """However many runs of one value wait, a run of another one is given out within a claim or two."""
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
    backs_off = await _run(store, mark, {"tenant": "backs off"}, deaths=3)  # for 8 seconds then
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
