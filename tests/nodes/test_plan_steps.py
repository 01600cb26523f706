"""`read_steps`: a plan as models write it becomes a list of steps, whatever the list looks like."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.step_list import END_OF_PLAN, read_steps

SEED = """\
Plan:
1. Identify the given expression: 20 + (2 * 4)
2. Perform the multiplication operation inside the parentheses: 2 * 4 = 8
3. Add the result of the multiplication to 20: 20 + 8 = 28
4. The final answer is 28.

Given the above steps taken, the answer to the expression 20 + (2 * 4) is 28. <END_OF_PLAN>"""
TWO = ["Multiply 2 by 4.", "Add 20."]

FORMS = {
    "no title": "1. Multiply 2 by 4.\n2. Add 20.\n<END_OF_PLAN>",
    "no mark at the end": "Plan:\n1. Multiply 2 by 4.\n2. Add 20.",
    "mark behind the last step": "Plan:\n1. Multiply 2 by 4.\n2. Add 20.<END_OF_PLAN>",
    "more behind the mark": "1. Multiply 2 by 4.\n2. Add 20. <END_OF_PLAN>\n3. Celebrate.",
    "mark in another spelling": "1. Multiply 2 by 4.\n2. Add 20.\n</end of plan>\n3. Celebrate.",
    "bare mark": "1. Multiply 2 by 4.\n2. Add 20.\n**END_OF_PLAN**\n3. Celebrate.",
    "parentheses": "1) Multiply 2 by 4.\n2) Add 20.",
    "two parentheses": "(1) Multiply 2 by 4.\n(2) Add 20.",
    "colons": "1: Multiply 2 by 4.\n2: Add 20.",
    "no space": "1.Multiply 2 by 4.\n2.Add 20.",
    "the comma of a Chinese list": "1、Multiply 2 by 4.\n2、Add 20.",
    "steps": "Step 1: Multiply 2 by 4.\nStep 2: Add 20.",
    "steps in small letters with a dash": "step 1 - Multiply 2 by 4.\nstep 2 - Add 20.",
    "steps in words": "Step one: Multiply 2 by 4.\nStep two: Add 20.",
    "steps with sharps": "Step #1. Multiply 2 by 4.\nStep #2. Add 20.",
    "bold steps": "**Step 1:** Multiply 2 by 4.\n**Step 2:** Add 20.",
    "bold steps, colons outside": "**Step 1**: Multiply 2 by 4.\n**Step 2**: Add 20.",
    "all bold": "**1. Multiply 2 by 4.**\n**2. Add 20.**",
    "headings": "# Plan\n\n## Step 1: Multiply 2 by 4.\n\n## Step 2: Add 20.\n\n## Conclusion\n\nThat is all.",
    "steps without text on the line": "### Step 1\n\nMultiply 2 by 4.\n\n### Step 2\n\nAdd 20.\n",
    "numbered steps": "1. Step 1: Multiply 2 by 4.\n2. Step 2: Add 20.",
    "bullets": "Plan:\n- Multiply 2 by 4.\n- Add 20.",
    "stars": "Plan:\n* Multiply 2 by 4.\n* Add 20.",
    "points": "• Multiply 2 by 4.\n• Add 20.",
    "tick boxes": "- [ ] Multiply 2 by 4.\n- [x] Add 20.",
    "bulleted numbers": "- 1. Multiply 2 by 4.\n- 2. Add 20.",
    "empty lines between": "\n\n1. Multiply 2 by 4.\n\n\n2. Add 20.\n\n",
    "lines of another system": "Plan:\r\n1. Multiply 2 by 4.\r\n2. Add 20.\r\n",
    "indented": "  Plan:\n    1. Multiply 2 by 4.\n    2. Add 20.",
    "the second deeper by mistake": "1. Multiply 2 by 4.\n   2. Add 20.",
    "words before": "Sure! Here is what I will do.\n\n1. Multiply 2 by 4.\n2. Add 20.",
    "a list before the title": "What is known:\n1. a number\n2. two more\n\nPlan:\n1. Multiply 2 by 4.\n2. Add 20.",
    "a sum behind": "1. Multiply 2 by 4.\n2. Add 20.\n\nSo the answer will be 28.",
    "a sum right behind": "1. Multiply 2 by 4.\n2. Add 20.\nGiven the above steps, the answer is 28.",
    "a calculation with numbers of its own": "Plan:\n1. Multiply 2 by 4.\n2. Add 20.\n\nCalculation:\n1. 8\n2. 28",
    "a second list right behind": "1. Multiply 2 by 4.\n2. Add 20.\n1. 8\n2. 28",
    "another list of bullets": "- Multiply 2 by 4.\n- Add 20.\n\nNotes:\n- Nothing.",
    "a heading behind": "1. Multiply 2 by 4.\n2. Add 20.\n## Notes\n3. Nothing.",
    "an empty step": "1. Multiply 2 by 4.\n2.\n3. Add 20.",
    "a number left out": "1. Multiply 2 by 4.\n3. Add 20.",
    "all ones": "1. Multiply 2 by 4.\n1. Add 20.",
    "from zero": "0. Multiply 2 by 4.\n1. Add 20.",
    "in a fence": "```text\n1. Multiply 2 by 4.\n2. Add 20.\n```\n3. Nothing.",
    "in a fence that nobody closes": "```\n1. Multiply 2 by 4.\n2. Add 20.",
    "thoughts before": "<think>\n1. Hm.\n2. Well.\n3. So.\n</think>\nPlan:\n1. Multiply 2 by 4.\n2. Add 20.",
    "one line": "Plan: 1. Multiply 2 by 4. 2. Add 20. <END_OF_PLAN>",
    "one line of steps": "Step 1: Multiply 2 by 4. Step 2: Add 20.",
    "one line with parentheses": "1) Multiply 2 by 4. 2) Add 20.",
    "the first step behind the title": "Plan: 1. Multiply 2 by 4.\n2. Add 20.",
    "a title in bold": "**Plan:**\n1. Multiply 2 by 4.\n2. Add 20.",
    "a rule behind": "1. Multiply 2 by 4.\n2. Add 20.\n---\nDone.",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_plan_of_two_steps_in_every_form(name: str) -> None:
    assert read_steps(FORMS[name]) == TWO


def test_s63_the_plan_of_the_seed() -> None:
    assert read_steps(SEED) == [
        "Identify the given expression: 20 + (2 * 4)",
        "Perform the multiplication operation inside the parentheses: 2 * 4 = 8",
        "Add the result of the multiplication to 20: 20 + 8 = 28",
        "The final answer is 28.",
    ]


INSIDE = {
    "a wrapped line": ("1. Multiply 2\nby 4\n2. Add\n   20", ["Multiply 2\nby 4", "Add\n20"]),
    "a number at the start of a wrapped line": (
        "1. Multiply 2 by 4 and add\n20. Then look\n2. Say it",
        ["Multiply 2 by 4 and add\n20. Then look", "Say it"],
    ),
    "a number with a fraction": ("1. Multiply\n1.5 by 2\n2. Say it", ["Multiply\n1.5 by 2", "Say it"]),
    "numbers of a deeper list": (
        "1. Multiply\n   1. take 2\n   2. times 4\n2. Add 20\n   1. at last",
        ["Multiply\n1. take 2\n2. times 4", "Add 20\n1. at last"],
    ),
    "bullets at the same depth": (
        "1. Multiply\n- take 2\n2. Add 20\n- at last",
        ["Multiply\n- take 2", "Add 20\n- at last"],
    ),
    "deeper bullets": ("- Multiply\n  - take 2\n- Add 20", ["Multiply\n- take 2", "Add 20"]),
    "numbers in steps": (
        "Step 1: Multiply\n1. take 2\n2. times 4\nStep 2: Add 20",
        ["Multiply\n1. take 2\n2. times 4", "Add 20"],
    ),
    "decimal numbers of parts": (
        "1. Multiply\n1.1 take 2\n1.2 times 4\n2. Add",
        ["Multiply\n1.1 take 2\n1.2 times 4", "Add"],
    ),
    "a paragraph": (
        "1. Multiply\n\nThat is 2 * 4.\n\n2. Add 20\n\nThe end.",
        ["Multiply\nThat is 2 * 4.", "Add 20\nThe end."],
    ),
    "code with numbers": ("1. Run\n```\n1. x\n5. y\n```\n2. Say it", ["Run\n```\n1. x\n5. y\n```", "Say it"]),
    "bold words": ("1. **Multiply**: 2 * 4\n2. **Add** 20", ["**Multiply**: 2 * 4", "**Add** 20"]),
    "arithmetic": ("1. What is 2 * 4?\n2. What is 20 + 2 * 4?", ["What is 2 * 4?", "What is 20 + 2 * 4?"]),
    "a sentence that ends with a number": ("1. Multiply 4 by 2. Then add.", ["Multiply 4 by 2. Then add."]),
    "one step": ("Step 1: Say 28", ["Say 28"]),
    "one step and a sum": ("1. Say 28.\n\nThat is all.", ["Say 28."]),
    "a title behind the steps": ("1. Multiply\n2. Add\nPlan: done", ["Multiply", "Add\nPlan: done"]),
}  # fmt: skip


@pytest.mark.parametrize("name", INSIDE)
def test_what_stands_inside_of_a_step_stays_there(name: str) -> None:
    text, steps = INSIDE[name]
    assert read_steps(text) == steps


@pytest.mark.parametrize(
    "text",
    ["", " \n", "Multiply 2 by 4, then add 20.", "Plan:", f"{END_OF_PLAN}\n1. Add.", "1.\n2.\n", "28", "20 - 8 = 12",
     "-8 + 3", "3.5 and more", "```\n```", "<think>1. Add.</think>", "**bold** words", "---", "1. Step 1:",
     "Step 1:Step 1:"],
)  # fmt: skip
def test_a_text_without_steps_is_a_fault(text: str) -> None:
    with pytest.raises(PlanFault, match="it has no steps"):
        read_steps(text)


WORDS = st.lists(
    st.sampled_from(
        ["add", "20", "to", "it,", "by", "2.5", "(twice):", "a*b", "-3", "x=1.", "é", "中文", "Plan", "#E1", "Step"]
    ),
    min_size=1,
)
STEPS = st.lists(WORDS.map(lambda words: "Do " + " ".join(words)), min_size=1, max_size=14)
MARKS = st.sampled_from(
    ["{}. ", "{}) ", "({}) ", "{}: ", "Step {}: ", "**Step {}:** ", "## Step {}. ", "- ", "* ", "• "]
)
PLANS = st.tuples(
    STEPS, MARKS, st.sampled_from(["", "Plan:\n", "Let us see.\n\n## Plan\n"]), st.sampled_from(["\n", "\n\n", "\r\n"]),
    st.sampled_from(["", "\n", " ", "  \n\n"]), st.sampled_from(["", END_OF_PLAN, f"{END_OF_PLAN}\n1. no\n- no"]),
)  # fmt: skip


def same(plan: tuple[list[str], str, str, str, str, str]) -> None:
    steps, mark, title, between, space, end = plan
    text = title + between.join(mark.format(number) + step for number, step in enumerate(steps, 1)) + space + end
    assert read_steps(text) == steps


PIECES = st.sampled_from(
    ["\n", "\n", "\n", "\n\n", " ", "   ", "1.", "1)", "2. ", "3", "20. ", "Step 1:", "step two", "- ", "* ", "**", "#",
     "## ", "Plan:", END_OF_PLAN, "```", "<think>", "</think>", "---", "Add", "it.", "So:", "0", "\t", "(",
     ")", "\u2028"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60)


def own_words(text: str) -> None:
    try:
        steps = read_steps(text)
    except PlanFault:
        return
    assert steps
    for step in steps:
        assert step == step.strip() != ""
        for word in step.replace("*", "").replace("_", "").split():  # marks of bold face may go
            assert word in text.replace("*", "").replace("_", "")
    assert END_OF_PLAN not in "".join(steps)


@pytest.mark.full
@settings(max_examples=40)
@given(PLANS)
def test_any_steps_in_any_marks_are_read_as_they_were_written(plan: tuple[list[str], str, str, str, str, str]) -> None:
    same(plan)


@settings(max_examples=60)
@given(TEXTS)
def test_any_text_is_a_list_of_steps_made_of_its_own_words_or_a_fault(text: str) -> None:
    own_words(text)


@pytest.mark.storm
def test_any_steps_and_any_text_many_times(scale: int) -> None:
    many = settings(max_examples=3000 * scale)
    many(given(PLANS)(same))()
    many(given(TEXTS)(own_words))()


LONG = ["1. " + "a " * 30_000, "1. a\n" * 5_000, "```\n" * 20_000 + "1. a", "<think>" * 20_000, "* " * 30_000,
        "1. a. " + "2 " * 30_000, "#" * 50_000, "1. a\n\n" + "b.\nC.\n" * 10_000, " " * 50_000 + "1. a"]  # fmt: skip


def test_a_long_reply_is_read_in_time_that_grows_with_it() -> None:
    """What grows with the square takes minutes here."""
    for text in LONG:
        with contextlib.suppress(PlanFault):
            assert read_steps(text)
