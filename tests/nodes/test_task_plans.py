"""Plans of LLMCompiler as models write them: which calls they have, and what each of them needs."""

from __future__ import annotations

import pytest

from orchestrator.nodes.plan import plan_in
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.blueprint import PlannedCall

# The paper's plans, those of its repository, and what models make of them; written before the parser.

PLANS: dict[str, tuple[str, str]] = {
    "the paper's": (
        '1. search("Scott Derrickson")\n2. search("Ed Wood")\nThought: I can answer now.\n3. join()<END_OF_PLAN>',
        'E1 search["Scott Derrickson"]; E2 search["Ed Wood"]',
    ),
    "with references": (
        '1. search("Mount Everest")\n2. search("K2")\n3. math("difference", ["$1", "$2"])\n4. join()\n<END_OF_PLAN>',
        'E1 search["Mount Everest"]; E2 search["K2"]; E3 math["difference", ["#E1", "#E2"]] <- E1 E2',
    ),
    "braces": (
        '1. search("Everest")\n2. math("${1} in feet")\n3. join()',
        'E1 search["Everest"]; E2 math["#E1 in feet"] <- E1',
    ),
    "bare references": ("1. add(3, 4)\n2. add(2, 4)\n3. multiply($1, $2)\n4. join()",
        "E1 add[3, 4]; E2 add[2, 4]; E3 multiply[#E1, #E2] <- E1 E2"),
    "thoughts": (
        "Thought: First the sum.\n1. add(3, 4)\nThought: Then twice.\n2. multiply($1, 2)\nThought: Done.\n3. join()",
        "E1 add[3, 4]; E2 multiply[#E1, 2] <- E1",
    ),
    "named arguments": ("1. add(a=3, b=4)\n2. join()", "E1 add[a=3, b=4]"),
    "parentheses": ("1) add(3, 4)\n2) multiply($1, 2)\n3) join()", "E1 add[3, 4]; E2 multiply[#E1, 2] <- E1"),
    "no join": ("1. add(3, 4)\n2. multiply($1, 2)", "E1 add[3, 4]; E2 multiply[#E1, 2] <- E1"),
    "no number before join": ("1. add(3, 4)\njoin()\n<END_OF_PLAN>", "E1 add[3, 4]"),
    "join with references": ("1. add(3, 4)\n2. add(1, 1)\n3. join($1, $2)", "E1 add[3, 4]; E2 add[1, 1]"),
    "bold and bullets": ("- **1.** `add(3, 4)`\n- **2.** `multiply($1, 2)`\n- **3.** `join()`",
        "E1 add[3, 4]; E2 multiply[#E1, 2] <- E1"),
    "a fence": ("```\n1. add(3, 4)\n2. join()\n```", "E1 add[3, 4]"),
    "an introduction": ("Here is the plan:\n\n1. add(3, 4)\n2. join()\n\nThis will give the answer.", "E1 add[3, 4]"),
    "a comment": ("1. add(3, 4)  # the left sum\n2. join()", "E1 add[3, 4]"),
    "a thought of the model": ("<think>I need 1. add and 2. join.</think>\n1. add(3, 4)\n2. join()", "E1 add[3, 4]"),
    "a dollar sign that is money": ('1. search("price of $5 notes")\n2. convert("$1", "$100")\n3. join()',
        'E1 search["price of $5 notes"]; E2 convert["#E1", "$100"] <- E1'),
    "numbers like references": ('1. search("a")\n2. math("$1.50 + $1")\n3. join()',
        'E1 search["a"]; E2 math["$1.50 + #E1"] <- E1'),
    "brackets inside": ('1. search("f(x) (2020)")\n2. join()', 'E1 search["f(x) (2020)"]'),
    "written as ReWOO's": ("Plan: add\n#E1 = add[3, 4]\nPlan: twice\n#E2 = multiply[#E1, 2]",
        "E1 add[3, 4]; E2 multiply[#E1, 2] <- E1"),
    "square brackets": ("1. add[3, 4]\n2. multiply[$1, 2]\n3. join()", "E1 add[3, 4]; E2 multiply[#E1, 2] <- E1"),
    "JSON": ('{"calls": [{"tool": "add", "input": "3, 4"}, {"plan": "x", "tool": "multiply", "input": "$1, 2"}]}',
        "E1 add[3, 4]; E2 multiply[#E1, 2] <- E1"),
    "JSON with join": ('{"calls": [{"plan": "", "tool": "add", "input": "3, 4"}, {"tool": "join", "input": ""}]}',
        "E1 add[3, 4]"),
    "two levels of numbers": ("1. add(3, 4)\n\n2. add(1, 2)\n\n10. multiply($1, $2)\n11. join()",
        "E1 add[3, 4]; E2 add[1, 2]; E10 multiply[#E1, #E2] <- E1 E2"),
}  # fmt: skip

FAULTS: dict[str, tuple[str, str]] = {
    "nothing": ("I cannot do this.", "no call"),
    "only join": ("1. join()<END_OF_PLAN>", "no call"),
    "an unclosed bracket": ('1. search("Everest"\n2. join()', "not closed"),
    "a circle": ("1. add($2, 1)\n2. add($1, 1)\n3. join()", "circle"),
    "a number twice": ("1. add(1, 2)\n1. add(3, 4)\n2. join()", "twice"),
}


def written(calls: list[PlannedCall] | list[str]) -> str:
    parts = []
    for call in calls:
        assert isinstance(call, PlannedCall)
        needs = f" <- {' '.join(call.needs)}" if call.needs else ""
        parts.append(f"{call.id} {call.tool}[{call.input}]{needs}")
    return "; ".join(parts)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read(name: str) -> None:
    text, calls = PLANS[name]
    assert written(plan_in(text, "tasks")) == calls


@pytest.mark.parametrize("name", FAULTS)
def test_a_plan_that_cannot_be_carried_out_is_refused(name: str) -> None:
    text, words = FAULTS[name]
    with pytest.raises(PlanFault, match=words):
        plan_in(text, "tasks")


def test_a_purpose_is_kept() -> None:
    text = "Thought: First the left sum.\n1. add(3, 4)\n2. join()"
    assert [call.thought for call in plan_in(text, "tasks") if isinstance(call, PlannedCall)] == ["First the left sum."]
