"""The reader of replies: one table of readings for each of its functions."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.models.reading import NoReading, ThoughtScreen, choice_alone, choice_in, json_in, labelled, parted
from tests.models.readings import CHOICES, JSON, LABELLED, LABELS, THOUGHTS, TOOLS, VERDICTS, YES_NO


@pytest.mark.parametrize(("text", "found"), THOUGHTS)
def test_thoughts(text: str, found: tuple[str, str]) -> None:
    assert parted(text) == found
    assert parted(found[1]) == ("", found[1])


@pytest.mark.parametrize(("text", "found"), THOUGHTS)
def test_thoughts_in_pieces(text: str, found: tuple[str, str]) -> None:
    """However a reply is split, its pieces are those of the whole: shown text is never taken back."""
    whole = pieces_of(text, [text])
    assert parted(whole[0])[1] == found[1]
    for at in range(len(text)):
        assert pieces_of(text, [text[:at], text[at:]]) == whole
    assert pieces_of(text, list(text)) == whole


def pieces_of(text: str, pieces: list[str]) -> tuple[str, str]:
    screen = ThoughtScreen()
    shown = [*map(screen.feed, pieces), screen.rest()]
    return "".join(text for text, _ in shown), "".join(thought for _, thought in shown)


@pytest.mark.parametrize(("text", "value"), JSON)
def test_json(text: str, value: Any) -> None:
    if value is ...:
        with pytest.raises(NoReading):
            json_in(text)
    else:
        found = json_in(text)
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("text", "name"), CHOICES)
def test_choices(text: str, name: str | None) -> None:
    assert choice_in(text, TOOLS) == name


@pytest.mark.parametrize(("text", "name"), VERDICTS)
def test_a_choice_that_a_text_only_mentions_is_not_made(text: str, name: str | None) -> None:
    assert choice_in(text, YES_NO) == name


def test_a_choice_that_stands_alone() -> None:
    for text in ("yes", " Yes.\n", '{"choice": "yes"}', '```json\n{"choice": "Yes"}\n```', "<think>no</think>\nyes"):
        assert choice_alone(text, YES_NO) == "yes", text
    for text in ("", "yes!?", "Answer: yes", '{"tool": "yes"}', '{"choice": "yes", "a": 1}', 'So: {"choice": "yes"}',
                 '{"choice": "no", "choice": "yes"}', '["yes"]', "So:\n```\nyes\n```", "{" * 9999):  # fmt: skip
        assert choice_alone(text, YES_NO) is None, text


def test_names_that_differ_in_separators_are_read_exactly() -> None:
    names = {"web search": "", "web_search": "", "x": ""}
    assert [choice_in(text, names) for text in ("web search", "web_search", "Web-Search", "X")] == [
        "web search",
        "web_search",
        None,
        "x",
    ]
    for name in names:
        assert choice_in(f'{{"tool": "{name}"}}', names) == choice_in(f"Tool: {name}", names) == name
    assert (
        choice_in('{"tool": "Add"}', {"add": "", "Add": ""})
        == choice_alone('{"choice": "Add"}', ["add", "Add"])
        == "Add"
    )


def test_a_part_of_a_number_is_not_a_score() -> None:
    scores = {str(score): "" for score in range(1, 11)}
    for text in ("-5", "5.5", "Score: 3.3", "1,0", '{"choice": -5}', '{"choice": 5.5}', "11", "Score: -5"):
        assert choice_in(text, scores) is None, text
    for text in ("5", "Score: 5.", '{"score": 5}', "**5**", "5, because"):
        assert choice_in(text, scores) == "5", text
    assert choice_in("Score: -5", {str(score): "" for score in range(-5, 6)}) == "-5"


@pytest.mark.parametrize(("text", "found"), LABELLED)
def test_labels(text: str, found: tuple[str, str] | None) -> None:
    assert labelled(text, LABELS) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("The sum is 6.", "is not JSON"),
        ('{"a": 1', "is not JSON (Expecting ',' delimiter: line 1 column 8 (char 7))"),
        ("NaN", "is not JSON (NaN is not a JSON number)"),
    ],
)
def test_what_is_wrong_with_a_text_that_is_not_json(text: str, why: str) -> None:
    with pytest.raises(NoReading) as caught:
        json_in(text)
    assert str(caught.value) == why
