"""Large values are written and shown in pieces, as if they were written at once."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from orchestrator import Executor, visible, web
from orchestrator.graph.limits import Usage
from orchestrator.json import PIECE, digest, digest_in_pieces, encoded, in_pieces, is_small, size_of
from orchestrator.visible import exact
from orchestrator.web.documents import Document, json_of
from tests.support.sizes import sized
from tests.web.api import letter

_LONG = 'a "quoted" \\ é \U0001f41d\n' * (PIECE // 10)
VALUES: tuple[Any, ...] = (
    _LONG, [_LONG, 1, _LONG], {_LONG: {"b": [], "c": {}}, "d": _LONG}, [*range(PIECE)], [[one] for one in range(PIECE)],
    {f"key {one}": [one, {"text": "x" * (one % 100)}] for one in range(20_000)}, [None] * 3000, [], {}, "", 1.5,
)  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize("ascii", sized([True], [True, False]))
def test_json_in_pieces_is_what_the_encoder_writes_at_once(value: object, ascii: bool) -> None:  # noqa: A002  json's name
    for separators in ((",", ":"), None):
        encoder = json.JSONEncoder(separators=separators, ensure_ascii=ascii)
        assert "".join(in_pieces(value, encoder)) == encoder.encode(value)


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_digest_in_pieces_is_that_of_the_whole(value: object) -> None:
    assert digest_in_pieces(value) == digest(value)
    assert digest_in_pieces({"b": value, "a": 1}) == digest({"a": 1, "b": value})


@pytest.mark.full
def test_each_piece_is_small() -> None:
    for value in VALUES:
        assert max(map(len, in_pieces(value))) <= 8 * PIECE
        assert max(map(len, encoded(in_pieces(value)))) <= 10 * PIECE


def test_a_large_document_is_written_as_pydantic_writes_it() -> None:
    class Part(Document):
        named: object = Field(serialization_alias="schema")
        usage: Usage

    class Whole(Document):
        parts: list[Part]
        data: dict[str, object]
        more: Part | None = None

    part = Part(named=_LONG, usage=Usage(calls=1))
    for made in (Whole(parts=[part] * 3, data={"x": [_LONG]}, more=part), Whole(parts=[], data={})):
        assert json.loads("".join(json_of(made))) == made.model_dump(mode="json", by_alias=True)


VALUE = st.recursive(
    st.text() | st.integers() | st.none() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.full
@given(VALUE)
def test_the_size_of_a_value_is_what_it_is_small_by(value: object) -> None:
    assert is_small(value, size_of(value))
    assert not is_small([value], size_of(value))
    assert size_of([object(), value, "abc"]) == size_of([None, value, ""]) + 3


@given(VALUE)
def test_what_is_small_has_no_more_characters_than_it_may(value: object) -> None:
    length = len(json.dumps(value, ensure_ascii=False))
    assert is_small(value, 10 * length + 1000)
    assert not is_small([value, "x" * 100], 90)


def test_nobody_knows_the_size_of_other_values() -> None:
    assert not is_small(object())
    assert not is_small([b"", {"a": iter(())}])


@given(
    st.lists(
        st.sampled_from(["word ", "  " * 6, "\n", "\\", "\u200b", "e\u0301", "é", "日本", "🐝", '"', "a1b2c3d4e5f6 "]),
        max_size=200,
    )
)
def test_a_long_value_is_shown_as_a_short_one(parts: list[str]) -> None:
    text = json.dumps("".join(parts), ensure_ascii=False)
    at_once = visible._exact(text)
    for least in (13, 40):
        sections = [*visible._sections(text, least)]
        assert "".join(sections) == text
        if all(len(one) < 2 * least for one in sections):  # a place to cut was found in time
            assert "".join(map(visible._exact, sections)) == at_once
            assert "".join(map(visible._shown, sections)) == visible._shown(text)


def test_what_is_shown_of_a_large_value_differs_where_it_does() -> None:
    assert exact([_LONG + "a\u200b"]).endswith('a\\u200b"]')


@pytest.mark.full
@pytest.mark.anyio
async def test_large_values_are_shown_on_both_event_loops() -> None:
    topic = "many bees, é " * 60_000
    async with Executor(graphs=[letter]) as executor:
        transport = httpx2.ASGITransport(app=web.app(executor))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            run = await executor.start("letter", topic, run_id="big")
            shown = (await client.get("/api/runs/big")).json()
            assert (shown["state"], shown["status"]) == (run.values, "paused")
            text = (await client.get("/api/runs/big/export")).text
            assert [json.loads(line).get("values", {}).get("topic") for line in text.splitlines()].count(topic) == 1
            for path in ("/inbox", "/runs", "/runs/big", "/api/questions", "/api/runs/big/records"):
                assert (await client.get(path)).status_code == 200
            assert (await client.post("/api/runs/big/fork", json={"at": 2, "start": False})).status_code == 201
