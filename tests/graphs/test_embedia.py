"""A run told as events: names, order, data and publishers (S28 to S34)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Deny, Executor, Graph, OpenAIModel, Tool, append, tool
from orchestrator.models import ModelRequest
from orchestrator.nodes import ITEM, Confirm, Subgraph
from orchestrator.strategies.tool_user import graph, tool_user
from orchestrator.testing import ScriptedModel
from orchestrator.views.embedia import EMBEDIA_TYPES, EmbediaEvent, embedia
from tests.graphs.loopback import loopback

pytestmark = pytest.mark.anyio

QUESTION = "Count the number of lines of code (without empty lines) in main.py"
CODE = "print(sum(1 for line in open('main.py') if line.strip()))"
ARGS = {"code": CODE, "vars": {}, "timeout": 60}


class PythonInterpreterTool(Tool):
    """Runs the provided python code in the current interpreter"""

    name = "Python Interpreter"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def call(self, code: str, vars: dict[str, Any], timeout: int = 60) -> str:  # noqa: A002  the seed's own name
        """Runs the provided python code in the current interpreter

        Args:
            code: Python code to be run
            vars: A python dictionary containing variables to be passed to the code
            timeout: Timeout in seconds
        """
        command = [sys.executable, "-I", "-c", code]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=timeout, check=True)
        return done.stdout.strip()


class TerminalTool(Tool):
    """Run the provided commands in the shell"""

    name = "Terminal"

    def call(self, command: str) -> str:
        """Run the provided commands in the shell

        Args:
            command: The command
        """
        raise AssertionError("nobody chose it")


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def sink(text: str) -> str:
    """Swallow a text."""
    raise ValueError(text)


ADD = ["add", '{"a": 1, "b": 2}']


async def told(executor: Executor, run_id: str) -> list[EmbediaEvent]:
    found = [event async for event in executor.events(run_id, style="embedia")]
    assert all(isinstance(event, EmbediaEvent) for event in found)
    return found  # type: ignore[return-value]


def names(events: Sequence[EmbediaEvent]) -> list[str]:
    return [event.event for event in events]


async def test_s33_the_order_of_a_run_of_one_step_over_a_real_server(store: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("\n\n".join(f"x = {line}" for line in range(34)))
    with loopback(["Python Interpreter", json.dumps(ARGS), "Final Answer: 34"]) as server:
        model = OpenAIModel("gpt-test", base_url=server.url, api_key="test-key")
        async with Executor(store, model=model, tools=[PythonInterpreterTool(tmp_path), TerminalTool()]) as executor:
            paused = await executor.start(graph, QUESTION)
            assert (paused.status, len(server.requests)) == ("paused", 2)
            assert paused.waiting[0].payload["args"] == ARGS
            run = await executor.answer(paused.run_id, paused.waiting[0].id, Approve(), by="ann")
            events = await told(executor, run.run_id)
            again = await told(executor, run.run_id)
            late = [e async for e in executor.events(run.run_id, style="embedia", after=paused.seq)]
        await model.aclose()

    assert (run.status, run.output) == ("completed", "34")
    assert len(server.requests) == 3
    decision = ["ChatLLMInit", "ChatLLMStart", "ChatLLMEnd"]
    assert names(events) == [
        "ToolStart", "AgentStart",
        *decision, *decision,
        "ToolStart", "ToolEnd", "AgentStep",
        *decision,
        "AgentEnd", "ToolEnd",
    ]  # fmt: skip
    assert set(names(events)) <= set(EMBEDIA_TYPES)
    assert [event.to_json() for event in again] == [event.to_json() for event in events]
    assert [event.to_json() for event in late] == [event.to_json() for event in events[-8:]]

    data = [event.data for event in events]
    # S28, S29: the agent is a tool that begins like any other
    assert data[0] == {"name": "tool_user", "args": [QUESTION], "kwargs": {}}
    assert data[1] == {"question": QUESTION}
    # S30: what was said to the model and by it
    assert [each["role"] for each in data[2:5]] == ["system", "user", "assistant"]
    assert data[3]["content"] == server.requests[0]["messages"][1]["content"]
    assert data[4]["content"] == "Python Interpreter"
    assert json.loads(str(data[7]["content"])) == ARGS
    # S21
    assert data[8] == {"name": "Python Interpreter", "args": [], "kwargs": ARGS}
    assert data[9] == {"name": "Python Interpreter", "exit_code": 0, "output": "34"}
    # S31
    assert data[10] == {
        "question": QUESTION, "tool_choice": "Python Interpreter", "tool_args": ARGS, "tool_exit_code": 0,
        "tool_output": "34",
    }  # fmt: skip
    # S32
    assert data[14] == {"answer": "34"}
    assert data[15] == {"name": "tool_user", "exit_code": 0, "output": "34"}
    # S34: every model has its own id; tokens are the provider's count
    assert data[4]["tokens"] == 2
    agent = events[0].id
    assert {event.id for event in events if event.event.startswith("Agent")} == {agent}
    assert events[-1].id == agent
    models = [events[i].id for i in (2, 5, 11)]
    assert len({agent, events[8].id, *models}) == 5
    assert [event.id for event in events[2:8]] == [models[0]] * 3 + [models[1]] * 3
    for event in events:
        assert datetime.fromisoformat(event.timestamp).utcoffset() is not None
        assert list(event.to_json()) == ["timestamp", "id", "event", "seq", "data"]


async def test_an_executor_counts_the_tokens_of_every_text(store: str) -> None:
    with ScriptedModel([*ADD, "Final Answer: 3"]) as model:
        async with Executor(store, model=model, tools=[add, sink]) as executor:
            run = await executor.start(graph, "1 + 2?", approve="none")
            events = executor.events(run.run_id, style="embedia", tokenizer=len)
            said = [event async for event in events if isinstance(event, EmbediaEvent) and "ChatLLM" in event.event]
            with pytest.raises(ValueError, match="tokenizer= is for style='embedia'"):
                executor.events(run.run_id, tokenizer=len)
            words = executor.events(run.run_id, style="embedia", tokenizer=str.split)  # the tokens themselves
            counts = [event.data["tokens"] async for event in words if "ChatLLM" in event.type]
    assert counts == [len(str(event.data["content"]).split()) for event in said]
    assert len(said) == 9
    assert [event.data["tokens"] for event in said] == [len(str(event.data["content"])) for event in said]


@pytest.mark.parametrize("wrong", ["three", 2.5, None])
async def test_a_tokenizer_that_returns_something_else_is_an_error(store: str, wrong: Any) -> None:
    with ScriptedModel(["Final Answer: 3"]) as model:
        async with Executor(store, model=model, tools=[sink]) as executor:
            run = await executor.start(tool_user(on_error="raise"), "1 + 2?", approve="none")
            with pytest.raises(TypeError, match=f"tokenizer= returned {wrong!r}: return the tokens of the text"):
                [event async for event in executor.events(run.run_id, style="embedia", tokenizer=lambda _: wrong)]


async def test_s34_a_tokenizer_counts_every_text(store: str) -> None:
    with ScriptedModel([*ADD, "Final Answer: 3"]) as model:
        async with Executor(store, model=model, tools=[add, sink]) as executor:
            run = await executor.start(graph, "1 + 2?", approve="none")
            records = await executor.store.read(run.run_id)
    said = [
        event for event in embedia(records, graph, tokenizer=lambda text: len(text.split())) if "ChatLLM" in event.event
    ]
    assert [event.data["tokens"] for event in said] == [len(str(event.data["content"]).split()) for event in said]
    assert [event.data["tokens"] for event in embedia(records) if event.event == "ChatLLMStart"] == [None] * 3


async def test_a_time_out_is_told_with_the_steps_made_and_no_answer(store: str) -> None:
    with ScriptedModel([*ADD, "Question: again", *ADD]) as model:
        async with Executor(store, model=model, tools=[add, sink]) as executor:
            run = await executor.start(tool_user(max_steps=2), "1 + 2?", approve="none")
            events = await told(executor, run.run_id)
    assert names(events)[-3:] == ["AgentStep", "AgentTimeout", "ToolEnd"]
    timeout = events[-2].data
    assert timeout["num_steps"] == 2
    assert [step["tool_output"] for step in timeout["step_history"]] == [3, 3]  # type: ignore[attr-defined]
    assert str(timeout["duration"]).endswith("s")
    assert float(str(timeout["duration"])[:-1]) >= 0
    assert events[-1].data == {"name": "tool_user", "exit_code": 1, "output": "3"}


async def test_a_denial_is_told_and_the_agent_ends(store: str) -> None:
    with ScriptedModel(["sink", '{"text": "x"}']) as model:
        async with Executor(store, model=model, tools=[add, sink]) as executor:
            run = await executor.start(graph, "Sink it")
            run = await executor.answer(run.run_id, run.waiting[0].id, Deny(reason="no"))
            events = await told(executor, run.run_id)
    assert names(events)[-3:] == ["ToolDenied", "AgentEnd", "ToolEnd"]
    assert events[-3].data == {"tool": "sink", "args": {"text": "x"}, "reason": "no"}
    assert events[-3].id == events[0].id
    assert events[-2].data["answer"] is None
    assert "was denied: no" in str(events[-2].data["error"])
    assert events[-1].data["exit_code"] == 1


async def test_a_tool_that_breaks_is_told_with_exit_code_1(store: str) -> None:
    with ScriptedModel(["sink", '{"text": "glug"}', "Final Answer: gone"]) as model:
        async with Executor(store, model=model, tools=[add, sink]) as executor:
            run = await executor.start(graph, "Sink it", approve="dangerous")
            events = await told(executor, run.run_id)
    (end,) = [event for event in events if event.event == "ToolEnd" and event.data["name"] == "sink"]
    assert end.data == {"name": "sink", "exit_code": 1, "output": "Unexpected error executing tool sink: glug"}


async def test_a_model_that_fails_ends_the_agent(store: str) -> None:
    with ScriptedModel(["nothing of the kind"]) as model:
        async with Executor(store, model=model, tools=[add, sink]) as executor:
            run = await executor.start(tool_user(on_error="raise"), "1 + 2?")
            events = await told(executor, run.run_id)
    assert names(events) == [
        "ToolStart",
        "AgentStart",
        "ChatLLMInit",
        "ChatLLMStart",
        "ChatLLMEnd",
        "AgentEnd",
        "ToolEnd",
    ]


class Many(BaseModel):
    questions: list[str]
    answers: Annotated[list[str], append] = []


def unasked(max_steps: int = 10) -> Graph:
    """The agent with nobody to confirm."""
    return tool_user(max_steps=max_steps).replace(
        confirm=Confirm(tool="tool", args="args", above="dangerous", on_denied="raise")
    )


def many(agent: Graph) -> Graph:
    return Graph(
        name="many",
        state=Many,
        input="questions",
        nodes={"agent": Subgraph(graph=agent, inputs={"question": ITEM}, outputs={"answers": "answer"})},
        edges="""
            START -> agent : each questions
            agent -> END
        """,
        output="answers",
    )


def adding(request: ModelRequest) -> str:
    """Adds 1 to the question, which is a number."""
    facts = request.messages[-1].data or {}
    match request.task:
        case "choose_tool":
            return "add"
        case "choose_args":
            return json.dumps({"a": int(str(facts["question"])), "b": 1})
        case _:
            (step,) = facts["steps"]  # type: ignore[misc, union-attr]
            return f"Final Answer: {step['output']}"  # type: ignore[index, call-overload]


async def test_agents_inside_are_told_with_their_own_ids(store: str) -> None:
    async with Executor(store, model=ScriptedModel(adding), tools=[add, sink]) as executor:
        run = await executor.start(many(unasked()), {"questions": ["1", "5", "7"]})
        events = await told(executor, run.run_id)
    assert run.output == ["2", "6", "8"]
    outer = events[0].id
    inner = {event.id: event.data["question"] for event in events if event.event == "AgentStart" and event.id != outer}
    assert sorted(inner.values()) == ["1", "5", "7"]  # type: ignore[type-var]
    for agent, question in inner.items():
        own = [event for event in events if event.id == agent]
        assert names(own) == ["ToolStart", "AgentStart", "AgentStep", "AgentEnd", "ToolEnd"]
        assert own[2].data["question"] == question
        assert own[3].data == {"answer": str(int(str(question)) + 1)}
        assert own[4].data["exit_code"] == 0
    assert names([event for event in events if event.id == outer]) == ["ToolStart", "AgentStart", "AgentEnd", "ToolEnd"]
    assert names(events).count("ChatLLMEnd") == 9


async def test_every_agent_that_began_is_told_to_end_also_when_the_run_stops_around_it(store: str) -> None:
    def stuck(request: ModelRequest) -> str:
        return "Question: 5" if request.task == "think" else adding(request)

    async with Executor(store, model=ScriptedModel(stuck), tools=[add, sink]) as executor:
        run = await executor.start(many(unasked()).with_limits(calls=12), {"questions": ["1", "5"]})
        events = await told(executor, run.run_id)
    assert run.status == "exhausted"
    begun = [event.id for event in events if event.event == "ToolStart"]
    ended = [event.id for event in events if event.event == "ToolEnd"]
    assert sorted(begun) == sorted(ended)
    assert names(events).count("AgentTimeout") == 3
    assert ended[-1] == begun[0]


async def test_agents_that_spend_their_own_limits_leave_the_run_around_them_alone(store: str) -> None:
    def stuck(request: ModelRequest) -> str:
        return "Question: 5" if request.task == "think" else adding(request)

    async with Executor(store, model=ScriptedModel(stuck), tools=[add, sink]) as executor:
        run = await executor.start(many(unasked(max_steps=1)), {"questions": ["1", "5"]})
        events = await told(executor, run.run_id)
    assert (run.status, run.output) == ("completed", ["2", "6"])
    assert names(events).count("AgentTimeout") == 2
    assert names(events).count("ToolStart") == names(events).count("ToolEnd")
