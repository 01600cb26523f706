"""`Complete`, `Extract`, `Repeat` and `Vote`: texts go on, answers are taken out of them and counted."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator.errors import InvalidGraph
from orchestrator.models import Reply
from orchestrator.nodes import Complete, Extract, Repeat, Vote
from orchestrator.nodes.extract import find_answer
from tests.support.one_node import error_of, executing, of_one, run

pytestmark = pytest.mark.anyio

CUT, REFUSED = Reply(text="Henning was bo", finish="length"), Reply(text="I", finish="refusal")


@pytest.mark.parametrize(
    ("form", "text", "answer"),
    [
        ("text", "We add.\nSo the answer is 28.", "28"),
        ("text", "The answer is not 3. No, the final answer is: **Goethe**\nThat is certain.", "Goethe"),
        ("text", "Some words.\n**Answer:** a cat", "a cat"),
        ("text", "The answer (in km) is 3.5.", "3.5"),
        ("text", " Just this. ", "Just this"),
        ("text", "the answer is", None),
        ("number", "2 * 4 = 8, and 20 + 8 = 28.", "28"),
        ("number", "Out of 5, the answer is $1,250.50", "1250.5"),
        ("number", "Out of 5, the answer is $1,250.50 or 3", None),
        ("number", "the answer = -7 degrees", "-7"),
        ("number", "pages 3-5", None),
        ("number", "It is 100.", "100"),
        ("number", "x2 and none", None),
        ("choice", "A is wrong, so (C).", None),
        ("choice", "So (C).", "C"),
        ("choice", "The answer is A, B.", None),
        ("choice", "(C). A is too small.", "C"),
        ("choice", "The answer is (B), not C.", "B"),
        ("choice", "Any of them", None),
        ("yes_no", "No? Yes.", None),
        ("yes_no", "Yes, since there is no other way.", "yes"),
        ("yes_no", "The answer is no, as yes would need a prime.", "no"),
        ("yes_no", "Nobody knows", None),
    ],
)
def test_an_answer_is_found_in_its_form(form: Any, text: str, answer: str | None) -> None:
    assert find_answer(text, form) == answer


async def test_an_answer_that_has_to_be_announced_is_missing_where_it_is_not() -> None:
    for text, outcome, answer in [("So 28.", "missing", ""), ("The answer is 28.", "found", "28")]:
        node = Extract(form="number", announced=True)
        async with executing() as (executor, _):
            found = await executor.start(of_one(node, Extract.State), {"reply": text})
            (point,) = await executor.history(found.run_id)
        assert (point.outcome, found.values["answer"]) == (outcome, answer)


class Facts(BaseModel):
    question: str = "Why {this}?"
    seen: list[int] = [1, 2]
    reply: str = ""


async def test_a_prompt_is_filled_from_the_state_and_its_fields_are_the_facts() -> None:
    node = Complete(prompt="{question} {seen} {{}}", system="Be brief.", task="guess", options={"temperature": 0.5})
    async with executing([" So. \n"]) as (executor, model):
        found = await executor.start(of_one(node, Facts), {})
    assert found.values["reply"] == "So."
    (request,) = model.requests
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "Be brief."),
        ("user", "Why {this}? [1, 2] {}"),
    ]
    assert request.messages[1].data == {"question": "Why {this}?", "seen": [1, 2]}
    assert (request.task, request.options) == ("guess", {"temperature": 0.5})


def test_a_prompt_that_nothing_fills_is_refused_when_the_graph_is_built() -> None:
    with pytest.raises(InvalidGraph, match=r"port 'prompt\[questoin\]' of it is 'questoin'.*did you mean"):
        of_one(Complete(prompt="{questoin}"), Facts)
    with pytest.raises(ValidationError, match="a placeholder must be a plain name"):
        Complete(prompt="{question.x}")
    with pytest.raises(ValidationError, match="'tools' is not a parameter for the provider"):
        Complete(options={"tools": []})


@pytest.mark.parametrize(
    ("node", "replies", "why"),
    [
        (Complete(on_cut="raise"), [CUT], "it: the reply 'Henning was bo' was cut off; give the model more max_tokens"),
        (Complete(), [REFUSED], "it: the model refused to answer (refusal): 'I'"),
        (Complete(), ["", " \n"], "it: the reply is empty"),
        (Complete(), ["", REFUSED], "it: the model refused to answer (refusal): 'I'"),
        (Complete(), [CUT, REFUSED], "it: the model refused to answer (refusal): 'I'"),
        (Complete(retries=0), [" \n"], "it: the reply is empty"),
    ],
)
async def test_a_reply_that_is_not_whole_is_an_agent_error(node: Complete, replies: list[Reply], why: str) -> None:
    assert error_of(await run(node, Complete.State, {"question": "?"}, replies)) == ("AgentError", why)


@pytest.mark.parametrize(
    ("node", "replies", "text"),
    [
        (Complete(), [CUT, "In Kiel."], "In Kiel."),
        (Complete(), ["", "In Kiel."], "In Kiel."),
        (Complete(), [CUT, Reply(text="In Kiel, or in", finish="length")], "In Kiel, or"),
        (Complete(), [CUT, ""], "Henning was"),
        (Complete(), ["", CUT], "Henning was"),
        (Complete(retries=2), [CUT, "", "In Kiel."], "In Kiel."),
        (Complete(retries=0), [CUT], "Henning was"),
        (Complete(on_cut="keep"), [CUT], "Henning was"),
        (Complete(on_cut="keep"), [Reply(text="", finish="length"), CUT], "Henning was"),
        (Complete(retries=0), [Reply(text="彼はキールで", finish="length")], "彼はキールで"),
    ],
)
async def test_a_shorter_text_is_asked_for_and_then_whole_words_are_kept(
    node: Complete, replies: list[Reply], text: str
) -> None:
    async with executing(replies) as (executor, model):
        found = await executor.start(of_one(node, Complete.State), {"question": "Where?"})
    assert (found.status, found.values["reply"]) == ("completed", text)
    if len(replies) > 1:
        fault = "the reply is empty" if replies[0] == "" else "it was cut off"
        assert model.requests[1].messages[-1].content.startswith(f"Your reply cannot be used: {fault}")


@pytest.mark.parametrize(
    ("answers", "answer"),
    [(["28", "27", "28."], "28"), (["a  Cat", "dog", "A cat."], "a  Cat"), (["b", "a", "a", "b"], "b"), (["x"], "x")],
)
async def test_the_most_frequent_answer_counts_and_the_first_of_equals(answers: list[str], answer: str) -> None:
    found = await run(Vote(), Vote.State, {"answers": answers})
    assert found.values["answer"] == answer


async def test_an_empty_answer_has_no_vote() -> None:
    assert (await run(Vote(), Vote.State, {"answers": ["", " . ", "7"]})).values["answer"] == "7"
    why = "vote: none of 2 has an answer"
    assert error_of(await run(Vote(), Vote.State, {"answers": ["", " "]})) == ("AgentError", why)


async def test_what_is_wrong_with_a_reply_is_told_to_a_field_that_is_there_for_it() -> None:
    for replies in ([REFUSED], [Reply(text=" ")] * 2):
        node = Complete(fault="reply", result="question")
        async with executing(replies) as (executor, _):
            found = await executor.start(of_one(node, Complete.State), {"question": "?"})
            (point,) = await executor.history(found.run_id)
        assert (point.outcome, found.values["question"]) == ("unusable", "?")
        assert found.values["reply"].startswith("it: the ")


async def test_a_vote_without_answers_fails() -> None:
    assert error_of(await run(Vote(), Vote.State)) == ("StepError", "vote: there are no answers in 'answers'")


async def test_numbers_to_map_over() -> None:
    assert (await run(Repeat(times=3), Repeat.State)).values["rounds"] == [1, 2, 3]
    with pytest.raises(ValidationError):
        Repeat(times=0)


@pytest.mark.parametrize(
    ("form", "text", "fault"),
    [
        ("number", "28 coins (20 + 8)", "has several numbers: 8, 20, 28"),
        ("number", "nobody knows", "has no number"),
        ("number", "1.5 million", "has no single number"),
        ("number", "Answer:\nStep 1: 2 + 2 = 4\nStep 2: 4 + 4 = 8", "has no single number"),
        ("choice", "The answer is (B) wall or (E) table", "has several letters from A to E: B, E"),
        ("yes_no", "yes and no", "has both yes and no"),
        ("yes_no", "perhaps", "has no yes or no"),
    ],
)
async def test_a_fault_says_what_the_reply_has(form: Any, text: str, fault: str) -> None:
    async with executing() as (executor, _):
        found = await executor.start(of_one(Extract(form=form, required=True), Extract.State), {"reply": text})
    assert error_of(found) == ("AgentError", f"it: the reply {text!r} {fault}")
