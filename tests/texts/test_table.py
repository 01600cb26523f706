"""The form of the table of model replies: every row can be read, and no text stands twice."""

from collections import Counter

import pytest

from tests.texts.adversarial import TEXTS
from tests.texts.table import KINDS, read, rows

NEEDED = {"style", "text", "reading"}
MORE = {
    "numbers": {"asked", "find", "why"},
    "actions": {"why"},
    "plans": {"why"},
    "rewoo": {"why"},
    "inputs": {"tool", "only", "why"},
    "endings": {"protocol", "why"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_has_a_style_a_text_and_a_reading(kind: str) -> None:
    assert read(kind)["kind"] == kind
    for row in rows(kind):
        assert row.keys() >= NEEDED, row
        assert row.keys() <= NEEDED | MORE[kind], row
        assert isinstance(row["text"], str)
        assert isinstance(row["style"], str)
        assert row["style"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_stands_twice(kind: str) -> None:
    sides = ("text", "asked", "find", "tool", "protocol")
    texts = Counter(tuple(row.get(side) for side in sides) for row in rows(kind))
    assert [text for text, count in texts.items() if count > 1] == []


def test_readings_of_numbers_are_texts_of_what_was_asked_for() -> None:
    for row in rows("numbers"):
        assert row["asked"] in ("solve", "answer"), row
        assert row["find"] in ("number", "option", "yes_no"), row
        assert row["reading"] is None or isinstance(row["reading"], str), row


def test_readings_of_actions_name_tools_that_were_offered() -> None:
    tools = read("actions")["tools"]
    for row in rows("actions"):
        for action in row["reading"] or ():
            assert action.keys() in ({"call", "input"}, {"call", "args"}, {"finish"}), row
            assert "finish" in action or action["call"] in tools, row


def test_readings_of_plans_are_lists_of_steps() -> None:
    for row in rows("plans"):
        assert row["reading"] is None or all(isinstance(step, str) and step for step in row["reading"]), row


def test_readings_of_rewoo_name_tools_that_were_offered() -> None:
    tools = read("rewoo")["tools"]
    for row in rows("rewoo"):
        for line in row["reading"] or ():
            assert line.keys() in ({"plan", "id", "tool", "input"}, {"plan", "id", "tool", "args"}), row
            assert line["tool"] in tools, row


def test_the_table_has_about_150_rows() -> None:
    assert sum(len(rows(kind)) for kind in KINDS) >= 150


@pytest.mark.parametrize("name", TEXTS)
def test_adversarial_texts_are_in_proportion_to_their_size(name: str) -> None:
    assert len(TEXTS[name](40)) > len(TEXTS[name](20)) > 0
