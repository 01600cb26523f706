"""What a server answers, as the result of a tool: as data, and as a model is shown it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from orchestrator.tools.mcp import McpToolbox
from orchestrator.tools.mcp.results import as_result
from tests.tools.mcp import made

PICTURE = base64.b64encode(made.PNG * 100).decode()


def answer(structured: dict[str, Any], *texts: str, pictures: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "content": [
            *({"type": "text", "text": text} for text in texts),
            *({"type": "image", "data": data, "mimeType": "image/png"} for data in pictures),
        ],
        "structuredContent": structured,
    }


@pytest.mark.anyio
async def test_a_value_that_was_wrapped_for_the_protocol_is_given_as_it_is(address: str) -> None:
    async with McpToolbox.http(address) as box:
        for name, args, output in (("add", {"a": 1, "b": 2}, 3), ("page", {}, made.PAGE), ("pair", {}, [1, 2])):
            tool = box.get(name)
            assert tool is not None
            assert (await tool.invoke(args)).output == output
        page, town = box.get("page"), box.get("town")
        assert page is not None
        assert town is not None
        assert (await page.invoke({})).text == made.PAGE
        found = await town.invoke({})
    assert found.output == {"result": "Bonn", "country": "Germany"}


def test_only_a_schema_with_nothing_else_says_that_a_result_is_wrapped() -> None:
    assert as_result(answer({"result": 3}, "3")).output == {"result": 3}
    assert as_result(answer({"result": 3}, "3"), wrapped=True).output == 3
    assert as_result(answer({"result": 3, "more": 4}), wrapped=True).output == {"result": 3, "more": 4}


def test_a_model_is_shown_the_texts_and_the_data_stay_data() -> None:
    found = as_result(answer({"city": "Bonn", "degrees": 20}, "It is 20 degrees", "in Bonn."))
    assert found.output == {"city": "Bonn", "degrees": 20}
    assert found.text == "It is 20 degrees\nin Bonn."
    assert type(found).model_validate(found.model_dump(mode="json")) == found
    assert as_result(answer({"city": "Bonn"})).text == '{"city": "Bonn"}'


def test_the_bytes_of_a_picture_are_in_no_text() -> None:
    broken = "\n".join(PICTURE[start : start + 76] for start in range(0, len(PICTURE), 76))
    for data in (PICTURE, broken):
        found = as_result(answer({"result": [{"type": "image", "data": data}, "x"]}, pictures=(data,)), wrapped=True)
        line = f"[image/png, {len(made.PNG) * 100} bytes]"
        assert found.output == [{"type": "image", "data": line}, "x"]
        assert len(found.text) < 200
        assert [image.url for image in found.images] == [f"data:image/png;base64,{PICTURE}"]


def test_a_secret_is_in_neither() -> None:
    found = as_result(answer({"result": "token s3cret"}, "the token s3cret"), ("s3cret",))
    assert "s3cret" not in found.model_dump_json()
    file = {"type": "resource", "resource": {"uri": "file:///a/s3cret", "blob": "AAAA"}}
    assert "s3cret" not in as_result({"content": [file]}, ("s3cret",)).model_dump_json()
