"""What scorers say about answers and about the way to them."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.errors import GraphUnknown, InvalidValue
from orchestrator.evaluation import Case, ExpectedCall, MadeCall, Row, Verdict
from orchestrator.evaluation.scorers import lacks, last_number, read_verdict, scorer_of
from orchestrator.nodes.extract import find_answer
from tests.texts.table import rows

pytestmark = pytest.mark.anyio


def case(answer: object, expected: object = None, made: tuple[MadeCall, ...] = (), **row: Any) -> Case:
    return Case(Row("k", "q", expected, **row), cast("Any", SimpleNamespace(output=answer)), made)


@pytest.mark.parametrize(
    ("scorer", "answer", "expected", "right"),
    [
        ("exact", " 28\n", "28", True), ("exact", 28, "28", True), ("exact", "28.", "28", False),
        ("exact", "b", ["a", "b"], True), ("exact", None, "", True),
        ("contains", "It is\n  Paris.", "it is paris", True), ("contains", "London", "Paris", False),
        ("number", "so 20 + 8 = 1,028.50", "1028.5", True), ("number", "x", "1", False),
        ("number", "#### 72", "5 and 67 make 72\n#### 72", True), ("number", "-3", "−3", True),
        ("number", 0.1 + 0.2, 0.3, True), ("number", "1e999", "1", False), ("number", "3 apples", "3", True),
        ("json", '```json\n{"b": 1, "a": [1.0]}\n```', {"a": [1], "b": 1}, True), ("json", [1], "[1]", True),
        ("json", "no json", {"a": 1}, False), ("json", {"a": 1}, {"a": 2}, False),
        ("json", 1, True, False), ("json", [True], "[1]", False), ("json", {"a": 1}, {"a": 1.0}, True),
        ("json", "Paris", "Paris", True), ("json", "London", "Paris", False),
    ],
)  # fmt: skip
async def test_answers(scorer: str, answer: object, expected: object, right: bool) -> None:
    assert (await scorer_of(scorer).score(case(answer, expected))).passed is right


# Numbers as models write them; written before the reader.
NUMBERS: list[tuple[object, float | None]] = [
    ("After 3 hours it is 28kg.", 28), ("28°C after 3 hours it's 30°C", 30), ("I bought 2, it costs 28€", 28),
    ("$\\boxed{28}$", 28), ("The answer is $\\boxed{28}$.", 28), ("\\(28\\)", 28), ("\\$28", 28),
    ("28 \\text{ km}", 28),
    ("$28.00/month", 28), ("$1,234.5!", 1234.5), ("1 000", 1000), ("-$5", -5), ("$-5", -5), ("–28", -28), ("−28", -28),
    ("20-8=12", 12), ("10-12", 12), ("28th", 28), ("28_", 28), ("28。", 28), ("२८", 28), ("1.5e3", 1500),
    ("3/4", 0.75), ("50%", 50), ("**28**.", 28), ("4^2=16", 16), ("25 cm²", 25), ("25 m^2", 25), ("2x28→56", 56),
    ("28 on the 2nd day", 28), ("28, says GPT-4", 28), ("GPT-4", 4), ("18 g of H2O", 18), ("3 of 28", 28), (28, 28),
    ("The answer is 28.\n\nLet me know if you need 1 more thing.", 28), ("28\nAnswer: 30 (of 40)", 40),
    ("3 and $28K", None), ("3 x 10^5", None), ("1.5 million", None), ("3 and 2 1/2", None), ("3, \\frac{1}{2}", None),
    ("3 and 12:30", None), ("3 and 1.234,50", None), ("1_000", None), ("none", None), ("", None), (True, None),
    ("9" * 5000 + " nothing", None), ("3 or 1e999", None), ("3 or 1/0", None),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "number"), NUMBERS)
def test_a_number_is_read_from_the_end_of_a_text(answer: object, number: float | None) -> None:
    assert last_number(answer) == number


@pytest.mark.parametrize("row", [row for row in rows("numbers") if row["find"] == "number"])
def test_where_a_vote_has_a_number_the_scorer_has_the_same(row: dict[str, Any]) -> None:
    for announced in (True, False):
        voted = find_answer(row["text"], "number", announced=announced)
        assert voted is None or last_number(row["text"]) == pytest.approx(float(Fraction(voted)))


LACKING: list[tuple[str, dict[str, Any], str]] = [
    ("contains", {"expected": ""}, "every answer contains it"),
    ("contains", {"expected": ["Paris", " "]}, "every answer contains it"),
    ("contains", {"expected": [None]}, "every answer contains it"),
    *((name, {"expected": []}, "list of expected answers is empty") for name in ("exact", "contains", "number")),
    *(("number", {"expected": one}, "has no number") for one in ("Paris", "", ["a", "b"], True, "1.5 million")),
    ("order", {"calls": ()}, "expects no calls"),
    ("arguments", {"calls": ()}, "expects no calls"),
]


@pytest.mark.parametrize(("scorer", "row", "words"), LACKING)
def test_a_row_for_which_all_answers_are_right_or_none_lacks_something(
    scorer: str, row: dict[str, Any], words: str
) -> None:
    assert words in lacks(scorer, Row("k", "q", **row))


@pytest.mark.parametrize(
    ("scorer", "row"),
    [
        ("exact", {"expected": ""}), ("json", {"expected": []}), ("json", {"expected": ""}), ("calls", {"calls": ()}),
        ("number", {"expected": ["twenty-eight", "28"]}), ("number", {"expected": 28}), ("contains", {"expected": 0}),
    ],
)  # fmt: skip
def test_a_row_with_right_and_wrong_answers_lacks_nothing(scorer: str, row: dict[str, Any]) -> None:
    assert lacks(scorer, Row("k", "q", **row)) == ""


async def test_the_way_to_an_answer() -> None:
    made = (MadeCall("add", {"a": 1, "b": 2}), MadeCall("pay", {"amount": 5}, approved=True), MadeCall("add", {"a": 3}))
    wanted = (ExpectedCall("add"), ExpectedCall("pay", {"amount": 5}))

    async def said(name: str, **row: Any) -> Verdict:
        return await scorer_of(name).score(case("", made=made, **row))

    assert (await said("calls", calls=wanted)).why == "also called: add"
    assert (await said("calls", calls=(*wanted, ExpectedCall("add")))).passed
    assert (await said("order", calls=wanted)).passed
    assert not (await said("order", calls=(*wanted, ExpectedCall("pay")))).passed
    assert (await said("arguments", calls=wanted)).passed
    assert (await said("arguments", calls=(ExpectedCall("pay", {"amount": 6}),))).why == (
        "expected call 1, pay, was not made"
    )
    assert (await said("confirmations", confirmed=("pay",))).passed
    assert (await said("confirmations", confirmed=("add",))).why == "called without an approval: add"


async def test_functions_are_scorers_and_what_they_return_is_checked() -> None:
    async def half(case: Case) -> float:
        return 0.5

    assert (await scorer_of(half).score(case(""))).passed
    assert scorer_of(half).name == "half"
    for wrong in (2.0, "yes", float("nan")):
        with pytest.raises(InvalidValue, match="scorer '<lambda>'"):
            await scorer_of(lambda _, wrong=wrong: wrong).score(case(""))
    with pytest.raises(GraphUnknown, match="did you mean 'exact'"):
        scorer_of("exakt")


# What judges write; written before the reader.
RIGHT = (
    "yes", "Yes.", "**Yes**", "Correct!", "Correct: it is the same.", "correct:" * 500, "Yes, it is correct.",
    "Yes it is.", "Yes, there is no difference.", "True. The right year is given.", "Passed: yes", "Verdict: yes",
    "Verdict:\n\n**CORRECT**", "Final verdict: correct", "Label: correct", "Correctness: yes", "Is it correct? Yes.",
    "Is it wrong? No.", "The answer matches the expected one: yes", "It is not wrong.", "Not incorrect",
    "The answer is correct.", "The answer of 28 is correct.", "I believe the answer is correct",
    "So the answer is right, because both say 28.", "The expected answer is 5, so the answer is correct", "It passes.",
    "The response is factually correct but the wording is wrong.", "I would say yes.", "<think>no? no.</think>yes",
    f"<think>{'It is wrong. ' * 500}</think>Yes", f"{'The year agrees. ' * 500}\nVerdict: correct",
)  # fmt: skip
WRONG = (
    "no", "**No**", "false", "Incorrect: the year is wrong.", "Incorrect. The correct answer is 28.",
    "No, it is wrong.", "The answer is not correct.", "It is not right", "This isn't correct.", "not correct",
    "It is not the right answer.", "correct: false", "**Correct:** no", "Wrong: yes", "Correctness: no", "right? no",
    "Pass? fail", "Is it correct? No.", "Is it wrong? Yes.", "Status: incorrect", "I believe the answer is incorrect",
    "The answer is wrong, 28 is correct", "It does not pass", "It fails.", "Verdict: not correct",
    'correct: {"score": 0}', "But wrong.",
)  # fmt: skip
NEITHER = (
    "yes and no", "No, it is right", "True that. But wrong.", "The answer is right. The answer is wrong.", "perhaps",
    "Wrong: no", "Errors: yes", "Any errors? No.", "No errors.", "Is it correct?", "I cannot say", "Not quite right.",
    "Nearly right", "Partially correct", "A right answer would be 5; this one is not.", "It is right or wrong.",
    "That would be correct if the sum were 5, but it is 6.", "It is correct, if the year is left out.",
    "If the year is left out, it is correct.", "The correct answer is 28.", "Score: 4", "Score: 0.9\nScore: 0.1",
    "Score: 0.9\nIt is wrong.", "[" * 3000, "", 7, None, [1], {"text": "yes"}, {"verdict": "yes and no"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("output", "score"),
    [
        *((one, 1) for one in (*RIGHT, True, {"verdict": "correct"}, {"Correct": "yes"})),
        *((one, 0) for one in (*WRONG, False, {"passed": False, "reason": "x"}, {"verdict": "not correct"})),
        *((one, None) for one in NEITHER),
        (0.25, 0.25), ("0.75", 0.75), ("Score: 0.9", 0.9), ("**Score:** 0.9/1\nThe answer is right.", 0.9),
        ("Reason: fine.\nScore: 1", 1), ('{"score": 0.5, "reason": "x"}', 0.5),
    ],
)  # fmt: skip
def test_verdicts_of_judges(output: object, score: float | None) -> None:
    found = read_verdict(output)
    assert (None if found is None else found.score) == score
