"""Texts on so many columns of a terminal."""

from __future__ import annotations

import pytest

from orchestrator.render.terminal.texts import columns_of, fitting, padded


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("short", 10, "short"),
        ("one two three four", 12, "one two…"),
        ("one two, three", 9, "one two…"),
        ("x" * 30, 10, "x" * 9 + "…"),
        ("a " + "x" * 30, 10, "a " + "x" * 7 + "…"),
        ("世界世界世界", 12, "世界世界世界"),
        ("世界世界世界", 11, "世界世界世…"),
        ("世界世界世界", 10, "世界世界…"),
    ],
)
def test_texts_are_cut_between_words_and_by_columns(text: str, columns: int, shown: str) -> None:
    assert fitting(text, columns) == shown
    assert columns_of(shown) <= columns


def test_wide_characters_take_two_columns() -> None:
    assert (columns_of("世界"), columns_of("e\u0301"), padded("世", 4)) == (4, 1, "世  ")


@pytest.mark.parametrize(
    ("text", "columns"),
    [("👩\u200d💻", 2), ("❤\ufe0f", 2), ("🇩🇪", 2), ("👍🏽", 2), ("ก็", 1), ("✓…·", 3), ("e\u0301e\u0301", 2)],
)
def test_an_emoji_of_several_characters_is_one(text: str, columns: int) -> None:
    assert columns_of(text) == columns
    assert fitting(text + " " * 3 + "x" * 20, columns + 1).startswith(text)
