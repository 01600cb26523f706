"""Any text is a record, which is written as it was read, or is refused in words: never another record."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn, get_args

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from orchestrator.kernel import records as r

from .test_record_cost import given as required

KINDS: tuple[Any, ...] = get_args(r.Record)
FIELDS = sorted({name for kind in KINDS for name in kind.__struct_fields__} | {"unheard of", "$ref", ""})
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


@cache
def fitting(kind: Any) -> list[tuple[str, Any]]:
    """Names and values that may be fields of such a record. Computed when a record of the class is drawn."""
    fields, found = r.as_json(kind(**required(kind))), []
    for name in kind.__struct_fields__:
        for value in ODD:
            with suppress(ValueError):
                r.decode(json.dumps({**fields, name: value}))
                found.append((name, value))
    return found


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Records as JSON, with fields that are missing, too many or odd, and sometimes cut or broken."""
    kind = draw(st.sampled_from(KINDS))
    fields: dict[str, Any] = json.loads(r.encode(kind(**required(kind))))
    fields |= dict(draw(st.lists(st.sampled_from(fitting(kind)), max_size=6)))
    for _ in range(draw(st.sampled_from((0, 0, 1)))):
        fields[draw(st.sampled_from([*kind.__struct_fields__] * 3 + FIELDS))] = draw(st.sampled_from(ODD))
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 1)))):
        fields.pop(draw(st.sampled_from(sorted(fields))))
    text = json.dumps(fields, ensure_ascii=draw(st.booleans()))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1)))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + draw(st.integers(0, 3)) :]
    return text


DEFAULTS = {
    kind: {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in structs.asdict(kind(**required(kind))).items()
    }
    for kind in KINDS
}
MODELS = {"error", "usage", "reserve", "limits", "question", "answer", "caller", "set_aside"}
"""Fields whose values leave out their own defaults."""


def parsed(text: str) -> Any:
    """The JSON of a text, without what JSON does not have."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


@given(texts())
@example('{"type":"ended","seq":1,"ts":1.0,"status":"failed","output":NaN}')
@example('{"type":"ended","seq":1,"ts":1.0,"status":"failed","output":"NaN, Infinity"}')
@example('{"type":"ended","seq":1,"ts":1.0,"status":"failed","output":' + "[" * 250 + "]" * 250 + "}")
@example('{"type":"ended","seq":1,"ts":1.0,"status":"failed","output":' + "[" * 250 + "NaN" + "]" * 250 + "}")
@example('{"type":["ended"],"seq":1,"ts":1.0,"status":"failed"}')
@example('{"type":"paused","seq":1,"ts":1.0,"status":"failed","type":"ended"}')
@example('["type","ended"]')
@example('{"type":"answers_withdrawn","seq":1,"ts":1.0,"questions":["a"]}')
@example("null")
def test_a_text_is_written_as_it_was_read_or_refused(text: str) -> None:
    try:
        read = r.decode(text)
    except ValueError:
        return
    fields, written = parsed(text), json.loads(r.encode(read))
    assert written.keys() <= fields.keys()
    assert {type(read)} == {kind for kind in KINDS if kind.type == fields["type"]}
    for name, value in fields.items():
        if name in written and name not in MODELS:
            assert written[name] == value
        elif name not in written and name not in MODELS:
            assert value == DEFAULTS[type(read)][name]
    assert read == r.decode(text.encode()) == r.decode(r.encode(read))
    assert r.encode(r.decode(r.encode(read))) == r.encode(read)


def test_what_a_seal_signs_is_written_as_by_versions_whose_records_were_pydantic_models() -> None:
    data = {"large": 1e16, "small": 1e-7, "whole": 2.0, "text": "\u00e9\n\x7f", "long": 10**30}
    record = r.EventReceived(seq=3, ts=1.5, name="e", data=data, seal="x")
    written = r.encode_unsealed(record)
    assert written == (
        b'{"seq":3,"ts":1.5,"name":"e","data":{"large":1e+16,"small":1e-7,"whole":2.0,'
        b'"text":"\xc3\xa9\\n\x7f","long":1000000000000000000000000000000},"type":"event_received"}'
    )
    assert r.encode_unsealed(r.decode(r.encode(record))) == written
