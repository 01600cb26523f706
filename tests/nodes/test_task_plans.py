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
    "two levels of numbers": (
        "".join(f"{number}. add({number}, 1)\n" for number in range(1, 10)) + "10. add($1, $9)\n11. join($10)",
        "; ".join(f"E{number} add[{number}, 1]" for number in range(1, 10)) + "; E10 add[#E1, #E9] <- E1 E9"),
    "numbers that go on": ("4. add(3, 4)\n5. multiply($4, $1)\n6. join()", "E4 add[3, 4]; E5 multiply[#E4, $1] <- E4"),
    "one line": ('1. search("a") 2. search("b") 3. join()', 'E1 search["a"]; E2 search["b"]'),
    "one line with semicolons": ('1. search("a"); 2. search("b"); 3. math("$1 + $2"); 4. join()',
        'E1 search["a"]; E2 search["b"]; E3 math["#E1 + #E2"] <- E1 E2'),
    "one line with commas": ('1) search("a"), 2) search("b"), 3) join()', 'E1 search["a"]; E2 search["b"]'),
    "a bold name": ('1. search("a")\n2. **search**("b")\n3. **join**()', 'E1 search["a"]; E2 search["b"]'),
    "a name as code": ('1. search("a")\n2. `my_tool`("b")\n3. `join`()', 'E1 search["a"]; E2 my_tool["b"]'),
    "steps": ('Step 1: search("a")\nStep 2: search("b")\nStep 3: join()', 'E1 search["a"]; E2 search["b"]'),
    "one step": ('1. search("a")\nStep 2: search("b")\n3. join()', 'E1 search["a"]; E2 search["b"]'),
    "tasks": ('**Task 1:** search("a")\n**Task 2:** math("$1")\nTask 3: join()',
        'E1 search["a"]; E2 math["#E1"] <- E1'),
    "brackets of numbers": ('(1) search("a")\n[2] search("b")\n3 - search("c")\n(4) join()',
        'E1 search["a"]; E2 search["b"]; E3 search["c"]'),
    "assignments": ('$1 = search("a")\n$2 = math("$1 * 2")\n$3 = join()', 'E1 search["a"]; E2 math["#E1 * 2"] <- E1'),
    "colons": ('1: search("a")\n2: search("b")\n3: join()', 'E1 search["a"]; E2 search["b"]'),
    "no brackets": ('1. search("a")\n2. search "b"\n3. join', 'E1 search["a"]; E2 search["b"]'),
    "words before a call": ('1. search("a")\n2. Search again: search("b")\n3. Then join: join()',
        'E1 search["a"]; E2 search["b"]'),
    "numbered thoughts": ('1. Thought: I need a.\n2. search("a")\n3. Thought: I know.\n4. join()', 'E2 search["a"]'),
    "a list in an input": ('1. write("""\n1. Milk\n2. Eggs\n""")\n2. send("$1")\n3. join()',
        'E1 write["""\n1. Milk\n2. Eggs\n"""]; E2 send["#E1"] <- E1'),
    "a number within an input": ('1. search("see 2. f(x)")\n2. join()', 'E1 search["see 2. f(x)"]'),
    "numbers after join": ("1. add(3, 4)\n2. join()\n\nThis plan:\n1. adds\n5. joins", "E1 add[3, 4]"),
    "written as ReWOO's, without a mark": ("Plan: add\n#E1 = add[3, 4]\nPlan: twice\nE2 = multiply[#E1, 2]",
        "E1 add[3, 4]; E2 multiply[#E1, 2] <- E1"),
}  # fmt: skip

FAULTS: dict[str, tuple[str, str]] = {
    "nothing": ("I cannot do this.", "no call"),
    "only join": ("1. join()<END_OF_PLAN>", "no call"),
    "an unclosed bracket": ('1. search("Everest"\n2. join()', "not closed"),
    "a circle": ("1. add($2, 1)\n2. add($1, 1)\n3. join()", "circle"),
    "a line that is no call": ('1. search("a")\n2. Look up the other one.\n3. join()', "#E2 is not a call"),
    "a name without an input": ('1. search("a")\n2. search\n3. join()', "#E2 is not a call"),
    "only lines that are no calls": ("1. Look it up.\n2. Join.", "#E1 is not a call"),
    "two calls in one line": (
        '1. search("a")\n2. search("b") and search("c")\n3. join()',
        "#E2 contains several calls",
    ),
    "two calls with a comma": ('1. search("a"), search("b")\n2. join()', "#E1 contains several calls"),
    "two calls, then": ('1. search("a"), then **math**("b")\n2. join()', "#E1 contains several calls"),
    "a gap": ("1. add(3, 4)\n2. add(1, 2)\n10. multiply($1, $2)\n11. join()", "#E3 is missing"),
    "a gap before join": ("1. add(3, 4)\n3. join()", "#E2 is missing"),
    "a table": ("| 1 | add(3, 4) |\n| 2 | join() |", "no call"),
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
