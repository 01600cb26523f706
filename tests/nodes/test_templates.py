"""Prompts are text with names to fill in, and nothing that can do more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.nodes import ChooseTool, Confirm, Think
from orchestrator.nodes.templates import check, fill, placeholders


def test_names_are_filled_in() -> None:
    assert fill("{a} and {b}, {a}", a=1, b="two") == "1 and two, 1"


def test_doubled_braces_are_braces() -> None:
    assert fill('{{"x": {x}}}', x=1) == '{"x": 1}'


@pytest.mark.full
@given(st.text())
def test_what_is_filled_in_is_never_read_as_a_template(text: str) -> None:
    assert fill("<{a}>{b}", a=text, b="{a}") == f"<{text}>{{a}}"


@pytest.mark.parametrize("template", ["{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{}", "{0}", "{a b}"])
def test_a_placeholder_is_a_name_and_nothing_more(template: str) -> None:
    with pytest.raises(ValueError, match="a placeholder must be a plain name"):
        placeholders(template)


@pytest.mark.parametrize("template", ["{", "}", "{a", "a}"])
def test_a_brace_that_is_not_closed(template: str) -> None:
    with pytest.raises(ValueError, match="for braces"):
        placeholders(template)


def test_a_name_that_nothing_fills() -> None:
    with pytest.raises(ValueError, match=r"nothing fills \{c\}; placeholders here: \{a\}, \{b\}"):
        check("{a}{c}", ["b", "a"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChooseTool(prompt="{question} {answer}"),
        lambda: Think(prompt="{step}"),
        lambda: Confirm(prompt="{drafts}?"),
        lambda: Confirm(prompt="{tool}?"),
    ],
)
def test_a_node_refuses_it_when_it_is_built(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValidationError, match="nothing fills"):
        make()


def test_a_confirm_may_name_what_it_shows() -> None:
    assert Confirm(prompt="Publish {drafts}?", show=("drafts",)).prompt
    assert Confirm(prompt="Call {tool} with {args}?", tool="tool", args="args").prompt
