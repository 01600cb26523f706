"""Which runs a worker takes up: bounds of graphs, and turns of the values of a label."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import pytest

from orchestrator import Context, Executor, Update, node
from orchestrator.errors import InvalidValue
from tests.executor.test_workers_of_runs import all_are
from tests.support.executors import Log, chain, says

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


async def test_a_worker_drives_no_more_runs_of_a_graph_than_it_may_and_others_meanwhile(store: str) -> None:
    at_once: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @node
    async def count(state: Log, ctx: Context) -> Update:
        """Count those that run."""
        name = ctx.run_id[0]
        at_once[name] += 1
        most[name] = max(most[name], at_once[name])
        await anyio.sleep(0.02)
        at_once[name] -= 1
        return {"log": "x"}

    reports, others = chain(count, name="report"), chain(count, name="other")
    async with Executor(store, graphs=[reports, others]) as executor, anyio.create_task_group() as tasks:
        for number in range(10):
            await executor.enqueue(reports, run_id=f"r{number}")
        for number in range(10):
            await executor.enqueue(others, run_id=f"o{number}")
        tasks.start_soon(lambda: executor.work(slots=5, poll=30.0, graph_slots={"report": 2}))
        await all_are(executor, "completed", 20)
        assert most["r"] == 2
        assert most["o"] >= 3
        tasks.cancel_scope.cancel()


async def test_runs_beyond_the_bound_of_one_worker_are_taken_by_another(store: str) -> None:
    inside, gate = 0, anyio.Event()

    @node
    async def meet(state: Log) -> Update:
        """Wait for the others."""
        nonlocal inside
        inside += 1
        if inside == 4:
            gate.set()
        await gate.wait()
        return {"log": "x"}

    graph = chain(meet, name="g")
    async with Executor(store, graphs=[graph]) as one, Executor(one.store, graphs=[graph]) as two:
        for number in range(4):
            await one.enqueue(graph, run_id=f"r{number}")
        async with anyio.create_task_group() as tasks:
            for executor in (one, two):
                tasks.start_soon(lambda executor=executor: executor.work(graph_slots={"g": 2}))
            await all_are(one, "completed", 4)
            tasks.cancel_scope.cancel()


async def test_a_run_of_another_tenant_is_not_delayed_behind_those_of_one(store: str) -> None:
    order: list[str] = []

    @node
    async def note(state: Log, ctx: Context) -> Update:
        """Note who ran."""
        order.append(ctx.run_id)
        return {"log": "x"}

    graph = chain(note, name="g")
    async with Executor(store, graphs=[graph]) as executor, anyio.create_task_group() as tasks:
        for number in range(40):
            await executor.enqueue(graph, run_id=f"big{number}", labels={"tenant": "big"})
        await executor.enqueue(graph, run_id="small", labels={"tenant": "small"})
        tasks.start_soon(lambda: executor.work(slots=2, fair_by="tenant"))
        await all_are(executor, "completed", 41)
        assert order.index("small") < 4
        tasks.cancel_scope.cancel()


async def test_bounds_and_labels_that_cannot_be_used_are_refused() -> None:
    graph = chain(says("x"), name="g")
    async with Executor(graphs=[graph]) as executor:
        for bad in ({"nosuch": 1}, {"g": 0}, {"g": True}, {"g": 1.5}):
            with pytest.raises(InvalidValue, match="graph_slots"):
                await executor.work(graph_slots=bad)  # type: ignore[arg-type]  as a caller without a type checker
        for label in ("", "a b", 'a"b', "a'b", "x" * 101, "ten\u00e4nt"):
            with pytest.raises(InvalidValue, match="take turns"):
                await executor.work(fair_by=label)
