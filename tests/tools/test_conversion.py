"""A text is converted only where the schema names other types, and takes no text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from orchestrator import Graph, ToolCall, tool
from orchestrator.nodes import CallModel, Execute, ReadReply
from orchestrator.testing import ScriptedModel
from orchestrator.tools.result import as_text
from orchestrator.tools.validation import coerced, faults

TEXTS = ("3.10", "null", "None", "1e5", "0x10", "60", "true", "007", "[1, 2]", '{"a": "1"}', '"60"', "", "x")
"""Each is a text, and most of them can also be read as another value."""

TAKES_TEXT: tuple[Any, ...] = (
    True,
    {},
    {"description": "any value"},
    {"type": ["string", "integer"]},
    {"type": ["null", "string"]},
    {"type": "string", "nullable": True},
    {"type": "string", "pattern": "^a"},
    {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"oneOf": [{"type": "object"}, {"type": "string", "maxLength": 1}]},
    {"anyOf": [{"type": "integer"}, {}]},
    {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/anything"}]},
    {"allOf": [{"$ref": "#/$defs/word"}, {"description": "a word"}]},
    {"$ref": "#/$defs/word", "description": "a word"},
    {"$ref": "#/$defs/anything"},
    {"enum": ["60", "x", 1]},
    {"const": "60"},
    {"enum": ["null", None]},
    {"not": {"type": "integer"}},
    {"minimum": 3},
    {"properties": {"a": {"type": "integer"}}},
    {"items": {"type": "integer"}},
    {"prefixItems": [{"type": "integer"}]},
)
ROOT = {"$defs": {"word": {"type": "string"}, "anything": {}, "whole": {"type": "integer"}}}


@pytest.mark.parametrize("schema", TAKES_TEXT, ids=str)
def test_a_text_stays_where_the_schema_takes_one(schema: Any) -> None:
    around: list[tuple[Any, Callable[[str], Any]]] = [
        (schema, lambda text: text),
        ({"type": "array", "items": schema}, lambda text: [text]),
        ({"type": "array", "prefixItems": [schema, schema], "items": False}, lambda text: [text, text]),
        ({"type": "object", "properties": {"a": schema}}, lambda text: {"a": text}),
        ({"type": "object", "additionalProperties": schema}, lambda text: {"a": text}),
        ({"type": "object", "patternProperties": {"^a": schema}, "additionalProperties": {"type": "integer"}},
         lambda text: {"a": text}),
        ({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": schema}]},
         lambda text: [text]),
        ({"allOf": [{"type": "object", "properties": {"a": schema}}, {"required": ["a"]}]}, lambda text: {"a": text}),
        ({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": schema}}]}, lambda text: {"a": text}),
    ]  # fmt: skip
    for outer, written in around:
        for text in TEXTS:
            assert repr(coerced(written(text), outer, ROOT)) == repr(written(text)), (outer, text)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "0x10", 16),
        ({"type": "integer"}, "1e5", 100_000),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["number", "array"]}, "3.10", 3.1),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "60", 60),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "true", True),
        ({"allOf": [{"type": "number"}, {"minimum": 3}]}, "3.10", 3.1),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]}, "60", 60),
        ({"$ref": "#/$defs/whole"}, "60", 60),
        ({"$ref": "#/$defs/whole", "minimum": 1}, "60", 60),
        ({"enum": [1, 60]}, "60", 60),
        ({"const": 60}, "60", 60),
        ({"enum": [None, 1]}, "null", None),
        ({"type": "array", "items": {}}, '["3.10"]', ["3.10"]),
        ({"type": "array", "prefixItems": [{}, {"type": "integer"}]}, ["60", "60", "60"], ["60", 60, "60"]),
        ({"type": "object", "properties": {"b": {"type": "integer"}}}, {"a": "1", "b": "1"}, {"a": "1", "b": 1}),
        ({"type": "object", "patternProperties": {"^n": {"type": "integer"}}}, {"n": "1", "x": ""}, {"n": 1, "x": ""}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": "1"}, {"x": 1}),
        ({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}, ["60"], [60]),
        ({"anyOf": [{"type": "object", "properties": {"kind": {"const": "n"}, "v": {"type": "integer"}}},
                    {"type": "object", "properties": {"kind": {"const": "t"}, "v": {"type": "string"}}}]},
         [{"kind": "n", "v": "60"}, {"kind": "t", "v": "60"}], None),
        # It cannot be read as a type that the schema names.
        ({"type": "integer"}, "3.10", "3.10"),
        ({"type": "integer"}, "null", "null"),
        ({"type": "array"}, "60", "60"),
        ({"type": "integer"}, '"60"', '"60"'),
    ],
)  # fmt: skip
def test_a_text_is_read_where_the_schema_names_another_type(schema: Any, text: Any, value: Any) -> None:
    if value is None and isinstance(text, list):
        number, word = (coerced(one, schema, ROOT) for one in text)
        assert (number, word) == ({"kind": "n", "v": 60}, {"kind": "t", "v": "60"})
        return
    found = coerced(text, schema, ROOT)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("schema", TAKES_TEXT, ids=str)
def test_a_text_that_fits_is_never_changed(schema: Any) -> None:
    fitting = [text for text in TEXTS if not faults(text, schema, ROOT)]
    assert [coerced(text, schema, ROOT) for text in fitting] == fitting


class Number(BaseModel):
    kind: Literal["number"]
    value: int


class Word(BaseModel):
    kind: Literal["word"]
    value: str


@tool(risk="none", effect="read")
def keep(a: Any = "", b: object = "", c="", d: list[Any] | None = None, e: dict[str, Any] | None = None,  # type: ignore[no-untyped-def]
         f: Number | Word | None = None, g: list[int] | list[str] | None = None, **more: Any) -> Any:  # fmt: skip
    """Return what was given."""
    given = {"a": a, "b": b, "c": c, "d": d, "e": e, "g": g, **more}
    return {name: value for name, value in given.items() if value not in ("", None)} | ({"f": repr(f)} if f else {})


GIVEN = {"a": "3.10", "b": "null", "c": "1e5", "d": ["0x10"], "e": {"zip": "007"}, "g": ["1"], "other": "60"}


def test_parameters_of_any_type_get_the_text_that_was_given() -> None:
    assert keep.validate(GIVEN) == GIVEN
    assert keep.validate({"f": {"kind": "word", "value": "60"}}) == {"f": {"kind": "word", "value": "60"}}
    assert keep.validate({"f": {"kind": "number", "value": "60"}}) == {"f": {"kind": "number", "value": 60}}


class State(CallModel.State, ReadReply.State):
    pass


@pytest.mark.anyio
async def test_a_call_of_a_model_keeps_its_texts() -> None:
    graph = Graph(
        name="g",
        state=State,
        input="question",
        nodes={
            "ask": CallModel(question="question"),
            "read": ReadReply(),
            "act": Execute(calls="pending", results="messages", on_failure="observe"),
        },
        edges="START -> ask -> read\nread -> ask : again\nread -> act : calls\nread -> END : answer\nact -> ask",
        output="answer",
    )
    call = ToolCall(id="1", name="keep", arguments=GIVEN)
    run = await graph.run("x", tools=[keep], model=ScriptedModel([[call], "done"]))
    assert run.state.messages[-2].content == as_text(GIVEN)


@pytest.mark.anyio
async def test_a_call_by_code_keeps_its_texts() -> None:
    class Kept(BaseModel):
        found: Any = None

    async def call(state: Kept, ctx: Any) -> dict[str, Any]:
        return {"found": await ctx.tool("keep", **GIVEN)}

    graph = Graph(name="g", state=Kept, nodes={"call": call}, edges="START -> call -> END", output="found")
    run = await graph.run({}, tools=[keep])
    assert run.output["output"] == GIVEN
