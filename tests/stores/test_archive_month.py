"""A month of archived runs: listed, opened, restored and forked at the cost of few, and their space is given back."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator import Executor
from orchestrator.stores.archive.store import ArchivedStore
from orchestrator.stores.postgres import record_partitions
from orchestrator.stores.sqlite.listing import COUNTED
from tests.stores.test_scale import Counted
from tests.support.executors import chain, says
from tests.support.many_runs import TEAMS, copied
from tests.support.postgres import PostgresDatabase
from tests.support.postgres_costs import Pages
from tests.support.postgres_months import month as month_of
from tests.support.postgres_months import move_calendar, partitions, paths, room
from tests.support.s3 import Bucket

pytestmark = pytest.mark.anyio
GRAPH = chain(*(says(f"{number} " + "word " * 100) for number in range(4)))
MONTH = 30 * 86400.0
FEW, MANY = 100, 1000
STORM_FEW, STORM_MANY = 10_000, 100_000
Costs = dict[str, tuple[int, float]]


def later() -> datetime:
    """A time behind that of all copies, of which most lie in the future."""
    return datetime.fromtimestamp(time.time() + 2 * MONTH, UTC)


async def added(executor: Executor, count: int, first: int) -> None:
    """Add so many runs of one month."""
    store = executor.store
    if not first:
        await executor.start(GRAPH, "an umbrella", run_id="done")
    await copied(store, ["done"], count, first=first, apart=MONTH / 2 / STORM_MANY)


async def costs(executor: Executor, last: int, counted: Counted) -> Costs:
    """What everything costs that is done with one run, or one page, of an archived month."""
    found: Costs = {}

    async def cost(name: str, work: Callable[[], Awaitable[object]]) -> None:
        before, began = counted.count, time.perf_counter()
        await work()
        found[name] = counted.count - before, time.perf_counter() - began

    some, other = f"run-{last // 2}", f"run-{last // 3}"
    await executor.runs(search="umbrella")  # brings the index up to date
    await cost("list", lambda: executor.runs(limit=10))
    await cost("list a label", lambda: executor.runs(labels={"team": "t1"}, limit=10))
    await cost("search", lambda: executor.runs(search=str(last - 1), limit=10))
    await cost("row", lambda: executor.store.info(some))
    await cost("open", lambda: executor.load(some))
    await cost("history", lambda: executor.history(other))
    await cost("restore", lambda: executor.restore(some))
    await cost("fork", lambda: executor.fork(other, at=4, run_id=f"fork-{last}"))
    assert some in (await executor.archive(older_than=later())).runs
    await cost("archive none", lambda: executor.archive(older_than=later()))
    await cost("delete", lambda: executor.store.delete(some))
    return found


def records_left(path: Path) -> int:
    """Rows of records in the file of a store."""
    with sqlite3.connect(path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM records").fetchone()
    return int(count)


async def month(url: str, archive: str, few: int, many: int, counted: Counted) -> tuple[Costs, Costs]:
    """The costs with few and with many archived runs."""
    measured: list[Costs] = []
    for first, last in ((0, few), (few, many)):
        async with Executor(url, graphs=[GRAPH], archive=archive) as executor:
            await added(executor, last - first, first)
            assert isinstance(executor.store, ArchivedStore)
            began = time.perf_counter()
            done = await executor.archive(older_than=later())
            assert done.skipped == {}
            assert done.written > 2000 * len(done.runs)
            assert len(done.runs) >= last - first
            assert done.freed > 0.7 * done.written, "the space is given back"
            seconds = time.perf_counter() - began
            print(f"{len(done.runs):,} archived in {seconds:.0f} s: {done.written:,} bytes, {done.freed:,} given back")
            measured.append(await costs(executor, last, counted))
    before, after = measured
    for name, (count, took) in after.items():
        print(f"{name:14} {before[name][0] * 10:9,} {count * 10:9,} instructions, {took * 1000:7.1f} ms")
    return before, after


async def check_month(folder: Path, few: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, path = Counted(monkeypatch), folder / "runs.db"
    before, after = await month(f"sqlite:///{path}", str(folder / "archive"), few, many, counted)
    # The runs with a label are counted before they are listed, but no more of them than COUNTED.
    grown = {name: (before[name][0], count) for name, (count, _) in after.items() if count > 2 * before[name][0] + 200}
    if few < TEAMS * COUNTED:
        grown.pop("list a label", None)
    assert grown == {}
    assert records_left(path) < 100
    objects = [one.stat().st_size for one in (folder / "archive").rglob("*.jsonl")]
    print(f"{len(objects):,} objects of {sum(objects):,} bytes; the file has {path.stat().st_size:,} bytes")


@pytest.mark.full
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_month_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await check_month(tmp_path, FEW, MANY, monkeypatch)


@pytest.mark.storm
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_month_of_very_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: int) -> None:
    await check_month(tmp_path, STORM_FEW if scale >= 20 else FEW, min(STORM_MANY, 5_000 * scale), monkeypatch)


async def test_a_month_in_a_database_and_a_bucket(
    postgres: PostgresDatabase, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All records of a month that is over leave the database, whose files they were in are removed."""
    name = record_partitions.name_of(month_of(postgres))
    async with Executor(postgres.url, graphs=[GRAPH], archive=bucket.url) as executor:
        await executor.start(GRAPH, "x", run_id="done")
        await copied(executor.store, ["done"], FEW)
        await executor.store.compact()  # makes maps of the free room, once
        full, files = room(postgres, name), paths(postgres, name)
        move_calendar(monkeypatch, 1)
        done = await executor.archive(older_than=later())
        postgres.execute("CHECKPOINT")  # removes files that are empty already
        print(f"{len(done.runs)} runs: {full:,} bytes of records, {done.freed:,} bytes given back")
        assert len(done.runs) == len(bucket.keys()) == FEW + 1
        assert partitions(postgres) == [record_partitions.name_of(month_of(postgres, 1))]
        assert [path for path in files if (postgres.server.data / path).exists()] == []
        assert done.freed > 0.9 * full > 50 * FEW
        assert (await executor.load("run-7")).status == "completed"
        assert (await executor.fork("run-7", at=4, run_id="fork")).status == "completed"
        assert postgres.execute("SELECT count(*) FROM runs WHERE archived IS NOT NULL") == [(FEW,)]
        assert partitions(postgres) == [name, record_partitions.name_of(month_of(postgres, 1))]
        await executor.archive(older_than=later())
        assert partitions(postgres) == [record_partitions.name_of(month_of(postgres, 1))]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_database_looks_at_no_archived_run_to_find_those_to_archive(
    postgres: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, found = Pages(monkeypatch), []
    for first, last in ((0, FEW), (FEW, MANY)):
        async with Executor(postgres.url, graphs=[GRAPH], archive=str(tmp_path / "archive")) as executor:
            await added(executor, last - first, first)
            await executor.archive(older_than=later())
            postgres.execute("VACUUM runs")  # index entries of the rows before, which PostgreSQL removes by itself
            counts = []
            for work in (
                executor.archive(older_than=later()), executor.runs(limit=10), executor.load(f"run-{last // 2}"),
            ):  # fmt: skip
                before, pages.whole = pages.count, []
                await work
                counts.append(pages.count - before)
                assert "runs" not in pages.whole
            found.append(counts)
    few, many = found
    print(f"pages to archive none, list ten, open one: {few} with {FEW} archived runs, {many} with {MANY}")
    assert all(after <= 2 * before + 10 for before, after in zip(few, many, strict=True))
