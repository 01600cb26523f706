"""What scorers say about answers and about the way to them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.errors import GraphUnknown, InvalidValue
from orchestrator.evaluation import Case, ExpectedCall, MadeCall, Row, Verdict
from orchestrator.evaluation.scorers import last_number, read_verdict, scorer_of

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


def test_numbers_are_read_from_the_end_of_a_text() -> None:
    assert last_number("$1,234.5!") == 1234.5
    assert last_number(True) is None
    assert last_number("9" * 5000 + " nothing") is None
    assert last_number("1_000") is None


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


@pytest.mark.parametrize(
    ("output", "score"),
    [
        (True, 1), (0.25, 0.25), ("yes", 1), ("Incorrect: the year is wrong.", 0),
        ('{"score": 0.5, "reason": "x"}', 0.5),
        ({"passed": False, "reason": "x"}, 0), ({"verdict": "correct"}, 1), ("0.75", 0.75),
        ("correct: false", 0), ("**Correct:** no", 0), ("Passed: yes", 1), ("Correct: it is the same.", 1),
        ('correct: {"score": 0}', 0), ("Wrong: yes", 0), ("correct:" * 500, 1),
        (7, None), ("perhaps", None), ({"text": "yes"}, None), ([1], None), (None, None), ("[" * 3000, None),
    ],
)  # fmt: skip
def test_verdicts_of_judges(output: object, score: float | None) -> None:
    found = read_verdict(output)
    assert (None if found is None else found.score) == score
