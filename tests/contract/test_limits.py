"""The contract of limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import Context, Executor, Graph, Limits, Node, Outcome, Reply, Usage, append, node
from orchestrator.nodes import Subgraph
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio


def gives(update: Any) -> Node:
    return node(effect="pure")(lambda state: update)


class Count(BaseModel):
    n: int = 0
    items: list[int] = []
    log: Annotated[list[JsonValue], append] = []


def loop(turn: Callable[..., Any], edges: str = "", **limits: Any) -> Graph:
    nodes = {"turn": turn, "late": node(lambda state: {"log": "late"})} if edges else {"turn": turn}
    return Graph(
        name="loop", state=Count, nodes=nodes, output="n", limits=Limits(**limits),
        edges=f"START -> turn\nturn -> turn : again\nturn -> END : enough\n{edges}",
    )  # fmt: skip


@node(effect="pure")
def count(state: Count) -> Outcome[Literal["again", "enough"]]:
    return Outcome("again", n=state.n + 1)


@node
async def ask(state: Count, ctx: Context) -> Outcome[Literal["again", "enough"]]:
    await ctx.model.complete("?")
    return Outcome("again", n=state.n + 1)


@node
async def wait(state: Count) -> Outcome[Literal["again", "enough"]]:
    await anyio.sleep(0.02)
    return Outcome("again", n=state.n + 1)


def paid(request: Any) -> Reply:
    return Reply(text="x", usage=Usage(input_tokens=3, output_tokens=2, cost=0.25))


LIMITS: dict[str, tuple[Any, dict[str, Any], int | None]] = {
    "steps": (count, {"steps": 5}, 5),
    "visits": (count, {"visits": {"turn": 4}}, 4),
    "calls": (ask, {"calls": 3}, 3),
    "tokens": (ask, {"tokens": 15}, 3),
    "cost": (ask, {"cost": 0.75}, 3),
    "seconds": (wait, {"seconds": 0.3}, None),
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("edge", [True, False])
async def test_a_spent_limit_takes_the_exhausted_edge_once_or_ends_the_run(limit: str, edge: bool) -> None:
    turn, limits, made = LIMITS[limit]
    edges = "* -> late : exhausted\nlate -> END" if edge else ""
    run = await loop(turn, edges, **limits).run(model=ScriptedModel(paid))
    assert run.status == "exhausted"
    assert run.output == made or (made is None and run.output > 0)
    assert run.values["log"] == (["late"] if edge else [])
    assert run.error is not None
    assert (run.error.type, limit in run.error.message) == ("LimitSpent", True)


def test_the_defaults_of_limits() -> None:
    assert Limits() == Limits(steps=1000, seconds=None, tokens=None, cost=None, calls=None, visits={}, concurrency=None)


async def test_after_the_exhausted_edge_nothing_is_counted_and_each_node_runs_once_at_most() -> None:
    graph = Graph(
        name="g", state=Count, output="log", limits=Limits(steps=2),
        nodes={"turn": count, "a": gives({"log": "a"}), "b": node(effect="pure")(_both)},
        edges="""
            START -> turn
            turn -> turn : again
            turn -> END : enough
            * -> a : exhausted
            a -> b
            b -> a : again
            b -> END : enough
        """,
    )  # fmt: skip
    run = await graph.run()
    assert (run.status, run.output) == ("exhausted", ["a", "b"])


def _both(state: Count) -> Outcome[Literal["again", "enough"]]:
    return Outcome("again", log="b")


async def test_limits_are_shared_by_branches_and_nested_graphs() -> None:
    inside = loop(count)
    graph = Graph(
        name="g", state=Count, nodes={"a": gives(None), "x": Subgraph(inside), "y": Subgraph(inside)}, output="n",
        edges="START -> a -> x, y -> END", limits=Limits(steps=11),
    )  # fmt: skip
    run = await graph.run()
    # x and y are two of the eleven, and did not end.
    assert (run.status, run.steps) == ("exhausted", 9)


async def test_limits_are_kept_over_pause_and_resume(tmp_path: Any) -> None:
    @node
    async def turn(state: Count, ctx: Context) -> Outcome[Literal["again", "enough"]]:
        if state.n == 2:
            await ctx.ask("input", prompt="Go on?")
        return Outcome("again", n=state.n + 1)

    graph = loop(turn, steps=5)
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url) as ex:
        run = await ex.start(graph)
        assert (run.status, run.steps) == ("paused", 2)
    async with Executor(url, graphs=[graph]) as ex:
        run = await ex.answer(run.run_id, run.waiting[0].id, "yes")
    assert (run.status, run.output) == ("exhausted", 5)


async def test_seconds_count_alive_time_only() -> None:
    @node
    async def turn(ctx: Context) -> Outcome[Literal["again", "enough"]]:
        await ctx.ask("input", prompt="Go on?")
        return Outcome("enough", n=1)

    graph = loop(turn, seconds=1.5)
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await anyio.sleep(1.6)
        run = await ex.answer(run.run_id, run.waiting[0].id, "yes")
    assert (run.status, run.seconds < 1.5) == ("completed", True)


async def test_concurrency_is_how_many_steps_run_at_the_same_time() -> None:
    running = most = 0

    @node
    async def work(state: Count) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.005)
        running -= 1

    graph = Graph(
        name="g", state=Count, nodes={"s": gives(None), "w": work}, edges="START -> s -> w : each items\nw -> END",
        limits=Limits(concurrency=3),
    )  # fmt: skip
    assert (await graph.run({"items": list(range(12))})).status == "completed"
    assert most == 3
