"""Time-outs of subgraphs: what they end, what they count, and what outlives a process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import Field

from orchestrator import Context, Executor, Graph, Retry, Run, Update, node
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Record, TimerFired
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump
from orchestrator.nodes import Subgraph
from orchestrator.testing import MockClock
from tests.support.executors import Log, chain, says

pytestmark = pytest.mark.anyio

SHORT = 0.2
"""The time-out of the subgraphs here, in seconds."""


class Outer(Log):
    """A state with what came of the graph inside."""

    inner: list[str] = Field(default_factory=list)


def around(inner: Graph, *, edges: str = "", nodes: dict[str, Any] | None = None, **options: Any) -> Graph:
    """A graph with a subgraph, called `sub`."""
    return Graph(
        name="outer", state=Outer, input="question",
        nodes={"sub": Subgraph(inner, outputs={"inner": "log"}, **{"timeout": SHORT, **options}), **(nodes or {})},
        edges=f"START -> sub -> END\n{edges}", output="log",
    )  # fmt: skip


async def sleeps(seconds: float = 60) -> None:
    await anyio.sleep(seconds)


async def run_of(graph: Graph, clock: MockClock) -> Run[Any]:
    """Run a graph in time that jumps."""
    async with Executor(clock=clock) as executor:
        return await executor.start(graph)


def refolded(graph: Graph, records: Sequence[Record]) -> RunState:
    machine = RunState(Plan.of(graph))
    for record in records:
        apply(machine, record)
    return machine


async def test_a_subgraph_that_takes_too_long_is_stopped_and_named(clock: MockClock) -> None:
    stopped: list[str] = []

    async def hangs() -> None:
        try:
            await sleeps()
        finally:
            stopped.append("inner")

    graph = around(chain(says("first"), node(hangs), name="inner"))
    async with Executor(clock=clock) as executor:
        run = await executor.start(graph, run_id="r")
        records = await executor.store.read("r")
    assert (run.status, stopped) == ("failed", ["inner"])
    assert run.error is not None
    assert (run.error.type, run.error.node) == ("StepTimeout", "sub")
    assert run.error.message == f"sub took longer than {SHORT} s"
    assert [record.type for record in records][-3:] == ["timer_fired", "step_failed", "ended"]
    assert dump(refolded(graph, records)) == dump(run.machine)


@pytest.mark.parametrize("edge", ["sub -> late : timeout", "sub -> late : error", "* -> late : timeout"])
async def test_its_time_out_takes_the_edge_that_names_it_and_drops_what_was_done_inside(
    edge: str, clock: MockClock
) -> None:
    graph = around(
        chain(says("first"), node(sleeps), name="inner"), edges=f"{edge}\nlate -> END", nodes={"late": says("late")}
    )
    run = await run_of(graph, clock)
    assert (run.status, run.output) == ("completed", ["late"])


async def test_steps_that_are_each_quick_enough_spend_its_time_together(clock: MockClock) -> None:
    async def naps() -> None:
        await sleeps(SHORT / 3)

    graph = around(chain(*[node(naps)] * 6, name="inner"))
    run = await run_of(graph, clock)
    assert run.error is not None
    assert run.error.type == "StepTimeout"


async def test_one_that_is_in_time_completes(clock: MockClock) -> None:
    run = await run_of(around(chain(says("one"), says("two"), name="inner"), timeout=30.0), clock)
    assert run.values["inner"] == ["one", "two"]


async def test_the_time_out_of_an_outer_subgraph_ends_the_inner_one_and_the_inner_one_ends_itself_only(
    clock: MockClock,
) -> None:
    hanging = chain(node(sleeps), name="innermost")
    outer_first = around(around(hanging, timeout=30.0))
    run = await run_of(outer_first, clock)
    assert run.error is not None
    assert (run.error.node, run.error.path) == ("sub", "")
    middle = around(hanging, edges="sub -> late : timeout\nlate -> END", nodes={"late": says("late")})
    run = await run_of(around(middle, timeout=30.0), clock)
    assert (run.status, run.values["inner"]) == ("completed", ["late"])


async def test_a_retry_of_the_subgraph_has_its_whole_time_again(clock: MockClock) -> None:
    rounds: list[int] = []

    async def slow_at_first() -> Update:
        rounds.append(1)
        await anyio.sleep(60 if len(rounds) == 1 else SHORT / 2)
        return {"log": "done"}

    graph = around(chain(node(slow_at_first), name="inner"), retry=Retry(attempts=2, wait=0))
    run = await run_of(graph, clock)
    assert (run.values["inner"], len(rounds)) == (["done"], 2)


async def test_what_was_done_inside_and_cannot_be_undone_is_not_done_again_by_a_retry(clock: MockClock) -> None:
    paid: list[int] = []

    async def pay() -> None:
        paid.append(1)

    graph = around(chain(node(effect="irreversible")(pay), node(sleeps), name="inner"), retry=Retry(attempts=2, wait=0))
    run = await run_of(graph, clock)
    assert (run.status, len(paid)) == ("failed", 1)
    assert run.error is not None
    assert "cannot be undone" in run.error.message


async def test_a_question_inside_spends_no_time_while_the_run_is_paused(clock: MockClock) -> None:
    async def asks(ctx: Context) -> Update:
        return {"log": (await ctx.ask("input", prompt="?")).value}

    graph = around(chain(node(asks), says("after"), name="inner"), timeout=0.6)
    async with Executor(graphs=[graph], clock=clock) as executor:
        run = await executor.start(graph, run_id="r")
        assert run.status == "paused"
        await anyio.sleep(0.7)
        run = await executor.answer("r", run.waiting[0].id, "yes")
        assert (run.status, run.values["inner"]) == ("completed", ["yes", "after"])


async def test_a_question_inside_is_withdrawn_when_time_runs_out_while_others_work(clock: MockClock) -> None:
    async def asks(ctx: Context) -> None:
        await ctx.ask("input", prompt="?")

    inner = Graph(
        name="inner", state=Log, nodes={"asks": node(asks), "works": node(sleeps)},
        edges="START -> asks, works\nasks -> END\nworks -> END", output="log",
    )  # fmt: skip
    graph = around(inner, edges="sub -> late : timeout\nlate -> END", nodes={"late": says("late")})
    run = await run_of(graph, clock)
    assert (run.status, run.output, run.waiting) == ("completed", ["late"], ())


async def test_the_time_that_a_subgraph_was_alive_counts_on_after_a_stop(tmp_path: Path) -> None:
    begun, rounds = anyio.Event(), 0

    async def works() -> None:
        nonlocal rounds
        rounds += 1
        await anyio.sleep(0.5)
        begun.set()

    # 0.5 s of the first step are journaled before the stop; the 0.5 s that are left do not suffice for the others.
    graph = around(chain(node(works), node(sleeps), name="inner"), timeout=1.0)
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[graph]) as executor:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                executor.start,
                graph,
                None,
            )
            await begun.wait()
            await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
        (info,) = (await executor.runs()).runs
    await anyio.sleep(0.6)  # nobody drives it, and no time is spent
    async with Executor(url, graphs=[graph]) as executor:
        before = (await executor.load(info.run_id)).seconds
        run = await executor.resume(info.run_id)
        records = await executor.store.read(info.run_id)
    assert run.error is not None
    assert run.error.type == "StepTimeout"
    assert rounds == 1
    (fired,) = [record for record in records if isinstance(record, TimerFired)]
    assert 0.4 < before < 1.0
    assert run.seconds == pytest.approx(1.0, abs=0.3)
    assert fired.node == "sub"
