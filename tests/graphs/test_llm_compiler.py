"""LLMCompiler: what its joiner writes, plans that are made again, and calls at the same time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator import Deny, Executor, Run, tool
from orchestrator.strategies.llm_compiler import llm_compiler
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio
PLAN = "1. search(Oslo)\n2. search(Bergen)\n3. subtract($1, $2)\n4. join()"


@tool(risk="none")
def search(what: str) -> int:
    """Look up how many people live there."""
    return {"Oslo": 720, "Bergen": 290}.get(what, 0)


@tool(risk="none")
def subtract(a: int, b: int) -> int:
    """Subtract."""
    return a - b


@tool(risk="write", effect="idempotent")
def save(what: str) -> str:
    """Save something."""
    return f"saved {what}"


async def run_of(script: Any, **options: Any) -> tuple[Run, ScriptedModel]:
    model = ScriptedModel(script)
    return await llm_compiler(**options).run("How many more?", model=model, tools=[search, subtract, save]), model


# Replies of joiners, of the paper and of models; written before the reader.
FINISHED: list[tuple[str, str]] = [
    ("Thought: I know it.\nAction: Finish(430)", "430"),
    ("Thought: 720 - 290 is 430.\nAction: Finish(430)\n", "430"),
    ("Action: Finish(430)", "430"),
    ("Action: Finish[430]", "430"),
    ("Finish(430)", "430"),
    ("**Action:** Finish(430)", "430"),
    ("action: finish(430)", "430"),
    ("Thought: f(x) is (430).\nAction: Finish(The answer is 430 (in thousands).)", "The answer is 430 (in thousands)."),
    ('Thought: ok\nAction: Finish("430")', "430"),
    ("Action: Finish(430)<END_OF_RESPONSE>", "430"),
    ("Thought: ok\nAction: Finish: 430", "430"),
    ("Thought: ok\nAction: Finish", "ok"),
    ("```\nThought: ok\nAction: Finish(430)\n```", "430"),
    ("<think>Replan(x)?</think>Action: Finish(430)", "430"),
    ("There are 430 more.", "There are 430 more."),
    ("Thought: Oslo has more.\nAnswer: 430", "430"),
    ("Action: Finish(line one\nline two)", "line one\nline two"),
    ("Action: Finish(430)\nAction: Replan(look again)", "430"),
    ("Action: Finish(430) because the difference (720 - 290) is 430.", "430"),
    ("Action: Finish(430 (in thousands)", "430 (in thousands"),
    ("Thought: I know it. Action: Finish(430)", "430"),
    ("1. Thought: I know it.\n2. Action: Finish(430)", "430"),
    ("Thought: I know it.\nAction:\nFinish(430)", "430"),
    ("Action: `Finish(430)`", "430"),
    ('Action: "Finish(430)"', "430"),
    ("Action: **Finish(430)**", "430"),
    ("**Action: Finish(430)**", "430"),
    ("Thought: I will Finish(430).", "430"),
    ("Thought: There is no need to replan.\nAction: Finish(430)", "430"),
    ("Thought: It lacks a year. Replan(x) is possible.\nAction: Finish(430)", "430"),
    ("Action: Finish(I would replan: look again)", "I would replan: look again"),
    ('{"thought": "ok", "action": "Finish", "answer": "430"}', "430"),
    ('```json\n{"action": "Finish", "input": 430}\n```', "430"),
    ('{"thought": "ok", "action": "Finish(430)"}', "430"),
    ('{"Thought": "430", "Action": "Finish"}', "430"),
    ('{"answer": "430"}', "430"),
    ('{"more": 430}', '{"more": 430}'),
    ("The race will finish (as planned) at noon.", "The race will finish (as planned) at noon."),
]
AGAIN: list[tuple[str, str]] = [
    ("Thought: Bergen is missing.\nAction: Replan(look up Bergen)", "look up Bergen"),
    ("Thought: Bergen is missing.\nAction: Replan", "Bergen is missing."),
    ("Action: Replan()", "the results are not enough"),
    ("Thought: Bergen is missing.\nAction: Replan()", "Bergen is missing."),
    ("**Action**: Replan[look up Bergen]", "look up Bergen"),
    ("Replan(look up Bergen)", "look up Bergen"),
    ("Thought: more.\nAction: Re-plan(look up Bergen)", "look up Bergen"),
    ("Thought: not enough. Action: Replan(look up Bergen)", "look up Bergen"),
    ("1. Thought: Bergen is missing.\n2. Action: Replan(look up Bergen)", "look up Bergen"),
    ("Action: `Replan(look up Bergen)`", "look up Bergen"),
    ("Action: Replan - look up Bergen", "look up Bergen"),
    ("Action: Replan.", "the results are not enough"),
    ('Thought: Bergen is missing.\nAction: "Replan"', "Bergen is missing."),
    ("Thought: Bergen is missing. Replan", "Bergen is missing."),
    ("Thought: I need to Replan: look up Bergen.", "look up Bergen."),
    ("Bergen is missing, so we need to replan.", "Bergen is missing, so we need to replan."),
    ('{"action": "Replan"}', "the results are not enough"),
    ('{"thought": "Bergen is missing.", "action": "Replan"}', "Bergen is missing."),
    ('{"action": "Replan", "reason": "look up Bergen"}', "look up Bergen"),
    ('{"action": "Replan(look up Bergen)"}', "look up Bergen"),
    ("<think>Finish(0)?</think>Action: Replan(look up Bergen)", "look up Bergen"),
]
UNREAD = [
    "Action: Search(Bergen)",
    "Thought: Bergen is missing.\nAction:",
    "There is no need to replan.",
    "I can Finish(430) or Replan(look up Bergen)",
    "We could replan the search for Bergen.",
    '{"action": "search", "input": "Bergen"}',
    '{"action": {"name": "Bergen"}}',
]


@pytest.mark.parametrize(("reply", "answer"), FINISHED)
async def test_a_joiner_finishes(reply: str, answer: str) -> None:
    run, _ = await run_of({"plan": [PLAN], "join": [reply]})
    assert (run.status, run.output) == ("completed", answer), run.error


@pytest.mark.parametrize(("reply", "reason"), AGAIN)
async def test_a_joiner_plans_again(reply: str, reason: str) -> None:
    run, model = await run_of({"plan": ["1. search(Oslo)\n2. join()", PLAN], "join": [reply, "Action: Finish(430)"]})
    assert (run.status, run.output) == ("completed", "430"), run.error
    told = model.requests[2].messages[-1].content
    assert "$1 = search(Oslo) -> 720" in told
    assert told.rstrip().endswith(f"Why: {reason}")


@pytest.mark.parametrize("reply", UNREAD)
async def test_a_joiner_whose_action_cannot_be_read_does_not_answer(reply: str) -> None:
    run, model = await run_of({"plan": [PLAN, PLAN], "join": [reply, "Action: Finish(430)"]})
    assert (run.status, run.output) == ("completed", "430"), run.error
    assert f"Why: its action cannot be read: {reply!r}" in model.requests[2].messages[-1].content


async def test_a_plan_that_loses_a_call_goes_back_to_the_planner() -> None:
    plans = ["1. search(Oslo)\n2. Look up Bergen.\n3. join()", PLAN]
    run, model = await run_of({"plan": plans, "join": ["Action: Finish(430)"]}, constrain="never")
    assert (run.status, run.output, len(run.values["steps"])) == ("completed", "430", 3), run.error
    assert "#E2 is not a call" in model.requests[1].messages[-1].content


async def test_the_joiner_sees_each_call_with_its_result() -> None:
    plan = {
        "calls": [
            {"tool": "search", "input": "Oslo"},
            {"tool": "nope", "input": "x"},
            {"tool": "search", "input": "$2"},
        ]
    }
    _, model = await run_of({"plan": [json.dumps(plan)], "join": ["Action: Finish(0)"]})
    told = model.requests[-1].messages[-1].content
    assert "$1 = search(Oslo) -> 720\n$2 = nope(x) -> Error: 'nope' is not an available tool" in told


async def test_results_are_shown_as_they_are() -> None:
    @tool(risk="none")
    def paint(what: str) -> str:
        """Choose a colour."""
        return f"#E0E0E0 after {what}"

    model = ScriptedModel({"plan": ["1. paint(a door)\n2. paint($1)\n3. join()"], "join": ["Action: Finish(ok)"]})
    await llm_compiler().run("Which colour?", model=model, tools=[paint])
    told = model.requests[-1].messages[-1].content
    assert "$1 = paint(a door) -> #E0E0E0 after a door\n$2 = paint($1) -> #E0E0E0 after #E0E0E0" in told


@pytest.mark.parametrize("option", ["max_steps", "max_plans"])
def test_a_count_that_is_no_number_is_refused_by_its_name(option: str) -> None:
    with pytest.raises(ValueError, match=f"llm_compiler: {option}='2': give a whole number"):
        llm_compiler(**{option: "2"})


async def test_numbers_of_an_earlier_plan_do_not_reach_into_the_next() -> None:
    plans = ["1. search(Oslo)\n2. join()", "1. search(Bergen)\n2. subtract($1, 90)\n3. join()"]
    run, model = await run_of({"plan": plans, "join": ["Action: Replan(x)", "Action: Finish(ok)"]})
    assert "$1 = search(Bergen) -> 290\n$2 = subtract($1, 90) -> 200" in model.requests[-1].messages[-1].content
    assert {name: step["tool_output"] for name, step in run.values["evidence"].items()} == {"E1": 290, "E2": 200}


async def test_plans_without_end_are_bounded() -> None:
    run, model = await run_of(
        {"plan": lambda _: PLAN, "join": lambda _: "Thought: no.\nAction: Replan(x)"}, max_plans=2
    )
    assert (run.status, run.output) == ("exhausted", "no.")
    assert len(model.requests) == 4


async def test_a_denied_call_is_told_to_the_joiner() -> None:
    model = ScriptedModel({"plan": ["1. save(it)\n2. join()"], "join": ["Action: Finish(not saved)"]})
    async with Executor(model=model, tools=[save]) as executor:
        run = await executor.start(llm_compiler(), "Save it.")
        run = await executor.answer(run.run_id, run.waiting[0].id, Deny(reason="not now"))
    assert run.output == "not saved"
    assert "$1 = save(it) -> Error: the user denied this call: not now" in model.requests[-1].messages[-1].content


async def test_a_call_that_ends_the_work_gives_the_answer() -> None:
    @tool(risk="none", ends=True)
    def hand_in(text: str) -> str:
        """Hand in the answer."""
        return f"{text}!"

    model = ScriptedModel({"plan": ["1. search(Oslo)\n2. hand_in($1)\n3. join()"]})
    run = await llm_compiler().run("How many?", model=model, tools=[search, hand_in])
    assert (run.status, run.output) == ("completed", "720!")
