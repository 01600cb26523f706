"""Tools as a table."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Toolbox, tool
from orchestrator.cli.graph_commands import known_tools
from orchestrator.render.terminal.tables import arguments, tool_table


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "-"),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, "a: string"),
        ({"properties": {"a": {"type": "integer", "default": 3}}}, "a: integer = 3"),
        ({"properties": {"a": {}, "b": True}}, "a?: any, b?: any"),
        ({"properties": {"a": {"enum": ["x", 1]}}, "additionalProperties": True}, 'a?: "x" | 1, ...'),
        (
            {"properties": {"a": {"type": "array", "items": {"anyOf": [{"type": "null"}, {"const": 1}]}}}},
            "a?: [null | 1]",
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/Point"}, "b": {"type": ["string", "null"]}}},
            "a?: Point, b?: string | null",
        ),
        ({"properties": "hostile", "required": None}, "-"),
    ],
)
def test_parameters_on_one_line(schema: dict[str, Any], words: str) -> None:
    assert arguments(schema) == words


def test_a_schema_without_end_is_cut_and_many_parameters_are_not() -> None:
    endless: dict[str, Any] = {"type": "array"}
    endless["items"] = endless
    assert arguments({"properties": {"a": endless}}) == "a?: [[[[[any]]]]]"
    many = {"properties": {f"parameter_{number}": {"type": "string"} for number in range(100)}}
    assert arguments(many).endswith("parameter_99?: string")


def test_a_table_of_groups() -> None:
    @tool(risk="read", effect="read")
    def look(place: str, far: bool = False) -> str:
        """Look around.

        And more.
        """
        return place

    hostile = tool(look, "x").with_(description="\x1b[31mred\x07\nmore", parameters={"properties": {"\x1b[2J": {}}})
    assert tool_table({"one": [look], "two": [hostile], "none": []}).splitlines() == [
        "  TOOL  RISK  EFFECT  ARGUMENTS                            WHAT IT DOES",
        "one",
        "  look  read  read    place: string, far: boolean = false  Look around.",
        "two",
        "  x     read  read    \\u001b[2J?: any                      \\u001b[31mred\\u0007",
        "none",
    ]


def test_tools_that_are_known_once_they_are_asked_for() -> None:
    assert [one.name for one in known_tools(Toolbox(tool(name="a")(lambda: None)))] == ["a"]
