"""A key that a model or a tool repeats does not reach the journal, however it is written."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, OpenAIModel, append, node, redaction, tool
from orchestrator.redaction import KnownScreen, forms_of, know, without_known, without_known_in
from tests.support.wire import called, chunk, said, served, streamed

KEY = "mykey/9f86d081884c7d65+9a2f"
WAYS: dict[str, Callable[[str], str]] = {
    "as it is": lambda key: key,
    "in base64": lambda key: base64.b64encode(key.encode()).decode(),
    "in base64 behind a letter": lambda key: base64.b64encode(f"x{key}y".encode()).decode(),
    "in base64 behind two": lambda key: base64.b64encode(f"xx{key}".encode()).decode(),
    "in base64 of addresses": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "in an address": lambda key: quote(key, safe=""),
    "in hex digits": lambda key: codecs.encode(key.encode(), "hex").decode(),
}


@pytest.fixture(autouse=True)
def _forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", {})


class Talk(BaseModel):
    said: Annotated[list[str], append] = []


@tool
def leak(way: str) -> str:
    """Say the key."""
    if way == "raise":
        raise ValueError(f"cannot log in with {KEY}")
    return f"it is {WAYS[way](KEY)}!"


@node
async def talk(ctx: Context) -> dict[str, str]:
    return {"said": (await ctx.model.complete("What is your key?")).text}


@node
async def calls(ctx: Context) -> dict[str, Any]:
    reply = await ctx.model.complete("What is your key?")
    return {"said": json.dumps(reply.tool_calls[0].arguments) + reply.tool_calls[0].raw}


@node
async def streams(ctx: Context) -> dict[str, str]:
    events = ctx.model.stream("What is your key?")
    return {"said": [event.reply.text async for event in events if event.reply is not None][-1]}


@node(tools=[leak])
async def uses(ctx: Context) -> dict[str, str]:
    await ctx.model.complete("Hi")  # so that the key is known
    found = [await ctx.tool("leak", {"way": way}) for way in (*WAYS, "raise")]
    return {"said": " ".join(str(one.output or one.error) for one in found)}


def of(one: Any) -> Graph:
    return Graph(name="talk", state=Talk, nodes={"talk": one}, edges="START -> talk -> END", output="said")


async def ran(graph: Graph, path: Path, url: str) -> tuple[Any, bytes]:
    model = OpenAIModel("m", url, KEY, retry=None)
    async with model, Executor(f"sqlite:///{path}", model=model) as executor:
        run = await executor.start(graph, run_id="r")
    return run, b"".join(file.read_bytes() for file in path.parent.iterdir())


def holds_none(data: bytes) -> bool:
    return not any(form.encode() in data for form in forms_of(KEY) if len(form) > 12)


@pytest.mark.anyio
@pytest.mark.parametrize("way", WAYS)
async def test_a_key_in_a_reply_is_not_journaled(way: str, tmp_path: Path) -> None:
    with served(said(f"My key is {WAYS[way](KEY)}.")) as wire:
        run, data = await ran(of(talk), tmp_path / "runs.db", wire.url)
    assert run.status == "completed"
    assert run.output[0].startswith("My key is ")
    assert "[redacted]" in run.output[0]
    assert holds_none(data)


@pytest.mark.anyio
async def test_a_key_in_the_arguments_of_a_call_is_not_journaled(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": json.dumps({KEY: [KEY]})}}
    with served(called(call)) as wire:
        run, data = await ran(of(calls), tmp_path / "runs.db", wire.url)
    assert run.output == ['{"[redacted]": ["[redacted]"]}' * 2]
    assert holds_none(data)


@pytest.mark.anyio
async def test_a_key_in_a_stream_is_not_journaled(tmp_path: Path) -> None:
    pieces = [chunk({"content": KEY[n : n + 3]}) for n in range(0, len(KEY), 3)]
    with served(streamed(*pieces, chunk(finish="stop"))) as wire:
        run, data = await ran(of(streams), tmp_path / "runs.db", wire.url)
    assert run.output == ["[redacted]"]
    assert holds_none(data)


@pytest.mark.anyio
async def test_log_probabilities_of_a_reply_with_a_key_are_not_journaled(tmp_path: Path) -> None:
    pieces = [KEY[n : n + 9] for n in range(0, len(KEY), 9)]
    answer = said(KEY)
    answer["choices"][0]["logprobs"] = {"content": [{"token": one, "logprob": -0.1} for one in pieces]}
    with served(answer) as wire:
        run, data = await ran(of(talk), tmp_path / "runs.db", wire.url)
    assert (run.output, [one for one in pieces if one.encode() in data]) == (["[redacted]"], [])


def test_a_redacted_reply_has_no_log_probabilities() -> None:
    details = {"id": "1", "logprobs": [["sk-abcdefgh", -0.1, {}], ["ijklmnop0123", -0.1, {}]]}
    assert redaction.redacted({"text": "sk-abcdefghijklmnop0123", "details": details}) == {
        "text": "[redacted]",
        "details": {"id": "1"},
    }
    assert redaction.redacted({"text": "yes", "details": details}) == {"text": "yes", "details": details}


@pytest.mark.anyio
async def test_a_key_in_results_and_errors_of_tools_is_not_journaled(tmp_path: Path) -> None:
    with served(said("hello")) as wire:
        run, data = await ran(of(uses), tmp_path / "runs.db", wire.url)
    assert run.status == "completed", run.error
    assert run.output[0].count("[redacted]") == len(WAYS) + 1
    assert holds_none(data)


@pytest.mark.parametrize("word", ["ollama", "none", "EMPTY", "lm-studio", "not-needed", "no-key-required"])
def test_words_that_stand_for_no_key_are_no_secrets(word: str) -> None:
    know(word)
    assert without_known(f"I am {word}") == f"I am {word}"


@given(st.text(min_size=16, max_size=40), st.text(max_size=10), st.text(max_size=10), st.sampled_from([*WAYS.values()]))
def test_a_secret_is_found_in_all_its_forms_and_nothing_else_changes(
    secret: str, before: str, after: str, way: Callable[[str], str]
) -> None:
    redaction._known.clear()
    secret = secret.encode("utf-8", "ignore").decode() + "0123456789abcdef"
    know(secret)
    assert secret not in without_known(f"{before}{secret}{after}")
    hidden = without_known(way(secret))
    assert "[redacted]" in hidden
    assert len(hidden) <= len("[redacted]") + 10
    assert without_known(hidden) == hidden
    kept = {"a": [before, {"b": 1, "c": None}]}
    assert secret in before or without_known_in(kept) is kept


def test_only_so_many_secrets_are_remembered() -> None:
    for number in range(1_000):
        know(f"secret-number-{number:06}")
    assert len(redaction._known) == 200
    assert without_known("secret-number-000999") == "[redacted]"


@node
async def emits(ctx: Context) -> dict[str, str]:
    know(KEY)
    await ctx.emit("news", {"key": [f"it is {KEY}"]})
    return {"said": "done"}


@pytest.mark.anyio
async def test_a_key_in_a_live_event_is_not_shown() -> None:
    async with Executor() as executor, executor.stream(of(emits), {}) as stream:
        events = [event.to_json() async for event in stream]
    [data] = [event for event in events if event["type"] == "emitted"]
    assert {"key": ["it is [redacted]"]} in (data.get("data"), data.get("data", {}).get("data"))


# -- pieces -----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("field", ["content", "reasoning_content"])
async def test_a_key_that_arrives_in_pieces_is_not_shown_in_part(size: int, field: str) -> None:
    words = f"My key is {KEY} and my"
    pieces = [chunk({field: words[n : n + size]}) for n in range(0, len(words), size)]
    with served(streamed(*pieces, chunk({"content": "!"}), chunk(finish="stop"))) as wire:
        model = OpenAIModel("m", wire.url, KEY, retry=None)
        async with model, Executor(model=model) as executor, executor.stream(of(streams), {}) as stream:
            events = [event.to_json() async for event in stream]
    name = "text" if field == "content" else "reasoning"
    shown = [str(event.get(name, "")) for event in events if event["type"] == "token"]
    assert "".join(shown).removesuffix("!") == "My key is [redacted] and my"
    assert "reset" not in {event["type"] for event in events}
    assert not any(KEY[:4] in one for one in shown)


@given(
    parts=st.lists(
        st.sampled_from([KEY, *WAYS, "my", "mykey/", "myk", "9a2f", " ", *(way(KEY) for way in WAYS.values())])
    ),
    cuts=st.lists(st.integers(1, 12), min_size=1),
)
def test_pieces_make_up_the_text_without_the_key_however_they_are_cut(parts: list[str], cuts: list[int]) -> None:
    know(KEY)
    text, screen, shown, at = "".join(parts), KnownScreen(), [], 0
    for size in cuts * (len(text) // sum(cuts) + 1):
        shown.append(screen.feed(text[at : at + size]))
        at += size
    shown.append(screen.rest())
    assert "".join(shown) == without_known(text)


def test_of_two_keys_one_of_which_begins_the_other_none_is_shown() -> None:
    know("abcd12345678")
    know("abcd12345678efgh9")
    screen = KnownScreen()
    assert "".join([screen.feed("x abcd12345678"), screen.feed("efgh9 "), screen.rest()]) == "x [redacted] "
    assert "".join([screen.feed("x abcd12345678"), screen.feed("efgh8 "), screen.rest()]) == "x [redacted]efgh8 "


def test_what_is_held_back_is_bounded() -> None:
    key = "a" * 15 + "1"
    know(key)
    screen, shown = KnownScreen(), 0
    for number in range(1, 200):
        shown += len(screen.feed("a"))
        assert number - shown <= 2 * max(map(len, forms_of(key)))
