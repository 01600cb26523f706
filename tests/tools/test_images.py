"""Pictures and binary data as results of tools: how they are kept, and how a model is shown them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator import Executor, Image, OpenAIModel, Tool, Toolbox, ToolCall, ToolResult, tool
from orchestrator.models import Message, Profile, TextProtocol, user
from orchestrator.models.base import ModelRequest
from orchestrator.models.messages import assistant
from orchestrator.testing import ScriptedModel
from orchestrator.tools import Blob, ToolFailure
from tests.support.one_node import of_calls
from tests.support.sizes import quick_on
from tests.support.wire import said, served

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(12)
DOT = Image.of(PNG)
SOUND = Blob.of(b"\x00\xff\x01", "audio/wav", name="a.wav")

graph = of_calls()


def giving(value: Any) -> Tool:
    """A tool that gives a value."""

    @tool(risk="none", effect="pure")
    def look() -> Any:
        """Look."""
        return value

    return look


@pytest.mark.parametrize(
    ("value", "output", "content"),
    [
        (DOT, None, [DOT]),
        (PNG, None, [DOT]),
        (b"\xff\xd8\xff\xe0", None, [Image.of(b"\xff\xd8\xff\xe0", "image/jpeg")]),
        (b"GIF89a", None, [Image.of(b"GIF89a", "image/gif")]),
        (b"RIFF\0\0\0\0WEBPVP8 ", None, [Image.of(b"RIFF\0\0\0\0WEBPVP8 ", "image/webp")]),
        (b"RIFF\0\0\0\0WAVE\xff", None, [Blob.of(b"RIFF\0\0\0\0WAVE\xff")]),
        (b"a\0b", None, [Blob.of(b"a\0b")]),
        ("häh".encode(), "häh", []),
        (SOUND, None, [SOUND]),
        (["two", DOT, "dots", PNG], "two\ndots", [DOT, DOT]),
        ((SOUND, {"n": 1}), [{"n": 1}], [SOUND]),
        ([DOT], None, [DOT]),
        (ToolResult(output="o", content=[DOT]), "o", [DOT]),
        (ToolFailure(error="e", content=[SOUND]), None, [SOUND]),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_tool_can_give(value: Any, output: Any, content: Any) -> None:
    found = await giving(value).invoke({})
    assert (found.output, found.content) == (output, content)
    assert type(found).model_validate_json(found.model_dump_json()) == found


def test_the_text_has_a_line_for_each_part() -> None:
    found = ToolResult(output="Done.", content=[DOT, SOUND, Image(url="https://x.example/y.png")])
    assert found.text == (
        "Done.\n[image/png, 20 bytes]\n['a.wav', audio/wav, 3 bytes, not shown]\n[image at https://x.example/y.png]"
    )
    assert ToolResult(content=[DOT]).text == "[image/png, 20 bytes]"
    assert ToolFailure(error="no", content=[DOT]).text == "Error: no\n[image/png, 20 bytes]"
    assert found.images == (DOT, Image(url="https://x.example/y.png"))
    assert SOUND.bytes == b"\x00\xff\x01"


async def test_a_toolbox_gives_texts() -> None:
    found = await Toolbox(giving(DOT)).execute(name="look")
    assert (found.output, found.content) == ("", [DOT])
    assert (await Toolbox(giving(None)).execute(name="look")).output == "null"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": "***"}, "is not base64"),
        ({"data": "", "media_type": "audio"}, "is not a media type"),
        ({"data": "", "media_type": "a/b\nc"}, "is not a media type"),
        ({"data": "", "size": 1}, "Extra inputs"),
    ],
)
def test_what_is_no_blob(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Blob(**given)


async def test_a_run_keeps_them_and_its_messages_show_the_pictures(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    call = ToolCall(id="c1", name="look", arguments={})
    async with Executor(url, tools=[giving(["A dot.", DOT, SOUND])]) as executor:
        run = await executor.start(graph, {"pending": [call]}, run_id="r")
    (message,) = run.state.observations
    assert message.role == "tool"
    assert message.images == (DOT,)
    assert message.content == "A dot.\n[image/png, 20 bytes]\n['a.wav', audio/wav, 3 bytes, not shown]"
    async with Executor(url) as executor:
        settled = [e async for e in executor.events("r") if e.type == "effect_settled"]
    kept = ToolResult.model_validate(settled[0].data["result"])
    assert kept.content == [DOT, SOUND]
    assert base64.b64decode(kept.content[0].url.partition(",")[2]) == PNG  # type: ignore[union-attr]


def test_a_result_without_content_is_as_it_was() -> None:
    assert ToolResult(output=1).model_dump() == {"output": 1, "error": None, "exit_code": 0, "metadata": {}}
    assert ToolResult(content=(DOT,)).model_dump()["content"] == [{"url": DOT.url, "detail": None}]  # type: ignore[arg-type]


async def test_a_result_without_content_costs_the_journal_nothing() -> None:
    async with Executor(tools=[giving("x")]) as executor:
        await executor.start(graph, {"pending": [ToolCall(id="c1", name="look", arguments={})]}, run_id="r")
        settled = [e async for e in executor.events("r") if e.type == "effect_settled"]
    assert settled[0].data["result"] == {"output": "x"}


def talk() -> list[Message]:
    """A conversation in which two of three calls gave pictures."""
    calls = [ToolCall(id=f"c{n}", name="look", arguments={}) for n in range(3)]
    results = [
        Message(role="tool", tool_call_id="c0", name="look", content="one", images=(DOT,)),
        Message(role="tool", tool_call_id="c1", name="look", content="none"),
        Message(role="tool", tool_call_id="c2", name="look", content="two", images=(DOT, DOT)),
    ]
    return [user("Look."), assistant("", calls), *results]


@pytest.mark.full
@quick_on("asyncio")
async def test_chat_completions_get_them_in_a_message_of_the_user_behind_all_results() -> None:
    with served(said("Dots."), said("Nothing."), said("So?")) as wire:
        async with OpenAIModel("m", wire.url, "sk-test") as model:
            await model.complete(talk())
            await model.complete([*talk(), assistant("Dots."), user("So?")])
        async with OpenAIModel("m", wire.url, "sk-test", profile=Profile(images=False)) as blind:
            await blind.complete(talk())
    first, second, third = (request.body["messages"] for request in wire.seen)
    assert [m["role"] for m in first] == ["user", "assistant", "tool", "tool", "tool", "user"]
    assert [m["content"] for m in first[2:5]] == ["one", "none", "two"]
    shown = {"type": "image_url", "image_url": {"url": DOT.url}}
    assert first[5]["content"] == [
        {"type": "text", "text": "What the tool look shows (call c0):"},
        shown,
        {"type": "text", "text": "What the tool look shows (call c2):"},
        shown,
        shown,
    ]
    assert second[:6] == first
    assert [m["role"] for m in second[6:]] == ["assistant", "user"]
    assert [m["role"] for m in third] == ["user", "assistant", "tool", "tool", "tool"]


async def test_a_model_without_calls_gets_them_with_the_words_about_the_results() -> None:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request)
        return "Dots."

    model = TextProtocol(ScriptedModel([answer, answer]))
    await model.complete(talk(), tools=[giving(DOT)])
    await model.complete([*talk(), user("And now?", images=[Image(url="https://x.example/y.png")])])
    assert asked[0].messages[-1].role == "user"
    assert asked[0].messages[-1].images == (DOT, DOT, DOT)
    assert [image.url[:5] for image in asked[1].messages[-1].images] == ["data:", "data:", "data:", "https"]
    assert all(not message.images for message in asked[1].messages[:-1])
