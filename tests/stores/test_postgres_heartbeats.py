"""Heartbeats of a healthy process, while other sessions hold locks and say nothing: its leases do not expire."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import anyio
import psycopg
import pytest

from orchestrator.stores import Store, open_store
from orchestrator.stores.postgres import PostgresStore, changes
from orchestrator.stores.postgres.connections import address_of, begin, connect
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.requests import NewRun
from orchestrator.stores.rows import Lease, RunInfo
from orchestrator.testing.store_conformance.helpers import a_lease, started
from tests.support.pg_proxy import Proxy, proxy
from tests.support.postgres import PASSWORD, USER, PostgresDatabase
from tests.support.sizes import quick_on, sized

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

TTL = 4.0
"""Seconds that leases last: less than a session may hold locks in silence if nothing else is said."""
LONG = sized(1.3, 2.0) * TTL
"""Seconds for which leases are renewed."""


@pytest.fixture
async def store(postgres: PostgresDatabase) -> AsyncIterator[Store]:
    found = open_store(postgres.url)
    for name in ("mine", "other"):
        info = RunInfo(name, "g", "running", {}, 1.5, 1.5, 1, "s", "c")
        await found.create(NewRun(info, [started(info)]))
    yield found
    await found.close()


@pytest.fixture
def between(postgres: PostgresDatabase) -> Iterator[Proxy]:
    with proxy(postgres.server.port) as found:
        yield found


async def beats(store: Store, looking: Store, lease: Lease, seconds: float) -> None:
    """Renew a lease for some seconds, every third of its time; another process never sees it expired."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lives, looking, lease)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            before = time.monotonic()
            assert await store.beat(lease.holder, TTL), "the lease has expired"
            await anyio.sleep(max(0.0, TTL / 3 - (time.monotonic() - before)))
        tasks.cancel_scope.cancel()


async def lives(store: Store, lease: Lease) -> None:
    while True:
        found = await store.lease(lease.run_id)
        assert found is not None
        assert found.left > 0, "the lease has expired"
        await anyio.sleep(0.1)


async def take(store: Store, lease: Lease) -> None:
    assert await store.take_lease(lease, ttl=TTL)


async def test_a_change_that_waits_for_a_locked_row_keeps_no_heartbeat_waiting(
    store: Store, postgres: PostgresDatabase
) -> None:
    mine, other = a_lease("mine", "t"), a_lease("other", "t")
    assert await store.take_lease(mine, ttl=TTL)
    with closing(psycopg.connect(postgres.url)) as silent:
        silent.execute("SET idle_in_transaction_session_timeout = '20s'")  # so that this ends whatever happens
        silent.execute("SELECT 1 FROM runs WHERE run_id = 'other' FOR UPDATE")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take, store, other)
            await beats(store, store, mine, LONG)
            silent.rollback()


async def test_who_deletes_a_run_and_falls_silent_does_not_end_the_leases_of_its_holder(
    store: Store, postgres: PostgresDatabase
) -> None:
    lease = a_lease("mine", "t")
    assert await store.take_lease(lease, ttl=TTL)
    with closing(connect(address_of(postgres.url))) as silent:
        silent.execute(begin(), prepare=False)
        assert changes.delete(silent, "mine")
        await beats(store, store, lease, LONG)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            silent.execute("COMMIT")
    assert await store.take_lease(lease, ttl=TTL, replaces=lease.token), "the run was not deleted"


async def test_a_session_that_was_cut_off_from_its_client_does_not_end_the_leases_of_this_client(
    store: Store, between: Proxy, postgres: PostgresDatabase
) -> None:
    """Its own: it holds the row of its executor, and nobody is there any more who would go on with it."""
    url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{between.port}/{postgres.name}?listen=0"
    cut, lease = open_store(url), a_lease("mine", "t")
    assert await cut.take_lease(lease, ttl=TTL)
    assert await cut.beat(lease.holder, TTL)
    between.cut_at(1, "late", lambda exchange: "pg_current_xact_id_if_assigned" in exchange.text)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take, cut, lease)
        await anyio.sleep(0.2)
        await beats(cut, store, lease, LONG)
    assert between.cuts == 1
    between.deliver()
    await cut.close()


async def test_a_change_in_which_its_process_stood_still_is_made_when_it_goes_on(
    store: Store, postgres: PostgresDatabase
) -> None:
    """The server has ended its transaction meanwhile."""
    own = open_store(postgres.url)
    assert isinstance(own, PostgresStore)
    assert await own.take_lease(a_lease("mine", "t"), ttl=0.1)
    times: list[int] = []

    def post(connection: Connection) -> int:
        found = changes.post(connection, "other", "{}", None)
        times.append(found)
        if len(times) == 1:
            time.sleep(1.5)
        return found

    try:
        assert await own._change(post) == times[1]
    finally:
        await own.close()
    assert [message.id for message in await store.inbox(["other"])] == times[1:]
