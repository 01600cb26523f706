"""`ask_human`: a question of the run, whoever answers it and whenever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Context, Deny, Executor, Graph, ToolResult, node
from orchestrator.errors import InvalidAnswer
from orchestrator.models.messages import ToolCall
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.testing import ScriptedModel
from orchestrator.tools import Toolbox, tools_from_ref
from orchestrator.tools.builtin.ask_human import AskHuman, ask_human
from tests.support.shell import Shell

pytestmark = pytest.mark.anyio


class Asked(BaseModel):
    args: dict[str, Any] = {}
    result: ToolResult | None = None


@node
async def ask(state: Asked, ctx: Context) -> dict[str, object]:
    """Call the tool."""
    return {"result": await ctx.tool("ask_human", **state.args)}


GRAPH = Graph(name="asks", state=Asked, nodes={"ask": ask}, edges="START -> ask -> END", output="result")


def test_it_is_a_group_of_its_own() -> None:
    [tool] = tools_from_ref("ask_human")
    assert tool is ask_human
    assert (tool.name, tool.group, tool.risk, tool.effect) == ("ask_human", "ask_human", "none", "idempotent")
    assert set(tool.to_param()["function"]["parameters"]["properties"]) == {"question", "choices"}


async def test_the_run_waits_and_goes_on_with_the_answer_in_another_process(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, tools=[ask_human]) as executor:
        run = await executor.start(GRAPH, {"args": {"question": "Which colour?"}}, run_id="r")
    [question] = run.waiting
    assert (run.status, question.kind, question.prompt, question.node) == ("paused", "input", "Which colour?", "ask")
    async with Executor(store, tools=[ask_human], graphs=[GRAPH]) as executor:
        run = await executor.answer("r", question.id, "blue", by="ann")
    assert (run.status, run.output["output"]) == ("completed", "blue")


async def test_choices_are_the_only_answers() -> None:
    async with Executor(tools=[ask_human]) as executor:
        run = await executor.start(GRAPH, {"args": {"question": "Tea or coffee?", "choices": ["tea", "coffee"]}})
        [question] = run.waiting
        assert question.choices == ("tea", "coffee")
        with pytest.raises(InvalidAnswer, match="tea, coffee"):
            await executor.answer(run.run_id, question.id, "milk")
        run = await executor.answer(run.run_id, question.id, "tea")
    assert run.output["output"] == "tea"


@pytest.mark.parametrize(
    ("answer", "text"), [(42, "42"), (True, "true"), (["a", 1], '["a",1]'), ({"a": None}, '{"a":null}')]
)
async def test_an_answer_that_is_no_text_is_told_as_json(answer: Any, text: str) -> None:
    async with Executor(tools=[ask_human]) as executor:
        run = await executor.start(GRAPH, {"args": {"question": "How many?"}})
        run = await executor.answer(run.run_id, run.waiting[0].id, answer)
    assert run.output["output"] == text


async def test_who_would_not_answer_and_a_deadline_are_failed_calls() -> None:
    async with Executor(tools=[ask_human]) as executor:
        run = await executor.start(GRAPH, {"args": {"question": "Your password?"}})
        run = await executor.answer(run.run_id, run.waiting[0].id, Deny(reason="that is mine"))
    assert (run.status, run.output["error"]) == ("completed", "the user did not answer: that is mine")
    async with Executor(tools=[AskHuman(deadline=0.05)]) as executor:
        run = await executor.start(GRAPH, {"args": {"question": "Anybody?"}})
        while run.status in ("paused", "running"):
            await anyio.sleep(0.02)
            run = await executor.load(run.run_id)
    assert run.output["error"] == "the user did not answer: deadline passed"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"question": "  "}, "the question is empty"),
        ({"question": "x" * 20_000}, "the limit is 10000"),
        ({"question": "a?", "choices": ["a", "a"]}, "differ"),
        ({"question": "a?", "choices": [""]}, "none may be empty"),
    ],
)
async def test_what_is_no_question_is_not_asked(args: dict[str, Any], says: str) -> None:
    async with Executor(tools=[ask_human]) as executor:
        run = await executor.start(GRAPH, {"args": args})
    assert run.status == "completed"
    assert says in run.output["error"]


async def test_outside_of_a_run_it_says_who_can_ask() -> None:
    result = await Toolbox(ask_human).execute(name="ask_human", tool_input={"question": "Hello?"})
    assert result.failed
    assert "only a run" in result.text


async def test_an_agent_asks_several_things_at_once_and_is_told_each_answer() -> None:
    calls = [ToolCall(id=str(n), name="ask_human", arguments={"question": q}) for n, q in enumerate(("Who?", "Where?"))]
    with ScriptedModel([calls, "Thanks."]) as model:
        async with Executor(model=model, tools=[ask_human]) as executor:
            run = await executor.start(function_call_agent(), "Ask me.")
            while run.waiting:
                [question, *_] = run.waiting
                run = await executor.answer(run.run_id, question.id, f"({question.prompt})")
    assert run.output == "Thanks."
    assert [message.content for message in model.requests[1].messages[-2:]] == ["(Who?)", "(Where?)"]


ASKS = '''
from pydantic import BaseModel
from orchestrator import Context, Graph, node

class State(BaseModel):
    question: str = ""
    answer: str = ""

@node
async def ask(state: State, ctx: Context) -> dict[str, str]:
    """Ask."""
    return {"answer": (await ctx.tool("ask_human", question=state.question)).text}

edges = "START -> ask -> END"
graph = Graph(name="asks", state=State, nodes={"ask": ask}, edges=edges, input="question", output="answer")
'''


def test_the_command_line_asks_on_a_terminal_and_pauses_elsewhere(tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    (shell.place / "asks.py").write_text(ASKS)
    words = ("run", "asks.py:graph", "Which one?\x1b[31m", "--tools", "ask_human", "--model", "offline")
    paused = shell(*words, "--run-id", "later")
    assert paused.code == 3
    assert "Which one?" in paused.err
    with shell.terminal(*words) as terminal:
        assert "Which one?\\u001b[31m" in terminal.wait_for("> ")
        terminal.type("that one\r")
        assert terminal.end() == 0
    assert terminal.shown.rstrip().endswith("that one")
