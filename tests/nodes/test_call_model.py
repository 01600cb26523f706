"""`CallModel` and `ReadReply`: as `Respond`, with each call of the model, and each correction, as a step of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import Executor, Graph, Limits, Message, Run, ToolCall, tool
from orchestrator.errors import InvalidGraph
from orchestrator.graph import Node
from orchestrator.models import Reply
from orchestrator.nodes import CallModel, CallProtocol, Execute, ReadReply, Respond
from orchestrator.nodes.respond import NO_ACTION
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(risk="none", effect="read")
def search(query: str) -> str:
    """Search."""
    return f"about {query}"


class State(CallModel.State, ReadReply.State):
    """All fields of a conversation whose replies are read in a node of their own."""


ADD = ToolCall(id="c1", name="add", arguments={"a": 1, "b": 2})
WRONG = ToolCall(id="", name="nowhere", arguments=None, raw="{")
ASKING = ("system", "question", "protocol", "finish", "tools_offered", "parallel_tool_calls", "task", "keep")
READING = ("protocol", "thought", "finish", "tools_offered", "retries", "unreadable")


def one_node(options: dict[str, Any]) -> Graph:
    """A loop in which one node asks and reads."""
    return graph_of({"it": Respond(question="question", **options)}, "it", "it", "")


def two_nodes(options: dict[str, Any]) -> Graph:
    """The same loop with a node for each."""
    asks = CallModel(question="question", **{name: options[name] for name in ASKING if name in options})
    reads = ReadReply(**{name: options[name] for name in READING if name in options})
    return graph_of({"it": asks, "read": reads}, "it", "read", "it -> read\n")


def graph_of(nodes: dict[str, Any], asks: str, reads: str, between: str) -> Graph:
    """A loop of asking and acting."""
    names = nodes[reads].outcomes
    targets = {"answer": "END", "calls": "act", "unreadable": asks, "again": asks}
    edges = f"START -> {asks}\n{between}" + "".join(f"{reads} -> {targets[name]} : {name}\n" for name in names)
    if "calls" in names:
        nodes = {**nodes, "act": Execute(calls="pending", results="messages", on_failure="observe")}
        edges += f"act -> {asks}\n"
    return Graph(name="g", state=State, nodes=nodes, edges=edges, output="answer")


async def made(graph: Graph, replies: Sequence[Any]) -> tuple[Run, ScriptedModel]:
    """A run with these replies, and empty ones behind them."""
    model = ScriptedModel([*replies, *[""] * 4])
    async with Executor(model=model, tools=[add, search]) as executor:
        run = await executor.start(graph, {"question": "What is 1 + 2?"})
    return run, model


def seen(model: ScriptedModel) -> list[object]:
    """What the model was asked, without ids that depend on the run."""
    return [([shown(one) for one in asked.messages], asked.task, len(asked.tools)) for asked in model.requests]


def shown(message: Message) -> object:
    """A message without the ids of its calls."""
    return message.role, message.content, [(call.name, call.arguments) for call in message.tool_calls]


TEXTS = (
    "It is 3.", "", " ", "Thought 1: hm", "Thought: I add.\nAction: add[1, 2]", "Action: add[1, 2]", "Finish[3]",
    "Action: Finish[3]", "Action: Finish[]", "Action: add[1", "<think>hm</think>It is 3.", "<think>hm</think>",
    '{"tool": "add", "args": {"a": 1, "b": 2}}', '<|action_start|><|plugin|>\n{"name": "add"}<|action_end|>',
    'It<|tool_calls|>[{"name": "search", "arguments": {"query": "x"}}]', "Answer: 3",
    "Thought: I know.\nFinal Answer: 3",
)  # fmt: skip
REPLIES = st.one_of(
    st.sampled_from(TEXTS),
    st.builds(
        Reply,
        text=st.sampled_from(TEXTS),
        tool_calls=st.lists(st.sampled_from([ADD, WRONG]), max_size=2).map(tuple),
        finish=st.sampled_from(["stop", "stop", "stop", "tool_calls", "length", "refusal"]),
    ),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "protocol": st.sampled_from(get_args(CallProtocol)),
        "thought": st.sampled_from(["optional", "required"]),
        "finish": st.just("Finish"),
        "tools_offered": st.booleans(),
        "retries": st.integers(0, 2),
        "unreadable": st.sampled_from(["retry", "observe"]),
        "parallel_tool_calls": st.booleans(),
        "keep": st.integers(1, 5),
        "task": st.just("think"),
        "system": st.just("Be brief."),
    },
)


@pytest.mark.full
@settings(deadline=None)
@given(OPTIONS, st.lists(REPLIES, min_size=1, max_size=5))
def test_two_nodes_ask_answer_and_fail_as_one_does(options: dict[str, Any], replies: list[Any]) -> None:
    (one, first), (two, second) = (anyio.run(made, graph(options), replies) for graph in (one_node, two_nodes))
    assert seen(second) == seen(first)
    assert (two.status, two.output) == (one.status, one.output)
    if one.error is not None:
        assert two.error is not None
        assert (two.error.type, _bare(two.error.message)) == (one.error.type, _bare(one.error.message))
    else:
        talks = [[(m["role"], m["content"]) for m in run.values["messages"]] for run in (one, two)]
        assert talks[1] == talks[0]
        assert (two.values["reply"], two.values["corrections"]) == (None, [])


def _bare(message: str) -> str:
    """An error without the kind of the node."""
    return message.partition(": ")[2]


async def test_each_call_of_the_model_and_each_correction_is_a_step() -> None:
    replies: list[Any] = [Reply(tool_calls=(ADD,)), "Thought: hm", Reply(tool_calls=(ADD,)), "3"]
    model = ScriptedModel(replies)
    async with Executor(model=model, tools=[add]) as executor:
        run = await executor.start(two_nodes({"thought": "required", "retries": 2}), {"question": "What is 1 + 2?"})
        points = await executor.history(run.run_id)
    steps = [(point.node, point.outcome) for point in points]
    asked = [("it", "done")]
    assert steps == [
        *asked, ("read", "again"), *asked, ("read", "again"), *asked, ("read", "calls"), ("act", "done"),
        *asked, ("read", "answer"),
    ]  # fmt: skip
    assert [len(request.messages) for request in model.requests] == [1, 3, 5, 3]
    assert model.requests[2].messages[-1].content == NO_ACTION
    assert run.output == "3"


async def test_a_step_that_a_spent_limit_led_to_does_not_show_corrections() -> None:
    nodes: dict[str, Node] = {
        "think": CallModel(question="question"),
        "read": ReadReply(),
        "act": Execute(calls="pending", results="messages"),
        "conclude": CallModel(question="question", tools_offered=False),
        "close": ReadReply(tools_offered=False, retries=0),
    }
    edges = """
        START -> think -> read
        read -> think : again
        read -> act : calls
        read -> END : answer
        act -> think
        * -> conclude : exhausted
        conclude -> close -> END : answer
    """
    graph = Graph(name="g", state=State, nodes=nodes, edges=edges, output="answer", limits=Limits(visits={"think": 1}))
    with ScriptedModel({"think": [""], "conclude": ["I do not know."]}) as model:
        async with Executor(model=model, tools=[add]) as executor:
            run = await executor.start(graph, {"question": "What is 1 + 2?"})
    assert (run.status, run.output) == ("exhausted", "I do not know.")
    assert [message.content for message in model.requests[-1].messages] == ["What is 1 + 2?"]
    assert model.requests[-1].tools == ()


async def test_a_refused_reply_fails_where_it_is_read_and_the_question_stays() -> None:
    run, _ = await made(two_nodes({}), [Reply(text="No.", finish="refusal")])
    assert run.error is not None
    assert (run.error.node, run.error.type) == ("read", "AgentError")
    assert [message["content"] for message in run.values["messages"]] == ["What is 1 + 2?"]


def test_a_reply_that_no_node_writes_is_found_when_the_graph_is_checked() -> None:
    with pytest.raises(InvalidGraph, match=r"it reads 'reply', which no other node writes: place a CallModel\(reply="):
        graph_of({"it": ReadReply(retries=0)}, "it", "it", "")


async def test_where_no_reply_is_there_yet_the_model_is_asked() -> None:
    """A migration can lead a run from a node that asked and read to the node that reads."""
    nodes: dict[str, Node] = {"read": ReadReply(), "it": CallModel(question="question")}
    edges = "START -> read\nread -> it : again\nread -> END : answer\nread -> END : calls\nit -> read"
    run, model = await made(Graph(name="g", state=State, nodes=nodes, edges=edges, output="answer"), ["3"])
    assert (run.output, len(model.requests)) == ("3", 1)
