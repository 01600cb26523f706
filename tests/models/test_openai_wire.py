"""What `OpenAIModel` writes and reads, byte for byte: extras, odd answers, broken ones, lost connections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from email.utils import formatdate
from time import time
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, SecretStr

from orchestrator import Context, Graph, OpenAIModel, node, tool
from orchestrator.errors import AgentError, ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.models import Message, Reply, ToolCall, system, tool_result, user
from tests.support.sizes import quick_on
from tests.support.wire import Raw, Seen, called, refused, said, served, told

pytestmark = pytest.mark.anyio

KEY = "sk-not-a-real-key-42"
once = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tables of cases that no event loop has a part in."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def call(arguments: object, identity: object = "call_1", name: str = "add", **fields: Any) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}, **fields}


async def reply_to(answer: Raw | Mapping[str, Any], **options: Any) -> Reply:
    """What the model makes of an answer."""
    with served(answer) as wire:
        async with OpenAIModel("m", wire.url, KEY, **options) as model:
            return await model.complete("Hi")


async def fault_of(answer: Raw | Mapping[str, Any], **options: Any) -> ModelError:
    """The error that it makes of an answer, after a single request."""
    with served(answer) as wire:
        async with OpenAIModel("m", wire.url, KEY, **options) as model:
            with pytest.raises(ModelError) as caught:
                await model.complete("Hi")
        assert len(wire.seen) == 1
    return caught.value


# -- what is sent --------------------------------------------------------------------------------------------------


async def test_a_request_is_written_as_chat_completions() -> None:
    first = ToolCall(id="c1", name="add", arguments={"a": 1, "b": 2}, raw='{"a": 1,"b":2}')
    messages = [
        system("Be brief."),
        user("1 + 2?", data={"question": "1 + 2?"}),
        Message(role="assistant", tool_calls=(first,)),
        tool_result(first, "3", data={"output": 3}),
    ]
    with served(said("It is 3.")) as wire:
        async with OpenAIModel("m", wire.url, KEY, headers={"X-Team": "blue"}, seed=7) as model:
            await model.complete(messages, [add], task="think", temperature=0)
    (seen,) = wire.seen
    assert (seen.path, seen.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert seen.headers["x-team"] == "blue"
    assert seen.body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1 + 2?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1,"b":2}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
        ],
        "tools": [add.to_param()],
        "seed": 7,
        "temperature": 0,
    }


@pytest.mark.parametrize("environment", [False, True], ids=["given", "environment"])
async def test_a_query_in_the_address_is_a_query(environment: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(said("Hi"), said("Hi"), refused(400, "not with s3cret")) as wire:
        address = wire.url + "?api-version=1&code=s3cret&empty="
        if environment:
            monkeypatch.setenv("OPENAI_BASE_URL", address)
        async with OpenAIModel("m", None if environment else address, KEY, query={"api-version": "2"}) as model:
            await model.complete("Hi")
            _ = [event async for event in model.stream("Hi")]
            with pytest.raises(ModelError) as caught:
                await model.complete("Hi")
    assert "s3cret" not in str(caught.value)
    path, _, query = wire.seen[0].path.partition("?")
    assert (path, sorted(query.split("&"))) == ("/v1/chat/completions", ["api-version=2", "code=s3cret", "empty="])
    assert [seen.path for seen in wire.seen] == [wire.seen[0].path] * 3


async def test_an_empty_reply_goes_back_with_words_in_it() -> None:
    talk = [user("Hi"), Message(role="assistant", extras={"reasoning_content": "Hm"}), user("Your reply was empty.")]
    with served(said("Hi")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            await model.complete(talk)
    assert [message["content"] for message in wire.seen[0].body["messages"]] == [
        "Hi",
        "(empty reply)",
        "Your reply was empty.",
    ]


async def test_arguments_in_a_dialect_of_json_go_back_as_json() -> None:
    with served(called(call('{"a": "x\ny"}'), call("null", "c2")), said("done")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            reply = await model.complete("Hi", [add])
            results = [tool_result(one, "ok") for one in reply.tool_calls]
            await model.complete([user("Hi"), reply.message, *results], [add])
    sent = [one["function"]["arguments"] for one in wire.seen[1].body["messages"][1]["tool_calls"]]
    assert [json.loads(text) for text in sent] == [{"a": "x\ny"}, {}]


async def test_a_schema_asks_for_an_answer_in_its_form() -> None:
    class Sum(BaseModel):
        total: int

    with served(said('```json\n{"total": 3}\n```'), said("three")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            assert (await model.complete("1 + 2?", output=Sum)).parsed == Sum(total=3)
            with pytest.raises(AgentError, match="the model's reply is not a valid Sum"):
                await model.complete("1 + 2?", output=Sum)
    written = wire.seen[0].body["response_format"]["json_schema"]
    assert (written["name"], written["strict"]) == ("answer", True)
    assert written["schema"]["additionalProperties"] is False


async def test_extras_are_kept_and_sent_back() -> None:
    message = {
        "role": "assistant",
        "content": "So.",
        "reasoning_content": "1 and 2 make 3",
        "annotations": [],
        "tool_calls": [call('{"a": 1, "b": 2}', extra_content={"signature": "xyz"}, index=0)],
    }
    with served(said(message), said("3")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            reply = await model.complete("1 + 2?", [add])
            assert reply.extras == {"reasoning_content": "1 and 2 make 3"}
            assert reply.tool_calls[0].extras == {"extra_content": {"signature": "xyz"}}
            stored = Reply.model_validate_json(json.dumps(reply.data()))  # through a journal
            assert stored == reply
            await model.complete([user("1 + 2?"), stored.message, tool_result(stored.tool_calls[0], "3")])
    sent = wire.seen[1].body["messages"][1]
    assert sent["reasoning_content"] == "1 and 2 make 3"
    assert sent["tool_calls"] == [call('{"a": 1, "b": 2}', extra_content={"signature": "xyz"})]


# -- what is read --------------------------------------------------------------------------------------------------


@once
@pytest.mark.parametrize(
    ("written", "arguments", "raw"),
    [
        ('{"a": 1}', {"a": 1}, '{"a": 1}'),
        ({"a": 1}, {"a": 1}, ""),  # some servers do not write them as text
        ("", {}, ""),
        (None, {}, ""),
        ("{}", {}, "{}"),
        ('{"a": 1', None, '{"a": 1'),
        ("a=1", None, "a=1"),
        ("[1]", None, "[1]"),
        ("null", {}, ""),
        ('{"a": NaN}', None, '{"a": NaN}'),
        ('{"a": 1e999}', None, '{"a": 1e999}'),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", None, '{"a": ' + "[" * 300 + "]" * 300 + "}"),
        ("[" * 100_000, None, "[" * 100_000),
        ([1], None, "[1]"),
    ],
)
async def test_arguments_are_an_object_or_kept_as_they_came(written: object, arguments: object, raw: str) -> None:
    reply = await reply_to(called(call(written)))
    (found,) = reply.tool_calls
    assert (found.arguments, found.raw) == (arguments, raw)


async def test_what_is_no_object_is_sent_back_as_json() -> None:
    bad = ToolCall(id="c1", name="add", arguments=None, raw='{"a": 1')
    with served(said("Sorry.")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            await model.complete([Message(role="assistant", tool_calls=(bad,)), tool_result(bad, "Error: no JSON")])
    sent = wire.seen[0].body["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"not_a_json_object": '{"a": 1'}


async def test_every_call_has_an_id_of_its_own() -> None:
    calls = [call("{}", identity) for identity in ("same", "same", None, "", 5)]
    reply = await reply_to(called(*calls))
    ids = [found.id for found in reply.tool_calls]
    assert ids[0] == "same"
    assert len(set(ids)) == len(ids) == 5
    assert all(ids)


async def test_what_is_no_call_is_left_out() -> None:
    assert (await reply_to(called("nothing", {"id": "x"}, call("{}")))).tool_calls[0].id == "call_1"  # type: ignore[arg-type]
    assert (await reply_to(said({"role": "assistant", "content": "x", "tool_calls": None}))).tool_calls == ()


@once
@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "odd"]}, "ab"),
        ({"content": "a", "refusal": None}, "a"),
    ],
)
async def test_content_in_all_its_forms(message: dict[str, Any], text: str) -> None:
    assert (await reply_to(said({"role": "assistant", **message}))).text == text


async def test_a_refusal_of_the_model_is_a_text_with_its_own_finish() -> None:
    reply = await reply_to(said({"role": "assistant", "content": None, "refusal": "I will not."}))
    assert (reply.text, reply.finish) == ("I will not.", "refusal")


@once
@pytest.mark.parametrize(
    ("word", "finish"),
    [("length", "length"), ("MAX_TOKENS", "length"), ("content_filter", "content_filter"), ("eos", "stop")],
)
async def test_why_it_stopped(word: str, finish: str) -> None:
    answer = said("x")
    answer["choices"][0]["finish_reason"] = word
    reply = await reply_to(answer)
    assert (reply.finish, reply.details.get("finish_reason", word)) == (finish, word)


async def test_a_cut_answer_is_no_value_and_says_that_it_was_cut() -> None:
    class Sum(BaseModel):
        total: int

    answer = said('{"total":')
    answer["choices"][0]["finish_reason"] = "length"
    with served(answer) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            with pytest.raises(AgentError, match=r"not a valid Sum \(it was cut off: finish 'length'\)"):
                await model.complete("1 + 2?", output=Sum)


@once
@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}, (3, 4)),
        (None, None),
        ({}, None),
        ("many", None),
        ({"prompt_tokens": "3", "completion_tokens": None}, None),
        ({"prompt_tokens": -3, "completion_tokens": True}, None),
        ({"prompt_tokens": 3.0, "completion_tokens": 4}, (3, 4)),
        ({"prompt_tokens": float("nan"), "completion_tokens": 1.5}, None),
    ],
)
async def test_usage_is_what_the_server_says_or_made_out(usage: object, tokens: tuple[int, int] | None) -> None:
    found = (await reply_to(said("x" * 100, usage=usage))).usage
    assert found is not None
    assert found.estimated is (tokens is None)
    assert (found.input_tokens, found.output_tokens) == (tokens or (5, 25))  # four bytes a token, four a message


async def test_half_a_usage_is_completed_and_marked() -> None:
    for written in ({"prompt_tokens": 7}, {"prompt_tokens": 7, "completion_tokens": 10**15}):
        usage = (await reply_to(said("x" * 100, usage=written))).usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens, usage.estimated) == (7, 25, True)


async def test_fields_that_no_journal_can_hold_are_left_out() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}, "deep": deep}
    message = {"role": "assistant", "content": "x", "deep": deep, "odd": float("inf"), "tool_calls": [call]}
    reply = await reply_to(said(message, deep=deep, odd=float("nan"), system_fingerprint="fp"))
    assert (reply.extras, reply.tool_calls[0].extras) == ({}, {})
    assert ("deep" in reply.details, "odd" in reply.details, reply.details["system_fingerprint"]) == (
        False,
        False,
        "fp",
    )
    assert Reply.model_validate_json(json.dumps(reply.data(), allow_nan=False)) == reply


async def test_details_of_the_usage_are_kept() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
    reply = await reply_to(said("x", usage=usage, system_fingerprint="fp"))
    assert reply.details["usage"] == usage
    assert (reply.details["system_fingerprint"], reply.details["id"]) == ("fp", "chatcmpl-1")


# -- refusals ------------------------------------------------------------------------------------------------------


async def test_retry_after_as_a_date_and_in_milliseconds() -> None:
    later = await fault_of(refused(503, "busy", retry_after=formatdate(time() + 90, usegmt=True)))
    assert isinstance(later, ModelUnavailable)
    assert later.retry_after is not None
    assert 60 < later.retry_after <= 90
    soon = await fault_of(refused(429, "busy", retry_after="9", retry_after_ms="250"))
    assert isinstance(soon, ModelUnavailable)
    assert soon.retry_after == 0.25
    past = await fault_of(refused(429, "busy", retry_after=formatdate(0, usegmt=True)))
    assert isinstance(past, ModelUnavailable)
    assert past.retry_after == 0


@once
@pytest.mark.parametrize("written", ["", "soon", "-1", "inf", "nan", "Fri, 99 Foo 2020"])
async def test_a_retry_after_that_says_nothing_is_none(written: str) -> None:
    error = await fault_of(refused(429, "busy", retry_after=written))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after is None


async def test_an_account_without_credit_is_not_asked_again() -> None:
    error = await fault_of(refused(429, "You exceeded your quota", code="insufficient_quota"))
    assert type(error) is ModelMisconfigured
    assert "the account has no credit left" in str(error)


async def test_what_the_server_says_is_quoted_in_one_line_and_in_part() -> None:
    error = await fault_of(refused(400, "too\n\nlong " + "x" * 5000))
    assert "too long xxx" in str(error)
    assert len(str(error)) < 500
    assert "\n" not in str(error)


async def test_nothing_in_the_words_of_a_server_is_hidden_or_turned_round() -> None:
    said = {"error": {"message": "a\x1b[31mred\u202eder\u2066"}}
    error = await fault_of(Raw(json.dumps(said).encode(), 400, {"Content-Type": "application/json"}))
    assert str(error).endswith(r"a\u001b[31mred\u202eder\u2066")


async def test_a_refusal_that_is_no_json() -> None:
    error = await fault_of(Raw(b"<html>Bad gateway</html>", 502, {"Content-Type": "text/html"}))
    assert isinstance(error, ModelUnavailable)
    assert "HTTP 502" in str(error)


async def test_an_error_inside_of_a_good_answer_is_a_refusal() -> None:
    busy = await fault_of({"error": {"message": "upstream is busy", "code": 429}})
    assert isinstance(busy, ModelUnavailable)
    assert "upstream is busy" in str(busy)
    bad = await fault_of({"error": "no such thing"})
    assert type(bad) is ModelError
    assert "no such thing" in str(bad)


# -- broken answers and connections --------------------------------------------------------------------------------


@once
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Raw(b""), "is not JSON: nothing"),
        (Raw(b'{"choices": [{"mess'), "is not JSON: "),
        (Raw(b"[]"), "is not a JSON object"),
        (Raw(b'"hello"'), "is not a JSON object"),
        (Raw(b"{}"), "has no choices"),
        (Raw(b'{"choices": []}'), "has no choices"),
        (Raw(b'{"choices": [null]}'), "has no choices"),
        (Raw(b'{"choices": [{}]}'), "a choice without a message"),
        (Raw(b"[" * 200_000), "is not JSON"),
    ],
)
async def test_an_answer_without_a_reply_is_worth_another_attempt(answer: Raw, words: str) -> None:
    error = await fault_of(answer)
    assert isinstance(error, ModelUnavailable)
    assert words in str(error)


async def test_a_web_page_says_that_the_address_is_wrong() -> None:
    error = await fault_of(Raw(b"<!doctype html><title>Welcome</title>", headers={"Content-Type": "text/html"}))
    assert type(error) is ModelMisconfigured
    assert "the server answers with a web page; is base_url its API root" in str(error)


@pytest.mark.parametrize(
    "answer", [Raw(silent=True), Raw(b'{"choices":', missing=100)], ids=["before the answer", "within it"]
)
async def test_a_lost_connection_is_worth_another_attempt_and_the_next_call_works(answer: Raw) -> None:
    with served(said("one"), answer, said("two")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            assert (await model.complete("Hi")).text == "one"
            with pytest.raises(ModelUnavailable, match="cannot be reached"):
                await model.complete("Hi")
            assert (await model.complete("Hi")).text == "two"
    assert len(wire.seen) == 3


async def test_nobody_listens() -> None:
    with served() as wire:
        url = wire.url
    async with OpenAIModel("m", url, KEY) as model:
        with pytest.raises(ModelUnavailable, match=r"model 'm': the server cannot be reached .* is it running"):
            await model.complete("Hi")


LOADING = {
    "llama.cpp": refused(503, "Loading model", 503),
    "inference server": Raw(b'{"error": "Model x is currently loading", "estimated_time": 20.0}', 503),
    "plain text": Raw(b"The model is not ready yet.", 503),
    "warming up": Raw(b'{"detail": "warming up"}', 503),
}


@once
@pytest.mark.parametrize("server", LOADING)
@pytest.mark.parametrize("pieces", [False, True])
async def test_a_server_that_loads_the_model_is_waited_for(
    server: str, pieces: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with served(LOADING[server], LOADING[server], told("Hi") if pieces else said("Hi")) as wire:
        async with OpenAIModel("m", wire.url, KEY, retry=None) as model:
            if pieces:
                async with aclosing(model.stream("Hi")) as events:  # type: ignore[type-var]
                    replies = [event.reply async for event in events if event.reply]
                assert [reply.text for reply in replies] == ["Hi"]
            else:
                assert (await model.complete("Hi")).text == "Hi"
    assert len(wire.seen) == 3
    assert caplog.messages == ["model 'm': the server is loading the model; waiting up to 600 s"]


@once
@pytest.mark.parametrize("pieces", [False, True])
async def test_the_wait_for_a_model_ends_with_the_timeout(pieces: bool) -> None:
    with served(lambda _: LOADING["llama.cpp"]) as wire:
        async with OpenAIModel("m", wire.url, KEY, timeout=1.5) as model:
            answer = anext(model.stream("Hi")) if pieces else model.complete("Hi")
            with pytest.raises(ModelUnavailable, match=r"HTTP 503\).*Loading model"):
                await answer
    assert len(wire.seen) == 2


@once
@pytest.mark.parametrize(
    "answer",
    [
        refused(503, "Loading model failed: file not found"),
        refused(503, "cannot start: error loading model"),
        refused(503, "overloaded"),
        refused(500, "Loading model"),
        refused(404, "model is not ready"),
    ],
)
async def test_other_refusals_are_not_waited_for(answer: Raw) -> None:
    with served(answer) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            with pytest.raises(ModelError):
                await model.complete("Hi")
    assert len(wire.seen) == 1


async def test_an_answer_that_never_comes() -> None:
    with served(lambda seen: Raw(hangs=True) if "Never" in str(seen.body) else said("there")) as wire:
        async with OpenAIModel("m", wire.url, KEY, timeout=0.2) as model:
            with pytest.raises(ModelUnavailable, match=r"no answer within 0.2 s; give it more time with timeout="):
                await model.complete("Never")
        async with OpenAIModel("m", wire.url, KEY) as model:
            assert (await model.complete("Hi")).text == "there"


async def test_a_call_can_be_cancelled_and_the_model_goes_on() -> None:
    with served(Raw(hangs=True), said("there")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            with anyio.fail_after(10):
                with anyio.move_on_after(0.3) as scope:
                    await model.complete("Hi")
                assert scope.cancelled_caught
                assert (await model.complete("Hi")).text == "there"


@pytest.mark.parametrize("url", ["127.0.0.1:1/v1", "ftp://127.0.0.1/v1", "http://[::1/v1", "http://127.0.0.1:99999/v1"])
async def test_an_address_that_is_none_is_not_tried_again(url: str) -> None:
    async with OpenAIModel("m", url, KEY) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete("Hi")
    assert not caught.value.retryable


@quick_on("trio")
async def test_many_calls_at_the_same_time() -> None:
    def echo(seen: Seen) -> dict[str, Any]:
        return said(seen.body["messages"][0]["content"])

    with served(echo) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            found: dict[int, str] = {}

            async def ask(number: int) -> None:
                found[number] = (await model.complete(str(number))).text

            async with anyio.create_task_group() as group:
                for number in range(30):
                    group.start_soon(ask, number)
    assert found == {number: str(number) for number in range(30)}


def test_one_model_in_one_event_loop_after_the_other() -> None:
    async def ask() -> str:
        try:
            return (await model.complete("Hi")).text
        finally:
            await model.aclose()

    with served(said("one"), said("two"), said("three")) as wire:
        model = OpenAIModel("m", wire.url, SecretStr(KEY))
        assert [anyio.run(ask, backend=loop) for loop in ("asyncio", "trio", "asyncio")] == ["one", "two", "three"]


async def test_closing_twice_or_before_any_call_is_nothing() -> None:
    model = OpenAIModel("m")
    await model.aclose()
    await model.aclose()
    with served(said("x"), said("y")) as wire:
        model = OpenAIModel("m", wire.url)
        await model.complete("Hi")
        await model.aclose()
        assert (await model.complete("Hi")).text == "y"  # and a later call opens anew
        await model.aclose()


# -- the same call made again --------------------------------------------------------------------------------------


async def test_the_key_of_a_call_is_sent_and_goes_on_no_other_call() -> None:
    class State(BaseModel):
        reply: str = ""

    @node
    async def ask(ctx: Context) -> dict[str, str]:
        first = await ctx.model.complete("Hi")
        await ctx.model.complete("Hi")
        async for _ in ctx.model.stream("Ho"):
            await direct.complete("Hi")
        await direct.complete("Hi")
        return {"reply": first.text}

    graph = Graph(name="g", state=State, nodes={"ask": ask}, edges="START -> ask -> END")
    with served(lambda seen: said("yes")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model, OpenAIModel("m", wire.url, KEY) as direct:
            await graph.run(model=model)
    keys = [seen.headers.get("idempotency-key") for seen in wire.seen]
    assert keys[3:] == [None] * (len(keys) - 3), keys
    assert len(set(keys[:3])) == 3, keys
    assert None not in keys[:3]
