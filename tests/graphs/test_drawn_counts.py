"""Drawings of the strategies: the count at each node that asks a model is the number of its calls in the journal."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Approve, Deny, Executor, Graph, Run, tool
from orchestrator.errors import ModelUnavailable, ToolError
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.render.moments import replay
from orchestrator.strategies.chat import chat
from orchestrator.strategies.code_act import code_act
from orchestrator.strategies.evaluator_optimizer import evaluator_optimizer
from orchestrator.strategies.function_call import function_call
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.llm_compiler import llm_compiler
from orchestrator.strategies.orchestrator_workers import orchestrator_workers
from orchestrator.strategies.plan_and_execute import plan_and_execute
from orchestrator.strategies.plan_and_solve import plan_and_solve
from orchestrator.strategies.plan_and_solve_prompt import plan_and_solve_prompt
from orchestrator.strategies.react import react
from orchestrator.strategies.reflexion import reflexion
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.router import router
from orchestrator.strategies.self_ask import self_ask
from orchestrator.strategies.self_consistency import self_consistency
from orchestrator.strategies.supervisor import supervisor
from orchestrator.strategies.swarm import swarm
from orchestrator.strategies.tool_user import tool_user
from orchestrator.strategies.tree_of_thoughts import tree_of_thoughts
from orchestrator.testing import MockClock, ScriptedModel
from tests.data import kept_places
from tests.render.counts import corrected_within, drawn_calls, journaled_calls
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio


@tool(risk="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(risk="none")
def now() -> int:
    """Say what time it is."""
    return 12


@tool(risk="write")
def put(x: int) -> int:
    """Put a number down."""
    return x


@tool(risk="none")
def broken(x: int) -> int:
    """Break."""
    raise ToolError("out of order")


@tool(risk="none", ends=True)
def stop(x: int) -> int:
    """End the work."""
    return x


TOOLS = (add, now, put, broken, stop)
GOOD = {"a": 2, "b": 3}
Said = str | Reply | Exception


def calls(*made: tuple[str, dict[str, Any]], thought: str = "I look.") -> Reply:
    """A reply of a model that calls tools by itself."""
    return Reply(
        text=thought,
        tool_calls=tuple(ToolCall(id=f"{name}{n}", name=name, arguments=args) for n, (name, args) in enumerate(made)),
    )


CALLS: dict[str, list[Said]] = {
    "answered at once": ["5"],
    "one call": [calls(("add", GOOD)), "5"],
    "calls at the same time": [calls(("add", GOOD), ("put", {"x": 1}), ("now", {})), "5"],
    "rounds": [calls(("add", GOOD)), calls(("now", {})), "5"],
    "no thought": [calls(("add", GOOD), thought=""), calls(("add", GOOD)), "5"],
    "an empty reply": ["", calls(("add", GOOD)), "", "5"],
    "empty replies": ["", "", "", "", ""],
    "an unknown tool": [calls(("nope", {})), "5"],
    "invalid arguments": [calls(("add", {"a": "x"})), "5"],
    "a denied call": [calls(("put", {"x": 1})), "5"],
    "a failing tool": [calls(("broken", {"x": 1})), "5"],
    "a tool that ends the work": [calls(("stop", {"x": 1})), "5"],
    "a server that fails once": [ModelUnavailable("busy"), "5"],
    "a refusal": [Reply(text="no", finish="content_filter")],
}
"""Replies of a model that calls tools by itself."""
WORDS: dict[str, list[Said]] = {
    "answered": ["Thought: I add.\nAction: add[2, 3]", "Thought: Done.\nAction: Finish[5]"],
    "an unreadable action": [
        "Thought: I add.\nAction: add[2, 3", "Thought: I add.\nAction: add 2", "Thought: I add.\nAction: add[2, 3]",
        "Thought: Done.\nAction: Finish[5]",
    ],
    "unreadable actions": ["Thought: I add.\nAction: add(2 and 3"] * 5,
    "a thought alone": ["Thought: hm", "Action: add[2, 3]", "Thought: Done.\nAction: Finish[5]"],
    "no thought": ["Action: add[2, 3]", "Thought: I add.\nAction: add[2, 3]", "Thought: Done.\nAction: Finish[5]"],
    "an unknown tool": ["Thought: I add.\nAction: nope[2]", "Thought: Done.\nAction: Finish[5]"],
    "invalid arguments": ["Thought: I add.\nAction: add[x]", "Thought: Done.\nAction: Finish[5]"],
    "a denied call": ["Thought: I put.\nAction: put[1]", "Thought: Done.\nAction: Finish[5]"],
    "a failing tool": ["Thought: I try.\nAction: broken[1]", "Thought: Done.\nAction: Finish[5]"],
    "an empty reply": ["", "Thought: Done.\nAction: Finish[5]"],
}  # fmt: skip
"""Replies in the words of the paper of ReAct."""
STEPS = "Plan:\n1. Add 2 and 3.\n2. Say it.\n<END_OF_PLAN>"
BLUEPRINTS: dict[str, list[Said]] = {
    "two calls": ["Plan: add\n#E1 = add[2, 3]\nPlan: again\n#E2 = add[#E1, 1]", "6"],
    "a plan that cannot be used": ["Plan: add\n#E1 = add[#E7, 3]", "Plan: add\n#E1 = add[2, 3]", "5"],
    "plans that cannot be used": ["nothing", "nothing", "nothing"],
    "an unknown tool": ["Plan: add\n#E1 = nope[2, 3]", "5"],
    "invalid arguments": ["Plan: add\n#E1 = add[x]", "5"],
    "a denied call": ["Plan: put\n#E1 = put[1]", "5"],
    "a failing tool": ["Plan: try\n#E1 = broken[1]\nPlan: add\n#E2 = add[2, 3]", "5"],
    "a tool that ends the work": ["Plan: stop\n#E1 = stop[5]"],
    "an empty answer": ["Plan: add\n#E1 = add[2, 3]", ""],
    "an empty plan": ["", "Plan: add\n#E1 = add[2, 3]", "5"],
    "a server that fails once": [ModelUnavailable("busy"), "Plan: add\n#E1 = add[2, 3]", "5"],
}
CHOICES: dict[str, list[Said]] = {
    "answered": ["add", '{"a": 2, "b": 3}', "Final Answer: 5"],
    "asked on": [
        "add", '{"a": 2, "b": 3}', "Question: And the time?", "now", "Final Answer: 12",
    ],
    "an unknown tool": ["nope", "Final Answer: none"],
    "invalid arguments": ["add", '{"a": "x"}', "Final Answer: none"],
    "arguments that are no JSON": ["add", "two and three", "Final Answer: none"],
    "a denied call": ["put", '{"x": 1}', "Final Answer: none"],
    "a failing tool": ["broken", '{"x": 1}', "Final Answer: none"],
    "an unreadable thought": ["add", '{"a": 2, "b": 3}', "hm", "Final Answer: 5"],
    "an empty reply": ["", "Final Answer: none"],
    "a tool that ends the work": ["stop", '{"x": 1}'],
    "a server that fails once": [ModelUnavailable("busy"), "now", "Final Answer: 12"],
}  # fmt: skip
TEXTS: dict[str, list[Said]] = {
    "answered": ["2 + 3 = 5. The answer is 5.", "5"],
    "asked again": ["Let me think about 2 and 3.", "Therefore, the answer is 5."],
    "an empty reply": ["", ""],
}


def judged(**scores: int) -> str:
    """A judgement."""
    return json.dumps({"feedback": "Better.", "scores": scores})


JUDGED: dict[str, list[Said]] = {
    "accepted": ["5", judged(right=5)],
    "revised": ["4", judged(right=1), "5", judged(right=5)],
    "never accepted": ["4", *[judged(right=1), "3"] * 9],
    "a judgement that cannot be used": ["5", "fine", judged(right=9), judged(right=5)],
    "a server that fails once": [ModelUnavailable("busy"), "5", judged(right=5)],
}
TRIALS: dict[str, list[Said]] = {
    "accepted": [calls(("add", GOOD)), "5", judged(right=1)],
    "a second trial": ["4", judged(right=0), "I guessed.", calls(("add", GOOD)), "5", judged(right=1)],
    "a trial without an end": [*[calls(("add", GOOD))] * 2, judged(right=0), "Be brief.", "5", judged(right=1)],
    "a judgement that cannot be used": ["5", "fine", judged(right=1)],
}
REPLANS: dict[str, list[Said]] = {
    "as planned": [calls(("add", GOOD)), "5", '{"answer": "", "steps": ["It."]}', "6", '{"answer": "6", "steps": []}'],
    "done early": ["5", '{"answer": "5", "steps": []}'],
    "a denied call": [calls(("put", {"x": 1})), "5", '{"answer": "5", "steps": []}'],
    "a server that fails once": [ModelUnavailable("busy"), "5", '{"answer": "5", "steps": []}'],
}


def transfer(name: str) -> Reply:
    """A reply that hands the work over."""
    return calls((f"transfer_to_{name}", {"message": "What is 2 + 3?"}))


THOUGHTS: dict[str, list[Said]] = {
    "two levels": ['{"thoughts": ["a"]}', "5", '{"thoughts": ["b"]}', "7", "ab"],
    "no further step": ['{"thoughts": ["a"]}', "5", '{"thoughts": [" "]}', "a"],
}
TASKS: dict[str, list[Said]] = {
    "two calls": ["1. add(2, 3)\n2. add($1, 1)\n3. join()", "Action: Finish(6)"],
    "planned again": ["1. add(2, 3)\n2. join()", "Action: Replan(more)", "1. now()\n2. join()", "Action: Finish(6)"],
    "a plan that cannot be used": ["1. add($7, 3)", "1. add(2, 3)", "Action: Finish(5)"],
    "a denied call": ["1. put(1)", "Action: Finish(5)"],
    "a failing tool": ["1. broken(1)\n2. add(2, 3)", "Action: Finish(5)"],
}


CODES: dict[str, list[Said]] = {
    "two calls": ["```python\nprint(add(add(2, 3), 1))\n```", "6"],
    "an error": ["```python\nadd(\n```", "```python\nbroken(1)\n```", "5"],
    "an empty reply": ["", "5"],
    "a denied call": ["```python\nput(1)\n```", "5"],
    "a server that fails once": [ModelUnavailable("busy"), "```python\n1 + 1\n```", "5"],
    "spent steps": ["```python\n1 + 1\n```"] * 4,
}


@dataclass(frozen=True)
class Case:
    """A strategy with what its model says."""

    name: str
    graph: Graph
    replies: Sequence[Said]
    tools: Sequence[Any] = TOOLS
    approve: str | None = None


def _cases(name: str, graph: Graph, *scripts: dict[str, list[Said]], first: Sequence[Said] = ()) -> list[Case]:
    return [
        Case(f"{name}: {about}", graph, [*first, *replies]) for script in scripts for about, replies in script.items()
    ]


CASES = [
    *_cases("react", react(), CALLS),
    *_cases("react in words", react(protocol="bracket", retries=2), WORDS),
    *_cases("react as in the paper", react(protocol="bracket", on_unreadable="observe"), WORDS),
    *_cases("react with a last answer", react(max_steps=1, last_answer=True), CALLS),
    *_cases("function_call", function_call(), CALLS),
    *_cases("function_call_agent", function_call_agent(max_steps=2), CALLS),
    *_cases("chat", chat(), CALLS),
    *_cases("plan_and_solve", plan_and_solve(), CALLS, first=[STEPS]),
    *_cases("plan_and_solve, replanned", plan_and_solve(), {"one call": CALLS["one call"]}, first=["no plan", STEPS]),
    *_cases("plan_and_solve without a plan", plan_and_solve(), {"twice": ["no plan", "no plan", "no plan"]}),
    *_cases("plan_and_solve_prompt", plan_and_solve_prompt(), TEXTS),
    *_cases("rewoo", rewoo(), BLUEPRINTS),
    *_cases("tool_user", tool_user(on_denied="observe", on_error="observe"), CHOICES),
    *_cases("tool_user that raises", tool_user(on_error="raise"), CHOICES),
    *_cases("tool_user that corrects", tool_user(), CHOICES),
    *_cases("self_consistency", self_consistency(1), TEXTS),
    *_cases("evaluator_optimizer", evaluator_optimizer(rubric={"right": "it is"}), JUDGED),
    *_cases("router", router(max_steps=2), CALLS, first=["complex"]),
    *_cases("orchestrator_workers", orchestrator_workers(2), CALLS, first=["Plan:\n1. Add 2 and 3.\n<END_OF_PLAN>"]),
    *_cases("reflexion", reflexion(2, rubric={"right": "it is"}, max_rounds=2), TRIALS),
    *_cases("self_ask", self_ask(), CALLS, first=["Question: What is 2 + 3?"]),
    *_cases("self_ask alone", self_ask(follow_up="model"), {"asked": ["Follow up: 2?", "2", "hm", "Answer: 2"]}),
    *_cases("supervisor", supervisor(max_rounds=2), {"one agent": [transfer("writer"), "a line", "A line."]}),
    *_cases("supervisor", supervisor(max_rounds=2), CALLS, first=[transfer("worker")]),
    *_cases("swarm", swarm(tools=TOOLS), CALLS, first=[transfer("research")]),
    *_cases("tree_of_thoughts", tree_of_thoughts(2, branches=1, beam=1), THOUGHTS),
    *_cases("llm_compiler", llm_compiler(), TASKS),
    *_cases("code_act", code_act(3, last_answer=True), CODES),
    *_cases("plan_and_execute", plan_and_execute(), REPLANS, first=[STEPS]),
    Case("tool_user with one tool", tool_user(), ['{"a": 2, "b": 3}', "Final Answer: 5"], [add]),
    Case("tool_user with nothing to choose", tool_user(), ["Question: Again?", "Final Answer: 12"], [now], "dangerous"),
]


# `Solve` and `Complete` ask once more within their step, and self_ask decides again after "5", which has no form.
ASKED_WITHIN = {
    "rewoo: an empty answer",
    "self_ask: a tool that ends the work",
    "plan_and_solve_prompt: an empty reply",
    "self_consistency: an empty reply",
}


async def to_its_end(executor: Executor, case: Case) -> Run:
    """The run of a case: a call that is asked about is denied if the case says so, and made otherwise."""
    run = await executor.start(case.graph, "What is 2 + 3?", approve=case.approve)
    while run.status == "paused" and run.waiting[0].kind == "approval":
        answer = Deny(reason="no") if "denied" in case.name else Approve()
        run = await executor.answer(run.run_id, run.waiting[0].id, answer)
    return run


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES[:: sized(5, 1)]])
@quick_on("asyncio")
async def test_the_count_of_each_node_that_asks_a_model_is_that_of_its_calls(case: Case) -> None:
    model = ScriptedModel([*case.replies, *["5"] * 9])
    async with Executor(model=model, tools=case.tools, clock=MockClock()) as executor:
        run = await to_its_end(executor, case)
        made = journaled_calls(run)
        assert drawn_calls(run) == made, f"{run.status} {run.error}"
        failed_again = "corrects" in case.name and run.status == "failed"  # the failed step is drawn apart
        if (
            "server" not in case.name and not failed_again and case.name not in ASKED_WITHIN
        ):  # another attempt asks again
            assert corrected_within(run) == []  # what is drawn is what runs: each call is a step of its own
        assert sum(made.values()) == len(model.requests)  # none is drawn nowhere
        assert replay(run.definition, run.records(), plan=run.plan).last == run.overlay()


@quick_on("asyncio")
async def test_it_is_so_at_every_record_of_a_run() -> None:
    case = next(case for case in CASES if case.name == "react: an empty reply")
    async with Executor(model=ScriptedModel(case.replies), tools=case.tools) as executor:
        run = await to_its_end(executor, case)
        for seq in range(1, run.seq + 1):
            then = await executor.load(run.run_id, at=seq)
            assert drawn_calls(then) == journaled_calls(then)


@pytest.mark.full
@quick_on("asyncio")
async def test_it_is_so_of_kept_runs_at_every_place(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    store.write_bytes(lzma.decompress(kept_places.STORE.read_bytes()))
    async with Executor(f"sqlite:///{store}") as executor:
        listed = [entry.run_id for entry in (await executor.runs(limit=1000)).runs]
        assert listed
        for run_id in listed[:: sized(7, 1)]:
            run = await executor.load(run_id)
            assert drawn_calls(run) == journaled_calls(run), run_id
