"""A PostgreSQL server dies while runs pay, and its standby takes its place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from orchestrator import Executor
from orchestrator.stores.base import RunInfo
from tests.executor.pay_program import PAYMENTS, app, bills
from tests.executor.test_worker_processes import worker
from tests.support.pg_standby import url_of, with_standby
from tests.support.sizes import quick_on

pytestmark = [pytest.mark.anyio, quick_on("asyncio"), pytest.mark.full]

RUNS, PATIENCE = 16, 180.0
PROGRAM = "tests.executor.pay_program"


def paid(diary: Path) -> Counter[str]:
    """The payments that were made, and how often."""
    return Counter(diary.read_text().splitlines()) if diary.exists() else Counter()


async def lines(diary: Path, number: int) -> None:
    """Wait for so many payments."""
    with anyio.fail_after(PATIENCE):
        while sum(paid(diary).values()) < number:  # noqa: ASYNC110  other processes pay
            await anyio.sleep(0.01)


async def at_rest(executor: Executor) -> list[RunInfo]:
    """Wait until no run is running; their rows."""
    while True:
        rows = [await executor.store.info(f"r{number}") for number in range(RUNS)]
        if all(row.status != "running" for row in rows):
            return rows
        await anyio.sleep(0.05)


async def test_a_synchronous_standby_takes_over_and_nothing_is_paid_twice_or_lost(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    with with_standby(synchronous=True) as (primary, standby):
        primary.create_database("pay")
        url = url_of("pay", primary, standby)
        async with Executor(url, graphs=app.graphs) as executor:
            for number in range(RUNS):
                await executor.enqueue(bills, number, run_id=f"r{number}")
            workers = [worker(url, diary, PROGRAM, slots=5) for _ in range(2)]
            try:
                with anyio.fail_after(PATIENCE):
                    await lines(diary, RUNS)
                    await anyio.to_thread.run_sync(primary.kill)
                    await anyio.to_thread.run_sync(standby.promote)
                    rows = await at_rest(executor)
            finally:
                for one in workers:
                    one.close()
            assert {row.status for row in rows} == {"completed"}
            assert paid(diary) == {f"r{run} {number}": 1 for run in range(RUNS) for number in range(PAYMENTS)}
            assert all((row.deaths, row.fault) == (0, "") for row in rows)


async def test_behind_an_asynchronous_standby_only_what_it_did_not_get_is_done_again(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    with with_standby(synchronous=False) as (primary, standby):
        primary.create_database("pay")
        url = url_of("pay", primary, standby)
        async with Executor(url, graphs=app.graphs) as executor:
            for number in range(RUNS):
                await executor.enqueue(bills, number, run_id=f"r{number}")
            workers = [worker(url, diary, PROGRAM, slots=5) for _ in range(2)]
            try:
                with anyio.fail_after(PATIENCE):
                    await lines(diary, RUNS)
                    had = paid(diary)
                    await anyio.to_thread.run_sync(standby.kill)  # at once: `pg_ctl` takes as long as all payments
                    await lines(diary, sum(paid(diary).values()) + RUNS)
                    await anyio.to_thread.run_sync(primary.kill)
                    await anyio.to_thread.run_sync(standby.start)
                    await anyio.to_thread.run_sync(standby.promote)
                    rows = await at_rest(executor)
            finally:
                for one in workers:
                    one.close()
            again = {key for key, times in paid(diary).items() if times > 1}
            # What was under way when the standby went is asked about; what began later is done again.
            assert again or any(row.status == "paused" for row in rows), "the standby had everything"
            assert not again & {*list(had)[:-10]}, "what the standby had is done once"
            for row in rows:
                records = await executor.store.read(row.run_id)
                assert [record.seq for record in records] == list(range(1, row.head + 1))
                if row.status == "paused":  # a payment was intended, and its outcome did not survive: a person knows
                    asked = await executor.store.open_questions(row.run_id)
                    assert asked is not None
                    assert [one.kind for one in asked] == ["unknown_outcome"]
                else:
                    assert row.status == "completed"
