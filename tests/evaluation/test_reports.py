"""JUnit, the picture, and the front of variants that none beats."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from orchestrator.evaluation import evaluate
from orchestrator.evaluation.reports import front, to_junit, to_svg
from orchestrator.evaluation.results import VariantResult
from tests.evaluation.graphs import Counted, direct, refined

pytestmark = pytest.mark.anyio

SECRET = "sk-live-0123456789abcdef0123456789"
EVIL = '<script>alert("1")</script>&\x01\x1b[31m\u202e ]]>'


def variant(name: str, cost: float, accuracy: float, **fields: Any) -> VariantResult:
    ends = max(0, accuracy - 0.1), min(1, accuracy + 0.1)
    spent = 10, 0, 100, cost, 1.0, 0.1, 0.2
    return VariantResult(name, name, "m", 10, accuracy, *ends, {}, {"completed": 10}, *spent, **fields)


async def test_junit_has_a_case_for_each_row_and_hostile_text_does_no_harm() -> None:
    data = [
        {"id": "good", "question": "a", "expected": "a"},
        {"id": "<&>", "question": EVIL, "expected": f"{EVIL} {SECRET}"},
    ]
    found = await evaluate(data, [direct(), refined()], models=Counted(), repeat=2)
    root = ET.fromstring(to_junit(found))
    suites = root.findall("testsuite")
    assert [(one.get("name"), one.get("tests"), one.get("failures")) for one in suites] == [
        ("direct", "4", "2"), ("refined", "4", "2"),
    ]  # fmt: skip
    cases = suites[0].findall("testcase")
    assert [one.get("name") for one in cases] == ["good", "good (2)", "<&>", "<&> (2)"]
    failure = cases[2].find("failure")
    assert failure is not None
    assert "<script>" in (failure.get("message") or "")
    assert "\x1b" not in to_junit(found)
    assert SECRET not in to_junit(found)
    assert found.wrong[0].run_id in (failure.text or "")


def test_the_picture_shows_each_variant_and_escapes_its_name() -> None:
    some = [variant(EVIL, 2.0, 0.5), variant("cheap", 1.0, 0.5), variant("dear", 4.0, 0.9)]
    picture = to_svg(some)
    dots = [one.get("class") for one in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}circle")]
    assert sorted(map(str, dots)) == ["dot", "dot best", "dot best"]
    assert "<script>" not in picture
    assert "cost of a run" in picture
    assert "tokens of a run" in to_svg([variant("a", 0.0, 0.5)])
    assert "tokens of a run" in to_svg([variant("a", 1.0, 0.5, priced=False)])
    assert ET.fromstring(to_svg([])) is not None


def test_the_front_has_the_variants_that_none_beats_in_cost_and_accuracy() -> None:
    some = [
        variant("a", 1, 0.5),
        variant("b", 2, 0.5),
        variant("c", 3, 0.9),
        variant("d", 4, 0.8),
        variant("e", 1, 0.4),
    ]
    assert [one.name for one in front(some)] == ["a", "c"]
