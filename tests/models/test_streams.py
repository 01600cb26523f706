"""Streamed replies: whatever their split the same reply, and never a short one that passes for whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import pairwise
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator import OpenAIModel, tool
from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.models import Profile, Reply, tool_result, user
from orchestrator.models.chat import Assembly, EventDecoder, reply_from
from tests.models.streams import RECORDED, Recorded
from tests.support.costs import in_proportion
from tests.support.sizes import sized
from tests.support.wire import Raw, called, chunk, refused, said, served, sse, streamed, told

pytestmark = pytest.mark.anyio

KEY = "sk-not-a-real-key-42"
once = pytest.mark.parametrize("anyio_backend", ["asyncio"])
each = pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED.keys())


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def read(model: OpenAIModel, *args: Any, **options: Any) -> tuple[list[str], Reply]:
    """The pieces of a reply, and the reply."""
    pieces: list[str] = []
    reply: Reply | None = None
    async for event in model.stream(*(args or ("Hi",)), **options):
        assert reply is None, "the reply is the last event"
        if event.reply is None:
            pieces.append(event.text)
        reply = event.reply
    assert reply is not None
    return pieces, reply


async def stream_of(answer: Raw | Mapping[str, Any], **options: Any) -> tuple[list[str], Reply]:
    with served(answer) as wire:
        async with OpenAIModel("m", wire.url, KEY, **options) as model:
            return await read(model)


async def fault_of(answer: Raw | Mapping[str, Any], **options: Any) -> ModelError:
    with served(answer) as wire:
        async with OpenAIModel("m", wire.url, KEY, **options) as model:
            with pytest.raises(ModelError) as caught:
                await read(model)
        assert len(wire.seen) == 1
    return caught.value


def expect(reply: Reply, recorded: Recorded) -> None:
    """The reply is the recorded one."""
    assert (reply.text, reply.finish) == (recorded.text, recorded.finish)
    assert [(call.name, call.raw) for call in reply.tool_calls] == [(name, args) for _, name, args in recorded.calls]
    ids = [call.id for call in reply.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert all(known in ("", found) for (known, _, _), found in zip(recorded.calls, ids, strict=True))
    assert reply.extras == dict(recorded.extras)
    assert reply.usage is not None
    if recorded.tokens is None:
        assert reply.usage.estimated
    else:
        assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.estimated) == (*recorded.tokens, False)


# -- one reply, however it comes -----------------------------------------------------------------------------------


@once
@each
async def test_what_different_servers_stream(recorded: Recorded) -> None:
    pieces, reply = await stream_of(streamed(*recorded.chunks))
    expect(reply, recorded)
    assert recorded.finish == "refusal" or "".join(pieces) == reply.text


@once
async def test_a_stream_in_packets_of_one_byte() -> None:
    for recorded in (RECORDED["text, with usage behind"], RECORDED["several calls that all have index 0"]):
        data = sse(*recorded.chunks)
        expect((await stream_of(Raw(parts=[data[at : at + 1] for at in range(len(data))])))[1], recorded)


@each
def test_events_cut_at_every_byte(recorded: Recorded) -> None:
    wanted = [json.dumps(one, ensure_ascii=False) for one in recorded.chunks]
    for number, ends in enumerate((b"\n", b"\r\n", b"\r")):
        data = b": hello\n\nevent: x\n" + sse(*recorded.chunks, done=False)
        data = data.replace(b"\n", ends)
        for at in sized(range(number, len(data), 4), range(len(data))):
            events = EventDecoder()
            assert [*events.feed(data[:at]), *events.feed(data[at:]), *events.rest()] == wanted


@given(st.lists(st.text(max_size=8)), st.lists(st.integers(0, 200), max_size=8))
def test_events_of_any_lines(lines: list[str], cuts: list[int]) -> None:
    texts = [line.replace("\r", "").replace("\n", "") for line in lines]
    data = "".join(f"data:{' ' * (place % 2 or text[:1] == ' ')}{text}\n\n" for place, text in enumerate(texts))
    raw = data.encode("utf-8", "replace")
    places = sorted({0, len(raw), *(at for at in cuts if at < len(raw))})
    events = EventDecoder()
    found = [text for a, b in pairwise(places) for text in events.feed(raw[a:b])]
    assert found == [text.encode("utf-8", "replace").decode() for text in texts if text]


def _split(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({at for at in cuts if 0 < at < len(text)})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@st.composite
def cut_finer(draw: st.DrawFn) -> tuple[Recorded, list[dict[str, Any]]]:
    """A recorded stream whose texts, arguments and names are split wherever they can be."""
    recorded = draw(st.sampled_from(list(RECORDED.values())))
    cuts = draw(st.lists(st.integers(1, 20), max_size=6))
    found: list[dict[str, Any]] = []
    for one in recorded.chunks:
        (choice, *_) = one["choices"] or [None]
        delta = choice.get("delta") if isinstance(choice, dict) and choice.get("index") == 0 else None
        fields = [
            name for name in ("content", "refusal", "reasoning_content") if isinstance((delta or {}).get(name), str)
        ]
        calls = (delta or {}).get("tool_calls") or []
        if fields and not calls and len(fields) == 1:
            (name,) = fields
            others = {key: value for key, value in delta.items() if key != name}
            pieces = _split(delta[name], cuts)
            found += [chunk({**(others if place == 0 else {}), name: piece}) for place, piece in enumerate(pieces)]
            if choice["finish_reason"]:
                found.append({**one, "choices": [{**choice, "delta": {}}]})
        elif calls and isinstance(calls[0], dict) and calls[0].get("function", {}).get("arguments"):
            first, call = True, calls[0]
            if "index" not in call:  # without an index a piece is told from a call by its name only
                found.append(one)
                continue
            for piece in _split(call["function"]["arguments"], cuts):
                function = {**(call["function"] if first else {}), "arguments": piece}
                head = call if first else {"index": call["index"], **({"id": call["id"]} if "id" in call else {})}
                others = {key: value for key, value in delta.items() if key != "tool_calls"} if first else {}
                found.append(chunk({**others, "tool_calls": [{**head, "function": function}]}))
                first = False
        else:
            found.append(one)
    return recorded, found


@given(cut_finer())
def test_a_stream_split_at_every_boundary_is_the_same_reply(case: tuple[Recorded, list[dict[str, Any]]]) -> None:
    recorded, chunks = case
    assembly = Assembly()
    pieces = "".join(assembly.add(json.loads(json.dumps(one))).text for one in chunks)
    reply = reply_from(assembly.answer(), "m")
    assert (reply.text, reply.finish) == (recorded.text, recorded.finish)
    assert [(call.name, call.raw) for call in reply.tool_calls] == [(name, args) for _, name, args in recorded.calls]
    assert reply.extras == dict(recorded.extras)
    assert recorded.finish == "refusal" or pieces == reply.text


_names = st.sampled_from(["index", "id", "function", "name", "arguments", "content", "delta", "x"])
_odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=8,
)
_fields = ("content", "tool_calls", "reasoning_content", "refusal", "role")


@pytest.mark.full
@settings(max_examples=sized(20, 60))
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(_fields, _odd)), max_size=5))
def test_whatever_a_delta_holds_it_costs_no_error(deltas: list[dict[str, Any]]) -> None:
    assembly = Assembly()
    for delta in deltas:
        assembly.add(chunk(delta))
    assembly.add(chunk(finish="stop"))
    assert reply_from(assembly.answer(), "m").finish in ("stop", "refusal")


async def test_the_request_of_a_stream_and_one_without_usage() -> None:
    with served(told("Hi"), told("Hi")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            pieces, reply = await read(model, "Hello", [add], temperature=0)
            assert (pieces, reply.text) == (["H", "i"], "Hi")
        async with OpenAIModel("m", wire.url, KEY, profile=Profile(stream_usage=False)) as model:
            await read(model)
    first, second = wire.seen
    assert first.body["stream"] is True
    assert first.body["stream_options"] == {"include_usage": True}
    assert first.body["tools"] == [add.to_param()]
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert "stream_options" not in second.body


async def test_a_structured_answer_in_a_stream() -> None:
    class Sum(BaseModel):
        total: int

    with served(told('{"total": 3}'), told("[1, 2]"), told('{"answer": [1, 2]}')) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            assert (await read(model, "1 + 2?", output=Sum))[1].parsed == Sum(total=3)
            assert (await read(model, "1, 2", output=list[int]))[1].parsed == [1, 2]
            assert (await read(model, "1, 2", output=list[int]))[1].parsed == [1, 2]


async def test_thoughts_are_shown_and_go_back_with_the_call_that_they_led_to() -> None:
    thinks = [chunk({"reasoning_content": "add "}), chunk({"reasoning_content": "them"})]
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    with served(streamed(*thinks, chunk({"tool_calls": [call]}), chunk(finish="tool_calls")), told("3")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            shown, reply = "", None
            async for event in model.stream("1 + 2?", [add]):
                shown += event.reasoning
                reply = event.reply
            assert reply is not None
            assert (shown, reply.extras) == ("add them", {"reasoning_content": "add them"})
            asked = [user("1 + 2?"), reply.message, tool_result(reply.tool_calls[0], "3")]
            _, last = await read(model, asked)
            thought = last.message.model_copy(update={"extras": {"reasoning_content": "so it is 3"}})
            with pytest.raises(ModelUnavailable):
                await model.complete([*asked, thought, user("And now?")])
    assert wire.seen[1].body["messages"][1]["reasoning_content"] == "add them"
    assert "reasoning_content" not in wire.seen[2].body["messages"][3]  # of a turn that is over: some refuse those


async def test_a_server_that_does_not_stream_after_all() -> None:
    pieces, reply = await stream_of(said("whole", usage={"prompt_tokens": 1, "completion_tokens": 1}))
    assert (pieces, reply.text, reply.finish) == (["whole"], "whole", "stop")
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    assert (await stream_of(called(call)))[1].tool_calls[0].id == "c1"


# -- streams that go wrong -----------------------------------------------------------------------------------------

begun = [chunk({"role": "assistant", "content": "The answer is"})]


@once
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (streamed(*begun, done=False), "ended before the reply was complete"),
        (streamed(), "contains no reply"),
        (streamed(done=False), "ended before the reply was complete"),
        (streamed(*begun, done=False, silent=True), "the connection was lost"),
        (streamed(*begun, '{"choices": [{"delta": {"con', done=False), "cannot be read"),
        (streamed(*begun, "no json"), "cannot be read"),
        (streamed(*begun, "5"), "is not a JSON object"),
        (streamed(*begun, "[" * 100_000), "cannot be read"),
        (Raw(parts=[b"data: \xff\xfe\n\n"]), "cannot be read"),
        (streamed(*begun, {"error": {"message": "overloaded", "code": 529}}), "overloaded"),
        (streamed(*begun, {"error": {"message": "broke down"}}), "broke down"),
        (streamed(*begun, {"error": "broke down"}), "broke down"),
    ],
)  # fmt: skip
async def test_a_stream_that_breaks_off_is_an_error_and_never_a_short_answer(answer: Raw, words: str) -> None:
    error = await fault_of(answer)
    assert isinstance(error, ModelUnavailable)
    assert words in str(error)
    assert "\n" not in str(error)


@once
@pytest.mark.parametrize("behind", [
    {"done": False}, {"done": False, "silent": True}, {"done": False, "hangs": True}, {}
])  # fmt: skip
async def test_what_goes_wrong_behind_a_whole_reply_does_not_count(behind: dict[str, Any]) -> None:
    _, reply = await stream_of(streamed(*begun, chunk({"content": " 42."}), chunk(finish="stop"), **behind), timeout=1)
    assert (reply.text, reply.finish) == ("The answer is 42.", "stop")


@once
@pytest.mark.parametrize(
    "tail", [b": wait\n\n", sse(chunk({"content": ""}), done=False), sse() + b": wait\n\n"][: sized(1, 3)]
)
async def test_a_stream_that_never_ends_is_left_when_the_reply_is_whole(tail: bytes) -> None:
    parts = [sse(*begun, chunk(finish="stop"), done=False), *[tail] * 400]
    with served(Raw(parts=parts, gap=0.05)) as wire:
        async with OpenAIModel("m", wire.url, KEY, timeout=5) as model:
            with anyio.fail_after(10):
                assert (await read(model))[1].text == "The answer is"


@once
async def test_comments_keep_nobody_waiting_for_ever() -> None:
    error = await fault_of(Raw(parts=[b": wait\n\n"] * 400, gap=0.05), timeout=0.5)
    assert "no answer within 0.5 s" in str(error)


@once
async def test_a_byte_order_mark_and_events_without_data() -> None:
    whole = sse(chunk({"content": "Hello "}), chunk({"content": "world"}), chunk(finish="stop"))
    _, reply = await stream_of(Raw(parts=[b"\xef\xbb\xbf" + whole.replace(b"data: [", b"data:\n\ndata: [")]))
    assert reply.text == "Hello world"


@once
async def test_a_character_in_two_halves() -> None:
    halves = ['{"choices": [{"index": 0, "delta": {"content": "\\ud83d"}}]}',
              '{"choices": [{"index": 0, "delta": {"content": "\\ude00!"}}]}']  # fmt: skip
    pieces, reply = await stream_of(streamed(*halves, chunk(finish="stop")))
    assert (pieces, reply.text) == (["😀!"], "😀!")


def test_what_a_stream_costs_grows_with_what_it_holds() -> None:
    def read(delta: Any, count: int) -> None:
        assembly = Assembly()
        for place in range(count):
            assembly.add(chunk(delta(place)))
        assembly.add(chunk(finish="stop"))
        reply_from(assembly.answer(), "m")

    def calls(place: int) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "id": str(place), "function": {"name": "f", "arguments": "{}"}}]}

    for delta in (lambda _: {"content": "word"}, lambda _: {"reasoning_content": "word"}, calls,
                  lambda place: {"reasoning_details": [{"text": place}]}):  # fmt: skip
        in_proportion(partial(read, delta), 500)


async def test_refusals_before_the_stream() -> None:
    busy = await fault_of(refused(429, f"busy, {KEY}", retry_after="7"))
    assert isinstance(busy, ModelUnavailable)
    assert busy.retry_after == 7
    assert KEY not in str(busy)
    assert busy.__context__ is None
    assert busy.__cause__ is None
    assert isinstance(await fault_of(refused(401, "no")), ModelMisconfigured)
    assert isinstance(await fault_of(Raw(silent=True)), ModelUnavailable)
    page = Raw(b"<!doctype html>", headers={"Content-Type": "text/html"})
    assert isinstance(await fault_of(page), ModelMisconfigured)


async def test_a_slow_first_piece_and_one_that_never_comes() -> None:
    slow = Raw(parts=[b": wait\n\n", b": wait\n\n", sse(chunk({"content": "Hi"}), chunk(finish="stop"))], gap=0.2)
    assert (await stream_of(slow, timeout=5))[1].text == "Hi"
    error = await fault_of(streamed(*begun, done=False, hangs=True), timeout=3)
    assert isinstance(error, ModelUnavailable)
    assert "no answer within 3 s" in str(error)


@once
async def test_the_timeout_covers_the_whole_reply_streamed_or_not() -> None:
    parts = [sse(chunk({"content": "x"}), done=False)] * 6
    answer = Raw(parts=[*parts, sse(chunk(finish="stop"))], gap=0.15)
    assert (await stream_of(answer, timeout=60))[1].text == "xxxxxx"
    whole = Raw(parts=[b" "] * 6 + [json.dumps(said("xxxxxx")).encode()], gap=0.15,
                headers={"Content-Type": "application/json"})  # fmt: skip
    for late in (answer, whole):
        error = await fault_of(late, timeout=0.5)
        assert isinstance(error, ModelUnavailable)
        assert "no answer within 0.5 s" in str(error)
    with served(whole, whole) as wire:
        async with OpenAIModel("m", wire.url, KEY, timeout=0.5) as model:
            with pytest.raises(ModelUnavailable, match=r"no answer within 0\.5 s"):
                await model.complete("Hi")
        async with OpenAIModel("m", wire.url, KEY, timeout=60) as model:
            assert (await model.complete("Hi")).text == "xxxxxx"


@once
async def test_the_time_of_a_slow_reader_does_not_count() -> None:
    parts = [sse(chunk({"content": "x"}), done=False)] * 3
    with served(Raw(parts=[*parts, sse(chunk(finish="stop"))])) as wire:
        async with OpenAIModel("m", wire.url, KEY, timeout=1) as model:
            reply = None
            async for event in model.stream("Hi"):
                await anyio.sleep(0.5)
                reply = event.reply or reply
    assert reply is not None
    assert reply.text == "xxx"


@pytest.mark.parametrize("how", ["cancelled", "left"])
async def test_whoever_stops_reading_closes_the_connection_at_once(how: str) -> None:
    with served(streamed(*begun, done=False, hangs=True), told("next")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            with anyio.CancelScope() as scope:
                async with aclosing(model.stream("Hi")) as events:  # type: ignore[type-var]
                    async for event in events:
                        assert event.text == "The answer is"
                        if how == "left":
                            break
                        scope.cancel()
            assert await anyio.to_thread.run_sync(wire.left.wait, 60)
            assert (await read(model))[1].text == "next"
