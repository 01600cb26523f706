"""A chat is one run that waits for the user between turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator import Deny, Executor, Graph, OfflineModel, Run, ToolCall, tool
from orchestrator.errors import ModelError
from orchestrator.kernel.question import Question, Value
from orchestrator.models import Reply
from orchestrator.strategies.chat import chat
from orchestrator.testing import ScriptedModel, assert_crash_safe
from orchestrator.tools import tools_from_ref
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio

ARITHMETIC = tools_from_ref("arithmetic")


@tool(risk="none", effect="pure")
def look(what: str) -> str:
    """Look something up."""
    return f"seen {what}"


@tool(risk="none", effect="pure", ends=True)
def hang_up(word: str) -> str:
    """End the chat."""
    return word


TOOLS = (look, hang_up)


def call(name: str, **args: Any) -> list[ToolCall]:
    return [ToolCall(id=f"{name}:0", name=name, arguments=args)]


async def say(executor: Executor, run: Run, words: str) -> Run:
    (question,) = run.waiting
    assert (run.status, question.kind, question.node) == ("paused", "input", "ask"), run.error
    return await executor.answer(run.run_id, question.id, words)


def talk(run: Run) -> list[str]:
    return [message["content"] for message in run.values["messages"]]


async def test_it_waits_between_turns_also_for_another_process(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, model=OfflineModel(), tools=ARITHMETIC) as executor:
        run = await executor.start(chat(), "What is 2*4?", run_id="c")
        assert run.waiting[0].prompt == "8"
    async with Executor(store, graphs=[chat()], model=OfflineModel(), tools=ARITHMETIC) as executor:
        run = await say(executor, await executor.load("c"), "What is 20+(2*4)?")
        assert run.waiting[0].prompt == "28"
        run = await say(executor, run, " /BYE ")
    assert (run.status, run.output) == ("completed", "28")
    assert [words for words in talk(run) if words.startswith("What")] == ["What is 2*4?", "What is 20+(2*4)?"]


async def test_without_a_first_question_it_asks_for_one() -> None:
    with ScriptedModel(["Hello."]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(chat(), {})
            assert run.waiting[0].prompt == "What can I do for you?"
            run = await say(executor, run, "Hi")
            run = await say(executor, run, "")
    assert (run.status, run.output, talk(run)) == ("completed", "Hello.", ["Hi", "Hello."])


async def test_it_ends_where_the_user_will_not_answer_or_a_tool_ends_it() -> None:
    with ScriptedModel(["Hello.", call("hang_up", word="over")]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(chat(), "Hi")
            run = await executor.answer(run.run_id, run.waiting[0].id, Deny())
            assert (run.status, run.output) == ("completed", "Hello.")
            run = await executor.start(chat(), "Hang up.")
            assert (run.status, run.output) == ("completed", "over")


async def test_a_reply_that_cannot_be_used_costs_that_turn_only() -> None:
    refused = Reply(text="No.", finish="refusal")
    with ScriptedModel(["Hello.", refused, "Fine.", ModelError("broken")]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(chat(), "Hi")
            run = await say(executor, run, "Do something bad.")
            assert "There is no answer to that" in run.waiting[0].prompt
            run = await say(executor, run, "Do something good.")
            assert talk(run) == ["Hi", "Hello.", "Do something good.", "Fine."]
            run = await say(executor, run, "And now?")
    assert (run.status, run.values["answer"]) == ("failed", "Fine.")


async def test_a_turn_that_breaks_off_after_calls_is_closed() -> None:
    with ScriptedModel([call("look", what="a"), Reply(text="No.", finish="refusal"), "Fine."]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(chat(), "Look.")
            run = await say(executor, run, "And now?")
    assert run.waiting[0].prompt == "Fine."
    assert [message.role for message in model.requests[2].messages[1:]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert model.requests[2].messages[-1].content == "And now?"


async def test_a_turn_without_end_is_concluded_and_the_next_one_starts_anew() -> None:
    twice = [call("look", what="a"), call("look", what="b")]
    with ScriptedModel({"think": [*twice, *twice], "conclude": ["Enough.", "Enough again."]}) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(chat(max_steps=2), "Look.")
            assert run.waiting[0].prompt == "Enough."
            run = await say(executor, run, "Look again.")
            assert (run.waiting[0].prompt, run.values["answer"]) == ("Enough again.", "Enough again.")
    assert model.requests[2].tools == ()


async def test_what_the_model_sees_is_cut_between_calls_and_results_never_within() -> None:
    replies = [item for n in range(6) for item in (call("look", what=str(n)), f"answer {n}")]
    with ScriptedModel(replies) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            run = await executor.start(chat(keep=4, system="S"), "turn 0")
            for n in range(1, 6):
                run = await say(executor, run, f"turn {n}")
    assert len(run.values["messages"]) == 24
    for number, request in enumerate(model.requests):
        messages = request.messages
        assert (messages[0].content, messages[1].content) == ("S", "turn 0")
        assert any(message.content == f"turn {number // 2}" for message in messages)
        assert len(messages) <= 10
        made = [one.id for message in messages for one in message.tool_calls]
        results = [message for message in messages if message.role == "tool"]
        assert made == [message.tool_call_id for message in results]
        assert all(message.content.startswith("seen") for message in results)


@quick_on("asyncio")
async def test_it_is_data_holds_what_it_claims_and_survives_crashes(tmp_path: Path) -> None:
    graph = chat()
    graph.save(tmp_path / "chat.yaml")
    assert Graph.load(tmp_path / "chat.yaml") == graph
    assert all(proof.holds for proof in graph.check(prove=True).proofs)
    turns = {"8": "What is 3*3?", "9": "/bye"}

    def answer(question: Question) -> Value | None:
        return Value(value=turns[question.prompt]) if question.kind == "input" else None

    report = await assert_crash_safe(
        graph, "What is 2*4?", answer=answer, model=OfflineModel(), tools=ARITHMETIC, most=2
    )
    assert report.status == "completed"
