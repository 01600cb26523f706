"""Self-ask: what models write when they ask themselves, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Run
from orchestrator.strategies.self_ask import self_ask
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio
WHO = "Who lived longer, Alan Turing or Ada Lovelace?"


async def run_of(script: Any, **options: Any) -> tuple[Run, ScriptedModel]:
    model = ScriptedModel(script)
    return await self_ask(follow_up="model", **options).run(WHO, model=model), model


ASKED = "How old was Alan Turing when he died?"
ANSWERED = "Alan Turing"
REPLIES: list[tuple[str, str, str]] = [
    # (what the model wrote, `question` or `answer`, the words)
    (f"Follow up: {ASKED}", "question", ASKED),
    (f"Follow-up: {ASKED}", "question", ASKED),
    (f"follow up question: {ASKED}", "question", ASKED),
    (f"**Follow up:** {ASKED}", "question", ASKED),
    (f"Yes.\nFollow up: {ASKED}", "question", ASKED),
    (f"Are follow up questions needed here: Yes.\nFollow up: {ASKED}", "question", ASKED),
    (f"Are follow up questions needed here: Yes.\n\nFollow up: {ASKED}\n", "question", ASKED),
    (f"Follow up: {ASKED}\nIntermediate answer: Alan Turing was 41 years old when he died.", "question", ASKED),
    (
        f"Follow up: {ASKED}\nIntermediate answer: 41.\nFollow up: And she?\nSo the final answer is: Alan Turing",
        "question",
        ASKED,
    ),
    (f"Question: {ASKED}", "question", ASKED),
    (f'{{"next": {{"kind": "question", "question": "{ASKED}"}}}}', "question", ASKED),
    (f'```json\n{{"next": {{"kind": "question", "question": "{ASKED}"}}}}\n```', "question", ASKED),
    (f"<think>Turing died in 1954.</think>\nFollow up: {ASKED}", "question", ASKED),
    (f"So the final answer is: {ANSWERED}", "answer", ANSWERED),
    (f"So the final answer is {ANSWERED}.", "answer", ANSWERED),
    (f"**So the final answer is:** {ANSWERED}", "answer", ANSWERED),
    (f"Are follow up questions needed here: No.\nSo the final answer is: {ANSWERED}", "answer", ANSWERED),
    (f"Turing lived 41 years, Lovelace 36.\nSo the final answer is: {ANSWERED}", "answer", ANSWERED),
    (f"Final Answer: {ANSWERED}", "answer", ANSWERED),
    (f'{{"next": {{"kind": "answer", "answer": "{ANSWERED}"}}}}', "answer", ANSWERED),
]


@pytest.mark.parametrize(("reply", "kind", "words"), REPLIES)
@pytest.mark.parametrize("constrain", ["auto", "never"])
async def test_a_reply_is_a_question_or_the_answer(reply: str, kind: str, words: str, constrain: Any) -> None:
    run, model = await run_of(
        {"ask": [reply, "So the final answer is: over"], "answer": lambda _: "41"}, constrain=constrain
    )
    asked = [request.messages[-1].content for request in model.requests[1:2]]
    assert (run.status, run.output) == ("completed", words if kind == "answer" else "over"), run.error
    assert asked == ([words] if kind == "question" else [])


async def test_the_answers_go_back_to_the_model() -> None:
    script = {"ask": [f"Follow up: {ASKED}", "So the final answer is: him"], "answer": ["He was 41."]}
    _, model = await run_of(script, constrain="never")
    assert model.requests[-1].messages[-1].content == (f"Main question: {WHO}\n\nQuestion: {ASKED}\nOutput: He was 41.")


async def test_a_reply_that_is_neither_goes_back_with_the_reason() -> None:
    run, model = await run_of({"ask": ["Hm.", "Follow up:", f"Final Answer: {ANSWERED}"]}, constrain="never")
    assert run.output == ANSWERED
    assert "has neither form" in model.requests[1].messages[-1].content
    run, _ = await run_of({"ask": lambda _: "Hm."}, constrain="never")
    assert (run.status, run.error.type if run.error else "") == ("failed", "AgentError")


async def test_questions_without_end_are_bounded() -> None:
    run, _ = await run_of({"ask": lambda _: f"Follow up: {ASKED}", "answer": lambda _: "41"}, max_steps=3)
    assert (run.status, len(run.values["step_history"])) == ("exhausted", 3)


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="use 'tools' or 'model'"):
        self_ask(follow_up="search")  # type: ignore[arg-type]
