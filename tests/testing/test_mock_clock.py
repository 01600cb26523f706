"""A clock that jumps: waiting takes no real time, and exactly its time by the clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from itertools import pairwise

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from orchestrator import Context, Executor, Limits, Retry, Update, node
from orchestrator.clock import SYSTEM_CLOCK, Clock
from orchestrator.testing import MockClock
from orchestrator.testing.mock_clock import Backend
from tests.support.executors import single

pytestmark = pytest.mark.anyio
HOUR = 3600.0
WHILE = 20.0
"""Seconds that an executor waits here: meanwhile it looks at its store twice a second."""
BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")


@pytest.mark.parametrize("one", [SYSTEM_CLOCK, MockClock()])
def test_a_clock_tells_the_time(one: Clock) -> None:
    assert one.now() > 1e9 - 1
    assert one.steady() <= one.steady()


async def test_a_pause_takes_its_time_by_the_clock_and_none_in_fact(clock: MockClock) -> None:
    began, really = clock.now(), time.monotonic()
    await anyio.sleep(HOUR)
    assert clock.now() - began == HOUR
    assert time.monotonic() - really < HOUR / 2


async def test_the_event_loop_has_the_same_time(clock: MockClock) -> None:
    before = anyio.current_time() - clock.steady()
    await anyio.sleep(5)
    assert anyio.current_time() - clock.steady() == pytest.approx(before)


async def test_time_stands_still_while_anything_runs(clock: MockClock) -> None:
    began = clock.now()
    with anyio.move_on_after(HOUR) as scope:
        for _ in range(1000):
            await anyio.lowlevel.checkpoint()
    assert not scope.cancelled_caught
    assert clock.now() == began


async def test_what_is_due_first_happens_first(clock: MockClock) -> None:
    happened: list[tuple[str, float]] = []
    began = clock.now()

    async def after(seconds: float, name: str) -> None:
        await anyio.sleep(seconds)
        happened.append((name, clock.now() - began))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(after, 3 * HOUR, "last")
        tasks.start_soon(after, 0.25, "first")
        tasks.start_soon(after, HOUR, "second")
    assert happened == [("first", 0.25), ("second", HOUR), ("last", 3 * HOUR)]


async def test_a_time_limit_passes_at_its_moment(clock: MockClock) -> None:
    began = clock.now()
    with anyio.move_on_after(HOUR) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert clock.now() - began == HOUR


async def test_it_can_be_moved_by_hand(clock: MockClock) -> None:
    began = clock.now()
    clock.jump(HOUR)
    assert clock.now() - began == HOUR
    with pytest.raises(ValueError, match="backwards"):
        clock.jump(-1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_waits_for_a_thread_that_takes_less_than_idle(backend: Backend) -> None:
    clock = MockClock(idle=30)

    async def main() -> None:
        with anyio.fail_after(1):
            await anyio.to_thread.run_sync(time.sleep, 0.02)

    began = clock.now()
    clock.run(main, backend=backend)
    assert clock.now() == began


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_runs_a_function(backend: Backend) -> None:
    clock = MockClock(now=0)

    async def main(seconds: float) -> str:
        await anyio.sleep(seconds)
        return "done"

    assert clock.run(main, HOUR, backend=backend) == "done"
    assert clock.run(main, HOUR, backend=backend) == "done"
    assert clock.now() == 2 * HOUR
    assert repr(clock) == "MockClock(now=7200.0, idle=0.0)"


# -- an executor ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def executor(clock: MockClock) -> AsyncIterator[Executor]:
    async with Executor(clock=clock) as executor:
        yield executor


async def test_records_have_its_time(executor: Executor, clock: MockClock) -> None:
    async def work() -> Update:
        await anyio.sleep(WHILE)
        return {"log": "worked"}

    began = clock.now()
    run = await executor.start(single(work), run_id="r")
    records = await executor.store.read("r")
    assert run.output == ["worked"]
    assert {record.ts for record in records} == {began, began + WHILE}


async def test_a_node_is_tried_again_after_its_pause(executor: Executor, clock: MockClock) -> None:
    tried: list[float] = []

    async def work() -> Update:
        tried.append(clock.now())
        if len(tried) < 3:
            raise ConnectionError("not yet")
        return {"log": "worked"}

    run = await executor.start(
        single(work, retry=Retry(attempts=3, wait=WHILE, factor=2.0, max_wait=2 * WHILE, jitter=0.0))
    )
    assert run.output == ["worked"]
    assert [later - earlier for earlier, later in pairwise(tried)] == [WHILE, 2 * WHILE]


async def test_a_step_ends_at_its_time_limit(executor: Executor, clock: MockClock) -> None:
    began = clock.now()
    run = await executor.start(single(anyio.sleep_forever, timeout=WHILE))
    assert run.error is not None
    assert (run.error.type, clock.now() - began) == ("StepTimeout", WHILE)


async def test_a_run_ends_at_its_limit_of_seconds(executor: Executor, clock: MockClock) -> None:
    began = clock.now()
    run = await executor.start(single(anyio.sleep_forever), limits=Limits(seconds=WHILE))
    assert (run.status, clock.now() - began) == ("exhausted", WHILE)


async def test_a_question_is_answered_at_its_deadline(executor: Executor, clock: MockClock) -> None:
    async def asks(ctx: Context) -> Update:
        return {"log": (await ctx.ask("input", prompt="?", deadline=WHILE)).type}

    async def works() -> Update:
        await anyio.sleep(2 * WHILE)
        return {"log": "worked"}

    began = clock.now()
    both = "START -> work, works\nwork -> END\nworks -> END"
    run = await executor.start(single(asks, nodes={"works": node(works)}, edges=both), run_id="r")
    assert run.output == ["deny", "worked"]
    answered = next(record.ts for record in await executor.store.read("r") if record.type == "answered")
    assert answered - began == WHILE
