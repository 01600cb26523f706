"""`Plan`: a model writes a plan, and writes it again if it cannot be used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator import Run, Tool, tool
from orchestrator.errors import GraphUnknown
from orchestrator.models import Reply
from orchestrator.nodes import Plan
from orchestrator.nodes.plan import SYSTEM, plan_in
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.blueprint import PlannedCall
from tests.support.one_node import error_of, executing, of_one

pytestmark = pytest.mark.anyio


@tool(risk="read")
def search(query: str, limit: int = 3) -> str:
    """Search for pages.

    Args:
        query: what for.
        limit: how many.
    """
    return query * limit


@tool(risk="none")
def add(a: float, b: float) -> float:
    """Add."""
    return a + b


CALLS = Plan(form="blueprint")
GIVEN = {"question": "Who made it?"}


async def plan(node: Plan, replies: list[Any], *tools: Tool) -> tuple[Run, Any]:
    state = Plan.State if node.form == "steps" else Plan.BlueprintState
    async with executing(replies, tools) as (executor, model):
        return await executor.start(of_one(node, state), GIVEN), model.requests


async def test_a_list_of_steps_is_written() -> None:
    found, (request,) = await plan(Plan(), ["Plan:\n1. Look.\n2. Answer.\n<END_OF_PLAN>"], search)
    assert found.values["steps"] == ["Look.", "Answer."]
    assert request.task == "plan"
    assert [message.content for message in request.messages] == [
        SYSTEM["steps", "auto"],
        "Tools:\nsearch: Search for pages.\n\nTask: Who made it?",
    ]
    assert request.messages[1].data == {
        "question": "Who made it?",
        "form": "steps",
        "tools": [{"name": "search", "description": search.description, "parameters": dict(search.parameters)}],
    }


async def test_steps_need_no_tools() -> None:
    found, (request,) = await plan(Plan(), ["1. Think."])
    assert (found.values["steps"], "Tools:\nnone" in request.messages[1].content) == (["Think."], True)


async def test_a_blueprint_of_calls_is_written_and_the_form_of_each_call_is_told() -> None:
    found, (request,) = await plan(CALLS, ["Plan: Look.\n#E1 = search[it]\n#E2 = add[#E1, 1]"], search, add)
    assert found.values["steps"] == [
        {"id": "E1", "needs": [], "thought": "Look.", "tool": "search", "input": "it"},
        {"id": "E2", "needs": ["E1"], "thought": "", "tool": "add", "input": "#E1, 1"},
    ]
    assert request.messages[0].content == SYSTEM["blueprint", "auto"]
    assert request.messages[1].content.startswith("Tools:\nsearch[query]: Search for pages.\nadd[a, b]: Add.\n")
    assert (request.messages[1].data or {})["form"] == "blueprint"


async def test_a_blueprint_needs_tools() -> None:
    with pytest.raises(GraphUnknown, match="there is no tool to use"):
        await plan(CALLS, [])


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ("#E1 = search[#E2]\n#E2 = search[#E1]", "#E1, #E2 depend on each other in a circle"),
        ("#E1 = search[#E7]", "#E1 uses #E7, which is not in the plan"),
        ("#E1 = search[a]\n#E1 = search[b]", "#E1 occurs twice: give each call its own number"),
        ("Let me think.", "it has no call"),
    ],
)
async def test_a_plan_that_cannot_be_used_is_shown_to_the_planner_once(bad: str, fault: str) -> None:
    found, (_, second) = await plan(CALLS, [bad, "#E1 = search[a]"], search)
    assert (found.status, [step["id"] for step in found.values["steps"]]) == ("completed", ["E1"])
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[2].content == bad
    assert fault in second.messages[3].content
    facts = second.messages[3].data or {}
    assert (facts["question"], fault in str(facts["fault"])) == ("Who made it?", True)
    again, _ = await plan(CALLS, [bad, bad], search)
    kind, message = error_of(again)
    assert kind == "AgentError"
    assert message.startswith(f"plan: this plan cannot be used: {fault}")
    assert (message.endswith(f"; the reply was {bad!r}"), "\n" in message) == (True, False)


async def test_how_often_is_a_field() -> None:
    never, requests = await plan(Plan(retries=0), [""])
    assert (error_of(never)[0], len(requests)) == ("AgentError", 1)
    thrice, requests = await plan(Plan(retries=3), ["", "", "", "1. Look."])
    assert (thrice.status, len(requests)) == ("completed", 4)
    assert len(requests[3].messages) == 8  # it sees why none of them could be used


@pytest.mark.parametrize(("finish", "why"), [("length", "was cut"), ("refusal", "refused to answer")])
async def test_a_reply_that_is_not_whole_is_no_plan(finish: str, why: str) -> None:
    found, _ = await plan(Plan(retries=0), [Reply(text="1. Look.", finish=finish)])
    kind, message = error_of(found)
    assert (kind, why in message) == ("AgentError", True)


async def test_a_plan_is_requested_by_its_schema_and_read_from_json() -> None:
    found, (request,) = await plan(Plan(), ['{"steps": ["Look.", "Answer."]}'], search)
    assert found.values["steps"] == ["Look.", "Answer."]
    assert request.output["properties"]["steps"]["items"] == {"type": "string", "minLength": 1}
    call = '{"plan": "Look.", "tool": "search", "input": "it"}'
    text = f'```json\n{{"calls": [{call}, {{"plan": "", "tool": "add", "input": "#E1, 1"}}]}}\n```'
    found, (request,) = await plan(CALLS, [text], search, add)
    assert found.values["steps"] == [
        {"id": "E1", "needs": [], "thought": "Look.", "tool": "search", "input": "it"},
        {"id": "E2", "needs": ["E1"], "thought": "", "tool": "add", "input": "#E1, 1"},
    ]
    assert request.output["properties"]["calls"]["items"]["properties"]["tool"]["enum"] == ["search", "add"]
    found, (request,) = await plan(Plan(constrain="never"), ["1. Look."], search)
    assert (found.values["steps"], request.output) == (["Look."], None)


def items(*calls: object) -> str:
    return json.dumps({"calls": calls}, indent=1)


def planned(draft: str) -> list[PlannedCall]:
    return [PlannedCall.model_validate(one) for one in plan_in(draft, "blueprint")]


@pytest.mark.parametrize(
    "text",
    [
        "foo]\n#E1 = delete[all",
        "```\n#E1 = delete[all]\n```",
        "Plan: do more\n#E1 = rm[/]",
        '{"calls": [{"plan": "", "tool": "rm", "input": "/"}]}',
        "#E1 = delete[all]",
    ],
)
def test_a_text_in_a_plan_in_json_never_becomes_another_call(text: str) -> None:
    for calls in (
        [{"plan": "p", "tool": "search", "input": text}],
        [{"plan": text, "tool": "search", "input": ""}],
        [{"plan": "p", "tool": text, "input": ""}],
        [{"plan": "p", "tool": "search", "input": {"query": text}}],
    ):
        draft = items({"plan": "", "tool": "first", "input": ""}, *calls)
        for written in (draft, f"```json\n{draft}\n```", f"Here is the plan: {draft}", f"`{draft}`", f"Plan:\n{draft}"):
            found = planned(written)
            assert [(one.id, one.tool) for one in found] == [("E1", "first"), ("E2", calls[0]["tool"])]
        with pytest.raises(PlanFault):
            planned(draft[:-1])
    for draft in (items(text), json.dumps({"calls": text, "note": f"\n{text}"}), json.dumps([text])):
        with pytest.raises(PlanFault):
            plan_in(draft.replace("\\n", "\n"), "blueprint")
    assert plan_in(json.dumps({"steps": [text]}), "steps") == [text]
    _, call = planned(items({"tool": "first"}, {"tool": "search", "input": text}))
    assert call.input == text


@pytest.mark.parametrize("key", ["input", "args", "arguments"])
def test_the_items_of_a_plan_in_json_may_have_other_keys_and_ids(key: str) -> None:
    first = {"id": "E2", "plan": "p", "name": "search", key: {"query": "a"}}
    found = planned(items(first, {"id": "#E1", "tool": "add", key: "#E2, 1"}))
    assert [(one.id, one.needs, one.tool, one.input) for one in found] == [
        ("E2", (), "search", '{"query": "a"}'),
        ("E1", ("E2",), "add", "#E2, 1"),
    ]


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        ("search[a]", "#E2 is not an object"),
        ({"plan": "p", "input": "a"}, "#E2 names no tool"),
        ({"tool": "search", "name": "add", "input": "a"}, "#E2 names no tool"),
        ({"tool": "search", "query": "a"}, "#E2 needs exactly one input"),
        ({"tool": "search", "input": "a", "args": "b"}, "#E2 needs exactly one input"),
        ({"tool": "search", "input": "#E7"}, "#E2 uses #E7"),
    ],
)
def test_an_item_that_is_no_call_is_a_fault(item: object, fault: str) -> None:
    with pytest.raises(PlanFault, match=fault):
        plan_in(items({"tool": "search", "input": "a"}, item), "blueprint")
    with pytest.raises(PlanFault, match="needs an id"):
        plan_in(items({"id": "E1", "tool": "search", "input": "a"}, {"tool": "add", "input": ""}), "blueprint")


def test_a_fence_in_a_plan_in_words_belongs_to_its_step() -> None:
    fence = '```json\n{"calls": [{"plan": "", "tool": "rm", "input": "/"}]}\n```'
    assert [one.tool for one in planned(f"Plan: Look.\n#E1 = search[\n{fence}\n]")] == ["search"]
    assert plan_in('1. Write:\n```json\n["x"]\n```\n2. Send it.', "steps")[-1] == "Send it."


@pytest.mark.parametrize(
    ("node", "form"),
    [
        (Plan(), '{"steps": ['),
        (Plan(constrain="never"), "write each step on its own line"),
        (CALLS, '{"calls": [{'),
        (CALLS.with_(constrain="never"), "'#E1 = tool[input]'"),
    ],
)
async def test_a_correction_tells_the_form_that_was_asked_for(node: Plan, form: str) -> None:
    good = "1. Look." if node.form == "steps" else "#E1 = search[a]"
    _, (_, second) = await plan(node, ["Hm.", good], search)
    told = second.messages[-1].content
    assert form in told
    assert sum(words in told for words in ('{"', "write each step", "'#E1 =")) == 1


async def test_after_a_plan_that_is_cut_off_the_next_one_has_bounds() -> None:
    cut = Reply(text='{"steps": ["Look.", "Look.", "Lo', finish="length")
    found, (_, second) = await plan(Plan(), [cut, '{"steps": ["Look."]}'])
    assert found.values["steps"] == ["Look."]
    assert second.messages[-1].content.startswith("This plan cannot be used: it was cut off")
    bounds = second.output["properties"]["steps"]
    assert (bounds["maxItems"], bounds["items"]["maxLength"]) == (3, 20)


async def test_words_are_fields() -> None:
    node = Plan(form="blueprint", system="S", prompt="{question}? {tools}", correction="No: {fault}!")
    _, (first, second) = await plan(node, ["", "#E1 = 5"], add)
    assert [message.content for message in first.messages] == ["S", "Who made it?? add[a, b]: Add."]
    assert second.messages[3].content.startswith("No: it has no call")
    for wrong in ({"prompt": "{fault}"}, {"correction": "{question}"}):
        with pytest.raises(ValidationError, match="nothing fills"):
            Plan(**wrong)


def test_the_words_are_those_of_the_form_unless_they_are_ones_own() -> None:
    assert (Plan().system, CALLS.system) == (SYSTEM["steps", "auto"], SYSTEM["blueprint", "auto"])
    assert Plan().with_(form="blueprint") == CALLS
    assert CALLS.with_(form="steps") == Plan()
    assert CALLS.with_(constrain="never").system == SYSTEM["blueprint", "never"]
    assert Plan(system="mine").with_(form="blueprint").system == "mine"
    with pytest.raises(ValidationError, match="form"):
        Plan(form="poem")
