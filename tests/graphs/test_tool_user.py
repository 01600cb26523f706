"""What the ToolUser agent promises, one test for each promise (S1 to S27, S35, S36; the events are in test_embedia)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import (
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    OfflineModel,
    Run,
    Tool,
    Toolbox,
    ToolResult,
    node,
    tool,
)
from orchestrator.errors import InvalidAnswer, ToolError
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest, RequestModel
from orchestrator.nodes import ChooseTool, Confirm, Step, Think
from orchestrator.strategies.tool_user import ToolUserState, graph, tool_user
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref

pytestmark = pytest.mark.anyio


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number.
        b: the second number.
    """
    return a + b


@tool(risk="read", effect="read")
def now() -> str:
    """Tell the time."""
    return "noon"


@tool(risk="write")
def note(text: str, times: int = 1, tags: list[str] | None = None) -> str:
    """Write something down.

    Args:
        text: what to write down.
        times: how often.
        tags: words to find it by.
    """
    return " ".join([text] * times + (tags or []))


@tool(risk="none", effect="pure")
def broken(why: str) -> str:
    """Break."""
    raise ToolError(why) if why != "bug" else ValueError("a bug")


TWO = (add, note)
ADD = ["add", '{"a": 1, "b": 2}']
RAISING = tool_user(on_error="raise")
CHOOSE = ChooseTool(current="current", corrections="corrections")


@asynccontextmanager
async def opened(replies: Any, store: str, *tools: Tool) -> AsyncIterator[tuple[Executor, ScriptedModel]]:
    with ScriptedModel(replies) as model:
        async with Executor(store, model=model, tools=tools) as executor:
            yield executor, model


async def run(
    replies: Any,
    store: str = "memory://",
    tools: tuple[Tool, ...] = TWO,
    definition: Graph = graph,
    question: str = "What is 1 + 2?",
    approve: str | None = "dangerous",
) -> Run:
    async with opened(replies, store, *tools) as (executor, _):
        return await executor.start(definition, question, approve=approve)


async def nodes_of(executor: Executor, run: Run) -> list[str]:
    return [point.node for point in await executor.history(run.run_id)]


def steps_of(run: Run) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = run.values["step_history"]
    return steps


# -- construction --------------------------------------------------------------------------------------------------


async def test_s1_it_takes_a_model_tools_steps_and_seconds() -> None:
    assert (graph.limits.visits, graph.limits.seconds) == ({"choose_tool": 10}, 60)
    assert tool_user(max_steps=3, max_seconds=5).limits.seconds == 5
    for options in ({"max_steps": 0}, {"max_seconds": 0}):
        with pytest.raises(ValueError, match="max_steps must be at least 1, and max_seconds more than 0"):
            tool_user(**options)  # type: ignore[arg-type]


async def test_s2_the_agent_is_a_tool_of_another_agent(store: str) -> None:
    inner = tool_user().replace(confirm=Confirm(tool="tool", args="args", above="dangerous", on_denied="raise"))
    agent = inner.as_tool("calculator", "Answers questions about numbers.")
    assert list(agent.parameters["properties"]) == ["question"]  # type: ignore[call-overload]
    outer = tool_user().replace(
        choose_tool=CHOOSE.with_(tools=("calculator", "note")),
    )
    replies = [
        "calculator", '{"question": "1 + 2?"}',
        *ADD, "Final Answer: 3",
        "Final Answer: it is 3",
    ]  # fmt: skip
    found = await run(replies, store, (agent, *TWO), outer)
    assert (found.status, found.output) == ("completed", "it is 3")
    assert steps_of(found)[0] == {
        "question": "What is 1 + 2?",
        "tool_choice": "calculator",
        "tool_args": {"question": "1 + 2?"},
        "tool_exit_code": 0,
        "tool_output": "3",
    }


async def test_s3_tools_limits_question_and_steps_can_be_read(store: str) -> None:
    found = await run([*ADD, "Final Answer: 3"], store)
    assert isinstance(found.state, ToolUserState)
    assert found.state.question == "What is 1 + 2?"
    assert [type(step) for step in found.state.step_history] == [Step]
    assert [one.name for one in Toolbox(*TWO)] == ["add", "note"]


# -- the loop ------------------------------------------------------------------------------------------------------


async def test_s4_each_round_chooses_confirms_runs_records_and_decides(store: str) -> None:
    replies = [*ADD, "Question: and 3 + 4?", "add", '{"a": 3, "b": 4}', "Final Answer: 3 and 7"]
    async with opened(replies, store, *TWO) as (executor, _):
        found = await executor.start(graph, "What is 1 + 2?", approve="none")
        assert await nodes_of(executor, found) == [
            "choose_tool", "choose_args", "confirm", "execute", "think",
            "choose_tool", "choose_args", "confirm", "execute", "think",
        ]  # fmt: skip


async def test_s5_the_first_question_is_the_main_one_and_later_ones_are_the_thinkers(store: str) -> None:
    replies = [*ADD, "Question: and 3 + 4?", "add", '{"a": 3, "b": 4}', "Final Answer: 7"]
    async with opened(replies, store, *TWO) as (executor, model):
        found = await executor.start(graph, "What is 1 + 2?", approve="none")
    assert [step["question"] for step in steps_of(found)] == ["What is 1 + 2?", "and 3 + 4?"]
    asked = [request.messages[-1].data or {} for request in model.requests]
    assert [facts["question"] for facts in asked] == [
        "What is 1 + 2?", "What is 1 + 2?", "What is 1 + 2?",
        "and 3 + 4?", "and 3 + 4?", "What is 1 + 2?",
    ]  # fmt: skip


async def test_s6_it_ends_after_max_steps_tools(store: str) -> None:
    rounds = [*ADD, "Question: go on"] * 2 + ADD
    found = await run(rounds, store, definition=tool_user(max_steps=3))
    assert (found.status, len(steps_of(found))) == ("exhausted", 3)


async def test_s6_it_ends_after_max_seconds_whatever_hangs_then(store: str) -> None:
    @tool(risk="none", effect="pure")
    async def hang(text: str) -> str:
        """Hang."""
        await anyio.sleep(60)
        return text

    with anyio.fail_after(10):
        found = await run(
            [*ADD, "Question: wait", "hang", '{"text": "x"}'], store, (add, hang), tool_user(max_seconds=0.5)
        )
    assert (found.status, found.output, found.values["exit_code"]) == ("exhausted", "3", 1)


async def test_s7_an_answer_before_the_time_out_is_returned(store: str) -> None:
    found = await run([*ADD, "Final Answer: 3"], store, definition=tool_user(max_steps=2))
    assert (found.status, found.output, found.values["exit_code"]) == ("completed", "3", 0)


async def test_s8_timed_out_gives_the_last_steps_output(store: str) -> None:
    rounds = [*ADD, "Question: go on", "note", '{"text": "last"}']
    found = await run(rounds, store, definition=tool_user(max_steps=2))
    assert (found.status, found.output, found.values["exit_code"]) == ("exhausted", "last", 1)


async def test_s8_without_any_step_the_output_is_empty() -> None:
    async def never(request: ModelRequest) -> Reply:
        await anyio.sleep(60)
        return Reply()

    async with Executor(model=Asked(never), tools=TWO) as executor:
        found = await executor.start(tool_user(max_seconds=0.2), "What is 1 + 2?")
    assert (found.status, found.output, found.values["exit_code"]) == ("exhausted", "", 1)


async def test_the_last_tool_is_thought_about_only_if_asked_for(store: str) -> None:
    once = await run(ADD, store, definition=tool_user(max_steps=1))
    assert (once.status, once.output) == ("exhausted", "3")
    answered = await run([*ADD, "Final Answer: three"], definition=tool_user(max_steps=1, last_answer=True))
    assert (answered.status, answered.output) == ("completed", "three")
    asked = await run([*ADD, "Question: and then?"], definition=tool_user(max_steps=1, last_answer=True))
    assert (asked.status, asked.output) == ("exhausted", "3")


async def test_a_second_run_begins_with_nothing_of_the_first(store: str) -> None:
    replies = [*ADD, "Final Answer: 3", "note", '{"text": "x"}', "Final Answer: x"]
    async with opened(replies, store, *TWO) as (executor, _):
        await executor.start(graph, "What is 1 + 2?", approve="write")
        second = await executor.start(graph, "Write x", approve="write")
    assert [step["question"] for step in steps_of(second)] == ["Write x"]


# -- decision 1: the tool ------------------------------------------------------------------------------------------


async def test_s9_the_only_tool_is_chosen_without_asking_the_model(store: str) -> None:
    found = await run(['{"a": 1, "b": 2}', "Final Answer: 3"], store, (add,))
    assert steps_of(found)[0]["tool_choice"] == "add"


async def test_s10_s12_the_model_is_shown_the_question_and_the_tools_in_order() -> None:
    async with opened([*ADD, "Final Answer: 3"], "memory://", note, add) as (executor, model):
        await executor.start(graph, "What is 1 + 2?", approve="none")
    request = model.requests[0]
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.messages[1].content == (
        "Question: What is 1 + 2?\n\nTools:\nnote: Write something down.\nadd: Add two numbers."
    )
    assert request.task == "choose_tool"
    facts = request.messages[1].data or {}
    assert [one["name"] for one in facts["tools"]] == ["note", "add"]  # type: ignore[union-attr, index, call-overload]


@pytest.mark.parametrize("reply", ["subtract", "add or note", "not add", "", "add note"])
async def test_s11_a_reply_that_is_no_tools_name_is_an_agent_error(reply: str) -> None:
    found = await run([reply], definition=RAISING)
    assert found.status == "failed"
    assert found.error is not None
    assert (found.error.type, found.error.node) == ("AgentError", "choose_tool")
    assert "is not an available tool; choose one of: add, note" in found.error.message


@pytest.mark.parametrize("reply", [" add\n", "Add", "add.", "The tool is add", "add: Add two numbers."])
async def test_s11_space_and_words_around_the_name_do_not_matter(reply: str) -> None:
    assert (await run([reply, '{"a": 1, "b": 2}', "Final Answer: 3"])).status == "completed"


# -- decision 2: the arguments -------------------------------------------------------------------------------------


async def test_s13_a_tool_without_parameters_gets_none_without_asking_the_model(store: str) -> None:
    found = await run(["now", "Final Answer: noon"], store, (now, add))
    assert steps_of(found)[0]["tool_args"] == {}


async def test_s14_the_model_is_shown_question_function_and_parameters() -> None:
    replies = ["note", '{"text": "x"}', "Final Answer: x"]
    async with opened(replies, "memory://", *TWO) as (executor, model):
        await executor.start(graph, "Write x", approve="write")
    request = model.requests[1]
    assert request.task == "choose_args"
    lines = request.messages[-1].content.splitlines()
    assert lines[:3] == ["Question: Write x", "", "Function: note"]
    assert "Write something down." in lines
    assert "text (string, required): what to write down." in lines
    assert "times (integer, optional, default 1): how often." in lines


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("the text x", "is not JSON"),  # S15
        ('["x"]', "is JSON but not an object"),
        ("{}", "'text' is missing"),  # S16
        ('{"text": "x", "loud": true}', "'loud' is unknown"),  # S17
        ('{"text": "x", "times": "many"}', "'times'"),  # S18, and section 5 no 2: the wrong type
        ('{"text": ["x"]}', "'text'"),
    ],
)
async def test_s15_s16_s17_arguments_that_do_not_fit_fail_before_anybody_is_asked(reply: str, fault: str) -> None:
    found = await run(["note", reply], approve=None, definition=RAISING)
    assert found.status == "failed"
    assert found.error is not None
    assert (found.error.type, found.error.node) == ("AgentError", "choose_args")
    assert fault in found.error.message


@pytest.mark.parametrize(
    ("reply", "args"),
    [
        ('{"text": "x", "times": "2"}', {"text": "x", "times": 2}),
        ('{"text": "x", "tags": "[\'a\', \'b\']"}', {"text": "x", "tags": ["a", "b"]}),
        ('{"text": "60"}', {"text": "60"}),
        ('{"text": 60}', {"text": "60"}),
        ('{"text": "[1, 2]"}', {"text": "[1, 2]"}),
        ('```json\n{"text": "x"}\n```', {"text": "x"}),
    ],
)
async def test_s18_texts_become_what_the_schema_wants_and_texts_stay_texts(reply: str, args: dict[str, Any]) -> None:
    found = await run(["note", reply], approve=None, definition=RAISING)
    assert found.status == "paused"
    assert found.waiting[0].payload["args"] == args


async def test_s18_nothing_that_a_model_says_is_evaluated(tmp_path: Path) -> None:
    bait = tmp_path / "bait"
    code = f"open({str(bait)!r}, 'w').write('x')"
    for args in ({"text": code}, {"text": "x", "times": code}, {"text": "x", "tags": code}):
        found = await run(["note", json.dumps(args)], approve=None, definition=RAISING)
        if found.status == "paused":
            assert found.waiting[0].payload["args"] == args
    assert not bait.exists()


# -- confirmation --------------------------------------------------------------------------------------------------


async def test_s19_a_person_is_asked_before_the_tool_runs_and_shown_exactly_what_will_run(store: str) -> None:
    async with opened(["note", '{"text": "x"}', "Final Answer: x"], store, *TWO) as (executor, _):
        found = await executor.start(graph, "Write x")
        assert (found.status, steps_of(found)) == ("paused", [])
        (question,) = found.waiting
        assert (question.kind, question.node) == ("approval", "confirm")
        assert question.payload.pop("call_id")
        assert question.payload == {
            "tool": "note", "args": {"text": "x"}, "risk": "write", "effect": "irreversible",
        }  # fmt: skip
        found = await executor.answer(found.run_id, question.id, Approve())
        assert (found.status, found.output) == ("completed", "x")


async def test_s19_what_a_person_changes_is_what_runs(store: str) -> None:
    async with opened(["note", '{"text": "x"}', "Final Answer: y y"], store, *TWO) as (executor, _):
        found = await executor.start(graph, "Write x")
        name = found.waiting[0].id
        with pytest.raises(InvalidAnswer, match="'loud' is unknown"):
            await executor.answer(found.run_id, name, Approve(args={"text": "y", "loud": True}))
        found = await executor.answer(found.run_id, name, Approve(args={"text": "y", "times": 2}))
    assert steps_of(found)[0]["tool_args"] == {"text": "y", "times": 2}
    assert steps_of(found)[0]["tool_output"] == "y y"


async def test_s20_a_denial_ends_the_agent_and_the_tool_does_not_run(store: str) -> None:
    async with opened(["note", '{"text": "x"}'], store, *TWO) as (executor, _):
        found = await executor.start(graph, "Write x")
        found = await executor.answer(found.run_id, found.waiting[0].id, Deny(reason="not today"))
    assert (found.status, steps_of(found)) == ("failed", [])
    assert found.error is not None
    assert found.error.type == "UserDenied"
    assert found.error.message.endswith("was denied: not today")


async def test_s20_a_denial_can_be_told_to_the_model_instead(store: str) -> None:
    replies = ["note", '{"text": "x"}', "Final Answer: I may not"]
    async with opened(replies, store, *TWO) as (executor, model):
        found = await executor.start(tool_user(on_denied="observe"), "Write x")
        found = await executor.answer(found.run_id, found.waiting[0].id, Deny(reason="not today"))
    assert (found.status, found.output) == ("completed", "I may not")
    assert steps_of(found)[0] == {
        "question": "Write x",
        "tool_choice": "note",
        "tool_args": {"text": "x"},
        "tool_exit_code": 1,
        "tool_output": "the user denied this call: not today",
    }
    assert "Error: the user denied this call: not today" in model.requests[-1].messages[-1].content


async def test_the_runs_policy_answers_for_tools_of_little_risk(store: str) -> None:
    async with opened([*ADD, "Question: write it", "note", '{"text": "3"}'], store, *TWO) as (executor, _):
        found = await executor.start(graph, "What is 1 + 2?", approve="read")
    assert (found.status, len(steps_of(found))) == ("paused", 1)
    assert found.waiting[0].payload["tool"] == "note"


async def test_a_confirmation_outlives_the_executor(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    async with opened(["note", '{"text": "x"}'], store, *TWO) as (executor, _):
        paused = await executor.start(graph, "Write x")
    with ScriptedModel(["Final Answer: x"]) as model:
        async with Executor(store, graphs=[graph], model=model, tools=TWO) as executor:
            found = await executor.answer(paused.run_id, paused.waiting[0].id, Approve())
    assert found.output == "x"


# -- running and recording -----------------------------------------------------------------------------------------


async def test_s21_s22_the_tool_runs_with_the_arguments_and_the_step_is_recorded(store: str) -> None:
    found = await run([*ADD, "Final Answer: 3"], store)
    assert steps_of(found) == [
        {
            "question": "What is 1 + 2?",
            "tool_choice": "add",
            "tool_args": {"a": 1, "b": 2},
            "tool_exit_code": 0,
            "tool_output": 3,
        }
    ]


@pytest.mark.parametrize(
    ("why", "said"), [("no paper", "no paper"), ("bug", "Unexpected error executing tool broken: a bug")]
)
async def test_s23_a_tool_that_fails_is_a_step_with_exit_code_1(store: str, why: str, said: str) -> None:
    replies = ["broken", json.dumps({"why": why}), "Final Answer: it broke"]
    async with opened(replies, store, broken, add) as (executor, model):
        found = await executor.start(graph, "Break", approve="none")
    assert (found.status, found.output) == ("completed", "it broke")
    assert (steps_of(found)[0]["tool_exit_code"], steps_of(found)[0]["tool_output"]) == (1, said)
    assert f"Error: {said}" in model.requests[-1].messages[-1].content


async def test_s24_the_agents_own_result_has_an_output_and_an_exit_code(store: str) -> None:
    results: list[ToolResult] = []
    silent = tool_user(max_steps=1).replace(
        confirm=Confirm(tool="tool", args="args", above="dangerous", on_denied="raise")
    )

    @node
    async def call(ctx: Context[object]) -> None:
        results.append(await ctx.tool("agent", question="What is 1 + 2?"))

    outer = Graph(name="outer", state=ToolUserState, nodes={"call": call}, edges="START -> call -> END")
    async with opened([*ADD], store, silent.as_tool("agent", "Answers."), add, note) as (executor, _):
        inner = silent.replace(choose_tool=CHOOSE.with_(tools=("add", "note")))
        assert inner.structure == silent.structure
        await executor.start(outer, {"question": "x"})
    assert [(result.exit_code, result.output) for result in results] == [(1, "3")]


# -- decision 3: what next -----------------------------------------------------------------------------------------


async def test_s25_the_thinker_is_shown_the_main_question_and_all_steps() -> None:
    replies = [*ADD, "Question: and 3 + 4?", "add", '{"a": 3, "b": 4}', "Final Answer: 7"]
    async with opened(replies, "memory://", *TWO) as (executor, model):
        await executor.start(graph, "What is 1 + 2?", approve="none")
    request = model.requests[-1]
    assert request.task == "think"
    assert request.messages[-1].content == (
        "Main question: What is 1 + 2?\n\nQuestion: What is 1 + 2?\nOutput: 3\n\nQuestion: and 3 + 4?\nOutput: 7"
    )


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Final Answer: 34", "34"),
        ("Final Answer:34", "34"),
        ("3", "3"),  # what the tool returned
        ("\nFinal Answer: see http://x.y: now\nand: then\n", "see http://x.y: now\nand: then"),
    ],
)
async def test_s26_a_final_answer_ends_it(reply: str, answer: str) -> None:
    assert (await run([*ADD, reply])).output == answer


async def test_s26_a_question_keeps_everything_after_its_first_colon() -> None:
    replies = [*ADD, "Question: what is at http://x.y: now?", "add", '{"a": 3, "b": 4}', "Final Answer: 7"]
    found = await run(replies)
    assert steps_of(found)[1]["question"] == "what is at http://x.y: now?"


@pytest.mark.parametrize(
    "reply", ["34", "So, Final Answer: 34", "Well.\nQuestion: and?\nFinal Answer: 34", "Question:", "Final Answer: "]
)
async def test_s27_any_other_reply_is_an_agent_error(reply: str) -> None:
    found = await run([*ADD, reply], definition=RAISING)
    assert found.status == "failed"
    assert found.error is not None
    assert (found.error.type, found.error.node) == ("AgentError", "think")


# -- errors told to the model --------------------------------------------------------------------------------------


CORRECTED = {
    "choose_tool": ["subtract", "add"],
    "choose_args": ["a=1", "two numbers", '{"a": 1, "b": 2}'],
    "think": ["", "It is 3!", "Final Answer: 3"],
}


async def test_by_default_the_model_corrects_each_decision(store: str) -> None:
    async with opened({**CORRECTED}, store, *TWO) as (executor, model):
        found = await executor.start(graph, "What is 1 + 2?", approve="none")
        assert (found.status, found.output, len(steps_of(found))) == ("completed", "3", 1)
        assert await nodes_of(executor, found) == [
            *["choose_tool"] * 2, *["choose_args"] * 3, "confirm", "execute", *["think"] * 3,
        ]  # fmt: skip
    assert found.values["corrections"] == []
    told = [[message.content for message in request.messages[2:]] for request in model.requests]
    assert [len(one) for one in told] == [0, 2, 0, 2, 4, 0, 2, 4]
    assert told[1][0] == "subtract"
    assert "'subtract' is not an available tool; choose one of: add, note" in told[1][1]
    assert "'b' is missing" in told[3][1]
    assert "'It is 3!' has neither form" in told[-1][-1]


async def test_a_model_is_shown_the_beginning_of_its_reply_and_roles_alternate() -> None:
    async with opened(["", "x" * 3_000_000, "add", *ADD[1:], "Final Answer: 3"], "memory://", *TWO) as (
        executor,
        model,
    ):
        found = await executor.start(graph, "What is 1 + 2?", approve="none")
    assert found.output == "3"
    asked = model.requests[2].messages
    assert [message.role for message in asked] == ["system", *["user", "assistant"] * 2, "user"]
    assert (asked[2].content, len(asked[4].content)) == ("", 8001)
    assert all(len(message.content) < 1000 for message in (asked[3], asked[5]))


async def test_a_run_whose_corrections_use_up_its_steps_fails_and_says_so() -> None:
    found = await run(["subtract"], definition=tool_user(max_steps=1))
    assert found.error is not None
    assert (found.status, found.error.type) == ("failed", "AgentError")
    for words in ("raise max_steps", "'subtract' is not an available tool; choose one of: add, note"):
        assert words in found.error.message
    late = await run([*ADD, "Question: go on", "subtract"], definition=tool_user(max_steps=2))
    assert (late.status, late.output) == ("exhausted", "3")


async def test_corrections_are_bounded(store: str) -> None:
    for place, (name, replies) in enumerate(CORRECTED.items()):
        script = {one: good[-1:] for one, good in list(CORRECTED.items())[:place]}
        async with opened({**script, name: [replies[0]] * 3}, store, *TWO) as (executor, _):
            found = await executor.start(graph, "What is 1 + 2?", approve="none")
        assert found.error is not None
        assert (found.status, found.error.type, found.error.node) == ("failed", "AgentError", name)


async def test_a_reply_that_is_cut_off_is_corrected_unless_what_matters_is_there() -> None:
    cut = [
        Reply(text=text, finish="length") for text in ("add: it adds, and", '{"a": 1, "b": 2} so', "Final Answer: 3 or")
    ]
    found = await run([*cut, "Final Answer: 3"])
    assert (found.status, found.output) == ("completed", "3")


async def test_the_last_word_of_a_reply_that_is_cut_off_is_not_used() -> None:
    cut = [Reply(text=text, finish="length") for text in ("add", "The tool is add", "a=1, b=2")]
    found = await run([*cut[:2], "add", cut[2], "a=1, b=4", "Final Answer: 5"])
    assert (found.status, steps_of(found)[0]["tool_output"]) == ("completed", 5)
    closed = [Reply(text=text, finish="length") for text in ('{"tool": "add"}', "add(1, 2)")]
    found = await run([*closed, "Final Answer: 3"])
    assert (found.status, steps_of(found)[0]["tool_output"]) == ("completed", 3)


async def test_decisions_are_requested_by_schema_unless_they_are_never_constrained() -> None:
    replies = ['{"tool": "add"}', '{"a": 1, "b": 2}', '{"next": {"kind": "answer", "answer": "3"}}']
    async with opened(replies, "memory://", *TWO) as (executor, model):
        found = await executor.start(graph, "What is 1 + 2?", approve="none")
    assert found.output == "3"
    chosen, given, thought = [request.output or {} for request in model.requests]
    assert chosen["properties"] == {"tool": {"type": "string", "enum": ["add", "note"]}}
    assert given == add.parameters
    assert "anyOf" in thought["properties"]["next"]  # type: ignore[index]
    async with opened(["add", '{"a": 1, "b": 2}', "Final Answer: 3"], "memory://", *TWO) as (executor, model):
        found = await executor.start(tool_user(constrain="never"), "What is 1 + 2?", approve="none")
    assert found.output == "3"
    assert [request.output for request in model.requests] == [None] * 3
    # Small models follow what is asked for at the end; they answer the question otherwise.
    assert model.requests[0].messages[-1].content.endswith("\n\nAnswer with one word, the name of the tool.")
    assert ChooseTool(constrain="never").with_(constrain="auto") == ChooseTool()
    assert ChooseTool(prompt="{question}").with_(constrain="never").prompt == "{question}"


async def test_with_on_error_observe_the_model_is_told_of_its_mistakes(store: str) -> None:
    replies = [
        "subtract", "Question: again",
        "add", "a=1", "Question: once more",
        "add", '{"a": 1, "b": 2}', "3!", "Final Answer: 3",
    ]  # fmt: skip
    found = await run(replies, store, definition=tool_user(on_error="observe"))
    assert (found.status, found.output) == ("completed", "3")
    assert [(step["tool_choice"], step["tool_args"], step["tool_exit_code"]) for step in steps_of(found)] == [
        ("", {}, 1), ("add", {}, 1), ("add", {"a": 1, "b": 2}, 0), ("", {}, 1),
    ]  # fmt: skip


async def test_with_on_error_observe_mistakes_count_as_steps_too() -> None:
    def reply(request: ModelRequest) -> str:
        return "Question: again" if request.task == "think" else "subtract"

    found = await run(reply, definition=tool_user(on_error="observe", max_steps=4))
    assert (found.status, len(steps_of(found))) == ("exhausted", 4)
    mad = await run(lambda request: "mumble", definition=tool_user(on_error="observe", max_steps=4))
    assert mad.status == "exhausted"
    assert len(steps_of(mad)) <= 20


async def test_with_on_error_observe_other_failures_still_fail_the_run() -> None:
    found = await run([ZeroDivisionError("the model is down")], definition=tool_user(on_error="observe"))
    assert found.status == "failed"
    assert found.error is not None
    assert "the model is down" in found.error.message


# -- tools and models ----------------------------------------------------------------------------------------------


async def test_s35_tools_such_as_an_interpreter_and_a_terminal_can_be_given() -> None:
    class PythonInterpreterTool(Tool):
        name = "Python Interpreter"

        def call(self, code: str, vars: dict[str, Any], timeout: int = 60) -> str:  # noqa: A002  the seed's own name
            """Run python code."""
            return f"{len(code)} characters, {timeout} s"

    replies = ['{"code": "print(1)", "vars": {}, "timeout": "30"}', "Final Answer: done"]
    found = await run(replies, tools=(PythonInterpreterTool(),))
    assert steps_of(found)[0]["tool_output"] == "8 characters, 30 s"


class Asked(RequestModel):
    """A model of somebody else's."""

    name = "asked"

    def __init__(self, reply: Callable[[ModelRequest], Any]) -> None:
        self._reply = reply

    async def respond(self, request: ModelRequest) -> Reply:
        found: Reply = await self._reply(request)
        return found


async def test_s36_any_model_with_an_async_reply_will_do() -> None:
    words = {"choose_tool": "add", "choose_args": '{"a": 1, "b": 2}', "think": "Final Answer: 3"}

    async def reply(request: ModelRequest) -> Reply:
        return Reply(text=words[request.task or ""])

    async with Executor(model=Asked(reply), tools=TWO) as executor:
        found = await executor.start(graph, "What is 1 + 2?", approve="none")
    assert found.output == "3"


# -- as data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@pytest.mark.parametrize("options", [{}, {"on_denied": "observe", "on_error": "observe", "last_answer": True}])
async def test_it_is_data_and_runs_the_same_from_a_file(tmp_path: Path, suffix: str, options: dict[str, Any]) -> None:
    path = tmp_path / f"tool_user.{suffix}"
    original = tool_user(**options)
    original.save(path)
    loaded = Graph.load(path)
    assert (loaded.structure, loaded.content) == (original.structure, original.content)
    for definition in (original, loaded):
        found = await run([*ADD, "Final Answer: 3"], definition=definition)
        assert (found.status, found.output) == ("completed", "3")
    timed_out = await run(ADD, definition=loaded.with_limits(steps=4))
    assert (timed_out.status, timed_out.output) == ("exhausted", "3")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 20+(2*4)? Calculate step by step.", "28"),
        ("What is (3+4)*(10-2)/7?", "8"),
        ("What is 2^10?", "1024"),
    ],
)
async def test_offline_it_really_calculates_whatever_the_prompts_say(store: str, question: str, answer: str) -> None:
    reworded = graph.replace(
        choose_tool=CHOOSE.with_(system="Pick.", prompt="{tools}; {question}"),
        think=Think(corrections="corrections", system="What now?", prompt="{steps} for {question}"),
    )
    async with Executor(store, model=OfflineModel(), tools=tools_from_ref("arithmetic")) as executor:
        for definition in (graph, reworded):
            found = await executor.start(definition, question, approve="none")
            assert (found.status, found.output, found.values["exit_code"]) == ("completed", answer, 0)
