"""What one vendor's interface has alone: the form of its requests, its signatures, its errors; answers of any shape."""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.models import (
    AnthropicModel,
    GeminiModel,
    OpenAIModel,
    Price,
    Reply,
    ToolCall,
    assistant,
    model_from_ref,
    system,
    tool_result,
    user,
)
from orchestrator.models.probe import probe
from orchestrator.models.wire import Wire
from tests.models.peers import KEY, ask, each_way, once, weather
from tests.models.vendors import SIGNED, VENDORS, Says, Vendor
from tests.support.wire import Raw, Seen, served, sse

pytestmark = pytest.mark.anyio

each = pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)
ANTHROPIC, GEMINI, RESPONSES = VENDORS["anthropic"], VENDORS["gemini"], VENDORS["responses"]
CALL = ToolCall(id="functions.weather:0", name="weather", arguments={"city": "Oslo"}, raw='{"city": "Oslo"}')
TALK = [
    system("Be kind."),
    user("Weather in Oslo?"),
    assistant("I look.", [CALL]),
    tool_result(CALL, "21 C"),
    system("Answer in French."),
]
WEATHER = weather.to_param()["function"]["parameters"]  # type: ignore[index]


async def body_of(vendor: Vendor, *args: Any, **options: Any) -> dict[str, Any]:
    """Return the body of a request."""
    with served(lambda seen: vendor.answer(seen, Says("Yes."))) as wire:
        async with vendor.model(wire.url, options.pop("name", None)) as model:
            await model.complete(*args, **options)
    return wire.seen[0].body


# -- Responses ---------------------------------------------------------------------------------------------------------


@once
async def test_a_request_is_written_as_responses() -> None:
    body = await body_of(RESPONSES, TALK, [weather], max_tokens=50, reasoning_effort="low", tool_choice="required")
    (tool,) = body.pop("tools")
    assert (tool["type"], tool["name"], tool["strict"], tool["parameters"]) == ("function", "weather", False, WEATHER)
    assert body == {
        "model": "gpt-5",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
        "max_output_tokens": 50,
        "tool_choice": "required",
        "input": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Weather in Oslo?"},
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": CALL.id, "name": "weather", "arguments": '{"city": "Oslo"}'},
            {"type": "function_call_output", "call_id": CALL.id, "output": "21 C"},
            {"role": "system", "content": "Answer in French."},
        ],
    }


@once
async def test_items_of_other_kinds_and_open_thoughts_go_back_where_they_stood() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    words = {"type": "message", "id": "msg_1", "role": "assistant", "phase": "final_answer",
             "content": [{"type": "output_text", "text": "Rain.", "annotations": []}]}  # fmt: skip
    only_summary = {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "So."}]}
    with served(RESPONSES.whole(Says()) | {"output": [thought, search, only_summary, words]}) as wire:
        async with RESPONSES.model(wire.url) as model:
            reply = await model.complete("Weather?")
    assert (reply.text, reply.extras["reasoning_content"]) == ("Rain.", "Hm.\n\nSo.")
    body = await body_of(RESPONSES, [user("Weather?"), reply.message, user("And now?")])
    assert body["input"][1:-1] == [
        thought, search, {"role": "assistant", "phase": "final_answer", "content": "Rain."},
    ]  # fmt: skip


@once
async def test_a_model_that_does_not_think_gets_no_encrypted_thoughts() -> None:
    """The message keeps them for the model that gave them."""
    with served(RESPONSES.whole(Says("", "Hm.", [("call_1", "weather", {})]))) as wire:
        async with RESPONSES.model(wire.url) as model:
            reply = await model.complete("Weather?", [weather])
    talk = [user("Weather?"), reply.message, tool_result(reply.tool_calls[0], "21 C")]
    calls = ["function_call"]
    for name, kinds in {"gpt-5": ["reasoning", *calls], "gpt-4o": calls, "gpt-5-chat-latest": calls}.items():
        for _ in range(2):
            body = await body_of(RESPONSES, talk, name=name)
            assert [item["type"] for item in body["input"][1:-1]] == kinds
            assert body.get("include", []) == ["reasoning.encrypted_content"] * (name == "gpt-5")


@each
@once
@each_way
async def test_thoughts_that_a_model_cannot_read_name_the_remedy(vendor: Vendor, way: str) -> None:
    words = {
        "chat": "Corrupted thought signature.",
        "responses": "The encrypted content gAAA...Q== could not be verified.",
        "anthropic": "messages.1.content.0: Invalid `signature` in `thinking` block",
        "gemini": "Invalid thought signature.",
    }[vendor.name]
    with served(Raw(json.dumps(vendor.refusal(400, words)).encode(), 400)) as wire:
        async with vendor.model(wire.url) as model:
            with pytest.raises(ModelError, match="another model or account gave: continue under that one"):
                await ask(model, way, "Hi")


@once
@each_way
async def test_a_response_that_failed_says_why(way: str) -> None:
    failed = RESPONSES.whole(Says()) | {"status": "failed", "error": {"code": "server_error", "message": "oh dear"}}
    answer = Raw(parts=[RESPONSES.framed([{"type": "response.failed", "response": failed}])])
    with served(failed if way == "whole" else answer) as wire:
        async with RESPONSES.model(wire.url) as model:
            with pytest.raises(ModelUnavailable, match="oh dear"):
                await ask(model, way, "Hi")


@once
async def test_a_last_event_without_the_output_is_completed_from_the_items() -> None:
    events = list(RESPONSES.events(Says("Yes.", "Hm.")))
    events[-1]["response"] = {**events[-1]["response"], "output": []}
    with served(Raw(parts=[RESPONSES.framed(events)])) as wire:
        async with RESPONSES.model(wire.url) as model:
            reply = await ask(model, "pieces", "Hi")
    assert (reply.text, reply.extras["reasoning_content"]) == ("Yes.", "Hm.")


def test_an_interface_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="api='assistants' is neither 'chat' nor 'responses'"):
        OpenAIModel("gpt-5", api="assistants")  # type: ignore[arg-type]


# -- Anthropic ---------------------------------------------------------------------------------------------------------

MARK = {"type": "ephemeral"}


@once
async def test_a_request_is_written_as_messages() -> None:
    body = await body_of(
        ANTHROPIC, TALK, [weather], stop="END", tool_choice="required", parallel_tool_calls=False, temperature=0.5
    )
    assert body == {
        "model": "claude-opus-4-6",
        "max_tokens": 16_384,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "system": [{"type": "text", "text": "Be kind.", "cache_control": MARK}],
        "cache_control": MARK,
        "tools": [{"name": "weather", "description": "The weather in a city.", "input_schema": WEATHER}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Weather in Oslo?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "functions_weather_0", "name": "weather", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "functions_weather_0",
                        "content": [{"type": "text", "text": "21 C"}],
                    },
                    {"type": "text", "text": "Answer in French."},
                ],
            },
        ],
    }


@once
async def test_what_nothing_follows_is_not_marked_for_the_cache() -> None:
    assert "cache_control" not in json.dumps(await body_of(ANTHROPIC, [system("Be kind."), user("Hi")]))
    assert "cache_control" not in json.dumps(await body_of(ANTHROPIC, TALK, [weather], cache_control=None))
    hour = {"type": "ephemeral", "ttl": "1h"}
    body = await body_of(ANTHROPIC, [user("Hi")], [weather], cache_control=hour)
    assert (body["cache_control"], body["tools"][0]["cache_control"]) == (hour, hour)


@once
async def test_a_model_that_thinks_is_not_made_to_call_a_tool() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2_000}
    body = await body_of(ANTHROPIC, "Hi", [weather], thinking=thinking, tool_choice="required")
    assert (body["thinking"], body["tool_choice"]) == (thinking, {"type": "auto"})


@once
@each_way
async def test_blocks_of_other_kinds_go_back_where_they_stood(way: str) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Hm.", "signature": SIGNED},
        {"type": "redacted_thinking", "data": "b64"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "text", "text": "I look."},
        {"type": "thinking", "thinking": "", "signature": SIGNED},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
    ]
    whole = ANTHROPIC.whole(Says()) | {"content": blocks, "stop_reason": "tool_use"}
    events = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        *({"type": "content_block_start", "index": at, "content_block": block} for at, block in enumerate(blocks)),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    ]
    with served(whole if way == "whole" else Raw(parts=[ANTHROPIC.framed(events)])) as wire:
        async with ANTHROPIC.model(wire.url) as model:
            reply = await ask(model, way, "Weather?", [weather])
    body = await body_of(ANTHROPIC, [user("Weather?"), reply.message, tool_result(reply.tool_calls[0], "21 C")])
    assert body["messages"][1]["content"] == blocks


@once
async def test_a_thought_without_a_signature_is_not_sent() -> None:
    said = ANTHROPIC.whole(Says("Yes.", "Hm."))
    del said["content"][0]["signature"]
    with served(said) as wire:
        async with ANTHROPIC.model(wire.url) as model:
            reply = await model.complete("Hi")
    body = await body_of(ANTHROPIC, [user("Hi"), reply.message, user("Well?")])
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Yes."}]


# -- Gemini ------------------------------------------------------------------------------------------------------------


@once
async def test_a_request_is_written_as_contents() -> None:
    body = await body_of(GEMINI, TALK, [weather], max_tokens=50, stop=["END"], tool_choice="required", seed=7)
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "generationConfig": {"maxOutputTokens": 50, "stopSequences": ["END"], "seed": 7},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "weather", "description": "The weather in a city.", "parametersJsonSchema": WEATHER}
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "contents": [
            {"role": "user", "parts": [{"text": "Weather in Oslo?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "I look."},
                    {
                        "functionCall": {"id": CALL.id, "name": "weather", "args": {"city": "Oslo"}},
                        "thoughtSignature": "skip_thought_signature_validator",
                    },
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": CALL.id, "name": "weather", "response": {"result": "21 C"}}},
                    {"text": "Answer in French."},
                ],
            },
        ],
    }


@once
async def test_models_that_sign_nothing_need_no_signature() -> None:
    assert "thoughtSignature" not in json.dumps(await body_of(GEMINI, TALK, [weather], name="gemini-2.5-flash"))


@once
@each_way
async def test_the_signature_of_the_first_of_parallel_calls_and_of_an_empty_text(way: str) -> None:
    calls = [{"functionCall": {"id": str(at), "name": "weather", "args": {}}} for at in (1, 2)]
    parts = [{**calls[0], "thoughtSignature": SIGNED}, calls[1], {"text": "", "thoughtSignature": "e25k"}]
    content = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    answer = {"candidates": [content], "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1}}
    with served(answer if way == "whole" else Raw(parts=[sse(answer, done=False)])) as wire:
        async with GEMINI.model(wire.url) as model:
            reply = await ask(model, way, "Weather?", [weather])
    results = [tool_result(call, "21 C") for call in reply.tool_calls]
    body = await body_of(GEMINI, [user("Weather?"), reply.message, *results])
    assert body["contents"][1]["parts"] == parts


@once
async def test_the_version_is_the_one_in_the_address() -> None:
    with served(lambda seen: GEMINI.answer(seen, Says("Yes."))) as wire:
        root = wire.url.removesuffix("/v1")
        for address in (root, f"{root}/v1beta", f"{root}/gateway/v1alpha/"):
            async with GeminiModel("gemini-2.5-flash", address, KEY) as model:
                await model.complete("Hi")
    assert [seen.path.partition("/models/")[0] for seen in wire.seen] == ["/v1", "/v1beta", "/gateway/v1alpha"]


@once
@each_way
async def test_a_prompt_that_was_blocked_is_refused(way: str) -> None:
    answer = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}
    with served(answer if way == "whole" else Raw(parts=[sse(answer, done=False)])) as wire:
        async with GEMINI.model(wire.url) as model:
            reply = await ask(model, way, "Hi")
    assert (reply.refused, reply.details["promptFeedback"]) == (True, {"blockReason": "PROHIBITED_CONTENT"})


@once
async def test_googles_own_forms_of_a_delay_and_of_a_wrong_key() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "28.5s"}
    busy = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [info]}}
    why = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    wrong = {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [why]}}
    with served(Raw(json.dumps(busy).encode(), 429), Raw(json.dumps(wrong).encode(), 400)) as wire:
        async with GEMINI.model(wire.url) as model:
            with pytest.raises(ModelUnavailable) as caught:
                await model.complete("Hi")
            assert caught.value.retry_after == 28.5
            with pytest.raises(ModelMisconfigured, match="set GEMINI_API_KEY, or pass"):
                await model.complete("Hi")


@each
@once
@pytest.mark.parametrize("how", ["answer", "event", "answer as events"])
async def test_an_error_inside_an_answer_names_the_vendors_key(vendor: Vendor, how: str) -> None:
    told = {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "bad key"}}
    error = told if vendor is GEMINI else {"type": "error", "error": {"type": "authentication_error", "message": "bad"}}
    answers = {
        "answer": error,
        "event": Raw(parts=[sse(error, done=False)]),
        "answer as events": Raw(sse(error, done=False)),
    }
    with served(answers[how]) as wire:
        async with vendor.model(wire.url) as model:
            with pytest.raises(ModelMisconfigured, match=f"set {model.wire.keys[0]}, or pass"):
                await ask(model, "whole" if how == "answer" else "pieces", "Hi")


# -- all ---------------------------------------------------------------------------------------------------------------


@once
@pytest.mark.parametrize(("kind", "package"), [("anthropic", "anthropic"), ("gemini", "google.genai")])
async def test_a_package_that_is_not_installed_is_named_with_its_extra(
    kind: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv(f"{kind.upper()}_API_KEY", KEY)
    model = model_from_ref(f"{kind}:a-model")
    with pytest.raises(ModelMisconfigured, match=rf'needs the package .*pip install "[a-z-]+\[{kind}\]"'):
        await model.complete("Hi")


def test_references_name_every_interface_and_its_flags() -> None:
    for kind, cls in {"responses": OpenAIModel, "anthropic": AnthropicModel, "gemini": GeminiModel}.items():
        model = model_from_ref(f"{kind}:a-model?output=prompt&streams=false")
        assert isinstance(model, cls)
        assert (model.wire.ref, model.name, model.profile.output, model.streams) == (kind, "a-model", "prompt", False)


def test_windows_and_prices_are_those_of_the_vendors_names() -> None:
    claude, gemini, unknown = AnthropicModel("claude-sonnet-4-5"), GeminiModel("gemini-2.5-flash"), GeminiModel("none")
    assert (claude.window, gemini.window, unknown.window, unknown.price) == (200_000, 1_048_576, None, None)
    assert claude.price == Price(input=3, output=15, cached_input=0.3, cache_write=3.75)
    assert gemini.price == Price(input=0.3, output=2.5, cached_input=0.03)
    local = AnthropicModel("claude-sonnet-4-5", "http://127.0.0.1:4000")
    assert (local.window, local.price) == (None, None)


@each
@once
async def test_what_a_server_supports_is_found_out_for_every_interface(vendor: Vendor) -> None:
    """A server that enforces schemas, calls tools, and tells the window where the interface has a place for it."""

    def answer(seen: Seen) -> Raw | dict[str, Any]:
        if not seen.body:
            row = {"id": vendor.named, "max_input_tokens": 9_000, "inputTokenLimit": 9_000, "max_model_len": 9_000}
            return row if vendor.name in ("anthropic", "gemini") else {"data": [row]}
        if vendor.schema(seen.body) is not None:
            return vendor.answer(seen, Says('{"word": "abcd", "count": 42}'))
        calls = [("call_1", "word_length", {"word": "orchestrator"})] if "tools" in seen.body else ()
        return vendor.answer(seen, Says("One, two, three, four.", calls=calls))

    with served(answer) as wire:
        async with vendor.model(wire.url) as model:
            found = await probe(model)
    rows = {one.feature: one.found for one in found.findings}
    assert rows | {"tools": "yes", "stream": "yes", "answers in a schema": "json_schema", "usage": "yes"} == rows
    assert (found.window, found.streams, found.text_tools) == (9_000, True, False)


@pytest.mark.full
@once
@pytest.mark.parametrize("way", ["whole", "pieces"])
async def test_a_call_costs_as_much_as_by_chat_completions(way: str) -> None:
    """In function calls of this process, for a long conversation."""
    work: dict[str, int] = {}
    talk = [*TALK[:2], *(message for _ in range(20) for message in TALK[2:4])]
    for name, vendor in VENDORS.items():
        with served(lambda seen, of=vendor: of.answer(seen, Says("It is 21 C in Oslo. " * 5))) as wire:
            async with vendor.model(wire.url) as model:
                await ask(model, way, talk, [weather])
                counter = cProfile.Profile()
                counter.enable()
                for _ in range(20):
                    await ask(model, way, talk, [weather])
                counter.disable()
        work[name] = pstats.Stats(counter).total_calls  # type: ignore[attr-defined]
    assert {name: calls / work["chat"] for name, calls in work.items() if calls > 1.1 * work["chat"]} == {}


_SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
_WORDS = st.sampled_from([
    "type", "text", "content", "output", "parts", "candidates", "thinking", "thought", "function_call", "functionCall",
    "tool_use", "message", "reasoning", "summary", "usage", "input_tokens", "status", "finishReason", "delta", "index",
    "content_block", "response", "arguments", "args", "input", "name", "id", "error", "output_text",
    "incomplete_details", "reason", "stop_reason", "promptFeedback",
    "usageMetadata", "logprobsResult", "chosenCandidates", "logprobs",
])  # fmt: skip
_JSON = st.recursive(
    _SCALARS | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(_WORDS, _JSON, max_size=5)


@each
@given(answer=_OBJECTS)
def test_an_answer_of_any_shape_is_a_reply_or_an_error(vendor: Vendor, answer: Mapping[str, Any]) -> None:
    assert is_read(vendor.model("http://127.0.0.1:9").wire, answer)


@each
@given(chunks=st.lists(_OBJECTS, max_size=5))
def test_chunks_of_any_shape_are_a_reply_or_an_error(vendor: Vendor, chunks: list[Mapping[str, Any]]) -> None:
    wire = vendor.model("http://127.0.0.1:9").wire
    assembly = wire.assembly()
    for chunk in chunks:
        assembly.add(chunk)
    assert is_read(wire, assembly.answer())


def is_read(wire: Wire, answer: Mapping[str, Any]) -> bool:
    """Whether a reply is read that the journal can keep, or an error of a server is raised."""
    try:
        reply = wire.reply(answer, "m")
    except ModelError:
        return True
    return Reply.model_validate(json.loads(json.dumps(reply.data()))) == reply
