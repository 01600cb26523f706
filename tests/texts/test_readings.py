"""Every row of the table has its right reading."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from orchestrator import tool
from orchestrator.errors import AgentError
from orchestrator.models import Message
from orchestrator.models.text.forms import OfferedTool
from orchestrator.models.text.protocol import FORMS
from orchestrator.nodes.extract import AnswerForm, find_answer
from orchestrator.nodes.planned_calls import arguments_of
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.blueprint import read_blueprint
from orchestrator.nodes.plans.step_list import read_steps
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from orchestrator.tools.validation import coerced, faults
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


INPUTS: dict[str, dict[str, Any]] = {
    name: {"type": "object", "additionalProperties": False, **schema}
    for name, schema in read("inputs")["tools"].items()
}
OFFERED = [OfferedTool(name, parameters=schema) for name, schema in INPUTS.items()]


@pytest.mark.parametrize("row", [row for row in _params("inputs") if row.values[0].get("only") in (None, "lines")])
def test_inputs_in_lines_are_read_as_the_table_says(row: dict[str, Any]) -> None:
    text = f"Thought: a\nAction: {row['tool']}\nAction Input: {row['text']}\nObservation: made up"
    assert _called(text, row["tool"]) == row["reading"]


@pytest.mark.parametrize("row", [row for row in _params("inputs") if row.values[0].get("only") in (None, "brackets")])
def test_inputs_in_brackets_are_read_as_the_table_says(row: dict[str, Any]) -> None:
    assert _called(f"Thought: a\nAction: {row['tool']}[{row['text']}]", row["tool"]) == row["reading"]


@pytest.mark.parametrize("row", [row for row in _params("inputs") if row.values[0].get("only") in (None, "plan")])
def test_inputs_of_plans_are_read_as_the_table_says(row: dict[str, Any]) -> None:
    try:
        (call,) = read_blueprint(f"Plan: a\n#E1 = {row['tool']}[{row['text']}]")
        found = _checked(arguments_of(call, {}, INPUTS[row["tool"]]), row["tool"])
    except (PlanFault, AgentError):
        found = None
    assert found == row["reading"]


def _called(text: str, tool: str) -> dict[str, Any] | None:
    """The arguments of the one call in a reply; None if it has none, or they do not fit the tool."""
    calls = FORMS["bracket"].parse(text, OFFERED).calls
    assert [call.name for call in calls] in ([], [tool])
    return _checked(dict(calls[0].arguments or {}), tool) if calls else None


def _checked(arguments: dict[str, Any], tool: str) -> dict[str, Any] | None:
    schema = INPUTS[tool]
    found: dict[str, Any] = coerced(arguments, schema, schema)
    return None if faults(found, schema, schema) else found


@tool(risk="none", effect="pure")
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize("row", _params("endings"))
def test_endings_are_read_as_the_table_says(row: dict[str, Any]) -> None:
    model = ScriptedModel([row["text"], "Thought: now\nFinal Answer: corrected"])
    run = react(protocol=row["protocol"]).run_sync("q", model=model, tools=[add])
    assert (run.status, run.output) == ("completed", "corrected" if row["reading"] is None else row["reading"])
    told: list[Message] = [*model.requests[-1].messages]
    assert len(model.requests) == (2 if row["reading"] is None else 1), told[-1].content
