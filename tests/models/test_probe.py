"""What a model and its server support, found out by requests; and models named with flags of their profile."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator import OpenAIModel, tool
from orchestrator.errors import GraphUnknown, ModelError, ModelMisconfigured, ModelUnavailable, ReplyIncomplete
from orchestrator.models import Profile, TextProtocol, model_from_ref, tool_result, user
from orchestrator.models.probe import Probed, probe
from orchestrator.models.profile import profile_of
from tests.support.wire import Raw, Seen, called, chunk, refused, said, served, streamed

pytestmark = pytest.mark.anyio

once = pytest.mark.parametrize("anyio_backend", ["asyncio"])
COUNTED = "One, two, three, four, five."
CALL = {"id": "c", "type": "function", "function": {"name": "word_length", "arguments": '{"word": "orchestrator"}'}}


@dataclass
class Odd:
    """A server that supports some things, refuses or ignores others."""

    refuses: Mapping[str, str] = field(default_factory=dict)
    """Text of a request's JSON -> the refusal of requests that have it."""
    drops: frozenset[str] = frozenset()
    """Fields that it ignores."""
    usage: bool = True
    stream_usage: bool = True
    pieces: bool = True
    calls: bool = True
    bounds: bool = True
    logprobs: bool = True
    window: int | None = None
    refuses_long: str = ""
    listed: Mapping[str, Any] | None = None
    end: str = "stop"
    follows: bool = True
    """Whether the model writes JSON if it is asked to."""
    empty: bool = False

    def __call__(self, seen: Seen) -> Raw | dict[str, Any]:
        if seen.path.endswith("/models"):
            return {"data": [{"id": "m", **self.listed}]} if self.listed is not None else refused(404, "no list")
        body = {name: value for name, value in seen.body.items() if name not in self.drops}
        for words, why in self.refuses.items():
            if words in json.dumps(seen.body):
                return refused(400, why)
        given = sum(len(str(message["content"]).split()) for message in body["messages"])
        given += 80 if "tools" in body else 0
        if self.window is not None and given > self.window:
            if self.refuses_long:
                return refused(400, self.refuses_long)
            given = self.window
        usage = {"prompt_tokens": given, "completion_tokens": 5, "total_tokens": given + 5}
        if body.get("stream"):
            texts = COUNTED.split(" ") if self.pieces else [COUNTED]
            end = {"usage": usage} if self.usage and self.stream_usage and "stream_options" in body else {}
            return streamed(*(chunk({"content": one}) for one in texts), chunk(finish=self.end, **end))
        fields = {"usage": usage} if self.usage else {}
        if "tools" in body and self.calls:
            return called(CALL, **fields)
        answer = said(self._text(body), **fields)
        if body.get("logprobs") and self.logprobs:
            answer["choices"][0]["logprobs"] = {"content": [{"token": "One", "logprob": -0.1}]}
        answer["choices"][0]["finish_reason"] = self.end
        return answer

    def _text(self, body: Mapping[str, Any]) -> str:
        if self.empty:
            return ""
        if "schema" in body.get("response_format", {}).get("json_schema", {}):
            return json.dumps({"word": "wyrm" if self.bounds else "dragonfire", "count": 42 if self.bounds else 1000})
        if self.follows and (body.get("response_format") or "JSON Schema" in str(body["messages"])):
            return '{"word": "wyrm", "count": 42}'
        text = COUNTED if "Count" in str(body["messages"]) else "Once upon a time."
        return text.partition(body["stop"][0])[0] if body.get("stop") else text


SERVERS: dict[str, tuple[Odd, dict[str, Any], dict[str, str]]] = {
    "all": (Odd(), {}, {"tools": "yes", "stop": "yes", "usage of a stream": "yes", "bounds in a schema": "yes"}),
    "no usage": (Odd(usage=False), {}, {"usage": "no", "usage of a stream": "no", "context window": "20,000"}),
    "no usage, no calls": (Odd(usage=False, calls=False), {}, {"tools": "unknown"}),
    "in one piece": (Odd(pieces=False), {}, {"stream": "one piece"}),
    "stream_options": (Odd({"stream_options": "unknown field"}), {"stream_usage": False}, {"usage of a stream": "no"}),
    "stream": (Odd({'"stream"': "no streams"}), {"streams": False}, {"stream": "refused"}),
    "stop refused": (Odd({'"stop"': "no stop"}), {"stop": False}, {"stop": "refused"}),
    "stop ignored": (Odd(drops=frozenset({"stop"})), {}, {"stop": "ignored"}),
    "tool_choice": (Odd({'"tool_choice": "required"': "only auto"}),
                    {"tool_choice_required": False}, {"tools": "yes", "tool_choice": "refused"}),
    "tools refused": (Odd({'"tools"': "no tools"}), {"text_tools": True}, {"tools": "refused"}),
    "tools dropped": (Odd(drops=frozenset({"tools"})), {"text_tools": True}, {"tools": "dropped"}),
    "tools not called": (Odd(calls=False), {}, {"tools": "no call"}),
    "schema refused": (Odd({"json_schema": "no schemas"}), {"output": "json_object"},
                       {"answers in a schema": "json_object"}),
    "schema ignored": (Odd(drops=frozenset({"response_format"})), {"output": "json_object"}, {}),
    "schema of no use": (Odd(drops=frozenset({"response_format"}), follows=False), {},
                         {"answers in a schema": "none"}),
    "schema refused, of no use": (Odd({"json_schema": "no schemas"}, follows=False), {"output": "json_object"},
                                  {"answers in a schema": "none"}),
    "no text": (Odd(empty=True), {}, {"text": "empty", "tools": "yes", "answers in a schema": "none"}),
    "no text, no calls": (Odd(empty=True, calls=False), {"answers": False}, {"text": "empty"}),
    "no forms": (Odd({"response_format": "unknown"}), {"output": "prompt"}, {"answers in a schema": "prompt"}),
    "bounds refused": (Odd({"maxLength": "'maxLength' is not permitted"}), {"strict_output": True},
                       {"answers in a schema": "json_schema", "bounds in a schema": "not sent"}),
    "bounds ignored": (Odd(bounds=False), {}, {"bounds in a schema": "ignored"}),
    "logprobs refused": (Odd({'"logprobs"': "no logprobs"}), {"logprobs": 0}, {"log probabilities": "refused"}),
    "few logprobs": (Odd({'"top_logprobs": 20': "at most 5"}), {"logprobs": 5}, {"log probabilities": "yes"}),
    "logprobs ignored": (Odd(logprobs=False), {}, {"log probabilities": "no"}),
    "max_tokens": (Odd({'"max_tokens"': "use max_completion_tokens"}), {"max_tokens": "max_completion_tokens"}, {}),
    "system": (Odd({'"role": "system"': "no system messages"}), {"system_role": "user"}, {}),
    "an end of its own": (Odd(end="eot!"), {"ends": {"eot!": "stop"}}, {"end of a reply": "eot!"}),
    "listed": (Odd(listed={"max_model_len": 32768}), {"window": 32768}, {"context window": "32,768"}),
    "listed in meta": (Odd(listed={"meta": {"n_ctx": 4096, "n_ctx_train": 8192}}), {"window": 4096}, {}),
    "listed in words": (Odd(listed={"max_model_len": "many"}), {"window": None}, {"context window": "20,000"}),
    "long refused": (Odd(window=4096, refuses_long="maximum context length is 4096 tokens, you sent 5002"),
                     {"window": 4096}, {"context window": "4,096"}),
    "long refused without a number": (Odd(window=4096, refuses_long="too long"), {"window": None},
                                      {"context window": "5,000"}),
    "long cut": (Odd(window=2048), {"window": 2048}, {"context window": "2,048"}),
}  # fmt: skip
"""Server -> what it is, what differs from the defaults, and some of the findings."""


async def probed(server: Callable[[Seen], Any], **options: Any) -> Probed:
    with served(server) as wire:
        async with OpenAIModel("m", wire.url, "sk-test", **options) as model:
            found = await probe(model)
            assert model.profile == options.get("profile", Profile())
            return found


@once
@pytest.mark.parametrize("name", SERVERS)
async def test_what_a_server_supports_is_found_out(name: str) -> None:
    server, changes, findings = SERVERS[name]
    found = await probed(server)
    expected = {"streams": True, "text_tools": False, "answers": True} | {
        key: changes[key] for key in ("streams", "text_tools", "window", "answers") if key in changes
    }
    assert {key: getattr(found, key) for key in expected} == expected
    flags = {key: value for key, value in changes.items() if key in Profile.model_fields}
    assert found.profile == Profile(**flags)
    assert {one.feature: one.found for one in found.findings if one.feature in findings} == findings


async def test_the_profile_of_openai_is_a_start_too() -> None:
    openai = profile_of("gpt-5", None)
    found = await probed(Odd(), profile=openai)
    assert found.profile == openai
    assert {"stop": "not sent", "bounds in a schema": "not sent", "log probabilities": "not sent"}.items() <= {
        one.feature: one.found for one in found.findings
    }.items()


@once
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(401, "no"), ModelMisconfigured),
        (refused(404, "no such model"), ModelMisconfigured),
        (refused(400, "no"), ModelError),
        (refused(500, "broken"), ModelUnavailable),
        (Raw(json.dumps(said("x")).replace('"stop"', '"some_error"').encode()), ReplyIncomplete),
    ],
)
async def test_a_model_that_does_not_answer_is_an_error(answer: Raw, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        await probed(lambda _: answer)


# -- tools that do not reach the model -------------------------------------------------------------------------------


@tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers, and return the product. Use this for every product, however small the numbers are."""
    return a * b


def counting(given: int, **details: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": given, "completion_tokens": 3, "total_tokens": given + 3, **details}
    return said("42.", usage=usage)


@once
async def test_dropped_tools_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    with served(lambda _: counting(9)) as wire:
        async with OpenAIModel("m", wire.url, "sk-test") as model:
            await model.complete("6 * 7?")
            assert caplog.messages == []
            for _ in range(3):
                await model.complete("6 * 7?", [multiply])
    (message,) = caplog.messages
    assert "model 'm': tools do not seem to reach the model" in message
    assert "`orchestrator model try`" in message


@once
@pytest.mark.parametrize(
    "answer",
    [
        counting(60),  # fewer than the schema as JSON has, because the server writes it shorter
        counting(9, prompt_tokens_details={"cached_tokens": 70}),  # a gateway that counts cached tokens apart
        said("42."),
        called({**CALL, "function": {"name": "multiply", "arguments": "{}"}}, usage={"prompt_tokens": 9,
               "completion_tokens": 3}),
    ],
    ids=["short", "cached", "no usage", "called"],
)  # fmt: skip
async def test_tools_that_reach_the_model_are_not_warned_about(
    answer: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with served(answer) as wire:
        async with OpenAIModel("m", wire.url, "sk-test") as model:
            await model.complete("6 * 7?", [multiply])
    assert caplog.messages == []


@once
async def test_once_a_model_has_called_a_tool_its_counts_are_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    first = called({**CALL, "function": {"name": "multiply", "arguments": '{"a": 6, "b": 7}'}})
    with served(first, counting(9)) as wire:
        async with OpenAIModel("m", wire.url, "sk-test") as model:
            reply = await model.complete("6 * 7?", [multiply])
            await model.complete([user("6 * 7?"), reply.message, tool_result(reply.tool_calls[0], "42")], [multiply])
    assert caplog.messages == []


# -- models named with flags -----------------------------------------------------------------------------------------


def test_a_reference_names_flags_of_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    plain = model_from_ref("openai:qwen3:8b")
    flagged = model_from_ref("openai:qwen3:8b?output=prompt&stop=false&streams=false")
    assert isinstance(plain, OpenAIModel)
    assert isinstance(flagged, OpenAIModel)
    assert (plain.profile, plain.streams) == (Profile(), True)
    assert (flagged.name, flagged.profile, flagged.streams) == (
        "qwen3:8b", Profile(output="prompt", stop=False), False,
    )  # fmt: skip
    ended = model_from_ref("openai:m?ends=eot!,fin&logprobs=5")
    assert isinstance(ended, OpenAIModel)
    assert ended.profile == Profile(ends={"eot!": "stop", "fin": "stop"}, logprobs=5)
    wrapped = model_from_ref("openai:m?protocol=bracket")
    assert isinstance(wrapped, TextProtocol)
    assert (wrapped.form, wrapped.name) == ("bracket", "m")
    monkeypatch.delenv("OPENAI_BASE_URL")
    theirs = model_from_ref("openai:gpt-5?stop=true")
    assert isinstance(theirs, OpenAIModel)
    assert theirs.profile == profile_of("gpt-5", None).model_copy(update={"stop": True})


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("stops=false", "stops"),
        ("stop=perhaps", "stop"),
        ("output=xml", "output"),
        ("streams=perhaps", "boolean"),
        ("protocol=xml", "there is no form 'xml'"),
        ("stop", "bad query field"),
    ],
)
def test_a_wrong_flag_is_named_with_those_that_there_are(query: str, words: str) -> None:
    with pytest.raises(GraphUnknown, match="flags are streams, protocol, strict_tools") as caught:
        model_from_ref(f"openai:m?{query}")
    assert words in str(caught.value)
