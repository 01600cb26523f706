"""Claims in which the values of a label take turns, among very many runs in a file."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.stores.base import RunInfo
from orchestrator.stores.fair_claims import Turns
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import ClaimRequest, NewRun
from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.stores.sqlite.claims import VISITED
from orchestrator.testing.store_conformance.helpers import new_run
from tests.stores.test_scale import Counted
from tests.support.sizes import quick_on, sized

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

MANY = sized(5_000, 100_000)


def add(path: Path, count: int, *, tenant: str, due: float, status: str = "running") -> None:
    """Add runs; `tenant` is an expression of SQL over the number `n`."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
            " INSERT INTO runs"
            " (run_id, graph, status, labels, created, updated, head, structure, content, due, waiting)"
            f" SELECT {tenant} || ' ' || n, 'g', ?, json_object('tenant', {tenant}), n, n, 1, 's', 'c', ?, 0"
            " FROM numbers",
            (count, status, due),
        )


async def claimed(store: SQLiteStore, turns: Turns | None, limit: int = 1) -> list[RunInfo]:
    taken = await store.claim(ClaimRequest(Owner.here(), graphs=["g"], limit=limit, ttl=60.0, turns=turns))
    return [info for info, _ in taken]


async def opened(path: Path) -> SQLiteStore:
    store = SQLiteStore(path)
    info, records = new_run()
    await store.create(NewRun(info, records))
    return store


async def test_a_run_of_another_value_is_given_out_at_once_and_a_claim_costs_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, costs = Counted(monkeypatch), []
    for count in (100, MANY):
        store, turns = await opened(tmp_path / f"{count}.db"), Turns("tenant")
        add(store.path, count, tenant="'big'", due=time.time() - 100)
        await claimed(store, turns)  # it makes the index
        add(store.path, 1, tenant="'small'", due=time.time() - 1)
        before = counted.count
        assert [one.labels["tenant"] for one in await claimed(store, turns)] == ["small"]
        assert [one.labels["tenant"] for one in await claimed(store, turns, limit=5)] == ["big"] * 5
        costs.append(counted.count - before)
        await store.close()
    few, many = costs
    assert many < 2 * few + 100, f"{few * 10} instructions among 100 runs, {many * 10} among {MANY}"


async def test_very_many_values_that_sleep_bound_a_claim_and_hold_nothing_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    store, turns = await opened(tmp_path / "runs.db"), Turns("tenant")
    add(store.path, MANY, tenant="'sleeps ' || n", due=time.time() + 3600, status="paused")
    add(store.path, MANY, tenant="'big'", due=time.time() - 100)
    await claimed(store, turns)
    add(store.path, 1, tenant="'zero'", due=time.time() - 1)
    claims, most = 0, 0
    while True:
        before = counted.count
        (one,) = await claimed(store, turns)
        claims, most = claims + 1, max(most, counted.count - before)
        if one.labels["tenant"] == "zero":
            break
    assert claims <= MANY / VISITED + 3
    assert most * 10 < VISITED * 200
    await store.close()


async def test_the_index_of_a_label_is_made_once_and_other_processes_use_it(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    for _ in range(3):
        info, records = new_run(labels={"tenant": "a"})
        await store.create(NewRun(replace(info, graph="g"), records))
    for _ in range(2):
        assert len(await claimed(store, Turns("tenant"))) == 1
    await store.close()
    again = SQLiteStore(tmp_path / "runs.db")
    assert len(await claimed(again, Turns("tenant"))) == 1
    assert not [one for one in await again.check() if "index" in one.what or "table" in one.what]
    await again.close()
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'runs_in_turn_%'").fetchone()
    assert count == 1
