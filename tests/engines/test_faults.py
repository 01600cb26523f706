"""What an engine, a worker, a store and people do at the wrong moment: each run ends, and nothing is done twice."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest

from orchestrator.errors import RunError
from tests.engines.crew import PATIENCE, TTL, Server, crew
from tests.executor.errand_program import EFFECTS
from tests.support.postgres import PostgresServer
from tests.support.sizes import quick_on
from tests.support.stores import kinds

pytestmark = [pytest.mark.anyio, pytest.mark.peer, quick_on("asyncio")]


@kinds("sqlite", "postgresql")
async def test_a_run_that_is_submitted_twice_is_driven_once(url: str, server: Server, tmp_path: Path) -> None:
    async with crew(tmp_path, server, url) as found:
        for _ in range(10):
            await found.engine.submit(await found.begin("errand"))
        runs = await found.ended()
        assert {run.status for run in runs} == {"completed"}
        assert Counter(one.what for one in found.world.asked) == dict.fromkeys(EFFECTS, 10)
        with anyio.fail_after(30):
            while {await found.engine.status(one) for one in found.run_ids} != {"done"}:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert await found.engine.status("nosuch") == "unknown"


@kinds("sqlite", "postgresql")
async def test_a_run_that_was_never_submitted_is_found(url: str, server: Server, tmp_path: Path) -> None:
    async with crew(tmp_path, server, url, {"poll": 0.5}, {"poll": 0.5}) as found:
        await found.begin("resting", submit=False)
        (run,) = await found.ended()
        assert run.status == "completed"
        assert await found.engine.status(run.run_id) == "unknown"


@kinds("sqlite", "postgresql")
async def test_a_server_that_is_killed_interrupts_no_step(url: str, server: Server, tmp_path: Path) -> None:
    async with crew(tmp_path, server, url) as found:
        gate = found.world.close("pay")
        await found.begin("errand")
        later = await found.begin("resting")
        await found.until(lambda: found.world.count("pay") == 2, "both pay")
        server.kill()
        gate.set()
        await found.until(lambda: found.world.count("ship") == 1, "one goes on without the engine")
        server.start()
        runs = await found.ended()
        assert {run.status for run in runs} == {"completed"}, "timers of the other one come from the engine"
        assert found.world.count("pay") == found.world.count("ship") == 2
        assert not found.looked, "nobody was asked"
        assert later in [run.run_id for run in runs]


@kinds("sqlite", "postgresql")
async def test_another_worker_goes_on_when_one_is_killed_in_a_step(url: str, server: Server, tmp_path: Path) -> None:
    async with crew(tmp_path, server, url) as found:
        gate = found.world.close("slow")
        run_id = await found.begin("slowly")
        await found.until(lambda: found.world.count("slow") == 1, "it is in the step")
        victim = found.driver()
        victim.kill()
        killed = time.monotonic()
        await found.until(lambda: found.world.count("slow") == 2, "another worker repeats the step")
        print(f"kill -9 -> goes on: {time.monotonic() - killed:.2f} s")
        assert found.driver() is not victim
        gate.set()
        (run,) = await found.ended(run_id)
        assert run.status == "completed"
        found.check()


@kinds("sqlite", "postgresql")
async def test_a_frozen_worker_loses_its_run_when_its_lease_ends(url: str, server: Server, tmp_path: Path) -> None:
    async with crew(tmp_path, server, url, {"poll": 0.5}, {"poll": 0.5}) as found:
        gate = found.world.close("slow")
        run_id = await found.begin("slowly")
        await found.until(lambda: found.world.count("slow") == 1, "it is in the step")
        victim = found.driver()
        victim.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        gate.set()
        await found.until(lambda: found.world.count("ship") == 1, "the claim loop of the other one finds it")
        print(f"SIGSTOP -> goes on: {time.monotonic() - stopped:.2f} s")
        victim.signal(signal.SIGCONT)
        (run,) = await found.ended(run_id)
        assert run.status == "completed"
        await found.ended(await found.begin("errand"), await found.begin("errand"))
        found.check()
        assert found.world.count("ship") == 3


@kinds("sqlite", "postgresql")
async def test_answers_race_with_pauses_and_with_timers(url: str, server: Server, tmp_path: Path) -> None:
    """Half of the answers come when the question is first seen, the others shortly before or after its deadline."""
    async with crew(tmp_path, server, url) as found:
        begun = [await found.begin("asking", 400 + number * 150) for number in range(24)]
        with anyio.fail_after(60):
            while left := await found.left(begun):
                for run_id in left:
                    number, run = begun.index(run_id), await found.executor.load(run_id)
                    for question in run.waiting if run.status == "paused" else ():
                        if number % 2 and question.deadline is not None and question.deadline > time.time() + 0.03:
                            continue  # it waits until the timer is about to come
                        try:
                            await found.executor.answer(run_id, question.id, "yes", resume=False)
                        except RunError:
                            continue  # the timer was first
                        await found.engine.submit(run_id)
                await anyio.sleep(0.02)
        runs = await found.ended()
        said = Counter(run.output[1] for run in runs)
        print(f"answers: {said}")
        assert {run.status for run in runs} == {"completed"}
        assert said["yes"]
        assert said["yes"] + said["late"] == len(runs)
        assert found.world.count("pay") == found.world.count("ship") == len(runs)


@kinds("sqlite", "postgresql")
async def test_a_run_that_is_cancelled_from_outside_is_delivered_no_more(
    url: str, server: Server, tmp_path: Path
) -> None:
    async with crew(tmp_path, server, url) as found:
        gate = found.world.close("slow")
        busy, asks = await found.begin("slowly"), await found.begin("asking", 3_600_000)
        await found.until(lambda: found.world.count("slow") == 1, "one is in a step")
        with anyio.fail_after(30):
            while await found.engine.status(asks) != "queued":  # noqa: ASYNC110  it is paused: its deadline is a timer
                await anyio.sleep(0.05)
        for run_id in (busy, asks):
            await found.executor.cancel(run_id, by="somebody")
            await found.engine.cancel(run_id)
        runs = await found.ended()
        gate.set()
        assert {run.status for run in runs} == {"cancelled"}
        with anyio.fail_after(30):
            while {await found.engine.status(one) for one in (busy, asks)} & {"queued", "running"}:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert found.world.count("ship") == 0


@kinds("sqlite")
async def test_a_worker_without_the_graph_leaves_the_run_to_one_that_has_it(
    url: str, server: Server, tmp_path: Path
) -> None:
    async with crew(tmp_path, server, url, {"graphs": ["asking"]}, {"graphs": ["asking"]}) as found:
        run_id = await found.begin("errand")
        await found.until(lambda: any("delivered again later" in one.log for one in found.workers), "it is refused")
        for one in found.workers:  # a rolling deploy: new code behind the same address
            one.signal(signal.SIGTERM)
            assert one.wait() == 0
            one._order["graphs"] = ["asking", "errand"]
            one.begin()
        (run,) = await found.ended(run_id)
        assert run.status == "completed"


@kinds("sqlite", "postgresql")
async def test_a_worker_that_is_told_to_end_lets_its_step_end(url: str, server: Server, tmp_path: Path) -> None:
    """Its lease and its grace are long: on a busy machine both could be over, and another worker repeat the step."""
    patient: dict[str, object] = {"ttl": PATIENCE, "grace": PATIENCE}
    async with crew(tmp_path, server, url, patient, patient) as found:
        gate = found.world.close("slow")
        run_id = await found.begin("slowly")
        await found.until(lambda: found.world.count("slow") == 1, "it is in the step")
        victim = found.driver()
        victim.signal(signal.SIGTERM)
        await anyio.sleep(0.3)
        gate.set()
        assert victim.wait() == 0, victim.log[-3000:]
        (run,) = await found.ended(run_id)
        assert run.status == "completed"
        assert found.world.count("slow") == found.world.count("ship") == 1
        assert found.driver("ship") is not victim


@kinds("sqlite")
async def test_a_worker_ends_though_its_step_does_not(url: str, server: Server, tmp_path: Path) -> None:
    """The SDK of Restate catches cancellation, and would wait for the server to close the connection."""
    async with crew(tmp_path, server, url, {"grace": 0.2}, {"grace": 0.2}) as found:
        gate = found.world.close("slow")
        begun = [await found.begin("slowly") for _ in range(6)]
        await found.until(lambda: found.world.count("slow") == len(begun), "all are in the step")
        victim = found.driver()
        victim.signal(signal.SIGTERM)
        assert victim.wait() == 0
        gate.set()
        assert {run.status for run in await found.ended()} == {"completed"}
        found.check()


async def test_a_store_that_is_gone_for_a_while_loses_nothing(
    own_postgres: PostgresServer, server: Server, tmp_path: Path
) -> None:
    own_postgres.create_database("engines")
    url = own_postgres.url("engines", patience=1)
    async with crew(tmp_path, server, url) as found:
        gate = found.world.close("pay")
        for _ in range(4):
            await found.begin("errand")
        await found.until(lambda: found.world.count("pay") == 4, "all pay")
        own_postgres.kill()
        gate.set()
        await anyio.sleep(TTL * 2)
        own_postgres.start()
        runs = await found.ended()
        assert {run.status for run in runs} == {"completed"}
        found.check()
