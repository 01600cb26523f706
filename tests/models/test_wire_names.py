"""Names of tools and ids of calls that providers refuse: people and prompts see them, a server gets what it takes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import Executor, OpenAIModel, tool
from orchestrator.models import AnthropicModel, Message, ModelRequest, Profile, assistant, tool_result, user
from orchestrator.models.chat import body_of
from orchestrator.models.chat.reply import named_back
from orchestrator.models.chat.request import renamed, wire_names
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.models.server import ServerModel
from orchestrator.strategies.react import react
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.tool_user import tool_user
from orchestrator.testing import ScriptedModel
from tests.support.wire import Seen, called, chunk, refused, said, served, streamed

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


SAFE = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@given(
    st.lists(st.text(st.sampled_from("ab._ -é/:"), max_size=3) | st.text("n", min_size=60, max_size=70), max_size=12)
)
def test_every_name_is_sent_in_a_form_that_providers_take_and_comes_back(names: list[str]) -> None:
    names = list(dict.fromkeys(names))
    offered, made_up = names[::2], names[1::2]
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in offered]
    calls = [ToolCall(id=str(at), name=name, arguments={}) for at, name in enumerate(made_up)]
    messages = [user("x"), *([assistant("", calls)] if calls else [])]
    request = ModelRequest.of(messages, tools)
    body = body_of(request, "m", {}, Profile())
    told = [tool["function"]["name"] for tool in body.get("tools", ())]
    told += [call["function"]["name"] for message in body["messages"] for call in message.get("tool_calls", ())]
    assert all(SAFE.fullmatch(name) for name in told), told
    assert len(set(told)) == len(names)
    back = named_back(Reply(tool_calls=tuple(ToolCall(id=str(at), name=name) for at, name in enumerate(told))), request)
    assert [call.name for call in back.tool_calls] == [*offered, *made_up]


LITELLM = "call_1__thought__" + "Q" * 300
"""An id as LiteLLM gives it."""


def ids_sent(model: ServerModel, messages: list[Message]) -> tuple[list[str], list[str]]:
    """Return the ids of the calls, and those of the results."""
    body = model.wire.body(ModelRequest(tuple(messages)), model.name, {}, model.profile)
    parts = body["input"] if "input" in body else [part for turn in body["messages"] for part in turn["content"]]
    calls = [part.get("id") or part["call_id"] for part in parts if part.get("type") in ("tool_use", "function_call")]
    results = [
        part.get("tool_use_id") or part.get("call_id") for part in parts if "output" in part or "tool_use_id" in part
    ]
    return calls, results


MODELS = [AnthropicModel("claude", "http://127.0.0.1:9"), OpenAIModel("gpt-5", "http://127.0.0.1:9", api="responses")]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.wire.ref)
@given(
    st.lists(
        st.lists(st.text(st.sampled_from("ab._:|"), max_size=3) | st.just(LITELLM), min_size=1, max_size=3), max_size=6
    )
)
def test_ids_of_calls_are_short_and_distinct_and_results_follow_their_calls(
    model: ServerModel, rounds: list[list[str]]
) -> None:
    """Also those that another server gave twice; later messages do not change them."""
    talk: list[Message] = [user("x")]
    before: list[str] = []
    for ids in rounds:
        calls = [ToolCall(id=one, name="f", arguments={}) for one in dict.fromkeys(ids)]
        talk += [assistant("", calls), *(tool_result(call, "y") for call in calls)]
        sent, results = ids_sent(model, talk)
        assert sent == results
        assert len(set(sent)) == len(sent)
        assert all(0 < len(one) <= 64 for one in sent)
        assert model.wire.ref != "anthropic" or all(SAFE.fullmatch(one) for one in sent)
        assert sent[: len(before)] == before
        before = sent


def test_ids_that_a_server_takes_are_sent_as_they_are() -> None:
    calls = [ToolCall(id=one, name="f", arguments={}) for one in ("toolu_1", "call-2", "a" * 64)]
    talk = [user("x"), assistant("", calls), *(tool_result(call, "y") for call in calls)]
    for model in MODELS:
        assert ids_sent(model, talk) == ([call.id for call in calls],) * 2
    orphan = tool_result(ToolCall(id="a.b", name="f"), "y")
    assert ids_sent(MODELS[0], [user("x"), orphan]) == ([], ["a_b"])


@pytest.mark.parametrize("way", ["whole", "pieces"])
async def test_a_strict_server_never_sees_a_name_that_it_refuses(way: str) -> None:
    @tool(name="calendar.create", risk="none", effect="pure")
    def create() -> str:
        """Create."""
        return "created"

    made = {"id": "c1", "type": "function", "function": {"name": "functions.add", "arguments": "{}"}, "index": 0}
    own = {**made, "id": "c2", "function": {"name": "calendar_create", "arguments": "{}"}}

    def answer(seen: Seen) -> Any:
        body = seen.body
        names = [one["function"]["name"] for one in body["tools"]]
        names += [call["function"]["name"] for m in body["messages"] for call in m.get("tool_calls", ())]
        bad = [name for name in names if not SAFE.fullmatch(name)]
        if bad:
            return refused(400, f"Invalid 'tools[0].function.name': {bad}")
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if len(results) == 2:
            return streamed(chunk({"content": results[-1]}, "stop")) if way == "pieces" else said(results[-1])
        call = own if results else made
        return streamed(chunk({"tool_calls": [call]}, "tool_calls")) if way == "pieces" else called(call)

    with served(answer) as wire:
        async with (
            OpenAIModel("m", wire.url, "sk-test") as model,
            Executor(model=model, tools=[create], streams="always" if way == "pieces" else "watched") as executor,
        ):
            run = await executor.start(react(thought="optional"), "Create.")
    assert (run.status, run.output) == ("completed", "created")
    names = [one["name"] for m in run.values["messages"] for one in m["tool_calls"]]
    assert names == ["functions.add", "calendar.create"]


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
