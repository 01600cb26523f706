"""What only Temporal's adapter does, at a real server: wakes, new histories, cancelled workflows, silence."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Replayer

from orchestrator.engines import temporal
from orchestrator.engines.temporal import RunWorkflow
from tests.engines.crew import PATIENCE, Crew, Server, crew

pytestmark = [pytest.mark.anyio, pytest.mark.peer, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
HOUR = 3_600_000


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    with anyio.fail_after(PATIENCE):
        while True:
            if await holds():
                return
            await anyio.sleep(0.05)


async def until_it_asks(found: Crew, run_id: str) -> None:
    """Wait until a run waits for an answer, and the engine for its deadline."""

    async def asks() -> bool:
        return bool((await found.executor.load(run_id)).waiting) and await found.engine.status(run_id) == "queued"

    await until(asks)


async def handle_of(server: Server, run_id: str) -> WorkflowHandle[object, object]:
    """The workflow of a run."""
    client = await Client.connect(server.url.removeprefix("temporal://"))
    return client.get_workflow_handle(f"run:{run_id}")


async def test_an_answer_wakes_a_run_that_waits_for_its_deadline(temporal_server: Server, tmp_path: Path) -> None:
    async with crew(tmp_path, temporal_server, f"sqlite:///{tmp_path}/runs.db") as found:
        run_id = await found.begin("asking", HOUR)
        await until_it_asks(found, run_id)
        question = (await found.executor.load(run_id)).waiting[0]
        await found.executor.answer(run_id, question.id, "yes", resume=False)
        answered = time.monotonic()
        await found.engine.submit(run_id)
        (run,) = await found.ended(run_id)
        print(f"answer -> ended: {time.monotonic() - answered:.2f} s")
        assert run.output[1] == "yes"
        assert found.world.count("ship") == 1


async def test_a_later_submission_does_not_put_a_timer_off(temporal_server: Server, tmp_path: Path) -> None:
    async with crew(tmp_path, temporal_server, f"sqlite:///{tmp_path}/runs.db") as found:
        run_id = await found.begin("asking", 5_000)
        await until_it_asks(found, run_id)
        await found.engine.submit(run_id, at=time.time() + 3600)
        (run,) = await found.ended(run_id)
        assert run.output[1] == "late"


async def test_a_long_history_goes_on_in_a_new_one_and_is_replayed(temporal_server: Server, tmp_path: Path) -> None:
    async with crew(tmp_path, temporal_server, f"sqlite:///{tmp_path}/runs.db", {}) as found:
        run_id = await found.begin("asking", HOUR)
        await until_it_asks(found, run_id)
        handle = await handle_of(temporal_server, run_id)
        first = (await handle.describe()).run_id
        for _ in range(temporal._EVENTS):
            await found.engine.submit(run_id, at=time.time() + 7200)  # an event each, which changes nothing
        await found.engine.submit(run_id)

        async def is_new() -> bool:
            return (await handle.describe()).run_id != first

        await until(is_new)
        assert await found.engine.status(run_id) == "queued", "its timer goes on in the new workflow"
        question = (await found.executor.load(run_id)).waiting[0]
        await found.executor.answer(run_id, question.id, "yes", resume=False)
        await found.engine.submit(run_id)
        (run,) = await found.ended(run_id)
        assert run.output[1] == "yes"
        client = await Client.connect(temporal_server.url.removeprefix("temporal://"))
        for number in (first, None):
            history = await client.get_workflow_handle(f"run:{run_id}", run_id=number).fetch_history()
            await Replayer(workflows=[RunWorkflow]).replay_workflow(history)


async def test_a_run_is_submitted_again_after_its_workflow_was_cancelled(
    temporal_server: Server, tmp_path: Path
) -> None:
    """By `cancel`, and by a person in Temporal's own tools."""
    async with crew(tmp_path, temporal_server, f"sqlite:///{tmp_path}/runs.db") as found:
        run_id = await found.begin("asking", HOUR)
        handle = await handle_of(temporal_server, run_id)

        async def is_done() -> bool:
            return await found.engine.status(run_id) == "done"

        for cancel in (lambda: found.engine.cancel(run_id), handle.cancel, handle.terminate):
            await until_it_asks(found, run_id)
            await cancel()
            await until(is_done)
            await found.engine.submit(run_id)
        await until_it_asks(found, run_id)
        question = (await found.executor.load(run_id)).waiting[0]
        await found.executor.answer(run_id, question.id, "yes", resume=False)
        await found.engine.submit(run_id)
        await found.ended(run_id)
        assert found.world.count("pay") == found.world.count("ship") == 1


async def test_the_client_says_nothing_on_stdout(
    temporal_server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with crew(tmp_path, temporal_server, f"sqlite:///{tmp_path}/runs.db", {}) as found:
        assert await found.engine.status("nosuch") == "unknown"
        await found.engine.cancel("nosuch")
        temporal_server.kill()
        with pytest.raises(Exception, match="start it"):
            await found.engine.status("nosuch")
        temporal_server.start()
        assert await found.engine.status("nosuch") == "unknown", "it connects again by itself"
        assert capfd.readouterr().out == ""
