"""Whatever is done with a run costs the same with one month of records and with 36: pages, and locks of tables.

The server plans for the partition of the run alone, because it is told the run's number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from orchestrator.stores import Lease, RunInfo, Store, open_store
from orchestrator.stores.requests import Append, NewRun
from tests.stores.runs import add_run, events
from tests.support.postgres import PostgresDatabase
from tests.support.postgres_months import move_calendar, partitions

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
MANY = 36
Costs = dict[str, tuple[int, int, int]]


class Explained:
    """Counts the statements that name records, the pages that they look at, and the tables and indexes they lock.

    Each is explained before it is run, by another connection, in a transaction that is given up.
    """

    def __init__(self, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: tuple[int, int, int] = (0, 0, 0)
        self.counts = False
        self._beside = psycopg.connect(database.conninfo)
        execute: Any = psycopg.Connection.execute

        def explained(connection: Any, query: Any, params: Any = None, **options: Any) -> Any:
            text = query if isinstance(query, str) else bytes(query).decode()
            if (
                self.counts
                and connection is not self._beside
                and "records" in text
                and text.lstrip()[:4] in ("SELE", "WITH", "DELE")
            ):
                self._explain(execute, text, params)
            return execute(connection, query, params, **options)

        monkeypatch.setattr(psycopg.Connection, "execute", explained)

    def _explain(self, execute: Any, text: str, params: Any) -> None:
        execute(self._beside, b"SET LOCAL plan_cache_mode = force_custom_plan")
        query = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {text}".encode()
        ((plans,),) = execute(self._beside, query, params).fetchall()
        ((locks,),) = execute(
            self._beside, b"SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
        ).fetchall()
        self._beside.rollback()
        plan = plans[0]["Plan"]
        statements, pages, locked = self.found
        self.found = (statements + 1, pages + plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], locked + locks)

    def close(self) -> None:
        """Let go of the other connection."""
        self._beside.close()


@pytest.fixture
def explained(postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explained]:
    """Whatever this process does is counted."""
    with closing(Explained(postgres, monkeypatch)) as found:
        yield found


async def costs(store: Store, explained: Explained, run: str) -> Costs:
    """What everything costs that is done with the records of a run."""
    found: Costs = {}

    async def cost(name: str, work: Callable[[], Awaitable[object]]) -> None:
        explained.found, explained.counts = (0, 0, 0), True
        await work()
        explained.counts = False
        found[name] = explained.found

    lease = Lease(run, f"token of {run}", "holder")
    await cost(
        "create", lambda: store.create(NewRun(RunInfo(run, "g", "running", head=5), events(1, 5), lease=lease, ttl=30))
    )
    await cost("append", lambda: store.append(Append(run, events(6, 2), after=5, lease=lease.token)))
    await cost("append what is there", lambda: store.append(Append(run, events(6, 2), after=5, lease=lease.token)))
    await cost("read", lambda: store.read(run))
    await cost("read on", lambda: store.read(run, after=6))
    await cost("a drive died", lambda: store.drop_lease(run, lease.token, fault="it died"))
    await cost("delete", lambda: store.delete(run))
    return found


async def test_36_months_cost_what_one_costs(
    postgres: PostgresDatabase, explained: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres.url)
    await add_run(store, "first", 100)
    await costs(store, explained, "warm")
    before = await costs(store, explained, "few")
    for on in range(1, MANY):
        move_calendar(monkeypatch, on)
        await store.compact()
        await add_run(store, f"r{on}", 100)
    assert len(partitions(postgres)) == MANY
    await costs(store, explained, "warm again")
    after = await costs(store, explained, "many")
    for name, found in after.items():
        print(f"{name:22} statements, pages and locks: {before[name]} with one month, {found} with {MANY}")
    assert {name: (found[0], found[2]) for name, found in after.items()} == {
        name: (found[0], found[2]) for name, found in before.items()
    }
    # Some pages more are those of tables that have grown; a plan that meets all partitions reads one of each at least.
    assert {name: found[1] for name, found in after.items() if found[1] > before[name][1] + MANY // 2} == {}
    await store.close()
