"""Names of tools with spaces: people and prompts see them, a server of chat completions gets a name that it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator import Executor, OpenAIModel, tool
from orchestrator.models import ModelRequest, assistant, tool_result, user
from orchestrator.models.chat.reply import named_back
from orchestrator.models.chat.request import renamed, wire_names
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.strategies.react import react
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.tool_user import tool_user
from orchestrator.testing import ScriptedModel
from tests.support.wire import called, said, served

pytestmark = pytest.mark.anyio


@tool(name="Python Interpreter", risk="none", effect="pure")
def interpret(code: str) -> str:
    """Run code."""
    return f"ran {code}"


@tool(name="Python_Interpreter", risk="none", effect="pure")
def other(code: str) -> str:
    """Not the one above."""
    return "other"


async def test_a_server_gets_a_safe_name_and_the_run_the_tools_own() -> None:
    function = {"name": "Python_Interpreter", "arguments": '{"code": "1"}'}
    with served(called({"id": "c1", "type": "function", "function": function}), said("done")) as wire:
        async with (
            OpenAIModel("m", wire.url, "sk-test") as model,
            Executor(model=model, tools=[interpret]) as executor,
        ):
            run = await executor.start(react(thought="optional"), "Run 1.")
    assert (run.status, run.output) == ("completed", "done")
    first, second = (seen.body for seen in wire.seen)
    assert [one["function"]["name"] for one in first["tools"]] == ["Python_Interpreter"]
    call, result = second["messages"][-2:]
    assert call["tool_calls"][0]["function"]["name"] == "Python_Interpreter"
    assert result["content"] == "ran 1"
    assert [one["name"] for m in run.values["messages"] for one in m["tool_calls"]] == ["Python Interpreter"]


def test_two_tools_are_never_sent_under_one_name() -> None:
    gone = ToolCall(id="c", name="tool name", arguments={})
    request = ModelRequest.of([user("x"), assistant("", [gone]), tool_result(gone, "y")], [interpret, other])
    names = wire_names(request)
    assert names == {"Python Interpreter": "Python_Interpreter_", "tool name": "tool_name"}
    reply = Reply(tool_calls=tuple(ToolCall(id=n, name=n) for n in ("Python_Interpreter", "Python_Interpreter_", "z")))
    assert [call.name for call in named_back(reply, request).tool_calls] == [
        "Python_Interpreter",
        "Python Interpreter",
        "z",
    ]
    choice: dict[str, Any] = {"type": "function", "function": {"name": "Python Interpreter"}}
    body = renamed({"messages": [], "tool_choice": choice}, names)
    assert body["tool_choice"]["function"]["name"] == "Python_Interpreter_"
    assert choice["function"]["name"] == "Python Interpreter"


async def test_the_strategies_in_words_use_the_name_as_it_is() -> None:
    cases: list[tuple[Any, list[str]]] = [
        (tool_user(), ["Python Interpreter", json.dumps({"code": "1"}), "Final Answer: done"]),
        (react(protocol="bracket"), ["Thought: x\nAction: Python Interpreter[1]", "Thought: y\nAction: Finish[done]"]),
        (rewoo(), ["Plan: Run it. #E1 = Python Interpreter[1]", "done"]),
    ]
    for graph, replies in cases:
        with ScriptedModel(replies) as model:
            async with Executor(model=model, tools=[interpret, other]) as executor:
                run = await executor.start(graph, "Run 1.", approve="dangerous")
        assert (run.status, run.output) == ("completed", "done"), graph.name
        assert "ran 1" in str(run.values), graph.name
