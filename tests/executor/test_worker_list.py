"""Who works on a store: workers and other executors, alive or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from orchestrator import Executor, OfflineModel, __version__
from orchestrator.executor import WorkerInfo
from orchestrator.stores.base import Lease
from orchestrator.stores.owner import Owner
from orchestrator.stores.rows import MAX_DEATHS
from tests.support.executors import chain, hanging, says

pytestmark = pytest.mark.anyio

SOON = 30.0
HELLO = chain(says("hello"), name="hello")


@pytest.fixture(params=["memory", "sqlite"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


async def until(executor: Executor, fits: Callable[[list[WorkerInfo]], bool]) -> list[WorkerInfo]:
    """Wait until the list of workers fits."""
    with anyio.fail_after(SOON):
        while not fits(found := await executor.workers.list()):  # noqa: ASYNC110  another task or process writes it
            await anyio.sleep(0.01)
    return found


async def listed(executor: Executor, count: int) -> list[WorkerInfo]:
    """Wait until so many workers are listed."""
    return await until(executor, lambda found: len(found) == count)


async def test_a_worker_is_listed_while_it_works_also_without_a_run(store: str) -> None:
    async with Executor(store, graphs=[HELLO]) as executor:
        assert await executor.workers.list() == []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: executor.work(slots=3))
            (one,) = await listed(executor, 1)
            found = (one.state, one.worker, one.graphs, one.slots, one.held, one.runs)
            assert found == ("alive", True, ("hello",), 3, 0, ())
            assert one.id == executor._host.owner.executor
            assert (one.host, one.pid) == (Owner.here().host, Owner.here().pid)
            assert one.version == __version__
            assert one.started is not None
            assert 0.0 <= one.heartbeat < 20.0
            assert one.to_json()["graphs"] == ["hello"]
            tasks.cancel_scope.cancel()
        assert await executor.workers.list() == [], "a worker that stopped is gone"


async def test_the_runs_of_a_worker_and_of_an_executor_that_is_none_are_listed(store: str) -> None:
    slow, began = hanging()
    hangs, other = chain(slow, name="hangs"), chain(hanging()[0], name="other")
    async with Executor(store, graphs=[hangs, other]) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: executor.start(hangs, run_id="by-hand"))
        await began.wait()
        (one,) = await listed(executor, 1)
        assert (one.worker, one.slots, one.started, one.held, one.runs) == (False, None, None, 1, ("by-hand",))
        await executor.enqueue(other, run_id="taken-up")
        tasks.start_soon(executor.work)
        (one,) = await until(executor, lambda found: found[0].held == 2)
        assert (one.worker, {*one.runs}) == (True, {"by-hand", "taken-up"})
        tasks.cancel_scope.cancel()


async def test_two_calls_of_work_are_one_worker_with_the_slots_of_both(store: str) -> None:
    other = chain(says("x"), name="other")
    stop = anyio.Event()
    async with Executor(store, graphs=[HELLO, other]) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: executor.work(slots=3, graphs=["hello"], stop=stop))
        tasks.start_soon(lambda: executor.work(slots=4, graphs=["other"]))
        found = await until(executor, lambda found: bool(found) and found[0].slots == 7)
        assert found[0].graphs == ("hello", "other")
        stop.set()
        found = await until(executor, lambda found: found[0].slots == 4)
        assert found[0].state == "alive"
        tasks.cancel_scope.cancel()


async def test_an_idle_worker_is_heard_from_and_says_who_it_is_again_when_its_row_is_lost(store: str) -> None:
    async with Executor(store, graphs=[HELLO], lease_ttl=0.3) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: executor.work(poll=0.05))
        await listed(executor, 1)
        for _ in range(5):
            await anyio.sleep(0.1)
            assert [one.state for one in await executor.workers.list()] == ["alive"]
        await executor.store.beat(executor._host.owner.executor, 0.0)
        (one,) = await listed(executor, 1)
        assert (one.worker, one.slots) == (True, 20)
        tasks.cancel_scope.cancel()


async def test_a_worker_that_is_silent_has_lapsed_and_one_whose_process_ended_is_dead(store: str) -> None:
    async with Executor(store, graphs=[HELLO]) as executor:
        await executor.enqueue(HELLO, run_id="r")
        says_of_itself = {"graphs": ["hello"], "slots": 2, "started": 1.0}
        far = replace(Owner.here(), host="far", machine="m", boot="b", executor="far", worker=says_of_itself)
        gone = replace(Owner.here(), pid=2**22 + 1, executor="gone", worker=says_of_itself)
        await executor.store.announce(far, ttl=0.05)
        await executor.store.announce(gone, ttl=60.0)
        assert await executor.store.take_lease(Lease("r", "t", "far", far.data()), ttl=0.05)
        await anyio.sleep(0.1)
        found = {one.id: one for one in await executor.workers.list()}
        assert (found["far"].state, found["far"].host, found["far"].runs) == ("lapsed", "far", ("r",))
        assert found["far"].heartbeat >= 0.1
        assert found["gone"].state == "dead"


async def test_parked_runs_are_listed_until_they_are_resumed(store: str) -> None:
    async with Executor(store, graphs=[HELLO], model=OfflineModel()) as executor:
        await executor.enqueue(HELLO, run_id="r")
        assert await executor.workers.parked() == []
        for number in range(MAX_DEATHS):
            assert await executor.store.take_lease(Lease("r", f"t{number}", "far"), ttl=60.0)
            await executor.store.drop_lease("r", f"t{number}", fault="no model")
        (info,) = await executor.workers.parked()
        assert (info.run_id, info.status, info.deaths, info.fault) == ("r", "interrupted", MAX_DEATHS, "no model")
        assert (await executor.resume("r")).status == "completed"
        assert await executor.workers.parked() == []
