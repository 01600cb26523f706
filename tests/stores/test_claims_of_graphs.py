"""What a claim costs a worker of very many graphs, and what it locks: counted, not timed."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from orchestrator.stores import open_store
from orchestrator.stores.owner import Owner
from orchestrator.stores.postgres import fair_index, leases
from orchestrator.stores.postgres.connections import address_of, connect
from orchestrator.stores.requests import ClaimRequest, NewRun, RunQuery
from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.testing.store_conformance.helpers import new_run
from tests.stores.test_scale import Counted
from tests.support.postgres import PostgresDatabase
from tests.support.postgres_costs import Pages
from tests.support.sizes import quick_on, sized

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

GRAPHS = 200
NAMES = [f"g{number:03}" for number in range(GRAPHS)]
FEW, MANY = 20, sized(100, 500)
"""Runs of each graph: up to 100,000 in all."""
LIMIT = 10


def a_claim(graphs: list[str], limit: int) -> ClaimRequest:
    return ClaimRequest(Owner.here(), graphs=graphs, limit=limit, ttl=60.0)


def rows(first: int, each: int) -> list[tuple[Any, ...]]:
    """Rows of `each` runs of each graph that wait: a third is due, a third was never begun, a third begins again."""
    now, found = time.time(), []
    for number in range(first, first + each):
        for place, name in enumerate(NAMES):
            since = now - 10_000 + (number * GRAPHS + place) / 100
            kind = (number + place) % 3
            found.append(
                (
                    f"{name} {number}", name, "paused" if kind == 0 else "running", since, since if kind == 0 else None,
                    since if kind == 2 else None, int(kind == 2),
                )
            )  # fmt: skip
    return found


_COLUMNS = "run_id, graph, status, created, updated, due, retry_at, deaths, head, structure, content, labels, waiting"


async def test_a_claim_among_very_many_runs_of_many_graphs_costs_what_one_among_few_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, costs = Counted(monkeypatch), []
    store = SQLiteStore(tmp_path / "runs.db")
    await store.create(NewRun(*new_run()))
    for first, each in ((0, FEW), (FEW, MANY - FEW)):
        await store.close()
        with closing(sqlite3.connect(tmp_path / "runs.db")) as connection, connection:
            connection.executemany(
                f"INSERT INTO runs ({_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, 1, 's', 'c', '{{}}', 0)",
                rows(first, each),
            )
        store = SQLiteStore(tmp_path / "runs.db")
        await store.runs(RunQuery(limit=1))
        before = counted.count
        for _ in range(3):
            assert len(await store.claim(ClaimRequest(Owner.here(), graphs=NAMES, limit=LIMIT, ttl=60.0))) == LIMIT
        costs.append(counted.count - before)
    await store.close()
    few, many = costs
    assert many < 1.5 * few + 100, f"{few * 10} instructions among {FEW} runs of each, {many * 10} among {MANY}"


@pytest.fixture
def waiting(postgres: PostgresDatabase) -> PostgresDatabase:
    with closing(connect(address_of(postgres.url))):
        pass  # the tables are made
    fill(postgres, 0, FEW)
    return postgres


def fill(postgres: PostgresDatabase, first: int, each: int) -> None:
    with psycopg.connect(postgres.conninfo) as connection, connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO runs ({_COLUMNS}) VALUES (%s, %s, %s, %s, 1.5, %s, %s, %s, 1, 's', 'c', '{{}}', 0)",
            rows(first, each),
        )


async def test_postgresql_looks_at_as_many_pages_among_very_many_runs_of_many_graphs(
    waiting: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting.execute("ANALYZE")  # what the server believes from now on
    pages, costs = Pages(monkeypatch), []
    for more in (0, MANY - FEW):
        fill(waiting, FEW, more)
        store = open_store(waiting.url)
        await store.runs(RunQuery(limit=1))
        pages.count = 0
        pages.whole.clear()
        assert len(await store.claim(ClaimRequest(Owner.here(), graphs=NAMES, limit=LIMIT, ttl=60.0))) == LIMIT
        costs.append(pages.count)
        assert "runs" not in pages.whole
        await store.close()
    few, many = costs
    assert many < 1.5 * few + 100, f"{few} pages among {FEW} runs of each graph, {many} among {MANY}"


async def test_postgresql_is_asked_as_often_however_many_graphs_there_are(
    waiting: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    execute: Any = psycopg.Connection.execute

    def noted(self: Any, query: Any, *given: Any, **options: Any) -> Any:
        asked.append(query)
        return execute(self, query, *given, **options)

    counts = []
    with closing(connect(address_of(waiting.url))) as connection:
        monkeypatch.setattr(psycopg.Connection, "execute", noted)
        for graphs in (NAMES[:1], NAMES):
            asked.clear()
            # more than there are of one kind of one graph
            with connection.transaction():
                assert len(leases.claim(connection, a_claim(graphs, LIMIT))) == LIMIT
            counts.append(len(asked))
    one, all_of_them = counts
    assert all_of_them <= one


async def test_a_claim_locks_few_more_runs_than_it_takes_and_others_take_the_next_oldest(
    waiting: PostgresDatabase,
) -> None:
    """While claims are open, of one graph or of all: none waits for another, none takes what another has, none goes
    without."""
    taken: list[str] = []
    with ExitStack() as stack:
        for graphs in (NAMES, NAMES[:1], NAMES[:1], NAMES, NAMES):
            connection = stack.enter_context(closing(connect(address_of(waiting.url))))
            connection.execute("BEGIN")
            connection.execute("SET LOCAL lock_timeout = '1ms'")
            found = leases.claim(connection, a_claim(graphs, 4))
            assert len(found) == 4
            taken += [info.run_id for info, _ in found]
        with psycopg.connect(waiting.conninfo) as other:
            free = other.execute("SELECT run_id FROM runs FOR NO KEY UPDATE SKIP LOCKED").fetchall()
    assert len(set(taken)) == len(taken) == 20
    assert {run_id for (run_id,) in free}.isdisjoint(taken)
    assert FEW * GRAPHS - len(free) <= len(taken) + 4  # the third one had to look among two kinds


async def test_a_run_that_another_client_has_locked_takes_the_place_of_no_other(waiting: PostgresDatabase) -> None:
    """The oldest runs of a graph are locked, more of them than a claim looks at first; it looks on behind them."""
    with psycopg.connect(waiting.conninfo) as other:
        other.execute(
            "SELECT id FROM runs WHERE graph = 'g000' AND due IS NOT NULL ORDER BY due LIMIT 5 FOR NO KEY UPDATE"
        )
        store = open_store(waiting.url)
        found = await store.claim(ClaimRequest(Owner.here(), graphs=NAMES[:1], limit=1, ttl=60.0, most={"g000": 1}))
        assert [info.run_id for info, _ in found] == ["g000 15"]
        await store.close()


# -- a backlog of new runs ---------------------------------------------------------------------------------------------


def backlog(first: int, count: int) -> list[tuple[Any, ...]]:
    """Rows of enqueued runs, and now and then of one whose timer is due."""
    now, found = time.time() - 10_000, []
    for number in range(first, first + count):
        sleeps = number % (BACKLOG // 10) == 7
        row = (f"{'timer' if sleeps else 'new'} {number}", "g", "paused" if sleeps else "running", now + number / 10)
        found.append((*row, now + number / 10 + sleeps, None, 0))
    return found


BACKLOG = sized(2_000, 50_000)


async def test_what_is_due_is_found_behind_a_backlog_at_the_cost_of_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, costs = Counted(monkeypatch), []
    for place, count in enumerate((BACKLOG // 10, BACKLOG)):
        path = tmp_path / f"{place}.db"
        store = SQLiteStore(path)
        await store.create(NewRun(*new_run()))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executemany(
                f"INSERT INTO runs ({_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, 1, 's', 'c', '{{}}', 0)",
                backlog(0, count),
            )
        assert await store.claim(ClaimRequest(Owner.here(), graphs=["g"], limit=1, ttl=60.0))  # makes the index
        before = counted.count
        taken = await store.claim(ClaimRequest(Owner.here(), graphs=["g"], limit=3, ttl=60.0))
        costs.append(counted.count - before)
        assert [info.run_id.split()[0] for info, _ in taken] == (["timer"] * 3 if place else ["new"] * 3)
        await store.close()
    few, many = costs
    assert many < 1.5 * few + 100, f"{few * 10} instructions behind {BACKLOG // 10} runs, {many * 10} behind {BACKLOG}"


async def test_the_database_finds_what_is_due_by_an_index_without_new_runs(postgres: PostgresDatabase) -> None:
    with psycopg.connect(postgres.conninfo) as connection:
        connection.cursor().executemany(
            f"INSERT INTO runs ({_COLUMNS}) VALUES (%s, %s, %s, %s, 1, %s, %s, %s, 1, 's', 'c', '{{}}', 0)",
            backlog(0, BACKLOG),
        )
    store = open_store(postgres.url)
    taken = [
        info.run_id.split()[0]
        for info, _ in await store.claim(ClaimRequest(Owner.here(), graphs=["g"], limit=2, ttl=60.0))
    ]
    assert taken == ["timer"] * 2, "also before there is an index"
    made = "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass('runs_overdue') AND indisvalid"
    with anyio.fail_after(60):
        while postgres.execute(made) == []:  # noqa: ASYNC110  a thread makes it
            await anyio.sleep(0.05)
    plan = postgres.execute(
        "EXPLAIN SELECT id FROM runs WHERE graph = 'g' AND due <= extract(epoch FROM statement_timestamp())"
        f"::double precision AND {fair_index.OVERDUE} ORDER BY due LIMIT 3"
    )
    assert "runs_overdue" in str(plan)
    await store.close()
