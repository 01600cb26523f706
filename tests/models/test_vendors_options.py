"""Options of a vendor's model beside what the run sends: its tools, its system prompt, its thoughts, its lengths."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Executor, Graph
from orchestrator.errors import ModelError
from orchestrator.models import (
    AnthropicModel,
    GeminiModel,
    OpenAIModel,
    Profile,
    TextProtocol,
    system,
    user,
)
from orchestrator.models.server import ServerModel
from orchestrator.strategies.function_call_agent import function_call_agent
from tests.models.peers import chat, once, weather
from tests.models.vendors import VENDORS, Says, Vendor
from tests.support.wire import served

pytestmark = pytest.mark.anyio

ANTHROPIC, CHAT, GEMINI, RESPONSES = (VENDORS[name] for name in ("anthropic", "chat", "gemini", "responses"))
HI = [user("Hi")]


async def sent(vendor: Vendor, *args: Any, call: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Return the body of a request. `options`: of the model; `call`: of the call."""
    with served(lambda seen: vendor.answer(seen, Says("Yes."))) as wire:
        async with vendor.model(wire.url, **options) as model:
            await model.complete(*args, **(call or {}))
    return wire.seen[0].body


# -- tools of the server -----------------------------------------------------------------------------------------------

SEARCH: dict[str, dict[str, Any]] = {
    "chat": {"type": "web_search"},
    "responses": {"type": "web_search"},
    "anthropic": {"type": "web_search_20250305", "name": "web_search"},
    "gemini": {"google_search": {}},
}


@once
@pytest.mark.parametrize("place", ["options", "extra_body"])
@pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)
async def test_tools_of_the_server_are_offered_besides_those_of_the_run(vendor: Vendor, place: str) -> None:
    own: dict[str, Any] = {"tools": [SEARCH[vendor.name]]}
    rest = [Says(calls=[("call_1", "weather", {"city": "Oslo"})]), Says("21 C.")]
    with served(lambda seen: vendor.answer(seen, rest.pop(0))) as wire:
        model = vendor.model(wire.url, **(own if place == "options" else {"extra_body": own}))
        async with model, Executor(model=model, tools=[weather]) as executor:
            run = await executor.start(function_call_agent(), "Weather in Oslo?", approve="none")
    assert (run.status, run.output) == ("completed", "21 C.")
    for seen in wire.seen:
        *first, last = seen.body["tools"]
        last.pop("cache_control", None)
        assert last == SEARCH[vendor.name]
        assert [name for name, _ in vendor.tools({"tools": first})] == ["weather"]


@once
async def test_gemini_is_told_to_take_both_kinds_of_tools() -> None:
    both = await sent(GEMINI, HI, [weather], tools=[SEARCH["gemini"]], call={"tool_choice": "required"})
    choice = {"functionCallingConfig": {"mode": "ANY"}}
    assert both["toolConfig"] == {"includeServerSideToolInvocations": True, **choice}
    one = await sent(GEMINI, HI, [weather], call={"tool_choice": "required"})
    other = await sent(GEMINI, HI, tools=[SEARCH["gemini"]])
    assert (one["toolConfig"], other.get("toolConfig"), other["tools"]) == (choice, None, [SEARCH["gemini"]])


# -- system prompts ----------------------------------------------------------------------------------------------------

BRIEF = "Be brief."


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@once
@pytest.mark.parametrize("given", [BRIEF, [text(BRIEF)]], ids=["text", "blocks"])
async def test_the_system_prompt_of_an_anthropic_model_stands_before_that_of_the_run(given: Any) -> None:
    talk = [system("Be kind."), *HI]
    for options in ({"system": given}, {"extra_body": {"system": given}}):
        assert (await sent(ANTHROPIC, HI, **options))["system"] == [text(BRIEF)]
        assert (await sent(ANTHROPIC, talk, **options))["system"] == [text(BRIEF), text("Be kind.")]
        *_, last = (await sent(ANTHROPIC, talk, [weather], **options))["system"]
        assert last == {**text("Be kind."), "cache_control": {"type": "ephemeral"}}


@once
@pytest.mark.parametrize("name", ["systemInstruction", "system_instruction"])
async def test_the_system_prompt_of_a_gemini_model_stands_before_that_of_the_run(name: str) -> None:
    for given in (BRIEF, {"parts": [{"text": BRIEF}]}):
        body = await sent(GEMINI, [system("Be kind."), *HI], **{name: given})
        assert body["systemInstruction"] == {"parts": [{"text": BRIEF}, {"text": "Be kind."}]}
        assert "system_instruction" not in body
        assert (await sent(GEMINI, HI, **{name: given}))["systemInstruction"] == {"parts": [{"text": BRIEF}]}


@once
async def test_instructions_by_responses_go_with_the_system_messages_of_the_run() -> None:
    body = await sent(RESPONSES, [system("Be kind."), *HI], instructions=BRIEF)
    assert (body["instructions"], body["input"][0]["content"]) == (BRIEF, "Be kind.")


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "options", "why"),
    [
        (CHAT, {"messages": []}, "messages= would replace the conversation of the run"),
        (RESPONSES, {"input": "Hi"}, "input= would replace the conversation"),
        (ANTHROPIC, {"messages": []}, "messages= would replace the conversation"),
        (GEMINI, {"contents": []}, "contents= would replace the conversation"),
        (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id= .* nothing is stored there"),
        (RESPONSES, {"conversation": "conv_1"}, "conversation= .* nothing is stored there"),
        (RESPONSES, {"store": True}, "store= .* nothing is stored there"),
        (ANTHROPIC, {"system": [BRIEF]}, "system= is a text, or a list of blocks"),
        (GEMINI, {"systemInstruction": [BRIEF]}, "systemInstruction= is a text, or {'parts'"),
        (GEMINI, {"thinkingConfig": "low"}, "thinkingConfig= is an object"),
        (ANTHROPIC, {"thinking": "adaptive"}, "thinking= is an object"),
        (ANTHROPIC, {"output_config": "low"}, "output_config= is an object"),
        (RESPONSES, {"reasoning": "low"}, "reasoning= is an object"),
        (RESPONSES, {"text": "low"}, "text= is an object"),
        (RESPONSES, {"include": "reasoning.encrypted_content"}, "include= is a list of texts"),
        (CHAT, {"tools": [weather]}, "tools= are the server's own tools, a list of objects"),
    ],
)
def test_an_option_that_cannot_be_sent_is_refused_when_the_model_is_made(
    vendor: Vendor, options: dict[str, Any], why: str
) -> None:
    for given in (options, {"extra_body": options}):
        with pytest.raises(ValueError, match=f"^model '{vendor.named}': {why}"):
            vendor.model("http://127.0.0.1:9/v1", **given)


@once
async def test_an_option_of_a_call_that_cannot_be_sent_fails_the_call() -> None:
    async with RESPONSES.model("http://127.0.0.1:9/v1", store=False) as model:
        with pytest.raises(ModelError, match=r"model 'gpt-5': previous_response_id= .* leave it out"):
            await model.complete("Hi", previous_response_id="resp_1")


# -- thoughts ----------------------------------------------------------------------------------------------------------


@once
async def test_the_effort_of_a_call_and_the_options_of_thoughts_of_a_model_go_together() -> None:
    shown, low = {"includeThoughts": True}, {"reasoning_effort": "low"}
    for options in ({"thinkingConfig": shown}, {"thinking": shown}, {"generationConfig": {"thinkingConfig": shown}}):
        body = await sent(GEMINI, HI, call=low, **options)
        assert body["generationConfig"] == {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}}
        assert "thinking" not in body.keys() | body["generationConfig"].keys()
    high = {"thinkingLevel": "high", **shown}
    body = await sent(GEMINI, HI, call=low, thinkingConfig=high)
    assert body["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "low", **shown}
    body = await sent(RESPONSES, HI, call=low, reasoning={"effort": "high", "summary": "auto"})
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    body = await sent(ANTHROPIC, HI, call=low, output_config={"effort": "high"}, thinking={"type": "adaptive"})
    assert (body["output_config"], body["thinking"]) == ({"effort": "low"}, {"type": "adaptive"})


# -- lengths -----------------------------------------------------------------------------------------------------------


@once
@pytest.mark.parametrize(
    ("vendor", "options", "limit"),
    [
        (ANTHROPIC, {}, 16_384),
        (ANTHROPIC, {"max_tokens": 900}, 900),
        (ANTHROPIC, {"extra_body": {"max_tokens": 900}}, 900),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 900}}, 900),
        (GEMINI, {"max_tokens": 900}, 900),
        (RESPONSES, {"max_output_tokens": 900}, 900),
        (RESPONSES, {"max_tokens": 900}, 900),
        (CHAT, {"extra_body": {"max_tokens": 900}}, 900),
        (CHAT, {}, None),
    ],
)
async def test_the_tokens_that_a_request_asks_for_stay_free_in_the_window(
    vendor: Vendor, options: dict[str, Any], limit: int | None
) -> None:
    """As the request has it that the server gets: also by default, in `extra_body`, and in the vendor's own place."""
    with served(lambda seen: vendor.answer(seen, Says("Yes."))) as wire:
        async with vendor.model(wire.url, profile=Profile(window=32_768), **options) as model:
            for one in (model, TextProtocol(model)):
                async with Executor(model=one) as executor:
                    assert await reserved(executor, chat) == limit
    body = wire.seen[0].body
    found = [body.get(name) for name in ("max_tokens", "max_output_tokens")]
    assert max(filter(None, [*found, body.get("generationConfig", {}).get("maxOutputTokens")]), default=None) == limit


async def reserved(executor: Executor, graph: Graph) -> Any:
    """Return the tokens that the journal keeps free for the reply of the last call."""
    run = await executor.start(graph, "Hi")
    assert run.status == "completed", run.error
    settled = [one for one in await executor.store.read(run.run_id) if one.type == "effect_settled"]
    return settled[-1].result["details"].get("reply_limit")  # type: ignore[index, call-overload]


def test_what_a_call_asks_for_takes_precedence() -> None:
    models: list[ServerModel] = [AnthropicModel("a", max_tokens=900), GeminiModel("g"), OpenAIModel("o")]
    assert [model.reply_limit({"max_tokens": 50}) for model in models] == [50, 50, 50]
    assert [model.reply_limit({}) for model in models] == [900, None, None]
