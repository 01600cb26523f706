"""`Solve`: a model answers from a plan and its evidence."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.models import Reply
from orchestrator.nodes import Solve
from orchestrator.nodes.solve import CUT, SYSTEM
from tests.support.one_node import error_of, executing, of_one, run

pytestmark = pytest.mark.anyio

GIVEN: dict[str, Any] = {
    "question": "Who made it?",
    "steps": [
        {"id": "E1", "thought": "Look.", "tool": "search", "input": "it"},
        {"id": "E2", "needs": ["E1"], "tool": "add", "input": "#E1, 1"},
        {"id": "E3", "thought": "Ask.", "tool": "ask", "input": "who"},
        {"id": "E4", "thought": "Wait.", "tool": "ask", "input": "why"},
    ],
    "evidence": {
        "E3": {"question": "Ask.", "tool_choice": "ask", "tool_exit_code": 1, "tool_output": "nobody is there"},
        "E1": {"question": "Look.", "tool_choice": "search", "tool_args": {"query": "it"}, "tool_output": ["a", 1]},
        "E2": {"question": "", "tool_choice": "add", "tool_output": "two"},
    },
}


async def test_s69_the_model_is_told_plans_evidence_and_task_and_answers_directly() -> None:
    async with executing(["\nHennessy \n"]) as (executor, model):
        found = await executor.start(of_one(Solve(), Solve.State, output="answer"), GIVEN)
    assert found.output == "Hennessy"
    (request,) = model.requests
    assert (request.task, request.messages[0].content) == ("solve", SYSTEM)
    assert request.messages[1].content == (
        'Plan: Look.\nEvidence:\n["a", 1]\n'
        "Plan: add[#E1, 1]\nEvidence:\ntwo\n"
        "Plan: Ask.\nEvidence:\nError: nobody is there\n"
        "Plan: Wait.\nEvidence:\nThere is no result: the work was stopped\n\n"
        "Task: Who made it?"
    )
    facts = request.messages[1].data or {}
    assert facts["question"] == "Who made it?"
    assert facts["steps"][0] == {  # type: ignore[index]
        "id": "E1", "plan": "Look.", "tool": "search", "input": "it", "args": {"query": "it"},
        "output": ["a", 1], "error": None,
    }  # fmt: skip
    assert [one["error"] for one in facts["steps"]] == [  # type: ignore[union-attr, index, call-overload]
        None, None, "nobody is there", "There is no result: the work was stopped",
    ]  # fmt: skip


async def test_words_and_fields_can_be_others() -> None:
    node = Solve(system="S", prompt="{question}\n{steps}")
    async with executing(["so"]) as (executor, model):
        await executor.start(of_one(node, Solve.State), {"question": "Why?"})
    assert [message.content for message in model.requests[0].messages] == ["S", "Why?\n"]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (" \n", "solve: the reply is empty"),
        (Reply(text="", finish="length"), "solve: the reply '' was cut"),
        (Reply(text="no", finish="refusal"), "solve: the model refused to answer"),
    ],
)
async def test_what_is_no_answer_is_an_agent_error(reply: Any, why: str) -> None:
    again = not (isinstance(reply, Reply) and reply.refused)
    kind, message = error_of(await run(Solve(), Solve.State, GIVEN, [reply, reply] if again else [reply]))
    assert (kind, why in message) == ("AgentError", True)


@pytest.mark.parametrize(
    ("second", "answer"),
    [("Henning", "Henning"), (Reply(text="Henning was born in Ki", finish="length"), "Henning was born in")],
)
async def test_an_answer_that_is_cut_off_is_requested_again_and_then_kept(second: Any, answer: str) -> None:
    long = Reply(text="Henning was born in Kiel, and his father", finish="length")
    async with executing([long, second]) as (executor, model):
        done = await executor.start(of_one(Solve(), Solve.State), GIVEN)
    assert (done.status, done.values["answer"]) == ("completed", answer)
    first, again = model.requests
    assert [message.content for message in again.messages[: len(first.messages)]] == [
        message.content for message in first.messages
    ]
    assert [message.content for message in again.messages[len(first.messages) :]] == [long.text, CUT]


async def test_an_empty_answer_is_requested_again_and_words_of_the_first_are_kept() -> None:
    long = Reply(text="Henning was born in Kiel", finish="length")
    for replies, answer in (([" ", "Henning"], "Henning"), ([long, ""], "Henning was born in")):
        async with executing(replies) as (executor, model):
            done = await executor.start(of_one(Solve(), Solve.State), GIVEN)
        assert (done.status, done.values["answer"], len(model.requests)) == ("completed", answer, 2)
