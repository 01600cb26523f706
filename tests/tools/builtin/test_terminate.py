"""`terminate`: an agent that says that it has finished has finished."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Executor, Graph
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.react import react
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
        ({"status": "success"}, "The task is done."),
        ({}, "The task is done."),
    ],
)
@pytest.mark.parametrize("graph", [function_call_agent(), react()])
async def test_an_agent_that_calls_it_is_asked_nothing_more(graph: Graph, args: dict[str, Any], answer: str) -> None:
    call = ToolCall(id="1", name="terminate", arguments=args)
    with ScriptedModel([Reply(text="That is all.", tool_calls=(call,))]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(graph, "Do it.")
    assert (run.status, run.output) == ("completed", answer)


async def test_a_call_that_does_not_fit_ends_nothing() -> None:
    wrong = ToolCall(id="1", name="terminate", arguments={"status": "maybe"})
    with ScriptedModel([[wrong], "Done."]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            assert (await executor.start(function_call_agent(), "Do it.")).output == "Done."
    assert (await Toolbox(*TOOLS).execute(name="terminate", tool_input={"status": "maybe"})).failed
