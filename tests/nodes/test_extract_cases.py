"""Texts that models write, the answers in them, and the time that it takes to find them."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.nodes import AnswerForm
from orchestrator.nodes.extract import find_answer
from tests.support.costs import in_proportion
from tests.support.sizes import sized

FORMS: tuple[AnswerForm, ...] = get_args(AnswerForm)


@pytest.mark.parametrize(
    ("form", "text", "answer"),
    [
        ("text", "The answer is 28. Let me check if the answer is right.", "28"),
        ("number", "So the answer is 28. To check that the answer is plausible, add 3 to 5", "28"),
        ("number", "To find the answer: first add 3 and 5.\nThat makes 8.", "8"),
        ("number", "The answer is 28. The answer is right.", "28"),
        ("number", "The answer is 3. No, the answer is 28.", None),
        ("number", "The answer is 3.\nNo, the answer is 28.", "28"),
        ("number", "The answer is 10 + 10", None),
        ("number", "The answer is 10 + 10 = 20", "20"),
        ("number", "We get 28, so the answer is 28", "28"),
        ("number", "So the answer, as a number, is 28", "28"),
        ("number", "So the answer is 28 of 30", None),
        ("number", "The answer to the question is 28", "28"),
        ("number", "The answer is as follows:\n\n28", "28"),
        ("number", "That is 8. Final answer: 28", "28"),
        ("number", "Done.\nThe answer: 28", "28"),
        ("number", "Answer:\nShe had 12 oranges. She gave 9 away. She has 3 oranges.", None),
        ("number", "Answer:\nShe has 3 oranges.", "3"),
        ("number", "The answer is not 3", None),
        ("text", "The answer is not known.", "not known"),
        ("text", "The answer is no. It fails.", "no"),
        ("text", "The answer is nobody. It fails.", "nobody"),
        ("choice", "So of the choices A to E the answer is B, not C", "B"),
        ("text", "The answer is Dr. Smith. He knows.", "Dr. Smith"),
        ("text", "The answer is J. K. Rowling.", "J. K. Rowling"),
    ],
)
def test_what_announces_an_answer(form: AnswerForm, text: str, answer: str | None) -> None:
    assert find_answer(text, form) == answer


def test_what_announces_none_is_missing_where_it_has_to() -> None:
    for text in ("To find the answer: first add 3.", "See if the answer is 3.", "I ask whether the answer is 3."):
        assert find_answer(text, "number", announced=True) is None
        assert find_answer(text, "text", announced=True) is None


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("−5", "-5"),
        ("− 5", "-5"),
        ("- 5", "-5"),
        ("negative 5", "-5"),
        ("5 000", "5000"),
        ("5\u202f000\u202f000", "5000000"),
        ("5'000.50", "5000.5"),
        ("5,000", "5000"),
        ("1.5e3", "1500"),
        ("2E−3", "0.002"),
        ("1.5e300", "1.5e300"),
        (".5", "0.5"),
        ("12%", "12"),
        ("-0", "0"),
        ("$\\boxed{28}$", "28"),
    ],
)
def test_numbers(written: str, number: str) -> None:
    assert find_answer(f"The answer is {written}.", "number") == number


@pytest.mark.parametrize("text", ["(a) − 5", "x − 5", "- 5 apples"])
def test_what_is_taken_away_is_no_negative_number(text: str) -> None:
    assert find_answer(text, "number") == "5"


@pytest.mark.parametrize("text", ["3-5", "8 - 5", "8 − 5", "10^10", "5 * 5", "7k", "10⁵", "3/0", "1/2/3"])
def test_what_has_no_single_value_is_no_number(text: str) -> None:
    assert find_answer(text, "number") is None


@pytest.mark.parametrize(("text", "number"), [("2/4", "1/2"), ("60/2", "30"), ("-3/4", "-3/4"), ("5 m", "5")])
def test_fractions_are_numbers_in_lowest_terms(text: str, number: str) -> None:
    assert find_answer(text, "number") == number


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("none in 'hello'.", "none in 'hello'"),
        ("'hello'.", "hello"),
        ("'a' and 'b'.", "'a' and 'b'"),
        ("**“so”**.", "so"),
        ('"The answer is Goethe."', "Goethe"),
        ("the boys'", "the boys'"),
    ],
)
def test_quotes_are_taken_off_in_pairs(text: str, bare: str) -> None:
    assert find_answer(text, "text") == bare


words = st.lists(
    st.sampled_from(
        ["The answer ", "is", ":", "so ", ", ", ". ", "\n", "- ", "−", "$", "5", ",000", " 000", "e", "9" * 9, "'", '"']
    )
    | st.text(max_size=4),
    max_size=12,
).map("".join)


@given(words, st.sampled_from(FORMS), st.booleans())
@settings(max_examples=sized(50, 150), deadline=None)
@example("The answer is 1e" + "9" * 5000, "number", True)
@example("9" * 5000, "number", False)
@example("\xa0", "text", False)
def test_it_never_raises_and_never_finds_nothing(text: str, form: AnswerForm, announced: bool) -> None:
    found = find_answer(text, form, announced=announced)
    assert found is None or found.strip()


@pytest.mark.parametrize(
    "part",
    [
        "The answer is ",
        "so the answer in is ",
        "so the answer in ",
        "so the answer(",
        "111,",
        "111 ",
        "1",
        "\n",
        " ",
        "'",
        ". A",
        "- ",
        "so, ",
        "(",
        "of a ",
        "= ",
        "1/",
        "10^",
        "5 + ",
        "(A) ",
        "yes, ",
    ],
)
def test_reading_takes_time_in_proportion(part: str) -> None:
    def find(times: int) -> None:
        text = part * times
        for form in FORMS:
            find_answer(text, form)
            find_answer(f"The answer is {text}", form, announced=True)

    in_proportion(find, 400)
