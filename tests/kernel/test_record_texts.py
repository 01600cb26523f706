"""Any text is read as a record as pydantic reads its JSON, but for NaN and infinities, which JSON does not have."""

from __future__ import annotations

import json
from typing import Annotated, Any, NoReturn, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from orchestrator.kernel import records as r

from .test_record_cost import given as required

KINDS: tuple[Any, ...] = get_args(r.Record)
WHOLE: TypeAdapter[r.Record] = TypeAdapter(Annotated[r.Record, Field(discriminator="type")])
FIELDS = sorted({name for kind in KINDS for name in kind.model_fields} | {"unheard of", "$ref", ""})
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 1.0, 1.5, -0.0, 2**63, -(2**70), 10**400, 1e308, 1e12, "", "1", "1.5", "true", "yes",
    "x", "\n", "\u202e", "\U0001f600", "NaN", "Infinity", "step_done", [], [[]], ["a"], [1, None], {}, {"a": 1},
    {"type": "value", "value": [1.0]}, {"type": "approve", "args": {"a": 1}}, {"type": "deny"}, {"steps": 3, "cost": 1},
    {"message": "m", "type": "E"}, {"id": "q", "kind": "input", "node": "n", "schema": {"a": 1}}, {"tokens": "3"},
    {"x": {"a": []}},
]  # fmt: skip
"""What stands in a field, fitting or not."""
PIECES = [
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "null", '"type":"ended"', '"type":"asked",', ",", "}", "{", "[",
    "]", '"', "\\", "\\ud800", "\\u0000", " ", "\t", "\x00", "1", "-", ".", "1" * 5000, "[" * 250 + "]" * 250,
    "[" * 250 + "NaN" + "]" * 250, "\u00e9",
]  # fmt: skip
"""What is put somewhere into a text."""


def fits(kind: Any, name: str, value: Any) -> bool:
    """Whether this may be a field of such a record."""
    try:
        kind.model_validate_json(json.dumps({**json.loads(r.encode(kind(**required(kind)))), name: value}))
    except ValidationError:
        return False
    return True


FITTING = {
    kind: [(name, value) for name in kind.model_fields for value in ODD if fits(kind, name, value)] for kind in KINDS
}


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Records as JSON, with fields that are missing, too many or odd, and sometimes cut or broken."""
    kind = draw(st.sampled_from(KINDS))
    fields: dict[str, Any] = json.loads(r.encode(kind(**required(kind))))
    fields |= dict(draw(st.lists(st.sampled_from(FITTING[kind]), max_size=6)))
    for _ in range(draw(st.sampled_from((0, 0, 1)))):
        fields[draw(st.sampled_from([*kind.model_fields] * 3 + FIELDS))] = draw(st.sampled_from(ODD))
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 1)))):
        fields.pop(draw(st.sampled_from(sorted(fields))))
    text = json.dumps(fields, ensure_ascii=draw(st.booleans()))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1)))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + draw(st.integers(0, 3)) :]
    return text


def reference(text: str) -> Any:
    """The same, in one go by pydantic."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    fields = json.loads(text, parse_constant=refuse)
    try:
        record = WHOLE.validate_json(text)
    except ValidationError as error:
        if "recursion limit" not in str(error):
            raise
        record = WHOLE.validate_python(fields)
    if record.v > r.RECORD_VERSION:
        raise ValueError(record.v)
    return record


def types_of(value: Any) -> Any:
    """A value's type, and those of all that is in it."""
    if isinstance(value, BaseModel):
        return type(value), types_of(vars(value))
    if isinstance(value, dict):
        return type(value), {key: types_of(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [types_of(part) for part in value]
    return type(value)


@given(texts())
@example('{"type":"ended","seq":1,"ts":1.0,"status":"failed","output":NaN}')
@example('{"type":"ended","seq":1,"ts":1.0,"status":"failed","output":"NaN, Infinity"}')
@example('{"type":"ended","seq":1,"ts":1.0,"status":"failed","output":' + "[" * 250 + "]" * 250 + "}")
@example('{"type":"ended","seq":1,"ts":1.0,"status":"failed","output":' + "[" * 250 + "NaN" + "]" * 250 + "}")
@example('{"type":["ended"],"seq":1,"ts":1.0,"status":"failed"}')
@example('{"type":"paused","seq":1,"ts":1.0,"status":"failed","type":"ended"}')
@example('["type","ended"]')
@example("null")
def test_a_text_is_read_as_pydantic_reads_its_json(text: str) -> None:
    try:
        record = reference(text)
    except (ValueError, RecursionError):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever its words
            r.decode(text)
        return
    read = r.decode(text)
    assert read == record == r.decode(text.encode())
    assert types_of(read) == types_of(record)
    assert read.model_fields_set == record.model_fields_set
    assert (r.encode(read), repr(read)) == (r.encode(record), repr(record))
