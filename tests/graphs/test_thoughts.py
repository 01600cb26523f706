"""Thoughts of reasoning models are parted from their replies when these are received: no strategy answers with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from importlib import import_module
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, OpenAIModel
from orchestrator.models import Reply, ToolCall
from orchestrator.models.base import ModelEvent, ModelRequest
from orchestrator.nodes import Classify, Complete
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref
from tests.support.wire import chunk, said, served, streamed

pytestmark = pytest.mark.anyio

TOOLS = tools_from_ref("arithmetic")
BLOCKS = (
    "<think>\nI wonder, perhaps 9? The answer is 9.\n</think>\n\n",
    "<thinking>9?</thinking>",
    "Perhaps 9?\n</think>\n",
)


class Streaming(ScriptedModel):
    """A scripted model that sends each reply in pieces of three characters."""

    streams = True

    async def _stream_request(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        reply = await self.respond(request)
        for start in range(0, len(reply.text), 3):
            yield ModelEvent(text=reply.text[start : start + 3])
        yield ModelEvent(reply=request.parse(reply))


class Sum(BaseModel):
    total: int


class State(BaseModel):
    question: str
    answer: str = ""
    sum: Sum | None = None


def strategy(name: str, **options: Any) -> Graph:
    found = getattr(import_module(f"orchestrator.strategies.{name}"), name)(**options)
    assert isinstance(found, Graph)
    return found


def alone(node: Any, output: str, *outcomes: str) -> Graph:
    edges = "START -> it\n" + "\n".join(f"it -> END : {outcome}" for outcome in outcomes)
    return Graph(name="g", state=State, input="question", output=output, nodes={"it": node}, edges=edges)


CALL = Reply(text="", tool_calls=(ToolCall(id="1", name="add", arguments={"a": 2, "b": 4}),), finish="tool_calls")
CASES: dict[str, tuple[Graph, list[str | Reply], object]] = {
    "tool_user": (strategy("tool_user", confirm=None), ["add", '{"a": 2, "b": 4}', "Final Answer: 6"], "6"),
    "function_call": (strategy("function_call"), ["6"], "6"),
    "function_call_agent": (strategy("function_call_agent"), [CALL, "6"], "6"),
    "react": (strategy("react"), [CALL, "6"], "6"),
    "react, a thought required": (strategy("react", thought="required"), [CALL, "6"], "6"),
    "react in words": (
        strategy("react", protocol="bracket"),
        ["Thought: t\nAction: add[2, 4]", "Thought: t\nAction: Finish[6]"],
        "6",
    ),
    "plan_and_solve": (strategy("plan_and_solve"), ["Plan:\n1. add 2 and 4\n<END_OF_PLAN>", CALL, "6"], "6"),
    "rewoo": (strategy("rewoo"), ["Plan: add\n#E1 = add[2, 4]", "6"], "6"),
    "complete": (alone(Complete(result="answer"), "answer", "done"), ["6"], "6"),
    "complete with output": (alone(Complete(output=Sum, result="sum"), "sum", "done"), ['{"total": 6}'], {"total": 6}),
    "classify": (
        alone(Classify(choices={"big": "more", "small": "less"}, result="answer"), "answer", "big", "small"),
        ["small"],
        "small",
    ),
}


def thinking(reply: str | Reply, block: str) -> Reply:
    given = Reply(text=reply) if isinstance(reply, str) else reply
    return given.model_copy(update={"text": block + given.text})


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("streams", ["watched", "always"])
@pytest.mark.parametrize("name", CASES)
async def test_no_answer_contains_thoughts(name: str, streams: Any, block: str) -> None:
    graph, replies, answer = CASES[name]
    script = [thinking(reply, block) for reply in replies]
    if name == "react, a thought required" and "</think>" in block:
        script[0] = thinking(replies[0], "<think>I add.</think>")
    with Streaming(script) as model:
        async with Executor(model=model, tools=TOOLS, streams=streams) as executor:
            run = await executor.start(graph, "2+4?")
    assert (run.status, run.output) == ("completed", answer), run.error
    for request in model.requests:
        assert not any("think" in message.content and message.role == "assistant" for message in request.messages)


async def test_pieces_of_thoughts_are_reasoning_and_the_reply_keeps_them() -> None:
    """Whole and in pieces, from a server that leaves thoughts in the text, also beside reasoning of its own."""
    parts = ["<th", "ink>s", "um</thi", "nk>\n\n", "si", "x"]
    whole, pieces = said("".join(parts)), streamed(*(chunk({"content": part}) for part in parts), chunk(finish="stop"))
    with served(whole, pieces) as wire:
        async with OpenAIModel("m", wire.url, "k") as model:
            reply = await model.complete("2+4?")
            events = [event async for event in model.stream("2+4?")]
    assert (reply.text, reply.extras) == ("six", {"reasoning_content": "sum"})
    assert "".join(event.text for event in events) == "six"
    assert "".join(event.reasoning for event in events) == "sum"
    last = events[-1].reply
    assert last is not None
    assert (last.text, last.extras) == ("six", {"reasoning_content": "sum"})
