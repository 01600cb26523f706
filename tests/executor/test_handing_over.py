"""Runs that are handed over: enqueued by one process, and driven by another, on stores of both kinds."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Context, Executor, Update, node, tool
from orchestrator.errors import RunConflict, StoreUnavailable
from orchestrator.stores import open_store
from orchestrator.stores.requests import ClaimRequest
from orchestrator.stores.sqlite import SQLiteStore
from tests.executor.test_workers_of_runs import ASKS, HELLO, all_are
from tests.support.executors import Log, chain, says
from tests.support.postgres import PASSWORD, USER, PostgresDatabase
from tests.support.programs import CODE, Piped
from tests.support.shell import Shell
from tests.support.sizes import quick_on
from tests.support.stores import kinds

pytestmark = pytest.mark.anyio

SOON = 30.0


# -- drive -------------------------------------------------------------------------------------------------------------


@kinds("sqlite", "postgresql")
@quick_on("asyncio")
async def test_drive_never_lifts_the_pause_of_a_person(url: str) -> None:
    async with Executor(url, graphs=[ASKS], idle="sleep") as executor, Executor(url, graphs=[ASKS]) as other:
        run = await executor.start(ASKS, run_id="asks")
        await executor.pause("asks", by="ann")
        await executor.answer("asks", run.waiting[0].id, "yes", resume=False)
        await executor.enqueue(ASKS, run_id="new")
        await executor.pause("new", by="ann")
        for run_id in ("asks", "new"):
            for _ in range(2):
                assert (await other.workers.drive(run_id)).status == "paused"
            run = await executor.load(run_id)
            assert "pause" in [question.kind for question in run.waiting]
            assert not [record for record in await executor.store.read(run_id) if record.type == "step_done"]
        assert (await executor.resume("asks")).status == "completed"


@kinds("sqlite", "postgresql")
@quick_on("asyncio")
async def test_drive_waits_for_a_run_that_another_drives_and_says_so_when_it_waited_long_enough(url: str) -> None:
    gate, found = anyio.Event(), list[str]()

    @node
    async def waits(state: Log) -> Update:
        """Wait for the test."""
        await gate.wait()
        return {"log": "done"}

    graph = chain(waits, name="g")
    async with Executor(url, graphs=[graph]) as executor, Executor(url, graphs=[graph]) as second:
        await executor.submit(graph, run_id="r")
        for wait in (0.0, 0.4):
            began = time.monotonic()
            with pytest.raises(RunConflict):
                await second.workers.drive("r", wait=wait)
            assert time.monotonic() - began >= wait
        lease = await second.store.lease("r")
        async with anyio.create_task_group() as tasks:

            async def drive() -> None:
                found.append((await second.workers.drive("r", wait=SOON)).status)

            tasks.start_soon(drive)
            await anyio.sleep(0.2)
            assert await second.store.lease("r") == lease
            gate.set()
        assert found == ["completed"]
        assert [record.type for record in await executor.store.read("r")].count("step_done") == 1


# -- enqueue -----------------------------------------------------------------------------------------------------------

ENQUEUES = """
import os, signal, sys, anyio
from orchestrator import Executor
from tests.executor.test_workers_of_runs import HELLO

async def main():
    async with Executor(sys.argv[1], graphs=[HELLO]) as executor:
        assert await executor.enqueue(HELLO, run_id="r") == "r"
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


@kinds("sqlite")
@quick_on("asyncio")
async def test_a_run_is_there_as_soon_as_enqueue_returns_though_the_process_is_killed(url: str) -> None:
    for _ in range(2):  # the second one asks for the same run, as one does that does not know whether it is there
        process = Piped([ENQUEUES, url], module=CODE)
        try:
            assert process.wait() == -signal.SIGKILL
        finally:
            process.close()
    async with Executor(url, graphs=[HELLO]) as executor:
        (info,) = (await executor.runs()).runs
        assert (info.run_id, info.status, info.head, info.lease) == ("r", "running", 1, None)
        assert (await executor.workers.drive("r")).status == "completed"
        assert await executor.enqueue(HELLO, run_id="r") == "r"  # also when it is over
        assert (await executor.workers.drive("r")).status == "completed"
        assert [record.type for record in await executor.store.read("r")].count("run_started") == 1


# -- work --------------------------------------------------------------------------------------------------------------


@quick_on("asyncio")
async def test_workers_of_a_store_that_fails_back_off_each_for_a_time_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[float]] = {}
    poll, workers, failures = 0.2, 8, 3
    claim = SQLiteStore.claim

    async def failing(self: SQLiteStore, request: ClaimRequest) -> Any:
        times = asked.setdefault(request.owner.executor, [])
        if len(times) <= failures:
            times.append(time.monotonic())
            raise StoreUnavailable("the disk is full")
        return await claim(self, request)

    monkeypatch.setattr(SQLiteStore, "claim", failing)
    async with anyio.create_task_group() as tasks:
        executors = [await tasks.start(_worker, f"sqlite:///{tmp_path}/runs.db", poll) for _ in range(workers)]
        executor = executors[0]
        await executor.enqueue(HELLO, run_id="r")
        await all_are(executor, "completed", 1)
        tasks.cancel_scope.cancel()
    waits = [[after - before for before, after in pairwise(times)] for times in asked.values()]
    assert len(waits) == workers
    assert any(len(one) == failures for one in waits)
    for one in waits:
        for number, wait in enumerate(one):
            assert wait >= poll / 2 * 2**number, one
    firsts = [one[0] for one in waits if one]
    assert max(firsts) - min(firsts) > poll / 20, "all workers come back to the store in the same moment"


async def _worker(url: str, poll: float, *, task_status: anyio.abc.TaskStatus[Executor]) -> None:
    async with Executor(url, graphs=[HELLO]) as executor:
        task_status.started(executor)
        await executor.work(poll=poll)


@pytest.fixture
async def cut_off(postgres: PostgresDatabase) -> AsyncIterator[str]:
    """The name of a user of the database who can be cut off from it."""
    name = f"far_{time.monotonic_ns()}"
    postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' IN ROLE CURRENT_USER")
    yield name
    plug(postgres, name, connections=0)
    postgres.execute(f"DROP ROLE {name}")


def plug(postgres: PostgresDatabase, name: str, *, connections: int) -> None:
    """Let a user have so many connections at most; 0: those that it has are ended."""
    postgres.execute(f"ALTER ROLE {name} CONNECTION LIMIT {connections}")
    if connections == 0:
        postgres.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{name}'")


@quick_on("asyncio")
async def test_a_worker_that_is_cut_off_makes_no_call_behind_its_lease_and_works_on_when_it_is_back(
    postgres: PostgresDatabase, cut_off: str
) -> None:
    calls: list[tuple[str, float]] = []
    ttl, rounds = 0.6, 16

    def pays(who: str) -> list[Any]:
        @tool(effect="idempotent")
        async def pay(number: int) -> str:
            """Pay."""
            calls.append((who, time.monotonic()))
            await anyio.sleep(0.1)
            return "paid"

        return [pay]

    @node
    async def buys(state: Log, ctx: Context[Any]) -> Update:
        """Pay many times."""
        for number in range(rounds):
            await ctx.tool("pay", number=number)
        return {"log": "done"}

    graph = chain(buys, name="g")
    far = postgres.url_with(patience=0.2).replace(f"//{USER}@", f"//{cut_off}@")
    async with (
        Executor(postgres.url, graphs=[graph, HELLO], tools=pays("near"), lease_ttl=ttl) as near,
        Executor(far, graphs=[graph, HELLO], tools=pays("far"), lease_ttl=ttl) as victim,
        anyio.create_task_group() as tasks,
    ):
        await near.enqueue(graph, run_id="r")
        tasks.start_soon(lambda: victim.work(poll=0.1))
        with anyio.fail_after(SOON):
            while len(calls) < 3:  # noqa: ASYNC110  a worker makes them
                await anyio.sleep(0.02)
        plug(postgres, cut_off, connections=0)
        cut = time.monotonic()
        async with anyio.create_task_group() as others:
            others.start_soon(lambda: near.work(poll=0.1))
            await all_are(near, "completed", 1)
            others.cancel_scope.cancel()
        assert [at - cut for who, at in calls if who == "far" and at > cut + ttl] == []
        assert {who for who, _ in calls} == {"far", "near"}
        plug(postgres, cut_off, connections=-1)
        await near.enqueue(HELLO, run_id="next")
        await all_are(near, "completed", 2)  # by the victim: no one else works now
        assert await near.store.lease("r") is None
        tasks.cancel_scope.cancel()


APP = """
import anyio
from orchestrator import Update, node
from orchestrator.executor import App
from tests.support.executors import Log, chain

@node
async def hangs(state: Log) -> Update:
    print("hangs", flush=True)
    await anyio.sleep(3600)

app = App(graphs=[chain(hangs, name="hangs")])
"""


@kinds("postgresql")
@quick_on("asyncio")
async def test_a_worker_that_is_told_to_end_gives_its_leases_back(url: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.place.joinpath("far.py").write_text(APP)
    graph = chain(says("x"), name="hangs")
    async with Executor(url, graphs=[graph]) as executor:
        for number in range(3):
            await executor.enqueue(graph, run_id=f"r{number}")

    async def leases() -> list[bool]:
        store = open_store(url)
        try:
            return [await store.lease(f"r{number}") is not None for number in range(3)]
        finally:
            await store.close()

    with shell.begin("worker", "--app", "far:app", "--store", url, "--grace", "0.1") as worker:
        for _ in range(3):
            assert await anyio.to_thread.run_sync(worker.line) == "hangs\n"
        assert await leases() == [True] * 3
        worker.signal(signal.SIGTERM)
        assert (await anyio.to_thread.run_sync(worker.end)).code == 0
    assert await leases() == [False] * 3
    async with Executor(url) as executor:
        assert [(info.status, info.deaths) for info in (await executor.runs()).runs] == [("interrupted", 0)] * 3
        assert await executor.workers.list() == []
