"""A store of very many runs is opened, listed, searched, claimed from and pruned at the cost of one of few."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import orchestrator.stores.sqlite.listing as listing
from orchestrator import Executor
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import ClaimRequest, NewRun, RunQuery
from orchestrator.stores.rows import RunInfo
from orchestrator.stores.sqlite import SQLiteStore
from tests.stores.runs import events
from tests.stores.test_many_runs import LISTS, QUESTIONS, SAMPLES, filled, refuse
from tests.support.many_runs import copied
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio
FEW = 200
TIMES = 100
MOST = 1_000_000
Work = Callable[[], Awaitable[object]]


class Counted:
    """What all connections of the process ask of SQLite's virtual machine, in tens of instructions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        connect = sqlite3.connect

        def connected(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **options)
            connection.set_progress_handler(self._step, 10)
            return connection

        monkeypatch.setattr(sqlite3, "connect", connected)

    def _step(self) -> int:
        self.count += 1
        return 0


async def costs(path: Path, counted: Counted, oldest: float) -> dict[str, tuple[int, float]]:
    """Instructions and seconds of everything that is done with a store."""
    found: dict[str, tuple[int, float]] = {}

    async def cost(name: str, work: Work) -> object:
        before, began = counted.count, time.perf_counter()
        result = await work()
        found[name] = counted.count - before, time.perf_counter() - began
        return result

    async def opened() -> None:
        store = SQLiteStore(path)
        await store.runs(RunQuery(limit=1))
        await store.close()

    async with Executor(f"sqlite:///{path}", tools=[refuse]) as executor:
        await executor.runs(search="umbrella")  # brings the index up to date
        await cost("open", opened)
        for name, filters in (LISTS | {"since": {"since": oldest}}).items():
            if "rare" in filters.get("labels", {}):
                continue  # a store of few has none
            await cost(name, lambda filters=filters: executor.runs(**filters, limit=20))
        for name, filters in QUESTIONS.items():
            if "rare" in filters.get("labels", {}):
                continue
            await cost(name, lambda filters=filters: executor.questions(**filters, limit=20))
        store, owner = executor.store, Owner.here()
        assert await cost("claim", lambda: store.claim(ClaimRequest(owner, graphs=None, limit=10, ttl=30.0))) == []
        assert await cost("next due", lambda: store.next_due(None)) is None
        assert await cost("recover", lambda: executor.recover()) == []
        old = datetime.fromtimestamp(oldest, UTC)
        await cost("prune nothing", lambda: executor.prune(older_than=old))
        old = datetime.fromtimestamp(oldest + 20, UTC)
        await cost("prune some", lambda: executor.prune(older_than=old, dry_run=True))
    return found


@pytest.mark.storm
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_store_of_very_many_runs_costs_what_one_of_few_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: int
) -> None:
    """Counted are instructions of SQLite's virtual machine; seconds are printed."""
    few = FEW * scale if scale < 20 else MOST // TIMES
    monkeypatch.setattr(listing, "COUNTED", few // 20)  # in both stores more are found than are counted
    counted, path = Counted(monkeypatch), tmp_path / "runs.db"
    async with Executor(f"sqlite:///{path}", tools=[refuse]) as executor:
        await filled(executor)
        oldest = (await executor.store.info("done")).created
        await copied(executor.store, SAMPLES, few)
    before = await costs(path, counted, oldest)
    async with Executor(f"sqlite:///{path}", tools=[refuse]) as executor:
        await copied(executor.store, SAMPLES, few * (TIMES - 1), first=few)
    after = await costs(path, counted, oldest)
    print(f"\nopened, listed and searched: {few:,} and {few * TIMES:,} runs")
    for name, (count, seconds) in after.items():
        first, took = before[name]
        print(f"{name:28} {first * 10:10,} {count * 10:10,} instructions, {seconds / took:6.1f} x the time")
    grown = {name: (before[name][0], count) for name, (count, _) in after.items() if count > 2 * before[name][0] + 200}
    assert grown == {}


@quick_on("asyncio")
@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/runs.db"])
async def test_pruning_finds_what_looking_at_all_runs_finds(url: str, tmp_path: Path) -> None:
    runs = [(f"r{number}", 100.0 * number, 100.0 * number + (0, 250)[number % 2]) for number in range(1, 12)]
    async with Executor(url.format(tmp_path)) as executor:
        for run_id, created, updated in runs:
            info = RunInfo(run_id, "essay", "completed", head=1, created=created, updated=updated)
            await executor.store.create(NewRun(info, events(1)))
        for keep, time_ in product((None, 0, 1, 3, 20), (50.0, 300.0, 550.0, 600.0, 5000.0)):
            found = await executor.prune(older_than=datetime.fromtimestamp(time_, UTC), keep=keep, dry_run=True)
            newest = runs[::-1][keep or 0 :]
            assert found.runs == tuple(run_id for run_id, _, updated in newest if updated < time_)
