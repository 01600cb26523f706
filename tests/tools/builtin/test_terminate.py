"""`terminate`: an agent that says that it has finished has finished."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Executor, Graph
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.strategies.chat import chat
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.react import react
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.tool_user import tool_user
from orchestrator.testing import ScriptedModel
from orchestrator.tools import Toolbox, tools_from_ref

pytestmark = pytest.mark.anyio
TOOLS = tools_from_ref("terminate")


def test_it_is_a_group_of_its_own_and_ends_the_work() -> None:
    [tool] = TOOLS
    assert (tool.name, tool.group, tool.risk, tool.effect, tool.ends) == (
        "terminate",
        "terminate",
        "none",
        "pure",
        True,
    )
    assert tool.to_param()["function"]["parameters"]["properties"]["status"]["enum"] == ["success", "failure"]


@pytest.mark.parametrize(
    ("args", "answer"),
    [
        ({"message": "It is 4."}, "It is 4."),
        ({"status": "failure", "message": "No such city."}, "No such city."),
        ({"status": "success"}, "It is five."),
        ({"status": "failure"}, "It is five."),
        ({}, "It is five."),
    ],
)
@pytest.mark.parametrize("graph", [function_call_agent(), react(), chat()])
async def test_an_agent_that_calls_it_is_asked_nothing_more(graph: Graph, args: dict[str, Any], answer: str) -> None:
    call = ToolCall(id="1", name="terminate", arguments=args)
    with ScriptedModel([Reply(text="Thought: It is five.", tool_calls=(call,))]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(graph, "Do it.")
    assert (run.status, run.output) == ("completed", answer)


ADD = ToolCall(id="0", name="add", arguments={"a": 2, "b": 3})
END = ToolCall(id="1", name="terminate", arguments={"status": "success"})


@pytest.mark.parametrize("graph", [function_call_agent(), react(thought="optional"), chat()])
async def test_without_a_message_and_a_text_the_last_result_is_the_answer(graph: Graph) -> None:
    with ScriptedModel([[ADD], [END]]) as model:
        async with Executor(model=model, tools=[*TOOLS, *tools_from_ref("arithmetic")]) as executor:
            assert (await executor.start(graph, "Do it.")).output == "5"
    with ScriptedModel([[END]]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(graph, "Do it.")
    assert (run.status, run.output) == ("completed", "")


async def test_the_same_in_strategies_of_single_steps() -> None:
    tools = [*TOOLS, *tools_from_ref("arithmetic")]
    script: dict[str, Any] = {
        "choose_tool": ["add", "terminate"],
        "choose_args": ['{"a": 2, "b": 3}', '{"status": "success"}'],
        "think": ["Question: Is that all?"],
    }
    with ScriptedModel(script) as model:
        async with Executor(model=model, tools=tools) as executor:
            assert (await executor.start(tool_user(), "Do it.", approve="dangerous")).output == "5"
    plan = "Plan: add\n#E1 = add[2, 3]\nPlan: end\n#E2 = terminate[success]"
    with ScriptedModel({"plan": [plan]}) as model:
        async with Executor(model=model, tools=tools) as executor:
            assert (await executor.start(rewoo(), "Do it.")).output == "5"


async def test_a_call_that_does_not_fit_ends_nothing() -> None:
    wrong = ToolCall(id="1", name="terminate", arguments={"status": "maybe"})
    with ScriptedModel([[wrong], "Done."]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            assert (await executor.start(function_call_agent(), "Do it.")).output == "Done."
    assert (await Toolbox(*TOOLS).execute(name="terminate", tool_input={"status": "maybe"})).failed
