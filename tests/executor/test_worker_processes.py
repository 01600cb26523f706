"""Workers as processes: they are killed at any moment, and some of their runs kill them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from orchestrator import Executor
from orchestrator.stores.rows import MAX_DEATHS
from tests.executor.pool_program import pressing
from tests.executor.work_program import app, moves, poison
from tests.support.programs import Piped
from tests.support.sizes import quick_on, sized
from tests.support.stores import execute, kinds

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

LONG = sized(60.0, 300.0)


def worker(url: str, diary: Path, program: str = "tests.executor.work_program", slots: int = 4) -> Piped:
    """A worker process."""
    begun = Piped(
        ("worker", "--app", f"{program}:app", "--slots", slots, "--store", url),
        env={**os.environ, "DIARY": str(diary)},
        loads=[program],
    )
    begun.read_no_further(err=False)
    return begun


def back_off_passes(url: str) -> None:
    """Bring a store to the time at which all runs are given out again."""
    execute(url, "UPDATE runs SET retry_at = 1.0 WHERE retry_at IS NOT NULL")


@kinds("sqlite", "postgresql")
async def test_runs_end_and_settled_calls_are_made_once_though_workers_are_killed(url: str, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    count, kills, dice = sized(20, 100), sized(3, 30), random.Random(7)
    async with Executor(url, graphs=app.graphs) as executor:
        for number in range(count):
            await executor.enqueue(moves, number, run_id=f"r{number}")
        workers, killed, due = [worker(url, diary), worker(url, diary)], 0, 0.0
        try:
            with anyio.fail_after(LONG):
                while len((await executor.runs(status="completed", limit=1000)).runs) < count:
                    await anyio.sleep(0.02)
                    if killed < kills and diary.exists() and time.monotonic() > due:
                        place = dice.randrange(2)
                        workers[place].signal(signal.SIGKILL)
                        workers[place].close()
                        workers[place] = worker(url, diary)
                        killed, due = killed + 1, time.monotonic() + dice.uniform(0.1, 0.5)
        finally:
            for one in workers:
                one.close()
        made = Counter(diary.read_text().splitlines())
        again = 0
        for number in range(count):
            records = await executor.store.read(f"r{number}")
            assert [record.seq for record in records] == list(range(1, len(records) + 1))
            settled = Counter(record.key for record in records if record.type == "effect_settled")
            assert len(settled) == 3
            assert set(settled.values()) == {1}
            drives = sum(record.type == "resumed" for record in records)
            calls = [made[f"r{number} {turn}"] for turn in range(3)]
            assert all(calls)
            # A call was made again only if its drive died before it was settled: at most once for each drive.
            assert sum(calls) <= 3 + drives - 1, "a settled call was made twice, or two workers drove the run"
            again += sum(calls) - 3
        assert killed == kills
        assert again <= 4 * killed, "more calls were made again than ran in the slots of killed workers"


BACKLOG = sized(300, 1000)


@pytest.mark.full
@kinds("sqlite", "postgresql")
async def test_runs_of_a_killed_worker_go_on_before_the_backlog(url: str, tmp_path: Path) -> None:
    diary, slots = tmp_path / "diary", 3
    async with Executor(url, graphs=app.graphs) as executor:
        for number in range(BACKLOG):
            await executor.enqueue(moves, number, run_id=f"r{number}")
        killed = worker(url, diary, slots=slots)
        try:
            with anyio.fail_after(LONG):
                while not diary.exists():  # noqa: ASYNC110  the worker makes it
                    await anyio.sleep(0.02)
        finally:
            killed.close()
        left = {run_id for one in await executor.workers.list() for run_id in one.runs}
        assert 0 < len(left) <= slots
        before = len((await executor.runs(status="completed", limit=BACKLOG)).runs)
        begun = worker(url, diary, slots=1)
        try:
            with anyio.fail_after(LONG):
                while len((await executor.runs(status="completed", limit=BACKLOG)).runs) <= before + len(left):  # noqa: ASYNC110  it is another process
                    await anyio.sleep(0.05)
        finally:
            begun.close()
        ends = sorted((await executor.runs(status="completed", limit=BACKLOG)).runs, key=lambda info: info.updated)
        assert {info.run_id for info in ends[before : before + len(left)]} == left


@pytest.mark.storm
@pytest.mark.timed
async def test_runs_of_a_killed_worker_go_on_within_the_lease_and_two_seconds(
    url: str, tmp_path: Path, scale: int
) -> None:
    """Before a backlog of 1,000 runs, with another worker that has slots for 5 runs of about 0.6 seconds."""
    diary, worst = tmp_path / "diary", 0.0
    async with Executor(url, graphs=app.graphs) as executor:
        for number in range(1000 * scale):
            await executor.enqueue(moves, number, run_id=f"r{number}")
        other = worker(url, diary, slots=5)
        try:
            for _ in range(5 * scale):
                killed = worker(url, diary, slots=5)
                await anyio.sleep(2.0)
                killed.signal(signal.SIGKILL)
                at = time.time()
                killed.close()
                dead = [one for one in await executor.workers.list() if one.state == "dead" and one.held]
                left = [run_id for one in dead for run_id in one.runs]
                with anyio.fail_after(LONG):
                    while any(one.held for one in await executor.workers.list() if one.state == "dead"):  # noqa: ASYNC110  likewise
                        await anyio.sleep(0.02)
                worst = max(worst, time.time() - at)
                print(f"{len(left)} runs went on after {time.time() - at:.2f} s at most")
        finally:
            other.close()
    assert worst < 2.0, "the lease of a process of this machine ends with the process"


async def test_a_run_that_kills_its_workers_is_parked_and_the_others_go_on(url: str, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    async with Executor(url, graphs=app.graphs, idle="sleep") as executor:
        await executor.enqueue(poison, 1, run_id="poison")
        restarts, begun = 0, worker(url, diary)
        try:
            with anyio.fail_after(60):
                while (info := await executor.store.info("poison")).deaths < MAX_DEATHS or info.lease is not None:
                    if begun.ended:
                        begun.close()
                        await anyio.to_thread.run_sync(sized(back_off_passes, lambda _: None), url)
                        restarts, begun = restarts + 1, worker(url, diary)
                    await anyio.sleep(0.05)
                await executor.enqueue(moves, 1, run_id="other")
                while (await executor.load("other")).status != "completed":  # noqa: ASYNC110  another process drives it
                    await anyio.sleep(0.05)
            await anyio.sleep(0.5)
            assert not begun.ended, "the worker lives"
        finally:
            begun.close()
        assert "died" in info.fault
        assert restarts == MAX_DEATHS
        assert diary.read_text().splitlines().count("deadly") == MAX_DEATHS
        tmp_path.joinpath("antidote").touch()
        os.environ["DIARY"] = str(diary)
        try:
            run = await executor.resume("poison")
        finally:
            del os.environ["DIARY"]
        assert (run.status, (await executor.store.info("poison")).deaths) == ("completed", 0)


async def test_a_pool_of_an_executor_bounds_each_process_of_a_store(url: str, tmp_path: Path) -> None:
    diary, count = tmp_path / "diary", 4
    async with Executor(url, graphs=[pressing]) as executor:
        for number in range(count):
            await executor.enqueue(pressing, number, run_id=f"r{number}")
        workers = [worker(url, diary, "tests.executor.pool_program", slots=2) for _ in range(2)]
        try:
            with anyio.fail_after(LONG):
                for number in range(count):
                    while (await executor.load(f"r{number}")).status != "completed":
                        assert not any(one.ended for one in workers)
                        await anyio.sleep(0.02)
        finally:
            for one in workers:
                one.close()
    inside: Counter[str] = Counter()
    most = 0
    for what, process in (line.split() for line in diary.read_text().splitlines()):
        inside[process] += 1 if what == "begin" else -1
        assert inside[process] <= 1, "two steps of one process had the only place of its pool"
        most = max(most, inside.total())
    assert most == 2
