"""`OfflineModel` plans calculations, and answers from what came of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import anyio
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from orchestrator import OfflineModel, Tool, Toolbox, tool
from orchestrator.models import user
from orchestrator.nodes import Step
from orchestrator.nodes.planned_calls import arguments_of, evidence_in
from orchestrator.nodes.plans.blueprint import PlannedCall, read_blueprint
from orchestrator.nodes.plans.step_list import read_steps
from orchestrator.tools import tools_from_ref
from tests.models.expressions import TooLarge, expressions, worth
from tests.support.sizes import sized

ARITHMETIC = Toolbox(*tools_from_ref("arithmetic"))
ONLY = "I only do arithmetic"
quick = settings(max_examples=sized(15, 40), deadline=None)


def ask(task: str | None, facts: Mapping[str, Any], words: str = "Go on.", tools: Any = ()) -> str:
    async def call() -> str:
        reply = await OfflineModel().complete([user(words, data=dict(facts))], tools, task=task)
        return reply.text or repr([(call.name, call.arguments) for call in reply.tool_calls])

    return anyio.run(call)


def offered(tools: Toolbox) -> list[dict[str, Any]]:
    return [{"name": one.name, "description": one.description, "parameters": dict(one.parameters)} for one in tools]


def planned(question: str, tools: Toolbox = ARITHMETIC) -> str:
    return ask("plan", {"question": question, "form": "blueprint", "tools": offered(tools)})


def carried_out(question: str, tools: Toolbox = ARITHMETIC, order: int = 1) -> tuple[str, list[tuple[str, Any]]]:
    """The solver's answer after the planner's calls were made, and those calls.

    order: -1 tells the solver of independent calls in the reverse order.
    """

    async def work() -> tuple[dict[str, Step], list[tuple[str, Any]]]:
        evidence: dict[str, Step] = {}
        made: list[tuple[str, Any]] = []
        for call in plan:
            if not call.tool:
                evidence[call.id] = Step(question="", tool_choice="", tool_output=evidence_in(call.input, evidence))
                continue
            which = tools.tool_map[call.tool]
            args = which.validate(arguments_of(call, evidence, which.parameters))
            made.append((call.tool, args))
            result = await which.invoke(args)
            evidence[call.id] = Step(
                question="", tool_choice=call.tool, tool_args=args, tool_exit_code=result.exit_code,
                tool_output=result.error or result.output,
            )  # fmt: skip
        return evidence, made

    plan = read_blueprint(planned(question, tools))
    evidence, made = anyio.run(work)
    told = sorted(plan, key=lambda call: (len(_before(call.id, plan)), order * int(call.id[1:])))
    return ask("solve", {"question": question, "steps": [_fact(call.id, call, evidence) for call in told]}), made


def _before(name: str, plan: Sequence[PlannedCall]) -> set[str]:
    (call,) = (one for one in plan if one.id == name)
    return set(call.needs).union(*(_before(need, plan) for need in call.needs))


def _fact(name: str, call: Any, evidence: Mapping[str, Step]) -> dict[str, Any]:
    step = evidence[name]
    output, error = (None, step.tool_output) if step.failed else (step.tool_output, None)
    return {"id": name, "tool": call.tool, "args": step.tool_args, "output": output, "error": error}


def known(text: str) -> Fraction:
    try:
        return worth(text)
    except (ZeroDivisionError, TooLarge):
        assume(False)
        raise


# -- calls ---------------------------------------------------------------------------------------------------------


def test_a_call_is_planned_for_each_operation_before_anything_is_worked_out() -> None:
    assert planned("What is 20+(2*4)?") == (
        "Plan: Work out 2 * 4.\n#E1 = multiply[2, 4]\nPlan: Work out 20 + #E1.\n#E2 = add[20, #E1]"
    )
    assert planned("(1+2) * (1+2) - 3**2").count("#E1 = add[1, 2]") == 1
    assert planned("5") == "Plan: It is a number already.\n#E1 = 5"


@pytest.mark.full
@quick
@given(expressions("+ - *", powers=False, decimals=False), st.sampled_from((1, -1)))
@example("1 - (0 - (0 - 0))", 1)  # calls that are different ones in the plan, and the same one when they are made
@example("(2 - 2) * 7 + 0 * 7 + 5", 1)
@example("5 + (0 * 7 + (2 - 2) * 7)", -1)
@example("(0 - (0 + 4)) + (4 - 0)", 1)  # the same numbers the other way round
@example("100000 * 100000 + 1", 1)  # nearly the same number before and after
def test_what_is_planned_comes_to_the_value(text: str, order: int) -> None:
    assert carried_out(f"What is {text}?", order=order)[0] == str(known(text).numerator)


@pytest.mark.full
@quick
@given(expressions())
def test_with_tools_that_round_it_comes_to_the_same(text: str) -> None:
    value = known(text)
    assume(abs(value) < 10**15)
    answer, _ = carried_out(f"What is {text}?")
    assume("I cannot work out" not in answer)  # on the way there was too large a number, or none
    assert abs(Fraction(Decimal(answer)) - value) <= max(abs(value), Fraction(1)) / 10**6


@tool
def calculator(expression: str) -> float:
    """Works out an arithmetic expression."""
    return float(worth(expression))


@tool(name="sum_of")
def added(numbers: list[float]) -> float:
    """Adds all the numbers of a list."""
    return sum(numbers)


@tool
def divider(divisor: float, dividend: float) -> float:
    """Division of two numbers."""
    return dividend / divisor


@tool
def compute(operation: Literal["+", "-", "*", "/"], left: float, right: float) -> float:
    """Does arithmetic on two numbers."""
    return float(worth(f"({left}) {operation} ({right})"))


@pytest.mark.parametrize(
    ("tools", "question", "answer", "called"),
    [
        ([calculator], "(1 + 2) / 4", "0.75", ["calculator"]),
        ([added, divider], "(1 + 2) / 4", "0.75", ["sum_of", "divider"]),
        ([compute], "(1 + 2) / 4 - -1", "1.75", ["compute", "compute", "compute"]),
        ([added, calculator], "(1 + 2) / 4", "0.75", ["sum_of", "calculator"]),
    ],
)
def test_tools_of_any_make_are_planned_with(tools: list[Tool], question: str, answer: str, called: list[str]) -> None:
    found, made = carried_out(question, Toolbox(*tools))
    assert (found, [name for name, _ in made]) == (answer, called)


def test_what_no_tool_does_is_no_plan_but_says_so() -> None:
    text = planned("(1 + 2) * 3", Toolbox(ARITHMETIC.tool_map["add"]))
    assert text.startswith(f"{ONLY} with the tools that I get: for #E1 * 3 I need one that multiplies numbers")


def test_what_cannot_be_worked_out_is_planned_and_found_out() -> None:
    answer, made = carried_out("1 / (2 - 2)")
    assert [name for name, _ in made] == ["subtract", "divide"]
    assert answer == "I cannot work out 1 / 0: a tool failed: 1 cannot be divided by zero."


def test_evidence_that_does_not_help_is_no_answer() -> None:
    step = {"id": "E1", "tool": "add", "args": {"a": 1, "b": 2}, "output": 3, "error": None}
    assert ask("solve", {"question": "1 + 2", "steps": [step]}) == "3"
    assert ask("solve", {"question": "(1 + 2) * 3", "steps": [step]}) == "The plan does not finish: 3 * 3 is left."
    lost = {**step, "output": "many"}
    assert (
        ask("solve", {"question": "1 + 2", "steps": [lost]}) == "I cannot continue with 1 + 2: many is not one number."
    )


# -- steps ---------------------------------------------------------------------------------------------------------


def test_a_step_is_planned_for_each_operation_and_is_whole_in_itself() -> None:
    found = ask("plan", {"question": "What is 20+(2*4)?", "form": "steps", "tools": []})
    assert found == "Plan:\n1. What is 2 * 4?\n2. What is 20 + 8?\n<END_OF_PLAN>"
    assert read_steps(ask("plan", {"question": "5"})) == ["What is 5?"]
    assert read_steps(ask("plan", {"question": "1 / (2 - 2) + 3"})) == ["What is 2 - 2?", "What is 1 / 0?"]


@quick
@given(expressions("+ - *", powers=False, decimals=False))
def test_the_last_step_gives_the_value(text: str) -> None:
    steps = read_steps(ask("plan", {"question": f"What is {text}?"}))
    assert ask(None, {"question": steps[-1]}) == str(known(text).numerator)


BEFORE: list[dict[str, Any]] = [
    {"question": "What is 2 * 4?", "output": 8, "error": None},
    {"question": "What is 7 - 7?", "output": None, "error": "broken"},
]


def test_what_was_found_before_is_believed_where_it_belongs() -> None:
    assert ask(None, {"question": "20 + 2 * 4", "steps": BEFORE}) == "28"
    assert ask(None, {"question": "20 + 2 * 4", "steps": [{**BEFORE[0], "output": 9}]}) == "29"
    assert ask(None, {"question": "20 + 8", "steps": BEFORE}) == "28"
    call = ask(None, {"question": "20 + 2 * 4", "steps": BEFORE}, tools=ARITHMETIC)
    assert call == "To work out 20 + 8 I need 20 + 8."
    assert ask(None, {"question": "2 * 4", "steps": BEFORE}, tools=ARITHMETIC) == "8"
    failed = ask(None, {"question": "7 - 7", "steps": BEFORE}, tools=ARITHMETIC)
    assert failed == "I cannot work out 7 - 7: a tool failed: broken."


@pytest.mark.parametrize("facts", [{"form": "steps"}, {"form": "blueprint", "tools": []}, {"steps": []}])
def test_anything_else_is_not_planned(facts: dict[str, Any]) -> None:
    task = "solve" if "steps" in facts else "plan"
    assert ask(task, {"question": "Who wrote Hamlet?", **facts}).startswith(ONLY)
