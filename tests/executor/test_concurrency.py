"""Branches beside each other: what they cost together, and how many of them run at once."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from orchestrator import Context, Executor, Graph, Limits, Retry, Update, node
from orchestrator.nodes import Subgraph
from tests.support.executors import Log, says

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
async def test_nobody_waits_for_the_slow_branch_beside_it(store: str, effect: str) -> None:
    say = partial(says, effect=effect)
    over = anyio.Event()

    async def end() -> None:
        over.set()

    graph = Graph(
        name="beside",
        state=Log,
        nodes={
            "fork": say("fork"), "slow": say("slow", over.wait), "a": say("a"), "b": say("b"),
            "c": say("c", end), "join": say("join", join="all"),
        },
        edges="START -> fork -> slow, a\na -> b -> c\nslow, c -> join -> END",
        output="log",
    )  # fmt: skip
    # The slow one goes on when the others have ended: whoever waited for it, at any step, would wait for ever.
    with anyio.fail_after(20):
        run = await graph.run(store=store)
    assert run.output == ["fork", "slow", "a", "b", "c", "join"]


@pytest.mark.parametrize("items", [1_000, pytest.param(10_000, marks=pytest.mark.storm)])
async def test_a_map_of_many_items_runs_ten_at_a_time_and_is_joined_once_in_order(items: int) -> None:
    running = most = 0
    chance = random.Random(1)

    @node(effect="pure")
    async def work(state: Log, item: int) -> Update:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(chance.randrange(3)):  # so that they end in another order than they began in
            await anyio.lowlevel.checkpoint()
        running -= 1
        ended.append(item)
        return {"log": str(item)}

    ended: list[int] = []
    joined: list[int] = []

    @node(effect="pure", join="all")
    def join(state: Log) -> Update:
        joined.append(len(state.log))
        return None

    graph = Graph(
        name="wide",
        state=Log,
        nodes={"plan": says("plan"), "work": work, "join": join},
        edges="START -> plan\nplan -> work : each items\nwork -> join -> END",
        output="log",
        limits=Limits(steps=None, concurrency=10),
    )
    run = await graph.run({"items": list(range(items))})
    assert run.output == ["plan", *map(str, range(items))]
    assert joined == [items + 1]
    assert most == 10
    assert ended != sorted(ended) == list(range(items))


async def test_a_place_that_is_free_is_taken_at_once_and_not_when_the_others_are_done() -> None:
    # Nine of ten items are quick: if places were given out batch by batch, each batch would wait for its slow one.
    order: list[str] = []

    @node(effect="pure")
    async def work(state: Log, item: int) -> Update:
        order.append(f"+{item}")
        if item == 0:
            await over.wait()
        order.append(f"-{item}")
        if item == 39:
            over.set()
        return None

    over = anyio.Event()
    graph = Graph(
        name="window", state=Log, nodes={"plan": says("plan"), "work": work, "join": says("join", join="all")},
        edges="START -> plan\nplan -> work : each items\nwork -> join -> END", limits=Limits(concurrency=2),
    )  # fmt: skip
    with anyio.fail_after(20):
        run = await graph.run({"items": list(range(40))})
    assert run.status == "completed"
    assert order[-1] == "-0"


async def test_the_limit_of_a_run_holds_over_nested_graphs_and_waits_between_attempts(store: str) -> None:
    running = most = 0

    @node(retry=Retry(attempts=2, wait=0.001))
    async def work(state: Log, ctx: Context) -> Update:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        try:
            await full.wait()
            await anyio.sleep(0.002)
            if ctx.attempt == 1:
                raise ConnectionError
        finally:
            running -= 1
        return {"log": state.question}

    full = anyio.Event()
    inner = Graph(
        name="inner", state=Log, nodes={"plan": says("p"), "work": work, "join": says("j", join="all")},
        edges="START -> plan\nplan -> work : each items\nwork -> join -> END",
    )  # fmt: skip
    outer = Graph(
        name="outer",
        state=Log,
        nodes={
            "plan": says("plan"), "sub": Subgraph(inner, inputs={"items": "items"}, outputs={}),
            "join": says("join", join="all"),
        },
        edges="START -> plan\nplan -> sub : each items\nsub -> join -> END",
        limits=Limits(concurrency=3),
    )  # fmt: skip
    with anyio.fail_after(20):
        run = await outer.run({"items": [1, 2, 3, 4]}, store=store)
    assert run.status == "completed", run.error
    assert most == 3


async def test_an_executors_concurrency_bounds_the_steps_of_all_its_runs() -> None:
    running = most = 0

    @node
    async def work(state: Log, item: int) -> Update:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1
        return None

    graph = Graph(
        name="bounded", state=Log, nodes={"plan": says("plan"), "work": work, "join": says("join", join="all")},
        edges="START -> plan\nplan -> work : each items\nwork -> join -> END",
    )  # fmt: skip
    async with Executor(concurrency=3) as executor, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(executor.start, graph, {"items": list(range(10))})
    assert most == 3
