"""The contract of limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import Context, Executor, Graph, Limits, Outcome, append, node
from orchestrator.graph import Node, Usage
from orchestrator.graph.limits import Reserve
from orchestrator.kernel.fold import apply
from orchestrator.kernel.limits import total_reserve
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump, load
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest, RequestModel
from orchestrator.nodes import ITEM, Subgraph
from orchestrator.testing import MockClock, ScriptedModel

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


async def test_seconds_count_alive_time_only(clock: MockClock) -> None:
    @node
    async def turn(ctx: Context) -> Outcome[Literal["again", "enough"]]:
        await ctx.ask("input", prompt="Go on?")
        await anyio.sleep(1)
        return Outcome("enough", n=1)

    graph = loop(turn, seconds=1.5)
    async with Executor(graphs=[graph], clock=clock) as ex:
        run = await ex.start(graph)
        await anyio.sleep(60)
        run = await ex.answer(run.run_id, run.waiting[0].id, "yes")
    assert (run.status, run.seconds) == ("completed", 1)


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


# -- calls that are made at the same time ----------------------------------------------------------------------------


class Beside:
    """Gives replies of 300 tokens, which cost 0.5, and notes how many are made at the same time."""

    def __init__(self) -> None:
        self.now = self.most = self.made = 0

    async def __call__(self, request: Any) -> Reply:
        self.now += 1
        self.made += 1
        self.most = max(self.most, self.now)
        await anyio.sleep(0.03)
        self.now -= 1
        return Reply(text="x", usage=Usage(input_tokens=100, output_tokens=200, cost=0.5))


class BesideModel(RequestModel):
    """The same as a model; without a price, as it tells what its replies cost."""

    name = "beside"

    def __init__(self) -> None:
        self.counted = Beside()

    async def respond(self, request: ModelRequest) -> Reply:
        return await self.counted(request)


@node
async def ask_item(state: Count, ctx: Context) -> None:
    options: dict[str, Any] = {"max_tokens": state.n} if state.n else {}
    await ctx.model.complete(f"about {ctx.item}", **options)


def beside(**limits: Any) -> Graph:
    """Ask about each item, all at the same time."""
    return Graph(
        name="beside", state=Count, nodes={"s": gives(None), "ask": ask_item}, output="n",
        edges="START -> s -> ask : each items\nask -> END", limits=Limits(**limits),
    )  # fmt: skip


@pytest.mark.parametrize("limits", [{"tokens": 400}, {"cost": 0.6}])
async def test_branches_do_not_overshoot_a_limit_together(limits: dict[str, Any]) -> None:
    model = BesideModel()
    run = await beside(**limits).run({"items": list(range(5))}, model=model)
    assert run.status == "exhausted"
    # Within the limit one call is always made, so what it goes over by is what one call may use.
    assert (model.counted.made, model.counted.most) == (2, 1)
    assert (run.usage.tokens, run.usage.cost) == (600, 1.0)


@pytest.mark.parametrize("limits", [{"tokens": 100_000}, {"cost": 100.0}, {}])
async def test_calls_are_made_at_the_same_time_where_there_is_room(limits: dict[str, Any]) -> None:
    model = BesideModel()
    run = await beside(**limits).run({"items": list(range(5))}, model=model)
    assert (run.status, model.counted.made) == ("completed", 5)
    assert model.counted.most > 1


async def test_the_bound_of_a_reply_is_what_a_call_reserves_for_it() -> None:
    model = BesideModel()
    run = await beside(tokens=2000).run({"items": list(range(5)), "n": 600}, model=model)
    assert (run.status, model.counted.made) == ("completed", 5)
    assert model.counted.most <= 3


async def test_a_call_inside_of_a_stream_that_is_read_does_not_wait_for_it() -> None:
    @node
    async def talk(ctx: Context) -> dict[str, Any]:
        said = []
        async for event in ctx.model.stream("one"):
            said.append((await ctx.model.complete(f"about {event.text}")).text)
        return {"log": said}

    graph = Graph(
        name="g",
        state=Count,
        nodes={"talk": talk},
        edges="START -> talk -> END",
        output="log",
        limits=Limits(tokens=900),
    )
    with anyio.fail_after(20):
        run = await graph.run(model=BesideModel())
    assert (run.status, run.output) == ("completed", [["x"]])


async def test_branches_that_wait_for_room_leave_their_places_to_others() -> None:
    model = BesideModel()
    async with Executor(model=model, concurrency=1) as executor:
        with anyio.fail_after(20):
            run = await executor.start(beside(tokens=1600), {"items": list(range(5))})
    assert (run.status, model.counted.made) == ("completed", 5)


async def test_what_calls_under_way_reserved_is_in_the_journal_until_they_end() -> None:
    async with Executor(model=BesideModel()) as executor:
        run = await executor.start(beside(tokens=100_000), {"items": [1, 2], "n": 50})
        records = await executor.store.read(run.run_id)
        machine = RunState(run.machine.plan)
        held = []
        for record in records:
            apply(machine, record)
            held.append(total_reserve(machine))
            assert total_reserve(load(run.machine.plan, dump(machine))) == total_reserve(machine)
    assert max(one.calls for one in held) == 2
    assert max(one.tokens for one in held) == 2 * (50 + 6)  # the prompt: seven bytes and one message
    assert held[-1] == Reserve()


async def test_limits_of_a_run_replace_those_fields_that_are_set() -> None:
    graph = loop(count, steps=5, visits={"turn": 3})
    run = await graph.run(limits=Limits(calls=7))
    assert run.machine.root is not None
    assert run.machine.root.limits == Limits(steps=5, visits={"turn": 3}, calls=7)
    assert (run.status, run.output) == ("exhausted", 3)
    run = await graph.run(limits=Limits(visits={}))
    assert (run.status, run.output) == ("exhausted", 5)
    run = await graph.run(limits=Limits(steps=None, visits={"turn": 9}))
    assert (run.status, run.output) == ("exhausted", 9)


# -- graphs inside that spend their own limits -----------------------------------------------------------------------


def mapped(**edges: str) -> Graph:
    """A graph inside for each item, which counts up to the item and has three steps for that."""

    @node(effect="pure")
    def up(state: Target) -> Outcome[Literal["again", "enough"]]:
        return Outcome("enough" if state.n + 1 >= state.target else "again", n=state.n + 1)

    inside = Graph(
        name="inside", state=Target, nodes={"up": up}, edges="START -> up\nup -> up : again\nup -> END : enough",
        limits=Limits(steps=3),
    )  # fmt: skip

    @node(effect="pure")
    def caught(ctx: Context) -> dict[str, Any]:
        return {"log": None if ctx.error is None else ctx.error.message}

    nodes = {
        "s": gives(None), "sub": Subgraph(inside, inputs={"target": ITEM}, outputs={"log": "n"}), "caught": caught,
        "late": gives({"log": "late"}), "j": gives(None).with_(join="all"),
    }  # fmt: skip
    return Graph(
        name="mapped", state=Count, nodes={name: nodes[name] for name in nodes if name in str(edges)},
        edges="\n".join(edges.values()), output="log",
    )  # fmt: skip


class Target(BaseModel):
    n: int = 0
    target: int = 0


LINES = {"map": "START -> s -> sub : each items", "on": "sub -> j -> END"}
SPENT = "steps=3 are spent before 'up' in graph 'inside'"


async def test_a_mapped_graph_that_spends_its_own_limits_leaves_the_others_alone() -> None:
    async with Executor() as executor:
        run = await executor.start(mapped(**LINES), {"items": [2, 9, 1]})
        assert (run.status, run.output) == ("completed", [2, 3, 1])
        ends = [one for one in await executor.history(run.run_id) if one.node == "sub"]
    told = [None if one.error is None else (one.error.type, one.error.message) for one in ends]
    assert sorted(told, key=str) == [("LimitSpent", SPENT), None, None]
    assert {one.outcome for one in ends} == {"done"}


async def test_the_edge_of_a_graph_that_spent_its_limits_gets_what_it_made_and_why() -> None:
    graph = mapped(**LINES, caught="sub -> caught : exhausted", join="caught -> j")
    run = await graph.run({"items": [2, 9, 1]})
    assert (run.status, run.output) == ("completed", [2, 3, SPENT, 1])


@pytest.mark.parametrize("late", [True, False])
async def test_a_limit_of_the_outer_graph_ends_the_graphs_inside_and_takes_the_outer_edge(late: bool) -> None:
    edges = {**LINES, "caught": "sub -> caught : exhausted", "join": "caught -> j"}
    if late:
        edges |= {"late": "* -> late : exhausted", "end": "late -> END"}
    run = await mapped(**edges).run({"items": [2, 9, 1]}, limits=Limits(steps=5))
    assert run.status == "exhausted"
    assert (run.output[-1:] == ["late"]) is late
    assert SPENT not in run.output
