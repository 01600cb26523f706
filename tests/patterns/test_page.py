"""docs/patterns.md has all patterns, each with a test that runs its graph; what is generated in it is current."""

from __future__ import annotations

import re
from collections import Counter

from tests.patterns import test_runs
from tests.patterns.page import COMMAND, COUNT, PAGE, made, patterns


def bare(text: str) -> str:
    """The page without the small words behind a node in a drawing: nodes, arrows and outcomes count."""
    return re.sub(r"(?<=\w)  \S.*$", "", text, flags=re.M)


def test_every_pattern_is_there_once() -> None:
    assert sorted(patterns()) == list(range(1, COUNT + 1))
    assert len({one.title for one in patterns().values()}) == COUNT


def test_every_pattern_has_a_test_of_its_runs() -> None:
    tested = Counter(int(found[1]) for name in vars(test_runs) if (found := re.match(r"test_wcp_(\d+)_", name)))
    assert sorted(tested) == list(range(1, COUNT + 1))


def test_the_table_and_the_drawings_are_what_would_be_generated_now() -> None:
    assert bare(PAGE.read_text(encoding="utf-8")) == bare(made()), f"run {COMMAND}"


def test_every_verdict_says_by_what() -> None:
    assert [one.number for one in patterns().values() if not one.by] == []
    found = Counter(one.verdict for one in patterns().values())
    assert found == {"Supported": 35, "Partly": 6, "Not supported": 2}
