"""Claims of many clients of one PostgreSQL store: disjoint, for all, and by the clock of the database alone."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from orchestrator.stores import Store, open_store
from orchestrator.stores.owner import Owner, boot_id, machine_id
from orchestrator.stores.requests import ClaimRequest, NewRun
from orchestrator.stores.rows import Lease, RunInfo
from orchestrator.testing.store_conformance.helpers import a_lease, started
from tests.support.postgres import PostgresDatabase
from tests.support.sizes import quick_on, sized

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

HOUR = 3600.0


@pytest.fixture
async def store(postgres: PostgresDatabase) -> AsyncIterator[Store]:
    found = open_store(postgres.url)
    yield found
    await found.close()


async def waiting(
    store: Store, run_id: str, *, created: float = 1.5, graph: str = "g", due: float | None = None, deaths: int = 0
) -> RunInfo:
    """A run that nobody drives."""
    info = RunInfo(run_id, graph, "running", {}, created, created, 1, "s", "c", due, deaths=deaths)
    await store.create(NewRun(info, [started(info)]))
    return info


async def claimed(store: Store, limit: int = 1, ttl: float = 60.0) -> list[str]:
    """The ids of the runs that a new executor gets."""
    return [
        info.run_id for info, _ in await store.claim(ClaimRequest(Owner.here(), graphs=["g"], limit=limit, ttl=ttl))
    ]


# -- many claimers -----------------------------------------------------------------------------------------------------


async def test_no_two_of_many_claimers_get_one_run_and_nobody_goes_without(postgres: PostgresDatabase) -> None:
    """While there are runs for all, a claim finds some; runs that come later take no turn of those before them."""
    claimers, rounds, limit = 8, sized(6, 40), 3
    stores = [open_store(postgres.url) for _ in range(claimers)]
    count = claimers * rounds * limit
    for number in range(count):
        await waiting(stores[0], f"r{number:04}", created=float(number))
    taken: list[list[str]] = []
    empty: list[int] = []

    async def work(place: int) -> None:
        for number in range(rounds):
            found = await claimed(stores[place], limit, ttl=HOUR)
            if not found:
                empty.append(number)
            taken.append(found)
            for run_id in found:  # new ones come meanwhile, and take nobody's turn
                await waiting(stores[place], f"later {run_id}", created=float(count))

    async with anyio.create_task_group() as tasks:
        for place in range(claimers):
            tasks.start_soon(work, place)
    ids = [run_id for found in taken for run_id in found]
    assert len(set(ids)) == len(ids), "a run was given out twice"
    assert empty == [], "a claimer found nothing although there were runs for all"
    # What another has locked just now is passed over, and found the next time.
    assert sum(run_id.startswith("later") for run_id in ids) <= claimers * limit
    rest = await claimed(stores[0], 10_000)
    assert not set(rest) & set(ids)
    assert len(ids) + len(rest) == count + len(ids)
    for store in stores:
        await store.close()


# -- clocks and machines -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
async def test_a_claimer_with_a_wrong_clock_takes_no_living_lease_and_no_run_too_early(
    store: Store, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    await waiting(store, "held")
    assert await store.take_lease(a_lease("held", "t"), ttl=60.0)
    await waiting(store, "expired")
    assert await store.take_lease(a_lease("expired", "t"), ttl=0.0)
    await waiting(store, "not yet", due=now + HOUR / 2)
    await waiting(store, "overdue", due=now - HOUR / 2)
    await waiting(store, "backing off")
    assert await store.take_lease(a_lease("backing off", "t"), ttl=60.0)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead)
    for _ in range(4):  # 8 seconds
        await store.drop_lease("backing off", "t", fault="it broke")
        assert await store.take_lease(a_lease("backing off", "t"), ttl=60.0)
    await store.drop_lease("backing off", "t", fault="it broke")
    assert sorted(await claimed(store, 10)) == ["expired", "overdue"]
    left = await store.lease("held")
    assert left is not None
    assert 30 < left.left <= 60


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
async def test_what_a_client_with_a_wrong_clock_wrote_is_understood_by_others(
    store: Store, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    await waiting(store, "held")
    await waiting(store, "dropped", deaths=2)
    right = time.time
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: right() + ahead)
        assert await store.take_lease(a_lease("held", "t"), ttl=60.0)
        assert await store.take_lease(a_lease("dropped", "t"), ttl=60.0)
        await store.drop_lease("dropped", "t", fault="it broke")
        dropped = right()
        assert await store.beat(a_lease("held", "t").holder, 60.0)
    assert await claimed(store, 10) == []
    with anyio.fail_after(20):
        while not (found := await claimed(store, 10)):  # noqa: ASYNC110  time passes
            await anyio.sleep(0.1)
    assert found == ["dropped"]
    assert right() - dropped >= 3.9, "four seconds are its back-off after the third failure"


def owner(**facts: object) -> dict[str, Any]:
    """An executor of a process that is gone from here, with other facts."""
    gone = 2**22 - 3  # no process has this id: the kernel gives none above
    return {**Owner.here().data(), "pid": gone, "start": "1", **facts}


@pytest.mark.parametrize(
    ("facts", "dead"),
    [
        ({"host": socket.gethostname(), "machine": "another", "boot": "another"}, False),
        ({"host": socket.gethostname(), "machine": "", "boot": "another"}, False),
        ({"host": "another", "machine": machine_id(), "boot": "another"}, False),
        ({"boot": boot_id(), "space": "pid:[1]"}, False),
        ({"boot": boot_id()}, True),
        ({"boot": "before it was started again"}, bool(machine_id())),
    ],
    ids=["of one name", "of one name, without ids", "of one image", "container", "this one", "this one, before"],
)  # fmt: skip
async def test_a_run_of_another_machine_with_the_same_name_is_left_to_it(
    store: Store, facts: dict[str, object], dead: bool
) -> None:
    """Only of a process that ran here it can be known that it is gone before its lease expires."""
    await waiting(store, "r")
    lease = Lease("r", "t", f"holder {os.urandom(4).hex()}", owner(**facts))
    assert await store.take_lease(lease, ttl=60.0)
    assert await claimed(store) == (["r"] if dead else [])


async def test_two_machines_of_one_name_share_a_store(store: Store) -> None:
    """Each has a living executor; neither takes the other's runs, and one that falls silent loses them in time."""
    here, there = Owner.here(), replace(Owner.here(), machine="another", boot="another", pid=2**22 - 3)
    for number in range(4):
        await waiting(store, f"r{number}")
    mine = await store.claim(ClaimRequest(here, graphs=["g"], limit=2, ttl=60.0))
    theirs = await store.claim(ClaimRequest(there, graphs=["g"], limit=2, ttl=0.6))
    assert len(mine) == len(theirs) == 2
    assert await store.claim(ClaimRequest(here, graphs=["g"], limit=9, ttl=60.0)) == []
    assert await store.claim(ClaimRequest(there, graphs=["g"], limit=9, ttl=0.6)) == []
    with anyio.fail_after(20):
        while not (taken := await store.claim(ClaimRequest(here, graphs=["g"], limit=9, ttl=60.0))):  # noqa: ASYNC110  time passes
            await anyio.sleep(0.05)
    assert [info.run_id for info, _ in taken] == [info.run_id for info, _ in theirs]
