"""`ChooseTool`: a model names one of the tools."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from orchestrator import Tool, tool
from orchestrator.errors import GraphUnknown
from orchestrator.models.messages import Reply
from orchestrator.nodes import ChooseTool
from tests.support.one_node import error_of, executing, of_one, run

pytestmark = pytest.mark.anyio


def named(name: str, description: str = "Do.") -> Tool:
    @tool(name=name, description=description)
    def do(a: int) -> int:
        return a

    return do


TOOLS = (named("b", "Does b,\n  in two lines."), named("a", "Does a."), named("c"))


class Ports(BaseModel):
    main: str = "The main question"
    now: str = ""
    chosen: str = ""


PORTS = ChooseTool(question="main", current="now", tool="chosen")


async def test_the_name_is_written_to_its_field() -> None:
    found = await run(ChooseTool(), ChooseTool.State, {"question": "Which?"}, [" a\n"], TOOLS)
    assert found.values == {"question": "Which?", "current": "", "tool": "a", "corrections": []}
    assert (await run(PORTS, Ports, None, ["b"], TOOLS)).values["chosen"] == "b"


async def test_the_last_word_of_a_reply_that_is_cut_off_names_no_tool() -> None:
    tools = (named("add"), named("add_all"))
    for text, name in (("add", None), ("The tool is add", None), ('{"tool": "add"}', "add"), ("`add_all`", "add_all")):
        reply = Reply(text=text, finish="length")
        found = await run(ChooseTool(), ChooseTool.State, {"question": "Which?"}, [reply], tools)
        assert found.values["tool"] == name if name else "was cut off" in error_of(found)[1], text


@pytest.mark.parametrize(("now", "asked"), [("", "The main question"), ("A later one", "A later one")])
async def test_the_question_in_hand_is_asked_with_the_tools_in_order(now: str, asked: str) -> None:
    async with executing(["a"], TOOLS) as (executor, model):
        await executor.start(of_one(PORTS, Ports), {"now": now})
    (request,) = model.requests
    system, user = request.messages
    assert (system.role, system.content, user.role) == ("system", PORTS.system, "user")
    assert user.content == f"Question: {asked}\n\nTools:\nb: Does b, in two lines.\na: Does a.\nc: Do."
    assert user.data == {
        "question": asked,
        "tools": [{"name": one.name, "description": one.description} for one in TOOLS],
    }
    assert (request.task, request.tools) == ("choose_tool", ())


async def test_without_its_port_the_follow_up_question_is_not_looked_at() -> None:
    async with executing(["a"], TOOLS) as (executor, model):
        await executor.start(of_one(ChooseTool(), ChooseTool.State), {"question": "main", "current": "later"})
    assert (model.requests[0].messages[-1].data or {})["question"] == "main"


async def test_prompts_can_be_reworded() -> None:
    node = ChooseTool(system="{Pick}.", prompt="{tools} -- {question}")
    async with executing(["a"], TOOLS[1:]) as (executor, model):
        await executor.start(of_one(node, ChooseTool.State), {"question": "{tools}?"})
    assert [message.content for message in model.requests[0].messages] == ["{Pick}.", "a: Does a.\nc: Do. -- {tools}?"]


async def test_where_there_is_one_tool_no_model_is_asked() -> None:
    assert (await run(ChooseTool(), ChooseTool.State, {"question": "?"}, [], TOOLS[:1])).values["tool"] == "b"
    node = ChooseTool(tools=("c",))
    assert (await run(node, ChooseTool.State, {"question": "?"}, [], TOOLS)).values["tool"] == "c"


async def test_only_its_own_tools_are_offered_and_taken() -> None:
    node = ChooseTool(tools=("c", "a"))
    async with executing(["b"], TOOLS) as (executor, model):
        found = await executor.start(of_one(node, ChooseTool.State), {"question": "?"})
    assert error_of(found) == ("AgentError", "choose_tool: 'b' is not an available tool; choose one of: a, c")
    assert model.requests[0].messages[-1].content.endswith("Tools:\na: Does a.\nc: Do.")


@pytest.mark.parametrize("reply", ["A", "a.", "`a`", "a: Does a.", '{"tool": "a"}', "<think>b?</think>a"])
async def test_a_reply_with_one_reading_is_read(reply: str) -> None:
    assert (await run(ChooseTool(), ChooseTool.State, {"question": "?"}, [reply], TOOLS)).values["tool"] == "a"


@pytest.mark.parametrize("reply", ["", "a b", "b or c", "not a", "x" * 1000])
async def test_any_other_reply_is_an_agent_error(reply: str) -> None:
    kind, message = error_of(await run(ChooseTool(), ChooseTool.State, {"question": "?"}, [reply], TOOLS))
    assert kind == "AgentError"
    assert message.endswith("is not an available tool; choose one of: b, a, c")
    assert len(message) < 400


async def test_without_tools_it_says_what_to_give() -> None:
    with pytest.raises(GraphUnknown, match=r"node 'it': there is no tool to use; .* add tools to Executor\(tools="):
        await run(ChooseTool(), ChooseTool.State, {"question": "?"})
