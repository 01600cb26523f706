"""Docstrings that need no parser are read as the parser reads them."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.tools import Tool
from orchestrator.tools.builtin import arithmetic
from orchestrator.tools.schema import Documented, parsed, plain, read_docstring

WORDS = st.sampled_from(
    ["Add", "two numbers.", "Note:", "note: this", "a", "a:", "Args:", "b: c", "(int):", "*", "-", "1.", "x (str): y",
     "Returns:", "`a`:", ">>> f()", "::", "--", "\\", "#", "[a]", "Example: 1", "=", "%", "{a}", "a, b:", ".. note::"],
)  # fmt: skip
LINES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
NAMES = st.sampled_from(["a", "b", "_c", "ab1", "args", "Args", "int", "note", "None"])
PARAMETERS = st.lists(st.tuples(NAMES, LINES | st.text(max_size=12)), min_size=1, max_size=4).map(
    lambda rows: "\n".join(f"    {name}: {text}" for name, text in rows)
)
TEXTS = st.lists(LINES, min_size=1, max_size=5).flatmap(
    lambda lines: st.lists(st.sampled_from(["\n", "\n\n", " "]), min_size=len(lines), max_size=len(lines)).map(
        lambda ends: "".join(line + end for line, end in zip(lines, ends, strict=True)).rstrip()
    )
)


@given(TEXTS, PARAMETERS)
@example("Add two numbers.", "    a: The first number.\n    b: The number to add to it.")
def test_a_docstring_without_the_parser_says_the_same(text: str, parameters: str) -> None:
    doc = inspect.cleandoc(f"{text}\n\nArgs:\n{parameters}")
    found = plain(doc)
    assert found is None or found == parsed(doc)


@pytest.mark.parametrize("name", ["add", "divide", "power"])
def test_tools_that_come_along_need_no_parser(name: str) -> None:
    tool = vars(arithmetic)[name]
    assert isinstance(tool, Tool)
    found = plain(inspect.cleandoc(tool.function.__doc__ or ""))
    assert isinstance(found, Documented)
    assert found.parameters.keys() == {"a", "b"}


@pytest.mark.parametrize(
    "doc",
    ["A.\n\nArgs:\n    a (int): x", "A.\n\nArgs:\n    a: x\n        y", "A.\n\nArgs:\n    a: x\n\nReturns:\n    b: y",
     "A.\nArgs:\n    a: x", "A\n---\n\nArgs:\n    a: x", ":param b: c\n\nArgs:\n    a: x"],
)  # fmt: skip
def test_other_forms_are_left_to_the_parser(doc: str) -> None:
    assert plain(doc) is None
    assert read_docstring(doc) == parsed(doc)
