"""PostgreSQL stores by a connection pooler, and on the server that the system's packages bring."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from orchestrator import Executor
from orchestrator.stores import Store, open_store
from orchestrator.testing.store_conformance import STORE_CHECKS, StoreCheck
from tests.support.executors import chain, says
from tests.support.pgbouncer import bouncer, command
from tests.support.postgres import PASSWORD, USER, PostgresDatabase, PostgresServer
from tests.support.sizes import quick_on

pytestmark = [pytest.mark.anyio, pytest.mark.peer]

POOLED = "prepare=0&listen=0"


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[int]:
    """The port of a pooler with two sessions for each database."""
    program = command()
    if program is None:
        pytest.skip("pgbouncer is not there: apt-get install pgbouncer")
    with bouncer(program, postgres_server, sessions=2) as port:
        yield port


@pytest.fixture(scope="module")
def debian() -> Iterator[PostgresServer]:
    """A server of the system's packages."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found:
        pytest.skip("no PostgreSQL server is installed: apt-get install postgresql")
    server = PostgresServer.make(durable=False, binaries=found[-1].parent)
    try:
        server.make_template()
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["pooler", "debian"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """An empty store by each of them."""
    if request.param == "pooler":
        url = pooled(request.getfixturevalue("pooler"), request.getfixturevalue("postgres"))
    else:
        server: PostgresServer = request.getfixturevalue("debian")
        name = f"test_{abs(hash(request.node.name))}"
        server.create_database(name)
        url = server.url(name)
    found = open_store(url)
    yield found
    await found.close()


def pooled(port: int, database: PostgresDatabase) -> str:
    """The URL of a database by a pooler."""
    return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/{database.name}?{POOLED}"


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
async def test_promise(check: StoreCheck, store: Store) -> None:
    await check(store)


@quick_on("asyncio")
async def test_many_runs_share_the_few_sessions_of_a_pooler(pooler: int, postgres: PostgresDatabase) -> None:
    graph = chain(says("hello"), says("world"), name="hello")
    urls = [pooled(pooler, postgres)] * 3
    async with Executor(urls[0], graphs=[graph]) as one, Executor(urls[1], graphs=[graph]) as two:
        for executor in (one, two):
            runs = [await executor.submit(graph) for _ in range(50)]
            assert {(await executor.wait(run_id)).status for run_id in runs} == {"completed"}
    assert postgres.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")[0][0] <= 4
    store = open_store(urls[2])
    assert [finding for finding in await store.check() if not finding.note] == []
    await store.close()
