"""`Think`: a model gives the final answer or asks on."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel

from orchestrator import Graph, Run, append
from orchestrator.models import Reply
from orchestrator.nodes import Step, Think
from tests.support.one_node import error_of, executing

pytestmark = pytest.mark.anyio

STEPS = [
    Step(question="1 + 2?", tool_choice="add", tool_args={"a": 1, "b": 2}, tool_output=3),
    Step(question="who?", tool_choice="ask", tool_exit_code=1, tool_output="nobody"),
    Step(question="what?", tool_choice="look", tool_output={"ü": [1]}),
]


class Ports(BaseModel):
    main: str = "Why?"
    later: str = ""
    past: Annotated[list[Step], append] = []
    last: str = ""
    route: str = ""


def graph(node: Think, state: type[BaseModel]) -> Graph:
    edges = "START -> it\nit -> END : answer\nit -> END : question"
    return Graph(name="one", state=state, nodes={"it": node}, edges=edges)


async def think(reply: str) -> Run:
    async with executing([reply]) as (executor, _):
        return await executor.start(graph(Think(), Think.State), {"question": "Why?"})


async def test_an_answer_and_a_question_take_their_ways() -> None:
    for reply, outcome, values in [
        ("Final Answer: 42", "answer", {"answer": "42", "current": "before"}),
        ("Question: and then?", "question", {"answer": "", "current": "and then?"}),
    ]:
        async with executing([reply]) as (executor, _):
            found = await executor.start(graph(Think(), Think.State), {"question": "Why?", "current": "before"})
            (point,) = await executor.history(found.run_id)
        assert point.outcome == outcome
        assert {name: found.values[name] for name in values} == values


@pytest.mark.parametrize(
    ("finish", "why"),
    [
        ("length", "think: the reply 'Final Answer: forty' was cut off; give the model more max_tokens"),
        ("content_filter", "think: the model refused to answer (content_filter): 'Final Answer: forty'"),
        ("refusal", "think: the model refused to answer (refusal): 'Final Answer: forty'"),
    ],
)
async def test_a_reply_that_is_not_whole_is_no_decision(finish: str, why: str) -> None:
    async with executing([Reply(text="Final Answer: forty", finish=finish)]) as (executor, _):
        found = await executor.start(graph(Think(), Think.State), {"question": "Why?"})
    assert error_of(found) == ("AgentError", why)


async def test_the_model_is_told_the_main_question_and_every_step() -> None:
    node = Think(question="main", current="later", steps="past", answer="last")
    async with executing(["Final Answer: so"]) as (executor, model):
        found = await executor.start(graph(node, Ports), {"past": STEPS, "later": "not this one"})
    assert found.values["last"] == "so"
    (request,) = model.requests
    assert request.messages[0].content == node.system
    assert request.messages[1].content == (
        "Main question: Why?\n\n"
        "Question: 1 + 2?\nOutput: 3\n\n"
        "Question: who?\nError: nobody\n\n"
        'Question: what?\nOutput: {"ü": [1]}'
    )
    assert request.messages[1].data == {
        "question": "Why?",
        "steps": [
            {"question": "1 + 2?", "output": 3, "error": None},
            {"question": "who?", "output": None, "error": "nobody"},
            {"question": "what?", "output": {"ü": [1]}, "error": None},
        ],
    }
    assert request.task == "think"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Final Answer: 34", "34"),
        ("Final Answer:34", "34"),
        ("  Final Answer:\n 34\n", "34"),
        ("Final Answer: at 10:30, see http://x.y:\nQuestion: none", "at 10:30, see http://x.y:\nQuestion: none"),
    ],
)
async def test_all_after_the_first_colon_counts(reply: str, answer: str) -> None:
    assert (await think(reply)).values["answer"] == answer
    asked = await think(reply.replace("Final Answer", "Question", 1))
    assert asked.values["current"] == answer


@pytest.mark.parametrize(
    "reply",
    ["final answer: 3", "Final  Answer: 3", "Answer: 3", "So.\nFinal Answer: 3", "**Final Answer:** 3",
     '{"next": {"kind": "answer", "answer": "3"}}', '{"answer": 3}', '```json\n{"kind": "answer", "answer": "3"}\n```'],
)  # fmt: skip
async def test_a_reply_with_one_reading_is_read(reply: str) -> None:
    assert (await think(reply)).values["answer"] == "3"


@pytest.mark.parametrize(
    "reply",
    ["", "34", "Final Answer", "Final Answer:", "Question: \n", "FinalAnswer: 3", ": 3", "{}", '{"answer": ""}',
     "So.\nQuestion: what?\nFinal Answer: 3"],
)  # fmt: skip
async def test_any_other_reply_is_an_agent_error_that_says_the_forms(reply: str) -> None:
    kind, message = error_of(await think(reply))
    assert kind == "AgentError"
    assert message.endswith('answer with one JSON object, {"next": {"kind": "answer", "answer": "..."}} or '
                            '{"next": {"kind": "question", "question": "..."}}')  # fmt: skip


async def test_a_long_reply_is_quoted_in_part() -> None:
    assert len(error_of(await think("x" * 10_000))[1]) < 500
