"""`Complete(output=...)`: the model's reply is a value of a schema, and the state gets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from orchestrator import Graph
from orchestrator.errors import InvalidGraph, NotSerialisable, UntrustedCode
from orchestrator.models import Reply
from orchestrator.nodes import Complete
from orchestrator.nodes.model_decision import bounded
from orchestrator.testing import ScriptedModel, assert_crash_safe
from tests.support.one_node import error_of, executing, of_one, run

pytestmark = pytest.mark.anyio


class Invoice(BaseModel):
    number: str
    total: float

    @field_validator("total")
    @classmethod
    def _positive(cls, total: float) -> float:
        if total <= 0:
            raise ValueError("a total is more than 0")
        return total


class Asked(BaseModel):
    question: str = "Invoice 7 over 12 euros"
    invoice: Invoice | None = None
    facts: dict[str, Any] = {}
    items: list[str] = []
    reply: str = ""
    why: str = ""


SCHEMA = {
    "type": "object",
    "title": "Size",
    "properties": {"size": {"type": "integer", "minimum": 1}},
    "required": ["size"],
    "additionalProperties": False,
}
OF_CLASS = Complete(output=Invoice, result="invoice")
OF_SCHEMA = Complete(output=SCHEMA, result="facts")
OF_ANY = Complete(output={"type": "object"}, result="facts")
GOOD = '{"number": "7", "total": 12}'


async def test_the_state_gets_the_validated_model() -> None:
    async with executing([f"```json\n{GOOD}\n```"]) as (executor, model):
        found = await executor.start(of_one(OF_CLASS, Asked), {})
    assert found.state.invoice == Invoice(number="7", total=12)
    (request,) = model.requests
    assert request.output == Invoice.model_json_schema()
    found = await run(OF_SCHEMA, Asked, replies=['{"size": 3}'])
    assert found.values["facts"] == {"size": 3}
    found = await run(Complete(output={"type": "array", "items": {"type": "string"}}, result="items"), Asked,
                      replies=['["a", "b"]'])  # fmt: skip
    assert found.values["items"] == ["a", "b"]


async def test_after_a_value_that_is_cut_off_the_next_ones_have_tighter_bounds() -> None:
    schema = {
        "type": "object",
        "properties": {
            "answer": {"type": ["string", "null"]},
            "steps": {"type": "array", "items": {"type": "string", "minLength": 50}, "minItems": 12},
            "kind": {"type": "string", "enum": ["a", "b"]},
        },
    }
    cut = Reply(text='{"answer": "' + "long " * 200, finish="length")
    node = Complete(output=schema, result="facts", retries=2)
    async with executing([cut, cut, '{"answer": "short"}']) as (executor, model):
        found = await executor.start(of_one(node, Asked), {})
    assert found.values["facts"] == {"answer": "short"}
    first, second, third = (request.output for request in model.requests)
    assert first == schema
    for request, most in ((second, 253), (third, 63)):
        assert request is not None
        bounds: Any = request["properties"]
        assert bounds["answer"]["maxLength"] == most
        assert (bounds["steps"]["items"]["maxLength"], bounds["steps"]["maxItems"]) == (max(most, 50), 12)
        assert bounds["kind"] == {"type": "string", "enum": ["a", "b"]}


TEXT = {"type": "string"}
SHORT = {"type": "string", "maxLength": 20}


@pytest.mark.parametrize(
    ("schema", "bounds"),
    [
        (TEXT, SHORT),
        ({**TEXT, "format": "uuid"}, {**TEXT, "format": "uuid"}),
        ({**TEXT, "pattern": "^[a-z]{48}$"}, {**TEXT, "pattern": "^[a-z]{48}$"}),
        ({**TEXT, "minLength": 21}, {**TEXT, "minLength": 21}),
        (
            {"type": "array", "contains": {}, "minContains": 4},
            {"type": "array", "contains": {}, "minContains": 4, "maxItems": 4},
        ),
        ({"const": TEXT}, {"const": TEXT}),
        ({"enum": [TEXT, ["a"] * 9]}, {"enum": [TEXT, ["a"] * 9]}),
        ({"type": "array", "const": [1] * 9}, {"type": "array", "const": [1] * 9}),
        ({"default": TEXT, "examples": [TEXT]}, {"default": TEXT, "examples": [TEXT]}),
        (
            {"properties": {"const": TEXT, "enum": TEXT, "type": TEXT}},
            {"properties": {"const": SHORT, "enum": SHORT, "type": SHORT}},
        ),
        ({"$defs": {"default": TEXT}, "anyOf": [TEXT]}, {"$defs": {"default": SHORT}, "anyOf": [SHORT]}),
        ({"additionalProperties": TEXT, "items": TEXT}, {"additionalProperties": SHORT, "items": SHORT}),
        ({"not": TEXT}, {"not": TEXT}),
        ({"if": TEXT, "then": TEXT}, {"if": TEXT, "then": SHORT}),
        ({"allOf": [TEXT, {"pattern": "^[a-z]{48}$"}]}, {"allOf": [TEXT, {"pattern": "^[a-z]{48}$"}]}),
    ],
)
def test_whatever_has_a_fitting_value_has_one_within_the_bounds(schema: dict[str, Any], bounds: dict[str, Any]) -> None:
    assert bounded(schema, 20) == bounds


@pytest.mark.parametrize(
    ("it", "good", "wrong", "fault"),
    [
        (OF_CLASS, GOOD, "Here it is.", "the reply has no JSON; write one JSON object with 'number', 'total'"),
        (OF_CLASS, GOOD, '{"number": "7"}', "total"),
        (OF_CLASS, GOOD, '{"number": "7", "total": -1}', "a total is more than 0"),
        (OF_CLASS, GOOD, "null", "input should be"),
        (OF_SCHEMA, '{"size": 1}', '{"size": 0}', "size"),
        (OF_SCHEMA, '{"size": 1}', '{"size": 1, "color": 2}', "color"),
        (OF_SCHEMA, '{"size": 1}', "[" * 3000, "the reply is nested too deeply"),
        (OF_CLASS, GOOD, '{"number": "7", "total": NaN}', "the reply is not JSON (NaN is not a JSON number)"),
        (OF_CLASS, GOOD, '{"number": "7", "total": "1e999"}', "inf is not a number that JSON can represent"),
        (OF_CLASS, GOOD, '{"number": "\\ud800", "total": 1}', "surrogate"),
        (OF_ANY, '{"size": 1}', '{"size": NaN}', "the reply is not JSON (NaN is not a JSON number)"),
        (OF_ANY, '{"size": 1}', '{"size": "\\ud800"}', "surrogate"),
    ],
)
async def test_a_reply_that_does_not_fit_is_corrected_within_bounds(
    it: Complete, good: str, wrong: str, fault: str
) -> None:
    async with executing([wrong, good]) as (executor, model):
        found = await executor.start(of_one(it, Asked), {})
    assert found.status == "completed"
    told = model.requests[1].messages[-1].content
    assert told.startswith("Your reply cannot be used: ")
    assert fault in told
    found = await run(it.with_(retries=0), Asked, replies=[wrong])
    assert error_of(found)[0] == "AgentError"
    assert fault in error_of(found)[1]


@pytest.mark.parametrize("reply", ["", Reply(text='{"size": 1', finish="length")])
async def test_a_reply_that_is_empty_or_cut_off_is_corrected_too(reply: Any) -> None:
    async with executing([reply, '{"size": 10}']) as (executor, model):
        found = await executor.start(of_one(OF_SCHEMA, Asked), {})
    assert found.values["facts"] == {"size": 10}
    assert len(model.requests) == 2
    refused = Reply(text="I", finish="refusal")
    assert "refused to answer" in error_of(await run(OF_SCHEMA, Asked, replies=[refused]))[1]


def test_a_form_needs_a_schema_of_one_property() -> None:
    assert Complete(output=SCHEMA, form="number").form == "number"
    for output in (None, Invoice, {"type": "object"}):
        with pytest.raises(ValidationError, match="form= needs output="):
            Complete(output=output, form="number")


async def test_without_a_fitting_reply_it_takes_unusable_where_a_field_takes_the_fault() -> None:
    it = OF_CLASS.with_(fault="why", retries=0)
    graph = Graph(name="g", state=Asked, nodes={"it": it}, edges="START -> it\nit -> END : done\nit -> END : unusable")
    async with executing(["hm"]) as (executor, _):
        found = await executor.start(graph, {})
    why = "it: the reply has no JSON; write one JSON object with 'number', 'total'; the reply was 'hm'"
    assert found.values["why"] == why
    assert found.values["invoice"] is None


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (3, "output must be a pydantic model or a JSON Schema"),
        (int, "a pydantic model"),
        ({"tpye": "object"}, "tpye"),
        ({"type": "objekt"}, "the type \"objekt\", which does not exist; did you mean 'object'"),
        ({"type": ["string", 5]}, "the type 5, which does not exist"),
        ({"type": "object", "properties": 5}, "'properties' with 5, which is not an object with schemas"),
        ({"properties": {"a": 5}}, "has 5 in 'properties' instead of a schema"),
        ({"anyOf": []}, "not a list of schemas"),
        ({"required": "a"}, "not a list of names"),
        ({"$ref": "#"}, "refers to itself without end"),
        (
            {"$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}, "properties": {"a": {"$ref": "#/$defs/A"}}},
            "without end",
        ),
    ],
)
def test_what_is_no_schema_is_refused(output: object, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Complete(output=output)


def test_a_field_that_cannot_hold_the_output_is_refused() -> None:
    with pytest.raises(InvalidGraph, match="the output of it is an object, and 'reply' cannot hold one: make"):
        of_one(Complete(output=Invoice), Asked)
    with pytest.raises(InvalidGraph, match="and 'items' cannot hold one"):
        of_one(Complete(output=SCHEMA, result="items"), Asked)


def test_without_output_its_data_is_what_it_was() -> None:
    data = of_one(Complete(), Complete.State).data()
    (node,) = data["nodes"].values()  # type: ignore[attr-defined]
    assert {"output", "retries", "correction"}.isdisjoint(node)


async def test_it_is_data(tmp_path: Path) -> None:
    for number, it in enumerate((OF_CLASS, OF_SCHEMA)):
        path = tmp_path / f"{number}.yaml"
        of_one(it, Asked).save(path)
        again = Graph.load(path)
        assert again.content == of_one(it, Asked).content
        assert again.nodes["it"] == it
        assert again.nodes["it"].does == ("fills Invoice", "fills a schema")[number].replace("a schema", "Size")
    assert f"output: {__name__}:Invoice" in (tmp_path / "0.yaml").read_text()


def test_a_class_in_a_file_needs_trust_and_has_to_be_a_model(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    for ref, words in (
        ("antigravity:fly", "antigravity"),
        ("subprocess:Popen", "subprocess"),
        (f"{__name__}:GOOD", "GOOD"),
    ):
        data = {
            "name": "g",
            "state": {"name": "S", "fields": {"question": "str", "facts": {"type": "dict", "default": {}}}},
            "nodes": {"it": {"kind": "complete", "result": "facts", "output": ref}},
            "edges": "START -> it -> END",
        }
        path.write_text(json.dumps(data))
        with pytest.raises(UntrustedCode, match=words):
            Graph.load(path)


def test_a_local_class_runs_and_draws_and_is_not_saved(tmp_path: Path) -> None:
    class Local(BaseModel):
        number: int

    graph = of_one(Complete(output=Local, result="facts"), Asked)
    assert "fills Local" in graph.to_text()
    assert Graph.from_data(graph.data()).structure == graph.structure
    with pytest.raises(NotSerialisable, match=r"node 'it' has a class that a file cannot refer to .*Local"):
        graph.save(tmp_path / "g.yaml")


async def test_it_survives_crashes() -> None:
    graph = of_one(OF_CLASS, Asked)
    await assert_crash_safe(graph, {}, setup=lambda: {"model": ScriptedModel(["hm", GOOD])})


def test_a_schema_may_refer_to_itself_for_its_parts() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"anyOf": [{"$ref": "#"}, True]}}}
    assert Complete(output=tree, result="facts").output == tree
    twice = {"$defs": {"N": {"type": "integer"}}, "allOf": [{"$ref": "#/$defs/N"}, {"$ref": "#/$defs/N"}]}
    assert Complete(output=twice, result="facts").output == twice
