"""Several calls of one executor about one run at the same moment: none meets the lease that another one took."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from orchestrator import Executor, Graph, Update, node
from orchestrator.errors import InvalidAnswer, OrchestratorError, RunConflict, RunEnded, RunUnknown, StaleAnswer
from orchestrator.nodes import Wait
from orchestrator.stores import open_store
from orchestrator.stores.base import Store
from tests.support.executors import Log, chain, says
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


@node
async def slow(state: Log) -> Update:
    """Take a moment."""
    await anyio.sleep(0.01)
    return {"log": "slow"}


WAITS = Graph(
    name="waits", state=Log, input="question", nodes={"wait": Wait(event="paid"), "slow": slow},
    edges="START -> wait -> slow -> END", output="log",
)  # fmt: skip


@pytest.fixture(params=sized(["sqlite"], ["sqlite", "memory"]))
async def store(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> Any:
    found = open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db")
    yield found
    await found.close()


Door = Callable[[Executor, str], Awaitable[object]]
DOORS: dict[str, Door] = {
    "send": lambda ex, r: ex.send(r, "paid", 1),
    "send only": lambda ex, r: ex.send(r, "paid", 1, resume=False),
    "resume": lambda ex, r: ex.resume(r),
    "resume behind": lambda ex, r: ex.resume(r, background=True),
    "start": lambda ex, r: ex.start(WAITS, run_id=r),
    "submit": lambda ex, r: ex.submit(WAITS, run_id=r),
    "drive": lambda ex, r: ex.workers.drive(r),
    "recover": lambda ex, r: ex.recover(only=[r]),
    "pause": lambda ex, r: ex.pause(r),
    "cancel": lambda ex, r: ex.cancel(r),
    "fork": lambda ex, r: ex.fork(r, at=1),
    "delete": lambda ex, r: ex.delete(r),
}
MEANT = (RunEnded, RunUnknown, StaleAnswer, InvalidAnswer)
"""What a call may meet because another one was quicker."""


@pytest.mark.parametrize("worker", [False, True], ids=["alone", "with a worker"])
@pytest.mark.parametrize("first", ["send only", "send", "submit", "pause"])
async def test_no_call_conflicts_with_another_of_its_executor(store: Store, first: str, worker: bool) -> None:
    faults: list[str] = []
    async with Executor(store, graphs=[WAITS]) as executor, anyio.create_task_group() as working:
        if worker:
            working.start_soon(lambda: executor.work(slots=50, poll=0.01))

        async def call(name: str, run_id: str, delay: float) -> None:
            await anyio.sleep(delay)
            try:
                await DOORS[name](executor, run_id)
            except MEANT:
                pass
            except RunConflict as error:  # a run that is driven cannot be deleted
                if name != "delete" or "this executor drives it" not in str(error):
                    faults.append(f"{first}, {name}: {error}")

        with anyio.fail_after(60):
            for number in range(sized(2, 30)):
                names = [f"{name} {number}".replace(" ", "-") for name in DOORS]
                for run_id in names:
                    await executor.start(WAITS, run_id=run_id)
                async with anyio.create_task_group() as tasks:
                    for name, run_id in zip(DOORS, names, strict=True):
                        tasks.start_soon(call, first, run_id, 0.0)
                        tasks.start_soon(call, name, run_id, number * 0.0007)
                        tasks.start_soon(call, "resume", run_id, number * 0.0004)
        working.cancel_scope.cancel()
    assert faults == []


async def test_a_run_that_is_begun_is_found_by_every_call_from_its_first_moment(store: Store) -> None:
    async with Executor(store, graphs=[WAITS]) as executor:
        for number in range(20):
            run_id = f"r{number}"

            async def resume(run_id: str) -> None:
                while True:
                    try:
                        await executor.resume(run_id)
                        return
                    except RunUnknown:
                        await anyio.lowlevel.checkpoint()

            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(resume, run_id)
                    await executor.start(WAITS, run_id=run_id)


async def test_another_executor_is_in_conflict_as_before_and_is_waited_for(store: Store) -> None:
    gate = anyio.Event()

    @node
    async def held(state: Log) -> Update:
        """Wait for the test."""
        await gate.wait()
        return {"log": "held"}

    graph = chain(held, says("last"), name="held")
    async with Executor(store, graphs=[graph]) as executor, Executor(store, graphs=[graph]) as other:
        await other.submit(graph, run_id="r")
        for call in (executor.resume("r"), executor.workers.drive("r"), executor.delete("r")):
            with pytest.raises(RunConflict, match="holds it"):
                await call
        with pytest.raises(RunConflict, match="holds it"):
            await executor.resume("r", wait=0.2)
        gate.set()
        try:
            assert (await executor.resume("r", wait=20)).status == "completed"
        except RunEnded:
            assert (await executor.load("r")).status == "completed"


# -- one status --------------------------------------------------------------------------------------------------------


async def test_every_call_gives_the_status_that_load_gives(store: Store) -> None:
    async with Executor(store, graphs=[WAITS]) as executor:
        await executor.start(WAITS, run_id="r")
        sent = await executor.send("r", "paid", 1, resume=False)
        loaded = await executor.load("r")
        (info,) = (await executor.runs()).runs
        assert (sent.status, sent.queued) == (loaded.status, loaded.queued) == ("running", True)
        assert info.status == "running"
        assert (await executor.resume("r")).status == "completed"


async def test_neither_start_nor_wait_gives_a_run_that_is_running(store: Store) -> None:
    """While other executors answer, drive and give runs back at any moment."""
    found: list[str] = []
    async with Executor(store, graphs=[WAITS]) as executor, Executor(store, graphs=[WAITS]) as other:

        async def waits(run_id: str) -> None:
            found.append((await executor.wait(run_id)).status)

        async def starts(run_id: str) -> None:
            found.append((await executor.start(WAITS, run_id=run_id)).status)

        for number in range(sized(20, 200)):
            run_id = f"r{number}"
            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    await other.submit(WAITS, run_id=run_id)
                    tasks.start_soon(waits, run_id)
                    tasks.start_soon(starts, run_id)
                    try:
                        await other.send(run_id, "paid", 1)
                    except OrchestratorError as error:
                        raise AssertionError(f"{run_id}: {error}") from error
    assert {*found} <= {"completed", "paused"}
