"""Every row of the table has its right reading."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from orchestrator.models.text.forms import OfferedTool
from orchestrator.models.text.protocol import FORMS
from orchestrator.nodes.extract import AnswerForm, find_answer
from orchestrator.nodes.planned_calls import arguments_of
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.blueprint import read_blueprint
from orchestrator.nodes.plans.step_list import read_steps
from tests.texts.table import read, rows

FORM_OF: Mapping[str, AnswerForm] = {"number": "number", "option": "choice", "yes_no": "yes_no"}


def _schema(parameters: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in parameters},
        "required": parameters,
        "additionalProperties": False,
    }


def _params(kind: str) -> list[Any]:
    return [pytest.param(row, id=row["style"] + f" {number}") for number, row in enumerate(rows(kind), 1)]


def _value(text: str | None) -> Fraction | str | None:
    """A number by its value, anything else as it is."""
    try:
        return None if text is None else Fraction(text)
    except ValueError:
        return text


@pytest.mark.parametrize("row", _params("numbers"))
def test_numbers_are_read_as_the_table_says(row: dict[str, Any]) -> None:
    found = find_answer(row["text"], FORM_OF[row["find"]], announced=row["asked"] == "solve")
    assert _value(found) == _value(row["reading"])


TOOLS: dict[str, list[str]] = {**read("actions")["tools"], "Finish": ["answer"]}
OFFERS = [OfferedTool(name, parameters=_schema(parameters)) for name, parameters in TOOLS.items()]


@pytest.mark.parametrize("row", _params("actions"))
def test_actions_are_read_as_the_table_says(row: dict[str, Any]) -> None:
    parsed = FORMS["bracket"].parse(row["text"], OFFERS)
    found = [(call.name, call.arguments or {}) for call in parsed.calls]
    assert found == [_expected(action) for action in row["reading"] or ()]


def _expected(action: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if "finish" in action:
        return "Finish", {"answer": action["finish"]} if action["finish"] else {}
    if "args" in action:
        return action["call"], action["args"]
    return action["call"], {TOOLS[action["call"]][0]: action["input"]}


@pytest.mark.parametrize("row", _params("plans"))
def test_plans_are_read_as_the_table_says(row: dict[str, Any]) -> None:
    try:
        found = [" ".join(step.split()) for step in read_steps(row["text"])]
    except PlanFault:
        found = None
    assert found == row["reading"]


PLANNED = read("rewoo")["tools"]


@pytest.mark.parametrize("row", _params("rewoo"))
def test_plans_of_calls_are_read_as_the_table_says(row: dict[str, Any]) -> None:
    try:
        calls = read_blueprint(row["text"])
    except PlanFault:
        assert row["reading"] is None
        return
    names = {name.lower(): name for name in PLANNED}
    found: list[dict[str, Any]] = []
    for call, line in zip(calls, row["reading"] or [{}] * len(calls), strict=True):
        tool = names.get(call.tool.lower(), call.tool)
        given = {"input": call.input}
        if "args" in line:
            given = {"args": arguments_of(call, {}, _schema(PLANNED[tool]))}
        found.append({"plan": call.thought, "id": call.id, "tool": tool, **given})
    assert found == row["reading"]
