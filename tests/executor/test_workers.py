"""Who runs steps: as few tasks as steps that wait at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, Limits, Outcome, Update, append, node
from tests.executor.sample import Log

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


def over(branch: object) -> Graph:
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
                        page = {info.run_id: info.head for info in (await executor.store.runs()).runs}
                        if page.get(f"r{number}", 0) >= 2:
                            break
                        await anyio.sleep(0.01)
            go_on.set()
        assert {info.status for info in (await executor.store.runs()).runs} == {"completed"}
