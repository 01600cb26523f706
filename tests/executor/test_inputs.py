"""What comes from outside sets the fields that `Graph(input=)` names, and no other one, whatever the door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio.to_thread
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Update, node
from orchestrator.errors import AgentError, InvalidInput
from orchestrator.executor.schedules import fire_due
from orchestrator.graph.state import start_form
from tests.web.api import api

pytestmark = pytest.mark.anyio


class Paid(BaseModel):
    user: str = "nobody"
    sum: int = 0


class Order(BaseModel):
    payload: dict[str, Any] = {}
    paid: Paid = Paid()
    word: str = ""
    user: str = "nobody"
    approved: bool = False


@node(effect="pure")
def keep(state: Order) -> Update:
    return {}


def taking(*names: str) -> Graph:
    return Graph(
        name="taking", state=Order, nodes={"keep": keep}, edges="START -> keep -> END",
        input=names[0] if len(names) == 1 else names or None,
    )  # fmt: skip


PAYLOAD, WORD, PAID, TWO, ALL = taking("payload"), taking("word"), taking("paid"), taking("word", "user"), taking()
ONE = "takes one input, 'word': a mapping is its value, unless 'word' is its only key"

FITTING: list[tuple[Graph, Any, dict[str, Any]]] = [
    (PAYLOAD, {"event": "paid", "n": 1}, {"payload": {"event": "paid", "n": 1}}),
    (PAYLOAD, {"user": "bob"}, {"payload": {"user": "bob"}}),
    (PAYLOAD, {"approved": True}, {"payload": {"approved": True}}),
    (PAYLOAD, {"payload": {"user": "bob"}}, {"payload": {"user": "bob"}}),
    (PAYLOAD, {"payload": {"payload": 1}}, {"payload": {"payload": 1}}),
    (PAYLOAD, {"payload": {}, "user": "bob"}, {"payload": {"payload": {}, "user": "bob"}}),
    (PAYLOAD, {}, {}),
    (PAYLOAD, None, {}),
    (PAID, {"user": "bob"}, {"paid": {"user": "bob", "sum": 0}}),
    (PAID, {"paid": {"user": "bob"}}, {"paid": {"user": "bob", "sum": 0}}),
    (WORD, "tea", {"word": "tea"}),
    (WORD, {"word": "tea"}, {"word": "tea"}),
    (WORD, {}, {}),
    (TWO, {"word": "tea", "user": "bob"}, {"word": "tea", "user": "bob"}),
    (TWO, {"user": "bob"}, {"user": "bob"}),
    (TWO, ["tea", "bob"], {"word": "tea", "user": "bob"}),
    (TWO, {}, {}),
    (ALL, {"approved": True, "word": "tea"}, {"approved": True, "word": "tea"}),
    (ALL, {}, {}),
]
REFUSED: list[tuple[Graph, Any, str]] = [
    (WORD, {"word": "tea", "approved": True}, ONE),
    (WORD, {"approved": True}, ONE),
    (WORD, {"wrd": "tea"}, ONE),
    (TWO, {"word": "tea", "approved": True}, "is word, user: give a list of 2 values, or a mapping without 'approved'"),
    (TWO, {"wrd": "tea"}, "is word, user: give a list of 2 values, or a mapping without 'wrd'"),
    (TWO, "tea", "is word, user: give a list of 2 values, or a mapping"),
    (ALL, {"wrd": "tea"}, "there is no field 'wrd'"),
    (ALL, "tea", "names no input field"),
]


class Clock:
    time = 1_800_000_000.0

    def now(self) -> float:
        return self.time

    def steady(self) -> float:
        return self.time


async def by_run(graph: Graph, given: Any) -> Any:
    return (await graph.run(given)).values


async def by_run_sync(graph: Graph, given: Any) -> Any:
    return (await anyio.to_thread.run_sync(graph.run_sync, given)).values


async def by_start(graph: Graph, given: Any) -> Any:
    async with Executor(graphs=[graph]) as executor:
        return (await executor.start(graph, given)).values


async def by_submit(graph: Graph, given: Any) -> Any:
    async with Executor(graphs=[graph]) as executor:
        return (await executor.wait(await executor.submit(graph, given))).values


async def by_enqueue(graph: Graph, given: Any) -> Any:
    async with Executor(graphs=[graph]) as executor:
        return (await executor.load(await executor.enqueue(graph, given))).values


async def by_stream(graph: Graph, given: Any) -> Any:
    async with Executor(graphs=[graph]) as executor, executor.stream(graph, given) as live:
        async for _ in live:
            pass
        assert live.run is not None
        return live.run.values


async def by_schedule(graph: Graph, given: Any) -> Any:
    clock = Clock()
    async with Executor(graphs=[graph], clock=clock) as executor:
        await executor.schedules.put(graph, "* * * * *", given)
        clock.time += 61
        (run_id,) = await fire_due(executor._host)
        return (await executor.load(run_id)).values


DOORS = (by_run, by_run_sync, by_start, by_submit, by_enqueue, by_stream, by_schedule)


@pytest.mark.parametrize("door", DOORS)
async def test_each_door_sets_the_fields_that_the_input_names(door: Callable[[Graph, Any], Awaitable[Any]]) -> None:
    for graph, given, set_ in FITTING:
        assert await door(graph, given) == {**Order().model_dump(), **set_}, (graph.input, given)


@pytest.mark.parametrize("door", DOORS)
async def test_each_door_refuses_other_fields_by_name(door: Callable[[Graph, Any], Awaitable[Any]]) -> None:
    for graph, given, words in REFUSED:
        with pytest.raises(InvalidInput) as caught:
            await door(graph, given)
        assert words in str(caught.value)


async def test_a_state_of_the_graph_sets_no_other_field_either() -> None:
    assert (await by_start(WORD, Order(word="tea")))["word"] == "tea"
    assert await by_start(WORD, Order()) == Order().model_dump()
    with pytest.raises(InvalidInput, match="is word: give one value, or a mapping without 'approved'"):
        await by_start(WORD, Order(word="tea", approved=True))


@pytest.mark.full
def test_clients_of_a_server_set_the_fields_that_the_input_names() -> None:
    for graph in (PAYLOAD, PAID, WORD, TWO, ALL):
        with api(graph) as server:
            for one, given, set_ in FITTING:
                if one is graph:
                    run = server.post("runs", 201, graph="taking", input=given, wait=True)
                    assert server.get(f"runs/{run['run_id']}")["state"] == {**Order().model_dump(), **set_}
            for one, given, words in REFUSED:
                if one is graph:
                    assert words in str(server.post("runs", 422, graph="taking", input=given))


def test_the_form_that_starts_a_run_has_the_fields_that_the_input_names() -> None:
    with api(TWO) as server:
        form = server.get("graphs/taking")["form"]
    assert (list(form["properties"]), form["x-input"]) == (["word", "user"], ["word", "user"])
    assert list(start_form(ALL.schema)["properties"]) == [*Order.model_fields]


async def test_a_call_of_a_graph_as_a_tool_sets_the_fields_that_the_input_names() -> None:
    for graph, given, set_ in FITTING:
        named = {graph.input} if isinstance(graph.input, str) else {*(graph.input or ())}
        if not named or not isinstance(given, dict) or not given.keys() <= named:
            continue
        tool = graph.as_tool("inner", "Takes.", risk="none")
        assert {*tool.parameters["properties"]} == named
        with pytest.raises(AgentError, match="'approved' is unknown"):
            tool.validate({"approved": True})

        @node(tools=[tool])
        async def call(ctx: Context[Any], given: Any = given) -> Update:
            return {"payload": (await ctx.tool("inner", given)).output}

        outer = Graph(name="outer", state=Order, nodes={"call": call}, edges="START -> call -> END", output="payload")
        assert (await outer.run()).output == {**Order().model_dump(), **set_}


async def test_runs_and_schedules_that_began_with_other_fields_go_on_with_them() -> None:
    """A version that took any field began them."""
    clock = Clock()
    async with Executor(graphs=[ALL], clock=clock) as executor:
        run = await executor.start(ALL, {"word": "tea", "approved": True}, run_id="r")
        await executor.schedules.put(ALL, "* * * * *", {"word": "tea", "approved": True})
        (schedule,) = await executor.schedules.list()
        async with Executor(executor.store, graphs=[WORD], clock=clock) as later:
            replay = await later.replay("r", graph=WORD, update={"user": "bob"})
            assert replay.run.values == {**run.values, "user": "bob"}
            clock.time += 61
            (run_id,) = await fire_due(later._host)
            assert (await later.load(run_id)).values == run.values
            assert (await later.schedules.list())[0] == replace(schedule, next_at=schedule.next_at + 60)
