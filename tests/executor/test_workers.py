"""Who runs steps: as few tasks as steps that wait at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, Limits, Outcome, Update, append, node
from orchestrator.graph import Node
from orchestrator.stores.requests import RunQuery
from tests.support.executors import Log

pytestmark = pytest.mark.anyio


class Work(BaseModel):
    items: list[int] = []
    found: Annotated[list[int], append] = []


@node(effect="pure")
async def begin(state: Work) -> Update:
    return None


@node(effect="pure", join="all")
async def joined(state: Work) -> Update:
    return None


def over(branch: Node) -> Graph:
    return Graph(
        name="over",
        state=Work,
        nodes={"begin": begin, "branch": branch, "join": joined},
        edges="START -> begin\nbegin -> branch : each items\nbranch -> join -> END",
        output="found",
        limits=Limits(steps=None),
    )


async def test_branches_that_wait_for_nothing_share_a_task() -> None:
    tasks: set[int] = set()

    @node(effect="pure")
    async def branch(state: Work, item: int) -> Update:
        tasks.add(anyio.get_current_task().id)
        return {"found": item}

    run = await over(branch).run({"items": list(range(60))})
    assert run.output == list(range(60))
    assert len(tasks) < 10  # one more begins whenever the event loop gets its turn, which time decides


async def test_branches_that_wait_run_all_at_once() -> None:
    together = 0
    all_here = anyio.Event()

    @node(effect="pure")
    async def branch(state: Work, item: int) -> Update:
        nonlocal together
        together += 1
        if together == 300:
            all_here.set()
        await all_here.wait()
        return {"found": item}

    with anyio.fail_after(60):
        run = await over(branch).run({"items": list(range(300))})
    assert run.output == list(range(300))


async def test_a_branch_that_waits_holds_up_none_behind_it() -> None:
    done: list[int] = []
    last = anyio.Event()

    @node(effect="pure")
    async def branch(state: Work, item: int) -> Update:
        if item == 0:
            await last.wait()
        if item == 40:
            last.set()
        done.append(item)
        return {"found": item}

    with anyio.fail_after(60):
        run = await over(branch).run({"items": list(range(41))})
    assert done[-1] == 0 or done.index(0) > done.index(40)
    assert run.output == list(range(41))


@pytest.mark.parametrize("waits", [False, True])
async def test_what_a_step_leaves_in_the_context_stays_with_it(waits: bool) -> None:
    var = ContextVar("var", default="nothing")
    seen: list[str] = []

    @node(effect="pure")
    async def branch(state: Work, item: int) -> Update:
        seen.append(var.get())
        if item % 3 == 0:
            var.set(f"left by {item}")
        if waits:
            await anyio.lowlevel.checkpoint()
        seen.append("" if item % 3 else var.get())
        return {"found": item}

    @node(effect="pure", join="all")
    async def last(state: Work) -> Update:
        seen.append(var.get())
        return None

    var.set("of the caller")
    graph = over(branch)
    run = await graph.replace(join=last).run({"items": list(range(30))})
    assert run.output == list(range(30))
    own = {f"left by {item}" for item in range(0, 30, 3)}
    assert set(seen) == {"of the caller", ""} | own
    assert sum(text in own for text in seen) == 10


async def test_what_a_step_leaves_in_the_context_stays_out_of_that_of_the_caller() -> None:
    var = ContextVar("var", default="nothing")

    @node(effect="pure")
    async def sets(state: Work) -> Update:
        var.set("left by the step")
        return None

    graph = Graph(name="sets", state=Work, nodes={"sets": sets}, edges="START -> sets -> END")
    async with Executor() as executor:
        assert (await executor.start(graph)).status == "completed"
        assert var.get() == "nothing"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_node_that_swallows_a_bare_cancellation_keeps_it_from_no_caller(anyio_backend: str) -> None:
    """asyncio tells a task once that it is cancelled: were it the task of the step, the caller would never know."""
    reached, calls = anyio.Event(), 0

    @node(effect="pure")
    async def deaf(state: Work) -> Outcome[Literal["again", "enough"]]:
        nonlocal calls
        calls += 1
        reached.set()
        with contextlib.suppress(BaseException):
            await anyio.sleep_forever()
        return Outcome("again")

    graph = Graph(
        name="deaf", state=Work, nodes={"deaf": deaf},
        edges="START -> deaf\ndeaf -> deaf : again\ndeaf -> END : enough", limits=Limits(steps=5),
    )  # fmt: skip
    async with Executor() as executor:
        task = asyncio.create_task(executor.start(graph, run_id="r"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert calls == 1
        assert await executor.store.lease("r") is None
        assert (await executor.load("r")).status == "interrupted"


@node(effect="pure")
async def spin(state: Log) -> Outcome[Literal["again", "enough"]]:
    time.sleep(0.001)  # noqa: ASYNC251  that it holds the event loop up is what is looked at
    return Outcome("again")


SPINNING = Graph(
    name="spinning", state=Log, nodes={"spin": spin}, edges="START -> spin\nspin -> spin : again\nspin -> END : enough",
    limits=Limits(steps=None),
)  # fmt: skip


async def test_branches_that_wait_begin_within_few_turns_of_the_event_loop() -> None:
    """A turn may be long, where other runs compute: as many turns as there are branches would be far too many."""
    turns = begun = 0
    before: list[int] = []
    all_here = anyio.Event()

    @node(effect="pure")
    async def branch(state: Work, item: int) -> Update:
        nonlocal begun
        begun += 1
        before.append(turns)
        if begun == 200:
            all_here.set()
        await all_here.wait()
        return {"found": item}

    async def turn() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    with anyio.fail_after(60):
        async with Executor() as executor, anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            tasks.start_soon(executor.start, SPINNING)
            run = await executor.start(over(branch), {"items": list(range(200))})
            assert run.output == list(range(200))
            tasks.cancel_scope.cancel()
    assert before[-1] - before[0] < 60


async def test_runs_that_compute_share_the_time_that_they_may_take_from_others() -> None:
    between: list[int] = []
    async with Executor() as executor, anyio.create_task_group() as tasks:
        steps = 0

        @node(effect="pure")
        async def count(state: Log) -> Outcome[Literal["again", "enough"]]:
            nonlocal steps
            steps += 1
            time.sleep(0.001)  # noqa: ASYNC251  as above
            return Outcome("again")

        for _ in range(20):
            tasks.start_soon(executor.start, SPINNING.replace(spin=count))
        while len(between) < 25:
            before = steps
            await anyio.lowlevel.checkpoint()
            between.append(steps - before)
        tasks.cancel_scope.cancel()
    assert statistics.median(between[5:]) < 50  # 5 ms are up to 5 steps, and each run may be in the middle of one


@pytest.mark.parametrize("after", [0, 1, 5])
async def test_what_waits_behind_a_branch_that_is_dropped_runs(after: int) -> None:
    """A race drops a branch in the middle of its step: its worker ends, and what queued behind it must not be lost."""
    ran: list[str] = []
    dropped: list[str] = []
    never = anyio.Event()

    @node(effect="pure")
    async def slow(state: Log) -> Update:
        try:
            await never.wait()
        finally:
            dropped.append("slow")
        return None

    @node(effect="pure")
    async def quick(state: Log) -> Update:
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
        return None

    @node(effect="pure", join=1)
    async def first(state: Log) -> Update:
        return None

    @node(effect="pure")
    async def beside(state: Log) -> Update:
        await anyio.lowlevel.checkpoint()
        ran.append("beside")
        return None

    graph = Graph(
        name="race",
        state=Log,
        nodes={"begin": begin_log, "slow": slow, "quick": quick, "first": first, "a": beside, "b": beside, "c": beside},
        edges="""
            START -> begin
            begin -> slow : race
            begin -> quick : race
            slow -> first
            quick -> first
            first -> a
            first -> b
            first -> c
            a -> END
            b -> END
            c -> END
        """,
    )
    with anyio.fail_after(60):
        run = await graph.run()
    assert run.status == "completed", run.error
    assert ran == ["beside"] * 3
    assert dropped in ([], ["slow"])  # not begun, or stopped


@node(effect="pure")
async def begin_log(state: Log) -> Outcome[Literal["race"]]:
    return Outcome("race")


async def test_records_that_nobody_waits_for_are_written_soon(tmp_path: Path) -> None:
    """Of several runs of one executor, while each of them is in the middle of a step."""
    go_on = anyio.Event()

    @node(effect="pure")
    async def one(state: Log) -> Update:
        return {"n": 1}

    @node(effect="pure")
    async def held(state: Log) -> Update:
        await go_on.wait()
        return None

    graph = Graph(name="two", state=Log, nodes={"one": one, "held": held}, edges="START -> one -> held -> END")
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[graph]) as executor:
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(lambda name: executor.start(graph, run_id=name), f"r{number}")
            with anyio.fail_after(30):
                for number in range(5):
                    while True:
                        page = {info.run_id: info.head for info in (await executor.store.runs(RunQuery())).runs}
                        if page.get(f"r{number}", 0) >= 2:
                            break
                        await anyio.sleep(0.01)
            go_on.set()
        assert {info.status for info in (await executor.store.runs(RunQuery())).runs} == {"completed"}
