"""A request that is longer than the model accepts: an outcome of the node that asks, if an edge names it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Executor, Graph, Message, OpenAIModel, node, replace
from orchestrator.context import Context
from orchestrator.graph import Node
from orchestrator.nodes import CallModel, ContextUsage, ReadReply, Respond
from tests.support.wire import Raw, Seen, refused, said, served

pytestmark = pytest.mark.anyio


class State(CallModel.State, ReadReply.State):
    """A conversation, and what the node after the refusal saw."""

    context_usage: ContextUsage | None = None
    why: str = ""


@node(effect="pure")
def shorten(state: State, ctx: Context[object]) -> dict[str, object]:
    """Keep the last message only."""
    return {"why": "" if ctx.error is None else ctx.error.type, "messages": replace(state.messages[-1:])}


def short_only(seen: Seen) -> Raw | dict[str, Any]:
    """A server whose window holds one short message."""
    if len(seen.body["messages"]) > 1:
        return refused(400, "This model's maximum context length is 10 tokens.", "context_length_exceeded")
    return said("It is 3.")


ONE: tuple[dict[str, Node], str] = (
    {"ask": Respond(question="question")},
    "START -> ask\nask -> END : answer\nask -> END : calls\n",
)
TWO: tuple[dict[str, Node], str] = (
    {"ask": CallModel(question="question"), "read": ReadReply(retries=0)},
    "START -> ask -> read\nread -> END : answer\nread -> END : calls\n",
)
EARLIER = [Message(role="user", content="Hello"), Message(role="assistant", content="Hi")]


def graph_of(parts: tuple[dict[str, Node], str], *, led: bool) -> Graph:
    nodes, edges = parts
    if led:
        nodes, edges = {**nodes, "shorten": shorten}, f"{edges}ask -> shorten : too_long\nshorten -> ask\n"
    given = ("question", "messages")
    return Graph(name="g", state=State, nodes=nodes, edges=edges, input=given, output="answer")


@pytest.mark.parametrize("parts", [ONE, TWO], ids=["respond", "call_model"])
async def test_it_is_an_outcome_of_the_node_that_asked(parts: Any) -> None:
    graph, given = graph_of(parts, led=True), {"question": "What is 1 + 2?", "messages": EARLIER}
    with served(short_only) as wire:
        async with OpenAIModel("m", wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph, given)
            assert (run.status, run.output, run.state.why) == ("completed", "It is 3.", "RequestTooLong")
            assert [len(seen.body["messages"]) for seen in wire.seen] == [3, 1]
            assert [message.content for message in run.state.messages] == ["What is 1 + 2?", "It is 3."]
            again = await executor.replay(run.run_id)
            assert (again.run.status, again.run.output, len(wire.seen)) == ("completed", "It is 3.", 2)


@pytest.mark.parametrize("parts", [ONE, TWO], ids=["respond", "call_model"])
async def test_without_an_edge_the_run_fails_and_says_what_to_do(parts: Any) -> None:
    with served(short_only) as wire:
        async with OpenAIModel("m", wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph_of(parts, led=False), {"question": "What?", "messages": EARLIER})
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "RequestTooLong"
    assert "longer than the model accepts: shorten the conversation" in run.error.message
    assert len(wire.seen) == 1, "the same request is not made again"


def cut_off(word: str, asked: int) -> dict[str, Any]:
    """A reply that ended because the window of 100 tokens was full, after a request of so many."""
    usage = {"prompt_tokens": asked, "completion_tokens": 100 - asked, "total_tokens": 100}
    found = said("It", usage=usage)
    found["choices"][0]["finish_reason"] = word
    return found


@pytest.mark.parametrize("parts", [ONE, TWO], ids=["respond", "call_model"])
@pytest.mark.parametrize("word", ["model_context_window_exceeded", "model_length"])
async def test_a_request_that_leaves_no_room_for_the_reply_is_too_long(parts: Any, word: str) -> None:
    def fills(seen: Seen) -> dict[str, Any]:
        if len(seen.body["messages"]) > 1:
            return cut_off(word, 90)
        return said("It is 3.")

    nodes = {name: one.with_(usage="context_usage") for name, one in parts[0].items()}
    graph = graph_of((nodes, parts[1]), led=True)
    with served(fills) as wire:
        async with OpenAIModel("m", wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph, {"question": "What is 1 + 2?", "messages": EARLIER})
            assert (run.status, run.output, run.state.why) == ("completed", "It is 3.", "RequestTooLong")
            again = await executor.replay(run.run_id)
            assert (again.run.status, again.run.output, len(wire.seen)) == ("completed", "It is 3.", 2)


async def test_a_reply_that_fills_the_window_itself_is_cut_off() -> None:
    def fills(seen: Seen) -> dict[str, Any]:
        return said("It is 3.") if len(seen.body["messages"]) > 1 else cut_off("model_length", 10)

    graph = graph_of(({"ask": ONE[0]["ask"].with_(usage="context_usage")}, ONE[1]), led=True)
    with served(fills) as wire:
        async with OpenAIModel("m", wire.url) as model, Executor(model=model) as executor:
            run = await executor.start(graph, {"question": "What is 1 + 2?"})
    assert (run.status, run.output, run.state.why) == ("completed", "It is 3.", "")
