"""Limits and usage of graphs called as tools: shared with every run around them, by records in their journals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import Approve, Context, Executor, Graph, Limits, Outcome, ToolResult, Update, append, node
from orchestrator.graph import Usage
from orchestrator.kernel.records import Spent, encode
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest
from orchestrator.testing import ScriptedModel, assert_crash_safe
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class State(BaseModel):
    word: str = ""
    n: int = 0
    items: list[int] = []
    log: Annotated[list[JsonValue], append] = []


class Paid(ScriptedModel):
    """Gives replies of five tokens that cost 0.25, and counts them."""

    def __init__(self) -> None:
        self.made = 0
        super().__init__(self._reply)

    def _reply(self, request: ModelRequest) -> Reply:
        self.made += 1
        return Reply(text="x", usage=Usage(input_tokens=3, output_tokens=2, cost=0.25))


@node
async def ask(state: State, ctx: Context[Any]) -> Outcome[Literal["again", "enough"]]:
    await ctx.model.complete(f"{state.word} {state.n}")
    return Outcome("enough" if state.n == 2 else "again", n=state.n + 1)


def agent(name: str = "agent", **limits: Any) -> Graph:
    """Asks a model three times."""
    return Graph(
        name=name, state=State, nodes={"ask": ask}, edges="START -> ask\nask -> ask : again\nask -> END : enough",
        input="word", output="n", limits=Limits(**limits),
    )  # fmt: skip


def calling(name: str, inner: str, times: int = 1, **limits: Any) -> Graph:
    """Calls a graph so many times, one after the other."""

    @node
    async def call(ctx: Context[Any]) -> Update:
        results = [await ctx.tool(inner, word=str(number)) for number in range(times)]
        return {"log": ToolResult(output=[one.output for one in results]).output}

    return Graph(
        name=name, state=State, nodes={"call": call, "late": node(effect="pure")(lambda: {"log": "late"})},
        edges="START -> call -> END\n* -> late : exhausted\nlate -> END", input="word", output="log",
        limits=Limits(**limits),
    )  # fmt: skip


async def spent_in(executor: Executor, run_id: str) -> list[Spent]:
    return [one for one in await executor.store.read(run_id) if isinstance(one, Spent)]


# limits, how deep, replies of the model, calls: those of tools count as well
SHARED = [
    ({"calls": 6}, 1, 4, 6),
    ({"calls": 6}, 2, 3, 6),
    ({"tokens": 20}, 1, 4, 6),
    ({"tokens": 20}, 2, 4, 7),
    ({"cost": 1.0}, 1, 4, 6),
    ({"cost": 1.0}, 2, 4, 7),
]


@pytest.mark.parametrize(("limits", "deep", "made", "calls"), SHARED)
async def test_a_graph_called_as_a_tool_shares_the_limits_of_all_runs_around_it(
    limits: dict[str, Any], deep: int, made: int, calls: int
) -> None:
    tools = [agent().as_tool("agent", "Works."), calling("between", "agent", 3).as_tool("between", "Works.")]
    graph = calling("outer", "agent", 3, **limits) if deep == 1 else calling("outer", "between", **limits)
    model = Paid()
    async with Executor(graphs=[graph], model=model, tools=tools) as executor:
        run = await executor.start(graph, run_id="r")
        assert (run.status, run.output) == ("exhausted", ["late"])
        assert (model.made, run.usage.calls) == (made, calls)
        assert (run.usage.tokens, run.usage.cost) == (5 * made, 0.25 * made)
        texts = [encode(one) for one in await spent_in(executor, "r")]
        assert texts
        assert not [text for text in texts if b'"reserve":{}' in text], "what is empty is not written"
        children = [one for one in (await executor.runs()).runs if one.run_id != "r"]
        assert {one.status for one in children if one.graph == "between"} <= {"cancelled"}
        assert sorted(one.status for one in children if one.graph == "agent") == ["cancelled", "completed"]
        assert await executor.workers.recoverable() == []


async def test_nine_calls_of_inner_agents_stay_within_three() -> None:
    model = Paid()
    graph = calling("outer", "agent", 3)
    async with Executor(graphs=[graph], model=model, tools=[agent().as_tool("agent", "Works.")]) as executor:
        run = await executor.start(graph)
        assert (run.status, model.made, run.usage.calls) == ("completed", 9, 12)
        run = await executor.start(graph, limits=Limits(calls=3))
        assert (run.status, model.made - 9, run.usage.calls) == ("exhausted", 2, 3)


async def test_steps_and_visits_are_each_runs_own() -> None:
    graph = calling("outer", "agent", 3, steps=2, visits={"call": 1})
    async with Executor(graphs=[graph], model=Paid(), tools=[agent().as_tool("agent", "Works.")]) as executor:
        run = await executor.start(graph)
    assert (run.status, run.steps, run.output) == ("completed", 1, [[3, 3, 3]])


async def test_time_that_runs_out_ends_the_run_inside() -> None:
    @node
    async def hang(ctx: Context[Any]) -> None:
        await anyio.sleep(60)

    inside = Graph(name="slow", state=State, nodes={"hang": hang}, edges="START -> hang -> END", input="word")
    graph = calling("outer", "slow", seconds=0.2)
    async with Executor(graphs=[graph], tools=[inside.as_tool("slow", "Hangs.")]) as executor:
        run = await executor.start(graph, run_id="r")
        assert (run.status, run.output) == ("exhausted", ["late"])
        assert [one.status for one in (await executor.runs(labels={"parent": "r"})).runs] == ["cancelled"]


async def test_an_inner_run_knows_what_is_left_around_it() -> None:
    left: list[tuple[int | None, int | None]] = []

    @node
    async def look(ctx: Context[Any]) -> None:
        left.append((ctx.limits.calls, ctx.limits.steps))

    inside = Graph(
        name="look", state=State, nodes={"look": look}, edges="START -> look -> END", input="word",
        limits=Limits(steps=7, calls=9),
    )  # fmt: skip
    graph = calling("outer", "look", 2, calls=5, steps=3)
    async with Executor(graphs=[graph], tools=[inside.as_tool("look", "Looks.")]) as executor:
        await executor.start(graph)
    assert left == [(4, 6), (3, 6)]


# -- what an inner run made before its own limits were spent --------------------------------------------------------


@pytest.mark.parametrize("where", ["graph", "tool"])
async def test_an_inner_run_that_spends_its_own_limits_gives_its_output_as_a_failed_result(where: str) -> None:
    found: list[ToolResult] = []

    @node
    async def call(ctx: Context[Any]) -> Update:
        found.append(await ctx.tool("agent", word="a"))
        return {"log": "on"}

    own = Limits(calls=2)
    inside = agent(calls=2, steps=50) if where == "graph" else agent(steps=50, calls=9)
    graph = Graph(name="outer", state=State, nodes={"call": call}, edges="START -> call -> END", output="log")
    tools = [inside.as_tool("agent", "Works.", limits=own if where == "tool" else None)]
    async with Executor(graphs=[graph], model=Paid(), tools=tools) as executor:
        run = await executor.start(graph, run_id="r")
        (child,) = (await executor.runs(labels={"parent": "r"})).runs
        assert child.status == "exhausted"
        started = (await executor.load(child.run_id)).machine
        assert started.root is not None
        assert started.root.limits.steps == 50
    assert (run.status, run.output) == ("completed", ["on"])
    (result,) = found
    assert (result.failed, result.output) == (True, 2)
    assert result.error == (
        f"run {child.run_id}: exhausted: calls=2 are spent before 'ask' in graph 'agent'; its output so far: 2"
    )


# -- ids and depth --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 3, None, 30])
async def test_an_agent_that_is_offered_itself_ends_at_a_depth_that_the_error_names(depth: int | None) -> None:
    errors: list[str | None] = []

    @node
    async def call(ctx: Context[Any]) -> Update:
        result = await ctx.tool("myself", word="again")
        if result.output is None:
            errors.append(result.error)
        return {"n": int(str(result.output or 0)) + 1}

    graph = Graph(
        name="myself", state=State, nodes={"call": call}, edges="START -> call -> END", input="word", output="n"
    )
    most = depth or 10
    own = graph.as_tool("myself", "Calls itself.") if depth is None else graph.as_tool("myself", "x", depth=depth)
    async with Executor(graphs=[graph], tools=[own]) as executor:
        run = await executor.start(graph, run_id="r" * 190)
        assert (run.status, run.output) == ("completed", most + 1)
        ids = [one.run_id for one in (await executor.runs(limit=100)).runs if one.run_id != run.run_id]
        assert len(ids) == most
        assert {len(one) for one in ids} == {24}
    (error,) = errors
    assert error is not None
    assert f"depth={most} is the limit" in error
    assert f"as_tool('myself', ..., depth={2 * most})" in error


def test_a_depth_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="depth=0"):
        agent().as_tool("agent", "Works.", depth=0)


# -- crashes --------------------------------------------------------------------------------------------------------


async def crashed(limits: dict[str, Any], deep: int, most: int | None) -> None:
    tools = [agent().as_tool("agent", "Works."), calling("between", "agent", 2).as_tool("between", "Works.")]
    graph = calling("outer", "agent" if deep == 1 else "between", 2, **limits)
    report = await assert_crash_safe(graph, setup=lambda: {"model": Paid()}, tools=tools, most=most)
    assert report.status == ("exhausted" if limits else "completed")


CRASHES = [({}, 2), ({"calls": 6}, 1), ({"calls": 6}, 2), ({"tokens": 20}, 1), ({"tokens": 20}, 2)]


# The crash kit leaves an event loop in the middle: on trio there may be coroutines then that never began.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("limits", "deep"), sized([CRASHES[0], CRASHES[2], CRASHES[3]], CRASHES))
async def test_a_crash_between_two_journals_neither_counts_a_call_twice_nor_loses_one(
    limits: dict[str, Any], deep: int
) -> None:
    await crashed(limits, deep, sized(2, 6))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.storm
@pytest.mark.parametrize(("limits", "deep"), CRASHES)
async def test_no_crash_at_any_write_counts_a_call_twice_or_loses_one(limits: dict[str, Any], deep: int) -> None:
    await crashed(limits, deep, None)


# -- inner runs that go on by themselves ----------------------------------------------------------------------------


@node
async def sure(state: State, ctx: Context[Any]) -> None:
    await ctx.ask("approval", prompt="Sure?")


def asking(**limits: Any) -> Graph:
    """Asks, then asks a model three times."""
    return Graph(
        name="asking", state=State, nodes={"sure": sure, "ask": ask},
        edges="START -> sure -> ask\nask -> ask : again\nask -> END : enough", input="word", output="n",
        limits=Limits(**limits),
    )  # fmt: skip


@pytest.mark.parametrize("limits", [{}, {"calls": 3}])
async def test_an_inner_run_that_is_answered_itself_still_spends_the_limits_around_it(
    limits: dict[str, Any], tmp_path: Path
) -> None:
    graph, model = calling("outer", "asking", **limits), Paid()
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, graphs=[graph], model=model, tools=[asking().as_tool("asking", "Asks.")]) as executor:
        run = await executor.start(graph, run_id="r")
        (child,) = (await executor.runs(labels={"parent": "r"})).runs
        question = (await executor.load(child.run_id)).waiting[0]
        inner = await executor.answer(child.run_id, question.id, Approve())
        waits = await executor.load("r")
        assert (waits.status, waits.usage.calls) == ("paused", 1 + model.made)
        assert (inner.status, model.made) == (("cancelled", 2) if limits else ("completed", 3))
        run = await executor.answer("r", waits.waiting[0].id, Approve())  # too late: it is answered
        assert (run.status, run.usage.calls) == ("completed", 1 + model.made)
        assert run.usage.tokens == 5 * model.made
        (told,) = run.output
        assert told == ([3] if not limits else [None])


async def test_an_inner_run_that_another_executor_drives_spends_the_limits_around_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    model = Paid()
    holding = anyio.Event()

    @node
    async def hold(ctx: Context[Any]) -> None:
        await holding.wait()

    @node
    async def call(ctx: Context[Any]) -> Update:
        return {"log": (await ctx.tool("asking", word="a")).error}

    graph = Graph(
        name="outer", state=State, nodes={"begin": node(effect="pure")(lambda: None), "hold": hold, "call": call},
        edges="START -> begin -> hold, call -> END", output="log", limits=Limits(calls=3),
    )  # fmt: skip
    tools = [asking().as_tool("asking", "Asks.")]
    async with Executor(store, graphs=[graph], model=model, tools=tools) as here:
        await here.submit(graph, run_id="r")
        with anyio.fail_after(20):
            async for event in here.events("r", follow=True):
                if event.type == "asked":  # one branch waits for an answer, the other one works
                    break
            (child,) = (await here.runs(labels={"parent": "r"})).runs
            question = (await here.load(child.run_id)).waiting[0]
            async with Executor(store, graphs=[graph], model=model, tools=tools) as there:
                inner = await there.answer(child.run_id, question.id, Approve())
            assert (inner.status, model.made) == ("cancelled", 2)
            holding.set()
            run = await here.wait("r")
        assert (run.status, run.usage.calls, run.usage.tokens) == ("exhausted", 3, 10)
