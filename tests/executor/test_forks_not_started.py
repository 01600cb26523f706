"""Forks that are made and not started: they stay as they were made until a user resumes or answers them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Run, Update, node
from orchestrator.kernel.question import PAUSE
from orchestrator.kernel.records import EffectIntended, StepDone
from orchestrator.nodes import Ask, Sleep, Subgraph
from orchestrator.stores import Store
from tests.executor.test_forking import BILL, Bill, Desk, asked

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


@node
async def looks(ctx: Context[Any]) -> Update:
    return {"log": str((await ctx.tool("look", what="a")).output)}


INSIDE = Graph(name="inside", state=Bill, nodes={"looks": looks}, edges="START -> looks -> END")
LOOKING = Graph(
    name="looking", state=Bill, nodes={"inside": Subgraph(graph=INSIDE), "looks": looks},
    edges="START -> inside, looks\ninside, looks -> END", output="log",
)  # fmt: skip
SLEEPING = Graph(
    name="sleeping", state=Bill, nodes={"sleep": Sleep(seconds=0.01), "looks": looks},
    edges="START -> sleep -> looks -> END", output="log",
)  # fmt: skip
ASKING = Graph(
    name="asking", state=Bill, nodes={"ask": Ask(prompt="?", answer="note"), "looks": looks},
    edges="START -> ask -> looks -> END", output="note",
)  # fmt: skip
GRAPHS = [BILL, LOOKING, SLEEPING, ASKING]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def executor(store: Store, desk: Desk) -> AsyncIterator[Executor]:
    async with Executor(store, graphs=GRAPHS, tools=desk.tools()) as found:
        yield found


async def driven_by_others(executor: Executor, store: Store, desk: Desk) -> None:
    """Have a round of `recover`, and a worker until it has driven a run that was enqueued later."""
    assert await executor.recover() == []
    async with Executor(store, graphs=GRAPHS, tools=desk.tools()) as working, anyio.create_task_group() as tasks:
        tasks.start_soon(working.work)
        later = await working.enqueue(LOOKING, {})
        assert (await working.wait(later)).status == "completed"
        tasks.cancel_scope.cancel()


async def test_a_fork_that_is_not_started_stays_as_it_is_at_every_record(
    executor: Executor, store: Store, desk: Desk
) -> None:
    run = await executor.start(LOOKING, {}, run_id="r")
    made: dict[str, Run] = {}
    for at in range(1, run.seq):
        fork = await executor.fork("r", at=at, start=False, run_id=f"f{at}")
        assert (fork.status, fork.seq, [one.id for one in fork.waiting]) == ("paused", at + 1, [PAUSE])
        made[fork.run_id] = fork
    await driven_by_others(executor, store, desk)
    assert desk.looked == 4
    for name, fork in made.items():
        found = await executor.load(name)
        assert (found.status, found.seq) == ("paused", fork.seq)
        driven = await executor.workers.drive(name)
        assert (driven.status, driven.due) == ("paused", None)
        assert (await executor.load(name)).seq == fork.seq
        end = await executor.resume(name)
        assert (end.status, end.machine.usage.calls) == ("completed", 2)
    assert desk.looked > 4


async def test_time_does_not_pass_in_a_fork_that_is_not_started(executor: Executor, store: Store, desk: Desk) -> None:
    run = await executor.start(SLEEPING, {}, run_id="r")
    slept = next(one.seq for one in run.records() if isinstance(one, StepDone))
    fork = await executor.fork("r", at=slept - 2, start=False, run_id="f")
    assert {one.kind for one in fork.waiting} == {"timer", "pause"}
    assert (await store.info("f")).due is None
    await anyio.sleep(0.02)
    await driven_by_others(executor, store, desk)
    assert (await executor.load("f")).seq == fork.seq
    assert (await executor.resume("f")).status == "completed"


async def test_a_fork_that_is_not_started_is_started_by_the_answer_to_its_pause(executor: Executor) -> None:
    run = await executor.start(LOOKING, {}, run_id="r")
    at = next(one.seq for one in run.records() if isinstance(one, EffectIntended))
    fork = await executor.fork("r", at=at, start=False, run_id="f")
    end = await executor.answer("f", asked(fork).id, None)
    assert (end.status, end.machine.usage.calls) == ("completed", 2)


async def test_a_fork_that_is_not_started_can_be_cancelled_paused_and_forked(executor: Executor) -> None:
    run = await executor.start(LOOKING, {}, run_id="r")
    at = next(one.seq for one in run.records() if isinstance(one, EffectIntended))
    await executor.fork("r", at=at, start=False, run_id="f")
    assert (await executor.pause("f")).status == "paused"
    assert (await executor.fork("f", run_id="g")).status == "completed"
    assert (await executor.fork("f", run_id="h", start=False)).status == "paused"
    assert (await executor.resume("h")).status == "completed"
    assert (await executor.cancel("f")).status == "cancelled"


async def test_a_fork_that_waits_for_an_answer_goes_on_with_it(executor: Executor) -> None:
    await executor.start(ASKING, {}, run_id="r")
    fork = await executor.fork("r", start=False)
    assert [one.kind for one in fork.waiting] == ["input"]
    assert (await executor.answer(fork.run_id, asked(fork).id, "in French")).output == "in French"
    given = {asked(await executor.load("r")).id: "in German"}
    fork = await executor.fork("r", answers=given, start=False)
    assert (fork.status, [one.kind for one in fork.waiting]) == ("paused", ["pause"])
    assert (await executor.resume(fork.run_id)).output == "in German"


async def test_the_same_fork_that_is_started_now_is_one_run(executor: Executor) -> None:
    await executor.start(LOOKING, {}, run_id="r")
    await executor.fork("r", at=2, start=False, run_id="f")
    await executor.fork("r", at=2, start=False, run_id="f")
    assert (await executor.fork("r", at=2, run_id="f")).status == "completed"
    assert (await executor.fork("r", at=2, start=False, run_id="f")).status == "completed"
