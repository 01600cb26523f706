"""The index of a label that takes turns, made in a database that is in use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import anyio
import psycopg
import pytest

from orchestrator.errors import StoreUnavailable
from orchestrator.stores import Store, open_store
from orchestrator.stores.fair_claims import Turns
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import ClaimRequest, NewRun
from orchestrator.stores.rows import RunInfo
from orchestrator.testing.store_conformance.helpers import a_lease, started
from tests.support.postgres import USER, PostgresDatabase
from tests.support.sizes import quick_on

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

INDEXES = "SELECT indisvalid FROM pg_index WHERE indexrelid::regclass::text LIKE 'runs_in_turn%'"

MAKING = "SELECT pid FROM pg_stat_progress_create_index WHERE datname = current_database()"
DROPPING = "query LIKE 'DROP INDEX%' AND state = 'active' AND datname = current_database()"


@pytest.fixture
async def store(postgres: PostgresDatabase) -> AsyncIterator[Store]:
    found = open_store(postgres.url)
    for tenant in ("many", "few"):
        for number in range(6 if tenant == "many" else 1):
            await waiting(
                found, f"{tenant} {number}", tenant, created=float(number) + (100.0 if tenant == "few" else 1)
            )
    yield found
    await found.close()


@pytest.fixture
def left_open(postgres: PostgresDatabase) -> Iterator[psycopg.Connection]:
    """A transaction that has written a row of a run, and is left open."""
    with closing(psycopg.connect(postgres.url)) as found:
        found.execute("UPDATE runs SET fault = '' WHERE run_id = 'no such run'")
        yield found


async def waiting(store: Store, run_id: str, tenant: str, *, created: float) -> None:
    info = RunInfo(run_id, "g", "running", {"tenant": tenant}, created, created, 1, "s", "c")
    await store.create(NewRun(info, [started(info)]))


async def claimed(store: Store, limit: int = 2) -> list[str]:
    found = await store.claim(ClaimRequest(Owner.here(), graphs=["g"], limit=limit, ttl=60.0, turns=Turns("tenant")))
    return [info.run_id for info, _ in found]


async def valid(postgres: PostgresDatabase) -> None:
    """Wait until there is one index, and it can be used."""
    with anyio.fail_after(60):
        while postgres.execute(INDEXES) != [(True,)]:  # noqa: ASYNC110  the server makes it
            await anyio.sleep(0.05)


async def test_claims_go_on_while_an_index_waits_for_a_transaction_that_is_left_open(
    store: Store, postgres: PostgresDatabase, left_open: psycopg.Connection
) -> None:
    lease = a_lease("many 5", "t")
    assert await store.take_lease(lease, ttl=60.0)
    first: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def claim() -> None:
            first.extend(await claimed(store))

        tasks.start_soon(claim)
        await anyio.sleep(0.3)
        with anyio.fail_after(60):  # the transaction stays open until later: who waited for the index would not end
            assert await store.beat(lease.holder, 60.0)
            await store.drop_lease("many 5", "t")
    assert first == ["many 0", "many 1"], "until it is there, the oldest come first"
    assert postgres.execute(INDEXES) == [(False,)], "it still waits"
    assert await claimed(store, 1) == ["many 2"]
    await waiting(store, "many 6", "many", created=7.0)
    left_open.rollback()
    await valid(postgres)
    with anyio.fail_after(60):
        while "few 0" not in (found := await claimed(store)):
            assert found, "the run of the other value is never given out"


async def test_an_index_whose_making_was_broken_off_is_made_again(
    store: Store, postgres: PostgresDatabase, left_open: psycopg.Connection
) -> None:
    await claimed(store, 1)
    (one,) = postgres.execute(MAKING)
    assert postgres.execute(f"SELECT pg_terminate_backend({one[0]})") == [(True,)]
    with anyio.fail_after(60):
        while postgres.execute(f"SELECT 1 FROM pg_stat_activity WHERE {DROPPING}") == []:  # noqa: ASYNC110  a thread
            await anyio.sleep(0.05)
    left_open.rollback()
    await valid(postgres)
    with anyio.fail_after(60):
        while "few 0" not in await claimed(store):
            pass


async def test_of_two_processes_one_makes_the_index(
    store: Store, postgres: PostgresDatabase, left_open: psycopg.Connection
) -> None:
    other = open_store(postgres.url)
    for one in (store, other):
        await claimed(one, 1)
    assert len(postgres.execute(MAKING)) == 1
    left_open.rollback()
    await valid(postgres)
    for one in (store, other):
        await waiting(store, f"few again {one is other}", "few", created=200.0)
        with anyio.fail_after(60):
            while not any(run_id.startswith("few") for run_id in await claimed(one)):
                pass
    assert postgres.execute(INDEXES) == [(True,)]
    await other.close()


async def test_a_store_that_is_closed_waits_for_no_index_and_the_server_finishes_it(
    store: Store, postgres: PostgresDatabase, left_open: psycopg.Connection
) -> None:
    await claimed(store, 1)
    with anyio.fail_after(10):
        await store.close()
    left_open.rollback()
    await valid(postgres)


async def test_a_user_who_may_not_make_it_is_told(store: Store, postgres: PostgresDatabase) -> None:
    role = f"user_of_{postgres.name}"
    postgres.execute(f"CREATE ROLE {role} LOGIN")
    postgres.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    other = open_store(postgres.url.replace(f"{USER}@", f"{role}@"))
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="may not do that"):
                await claimed(other)
    finally:
        await other.close()
        postgres.execute(f"DROP OWNED BY {role}")
        postgres.execute(f"DROP ROLE {role}")
