"""`ScriptedModel` fails a test for everything that its script does not foresee."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, OfflineModel, append, node
from orchestrator.context import Context
from orchestrator.errors import ModelUnavailable
from orchestrator.models import Model, ModelRequest, Reply, ToolCall
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio


async def test_a_list_is_said_in_order_in_all_its_forms() -> None:
    call = ToolCall(id="c1", name="add", arguments={"a": 1})

    async def later(request: ModelRequest) -> str:
        return request.messages[-1].content + "!"

    replies: list[Any] = ["one", Reply(text="two", finish="length"), [call], later, ModelUnavailable("down")]
    with ScriptedModel(replies) as model:
        assert (await model.complete("a")).text == "one"
        assert (await model.complete("b")).finish == "length"
        reply = await model.complete("c")
        assert (reply.tool_calls, reply.finish) == ((call,), "tool_calls")
        assert (await model.complete("d")).text == "d!"
        with pytest.raises(ModelUnavailable, match="down"):
            await model.complete("e")
    assert [request.messages[-1].content for request in model.requests] == ["a", "b", "c", "d", "e"]


async def test_a_reply_too_many_fails_at_the_end() -> None:
    with pytest.raises(AssertionError, match="not used: 2 replies"), ScriptedModel(["one", "two", "three"]) as model:
        await model.complete("Hi")


async def test_a_call_too_many_fails_now_and_at_the_end() -> None:
    model = ScriptedModel(["one"])
    await model.complete("Hi")
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"unexpected call \d: 'And now'; all replies are used"):
            await model.complete("And now")
    with pytest.raises(AssertionError, match="unexpected call 2"):
        model.assert_done()


async def test_calls_at_the_same_time_fail() -> None:
    model = ScriptedModel(["one", "two"])
    faults: list[AssertionError] = []

    async def ask() -> None:
        try:
            await model.complete("Hi")
        except AssertionError as fault:
            faults.append(fault)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
    assert [str(fault) for fault in faults] == [
        "scripted: call 2 came while another was in progress; give a mapping by node"
    ]
    with pytest.raises(AssertionError, match=r"came while another was in progress; .*; not used: 1 reply"):
        model.assert_done()


async def test_another_error_is_not_hidden_by_replies_left_over() -> None:
    with pytest.raises(ZeroDivisionError), ScriptedModel(["one"]):
        raise ZeroDivisionError


def test_a_text_is_no_list_of_replies() -> None:
    with pytest.raises(TypeError, match=r"not the text 'one': write \['one'\]"):
        ScriptedModel("one")


# -- in runs -------------------------------------------------------------------------------------------------------


class Words(BaseModel):
    words: Annotated[list[str], append] = []


async def say(state: Words, ctx: Context[None]) -> dict[str, object]:
    return {"words": (await ctx.model.complete(f"Speak, {ctx.node}")).text}


fork = Graph(
    name="fork",
    state=Words,
    nodes={"a": node(say), "b": node(say), "both": node(say).with_(join="all")},
    edges="START -> a, b -> both -> END",
    output="words",
)


async def run(model: ScriptedModel) -> Any:
    async with Executor(model=model) as executor:
        return await executor.start(fork, {})


async def test_a_mapping_has_replies_for_each_node_so_branches_may_ask_together() -> None:
    with ScriptedModel({"a": ["1"], "b": lambda request: request.messages[-1].content, "both": ["3"]}) as model:
        found = await run(model)
    assert (found.status, found.output) == ("completed", ["1", "Speak, b", "3"])


async def test_branches_that_share_a_list_fail_the_test_although_the_run_goes_its_way() -> None:
    with pytest.raises(AssertionError, match="while another was in progress"), ScriptedModel(["1", "2", "3"]) as model:
        assert (await run(model)).status == "failed"


async def test_a_node_without_replies_is_named() -> None:
    model = ScriptedModel({"a": ["1"], "b": ["2"]})
    assert (await run(model)).status == "failed"
    with pytest.raises(AssertionError, match="no replies for node 'both'; there are some for 'a', 'b'"):
        model.assert_done()


async def test_a_call_outside_of_any_node_and_replies_of_a_node_left_over_are_named() -> None:
    model = ScriptedModel({"a": ["1"]})
    with pytest.raises(AssertionError, match="no replies for a call outside of any node"):
        await model.complete("Hi")
    with pytest.raises(AssertionError, match="not used: 1 reply of node 'a'"):
        model.assert_done()


class Said(BaseModel):
    answer: str = ""


@pytest.mark.parametrize("streams", ["watched", "always"])
@pytest.mark.parametrize(
    "make", [lambda: ScriptedModel([" two  words\nand 3 \n"]), OfflineModel], ids=["own", "offline"]
)
async def test_replies_come_in_pieces_while_a_run_is_watched_and_journals_are_the_same(
    make: Callable[[], Model], streams: Literal["watched", "always"]
) -> None:
    @node
    async def ask(ctx: Context) -> dict[str, str]:
        return {"answer": (await ctx.model.complete("Say hello.")).text}

    graph = Graph(name="asks", state=Said, nodes={"ask": ask}, edges="START -> ask -> END", output="answer")
    texts: list[str] = []
    async with Executor(model=make(), streams=streams) as executor, executor.stream(graph, {}) as live:
        async for event in live:
            if event.type == "token":
                texts.append(str(event.data["text"]))
    assert len(texts) > 1
    assert "".join(texts) == live.run.output
    assert "token" not in {record.type for record in live.run.records()}


async def test_a_long_reply_comes_in_at_most_a_hundred_pieces_and_an_empty_one_in_none() -> None:
    for text, pieces in (("word " * 1001, 91), ("", 0), ("one", 1)):
        events = [event async for event in ScriptedModel([text]).stream("?")]
        assert [event.text for event in events if event.text][:1] == ([events[0].text] if text else [])
        assert (len(events) - 1, "".join(event.text for event in events)) == (pieces, text)
