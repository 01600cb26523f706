"""`OpenAIModel` against two fake OpenAI servers of others: streamed or not, what they say comes out the same.

aimock says what its fixtures say; llmock makes faults of its own and judges how the client takes them. Neither has an
idea of what we expect. What is the same in a reply that is not streamed is in test_openai_others.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from llmock.chaos import StreamChaos
from llmock.scenarios import Behavior, Fail, Match, SlowFirstToken, StreamFault, ToolFault
from llmock.scenarios import Reply as Says
from llmock.testing import LLMockServer
from llmock.verdict import Verdict, judge
from pydantic import BaseModel

from orchestrator import Approve, Executor, OpenAIModel, Retry, Run, tool
from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.kernel.records import as_json
from orchestrator.models import Profile, TextProtocol, tool_result, user
from orchestrator.models.text.protocol import FormName
from orchestrator.strategies.tool_user import graph as tool_user
from tests.models.peers import KEY, ask, chat, each_way, once, run_of, tries_of, weather
from tests.support.aimock import AIMock, Asked, fixture

pytestmark = pytest.mark.anyio

OSLO = {"name": "weather", "arguments": {"city": "Oslo"}}
BERGEN = {"name": "weather", "arguments": {"city": "Bergen", "unit": "F"}}
QUICK = Retry(attempts=3, wait=0.1, factor=8)


def at(server: AIMock | LLMockServer, **options: Any) -> AbstractAsyncContextManager[OpenAIModel]:
    url = server.url if isinstance(server, AIMock) else server.base_url()
    return OpenAIModel("gpt-4o", url, KEY, **options)


def check(request: Asked, way: str) -> None:
    """What every request of ours has."""
    assert request.path == "/v1/chat/completions"
    assert "authorization" in request.headers
    assert request.headers["x-stainless-retry-count"] == "0"
    streams = {"stream": True, "stream_options": {"include_usage": True}} if way == "pieces" else {}
    assert {key: value for key, value in request.body.items() if key.startswith("stream")} == streams


# -- what is said --------------------------------------------------------------------------------------------------


@each_way
async def test_a_text_and_its_usage(aimock: AIMock, way: str) -> None:
    text = "Grüß Gott 🌍, said the people of Bavaria."
    usage = {"prompt_tokens": 9, "completion_tokens": 6, "total_tokens": 15}
    aimock.says(fixture({"content": text, "usage": usage}, {"userMessage": "greet"}, chunkSize=7))
    shown: list[str] = []
    async with at(aimock) as model:
        reply = await ask(model, way, "How do they greet?", shown=shown)
    assert (reply.text, reply.finish, reply.model) == (text, "stop", "gpt-4o")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.estimated) == (9, 6, False)
    assert (len(shown) > 5, "".join(shown)) == (True, text) if way == "pieces" else not shown
    (request,) = aimock.journal
    check(request, way)


@once
async def test_a_stream_without_usage(aimock: AIMock) -> None:
    aimock.says(fixture({"content": "Hello there."}))
    async with at(aimock, profile=Profile(stream_usage=False)) as model:
        reply = await ask(model, "pieces", "Hi")
    assert "stream_options" not in aimock.journal[0].body
    assert "usage" not in reply.details
    assert reply.usage is not None
    assert reply.usage.estimated
    assert reply.usage.output_tokens > 0


@each_way
@pytest.mark.parametrize("calls", [[OSLO], [OSLO, BERGEN]], ids=["one", "parallel"])
async def test_tool_calls_with_words_before_them(aimock: AIMock, way: str, calls: list[dict[str, Any]]) -> None:
    aimock.says(fixture({"content": "I look.", "toolCalls": calls}, {"toolName": "weather"}, chunkSize=5))
    async with at(aimock) as model:
        reply = await ask(model, way, "Weather in Oslo and Bergen?", [weather])
    assert (reply.text, reply.finish) == ("I look.", "tool_calls")
    assert [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls] == calls
    assert len({call.id for call in reply.tool_calls}) == len(calls)
    check(aimock.journal[0], way)


@once
@each_way
async def test_arguments_that_are_no_object_and_a_tool_that_was_not_offered(aimock: AIMock, way: str) -> None:
    calls = [{"name": "weather", "arguments": "[1, 2]"}, {"name": "tides", "arguments": {}}]
    aimock.says(
        fixture({"content": "Sorry."}, {"hasToolResult": True}),
        fixture({"toolCalls": calls}),
    )
    async with at(aimock) as model:
        reply = await ask(model, way, "Weather?", [weather])
        assert [(c.name, c.arguments, c.raw) for c in reply.tool_calls] == [
            ("weather", None, "[1, 2]"), ("tides", {}, "{}"),
        ]  # fmt: skip
        results = [tool_result(call, "there is no such call") for call in reply.tool_calls]
        assert (await ask(model, way, [user("Weather?"), reply.message, *results], [weather])).text == "Sorry."
    # What goes back is JSON: servers that read it would answer 500 to anything else.
    written = [c["function"]["arguments"] for c in aimock.journal[1].body["messages"][1]["tool_calls"]]
    assert [json.loads(text) for text in written] == [{"not_a_json_object": "[1, 2]"}, {}]


@once
@each_way
@pytest.mark.parametrize("fault", ["malformed_arguments", "unknown_tool"])
async def test_calls_that_cannot_be_made(server: LLMockServer, way: str, fault: Any) -> None:
    server.state.scenarios.add(ToolFault(fault))
    async with at(server) as model:
        (call,) = (await ask(model, way, "Weather in Paris?", [weather])).tool_calls
    assert (call.name, call.arguments is None) == {
        "malformed_arguments": ("weather", True),
        "unknown_tool": ("llmock_unknown_tool", False),
    }[fault]


class Place(BaseModel):
    city: str
    inhabitants: int


@once
@each_way
@pytest.mark.parametrize("output", [Place, list[int], list[Place], dict[str, int], int], ids=str)
async def test_structured_answers_that_a_server_makes_from_the_schema(
    server: LLMockServer, way: str, output: Any
) -> None:
    async with at(server) as model:
        reply = await ask(model, way, "Tell.", output=output)
    written = server.state.journal.records()[0].body["response_format"]["json_schema"]
    assert isinstance(reply.parsed, output if isinstance(output, type) else output.__origin__)
    assert (written["schema"]["type"], written["strict"]) == ("object", output != dict[str, int])


@once
@each_way
@pytest.mark.parametrize(
    ("said", "output", "parsed"),
    [
        ({"city": "Oslo", "inhabitants": 1}, Place, Place(city="Oslo", inhabitants=1)),
        ({"answer": [1, 2]}, list[int], [1, 2]),
        ("[1, 2]", list[int], [1, 2]),  # the model did not care for what it was asked
        ('```json\n{"answer": [1, 2]}\n```', list[int], [1, 2]),
    ],
    ids=["object", "list", "bare", "fenced"],
)
async def test_structured_answers_as_models_write_them(
    aimock: AIMock, way: str, said: Any, output: Any, parsed: object
) -> None:
    aimock.says(fixture({"content": said}, {"responseFormat": "json_schema"}))
    async with at(aimock) as model:
        reply = await ask(model, way, "Tell.", output=output)
    assert reply.parsed == parsed
    check(aimock.journal[0], way)


@each_way
async def test_thoughts_are_told_and_go_back_with_the_call_that_they_led_to(aimock: AIMock, way: str) -> None:
    aimock.says(
        fixture({"content": "21 C.", "reasoning": "Done."}, {"toolResultContains": "21 C in Oslo"}),
        fixture({"toolCalls": [OSLO], "reasoning": "I have to look."}, {"hasToolResult": False}, chunkSize=4),
    )
    async with at(aimock) as model, Executor(model=model, tools=[weather]) as executor:
        run, _ = await run_of(executor, way, chat, "Weather in Oslo?", "r")
    assert run.output == "21 C."
    first, last = aimock.journal
    check(first, way)
    thoughts = [message.get("reasoning_content") for message in last.body["messages"]]
    assert thoughts == [None, "I have to look.", None]
    assert [message["extras"] for message in run.values["messages"] if message["role"] == "assistant"] == [
        {"reasoning_content": "I have to look."}, {"reasoning_content": "Done."},
    ]  # fmt: skip


# -- what goes wrong -----------------------------------------------------------------------------------------------


async def fault_of(server: AIMock | LLMockServer, way: str, **options: Any) -> tuple[ModelError, list[str]]:
    """The error of a call and what was shown of the reply before; it tells nothing of the key."""
    shown: list[str] = []
    async with at(server, **options) as model:
        with pytest.raises(ModelError) as caught:
            await ask(model, way, "Tell me a story.", shown=shown)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    return caught.value, shown


LONG = {"content": "Once upon a time there was a server that could not end."}


@once
@each_way
@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, ModelError, "HTTP 400: the server rejects this request: "),
        (
            401,
            ModelMisconfigured,
            "HTTP 401: the key is wrong or missing: set OPENAI_API_KEY, or pass api_key='env:NAME': ",
        ),
        (429, ModelUnavailable, "the server is refusing requests (HTTP 429), and asks to wait 7 s: "),
        (500, ModelUnavailable, "the server is refusing requests (HTTP 500): "),
    ],
)
async def test_refusals(aimock: AIMock, way: str, status: int, kind: type[ModelError], words: str) -> None:
    said = {"error": {"message": f"not with {KEY}.", "type": "t"}, "status": status}
    aimock.says(fixture({**said, "retryAfter": 7} if status == 429 else said))
    error, shown = await fault_of(aimock, way)
    assert type(error) is kind
    assert error.retryable == (kind is ModelUnavailable)
    assert shown == []
    assert str(error) == f"model 'gpt-4o': {words}not with ***."
    assert [request.status for request in aimock.journal] == [status]


@once
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"truncateAfterChunks": 3, "latency": 50}, "the connection was lost"),
        ({"disconnectAfterMs": 400, "latency": 50}, "the connection was lost"),
        ({"chaos": {"malformedRate": 1}}, "the server's answer is not JSON: {malformed json"),
        ({"chaos": {"disconnectRate": 1}}, "the server cannot be reached"),
    ],
    ids=["cut", "late", "malformed", "disconnect"],
)
async def test_a_stream_that_breaks_is_an_error_and_never_a_short_answer(
    aimock: AIMock, how: dict[str, Any], words: str
) -> None:
    aimock.says(fixture(LONG, chunkSize=4, **how))
    error, shown = await fault_of(aimock, "pieces")
    assert isinstance(error, ModelUnavailable)
    # A busy machine may see the end of the connection before it has read what came first.
    assert words in str(error) or ("broke off" in words and "cannot be reached" in str(error))
    assert LONG["content"].startswith("".join(shown))
    assert "".join(shown) != LONG["content"]
    assert len(aimock.journal) == 1


@once
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("truncate", "the stream ended before the reply was complete (it has neither"),
        ("malformed", "the server's stream cannot be read"),
        ("disconnect", "the connection was lost"),
        ("stall", "no answer within 1 s; give it more time with timeout="),
    ],
)
async def test_faults_in_the_middle_of_a_stream(server: LLMockServer, fault: Any, words: str) -> None:
    server.state.scenarios.add(StreamFault(fault, after_chunks=4), Says(text=LONG["content"]))
    error, shown = await fault_of(server, "pieces", timeout=1 if fault == "stall" else 30)
    assert isinstance(error, ModelUnavailable)
    assert words in str(error)
    assert "".join(shown) == "Once upon a "
    assert len(server.state.journal.records(wait=2)) == 1


async def test_a_slow_first_token(aimock: AIMock) -> None:
    slow = {"streamingProfile": {"ttft": 400, "tps": 10_000}}
    aimock.says(fixture(LONG, {"sequenceIndex": 0}, **slow), fixture({"content": "Quick."}, {"sequenceIndex": 1}))
    async with at(aimock, timeout=30) as model:
        began = time.monotonic()
        assert (await ask(model, "pieces", "Tell.")).text == LONG["content"]
        assert time.monotonic() - began >= 0.4
    aimock.reset()
    aimock.says(fixture(LONG, **slow))
    error, shown = await fault_of(aimock, "pieces", timeout=0.1)
    assert "no answer within 0.1 s" in str(error)
    assert shown == []
    assert len(aimock.journal) <= 1  # a busy server has not read it by then


# -- in a run ------------------------------------------------------------------------------------------------------


@each_way
async def test_a_run_waits_as_it_is_asked_to_and_its_tries_are_journaled(aimock: AIMock, way: str) -> None:
    def refuses(status: int, index: int, **how: Any) -> dict[str, Any]:
        said = {"error": {"message": "no.", "type": "t"}, "status": status, **how}
        return fixture(said, {"hasToolResult": False, "sequenceIndex": index})

    aimock.says(
        refuses(429, 0, retryAfter=0.3),
        refuses(500, 1),
        fixture({"toolCalls": [OSLO, BERGEN]}, {"hasToolResult": False, "sequenceIndex": 2}),
        fixture({"content": "Both 21."}, {"toolResultContains": "21 F in Bergen"}, chunkSize=3),
    )
    async with at(aimock, retry=QUICK) as model, Executor(model=model, tools=[weather]) as executor:
        run, shown = await run_of(executor, way, chat, "Weather in Oslo and Bergen?", "r")
        settled = [one for one in await executor.store.read("r") if one.type == "effect_settled"]
        assert await tries_of(executor, "r") == [(False, 1, True), (False, 2, True), (True, 3, False), (True, 1, False)]
    assert (run.status, run.output) == ("completed", "Both 21.")
    assert shown == ("Both 21." if way == "pieces" else "")
    assert settled[0].next_at is not None
    assert settled[0].next_at - settled[0].ended >= 0.29
    assert KEY not in "".join(json.dumps(as_json(one)) for one in settled)
    requests = aimock.journal
    assert [request.status for request in requests] == [429, 500, 200, 200]
    keys = [request.headers["idempotency-key"] for request in requests]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    for request in requests:
        check(request, way)
    roles = [message["role"] for message in requests[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool", "tool"]


@dataclass(frozen=True)
class Case:
    """Faults, one after the other; how many requests a run makes then, and how it ends."""

    faults: tuple[Behavior, ...]
    requests: int
    ends: str = "completed"


CASES = {
    "too-many-requests": Case((Fail(429, retry_after=0.3),), 2),
    "down-twice": Case((Fail(500), Fail(502)), 3),
    "down-for-long": Case((Fail(500, times=None),), 3, "interrupted"),
    "no-such-request": Case((Fail(400),), 1, "failed"),
    "no-key": Case((Fail(401),), 1, "interrupted"),
    "not-allowed": Case((Fail(403),), 1, "interrupted"),
    "no-such-model": Case((Fail(404),), 1, "interrupted"),
    "no-sense": Case((Fail(422),), 1, "failed"),
    "malformed-tool-call": Case((ToolFault("malformed_arguments"),), 2),
    "unknown-tool": Case((ToolFault("unknown_tool"),), 2),
}
STREAMS = {
    "truncated": Case((StreamFault("truncate", after_chunks=2),), 2),
    "truncated-at-once": Case((StreamFault("truncate", after_chunks=0),), 2),
    "malformed": Case((StreamFault("malformed", after_chunks=1),), 2),
    "disconnected": Case((StreamFault("disconnect", after_chunks=2),), 2),
    "stalled": Case((StreamFault("stall", after_chunks=2, stall_seconds=30),), 2),
    "slow": Case((SlowFirstToken(0.2),), 1),
    "one-and-another": Case((Fail(429, retry_after=0.2), StreamFault("truncate")), 3),
}
GRADED = {
    "gave_up", "malformed_chunk_ignored", "no_backoff", "no_read_timeout", "retried_non_retryable",
    "retry_after_ignored", "retry_storm", "truncated_stream_accepted",
}  # fmt: skip
"""What llmock looks for."""


def verdict_of(server: LLMockServer) -> Verdict:
    """What llmock says of the client, when all requests have ended."""
    return judge(server.state.journal.records(wait=5))


@pytest.mark.full
@each_way
async def test_llmock_finds_no_fault_with_runs(server: LLMockServer, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A stream that is all sent at once is over before the server can see that somebody left it.
    monkeypatch.setattr(server.state, "stream_chaos", StreamChaos(chunk_delay_ms=30))
    cases = CASES if way == "whole" else CASES | STREAMS

    async def run(name: str, case: Case) -> None:
        mine = Match(model=name)  # every run has a model of its own, so all of them can go on at the same time
        tells = [] if "tool" in name else [Says(text="Fine, all of it.", times=None, match=mine)]
        faults = [replace(fault, match=replace(fault.match, model=name)) for fault in case.faults]
        server.state.scenarios.add(*faults, *tells)
        async with (
            OpenAIModel(name, server.base_url(), KEY, retry=QUICK, timeout=3) as model,
            Executor(model=model, tools=[weather]) as executor,
        ):
            with pytest.raises(ModelError) if case.ends == "interrupted" else nullcontext():
                await run_of(executor, way, chat, "Hi", name)
            ended[name] = await executor.load(name)
            waits[name] = [
                one.next_at - one.ended
                for one in await executor.store.read(name)
                if one.type == "effect_settled" and one.next_at is not None and one.next_at > one.ended
            ]

    ended: dict[str, Run] = {}
    waits: dict[str, list[float]] = {}
    async with anyio.create_task_group() as tasks:
        for name, case in cases.items():
            tasks.start_soon(run, name, case)
    verdict = verdict_of(server)
    # Whether each wait is longer than the one before, llmock tells from when requests come: our own records are surer.
    assert {finding.code for finding in verdict.findings} <= {"no_backoff"}
    for name in ("down-twice", "down-for-long"):
        earlier, later = waits[name]
        assert later > 2 * earlier
    requests = Counter(record.model for record in server.state.journal.records())
    assert {name: (requests[name], run.status) for name, run in ended.items()} == {
        name: (case.requests, case.ends) for name, case in cases.items()
    }
    assert {run.output for name, run in ended.items() if run.status == "completed" and "tool" not in name} == {
        "Fine, all of it."
    }
    bad = {name: case for name, case in cases.items() if "tool" not in name}
    assert verdict.faults == sum(case.requests - (case.ends == "completed") for case in bad.values())


@once
async def test_llmock_does_find_faults(server: LLMockServer) -> None:
    """With a client that never tries again, and one that always does and at once: all that it can find."""
    once_each = [Fail(503), StreamFault("truncate"), StreamFault("malformed")]
    async with at(server, timeout=5) as model:
        for number, fault in enumerate(once_each):
            server.state.scenarios.add(fault)
            with pytest.raises(ModelUnavailable):
                await ask(model, "pieces", f"Hi {number}")
        server.state.scenarios.add(StreamFault("stall", stall_seconds=1.05))
        await ask(model, "pieces", "Hello?")
        server.state.scenarios.add(Fail(400, times=2), Fail(429, retry_after=1), Fail(500, times=9))
        for _ in range(12):
            with pytest.raises(ModelError):
                await model.complete("And again.")
    found = {finding.code for finding in verdict_of(server).findings}
    assert found | {"no_backoff"} == GRADED  # that one is a matter of milliseconds, of which a busy machine has more


# -- whole agents --------------------------------------------------------------------------------------------------


@tool(risk="write", effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number.
        b: the second number.
    """
    return a + b


@each_way
@pytest.mark.parametrize("approve", [None, "write"])
async def test_the_shipped_agent(aimock: AIMock, way: str, approve: str | None) -> None:
    """It asks three times. A person says yes to its call, or a rule does."""
    aimock.says(
        fixture({"content": "add"}, {"userMessage": "Tools:\nadd: Add two numbers."}),
        fixture({"content": {"a": 20, "b": 8}}, {"userMessage": "Function: add"}, chunkSize=2),
        fixture({"content": "Final Answer: 28"}, {"userMessage": "Output: 28"}, chunkSize=2),
    )
    ways = [way] * 3
    async with at(aimock) as model, Executor(model=model, tools=[add, weather]) as executor:
        run, shown = await run_of(executor, way, tool_user, "What is 20 + 8?", "r", approve=approve)
        if approve is None:
            (question,) = run.waiting
            assert (run.status, question.payload["args"]) == ("paused", {"a": 20, "b": 8})
            run = await executor.answer("r", question.id, Approve())
            ways[2] = "whole"  # who watched has seen the run pause
    assert (run.status, run.output, run.usage.calls) == ("completed", "28", 4)
    texts = ["add", '{"a":20,"b":8}', "Final Answer: 28"]
    assert shown == "".join(text for text, how in zip(texts, ways, strict=True) if how == "pieces")
    for request, how in zip(aimock.journal, ways, strict=True):
        check(request, how)


FORMS: dict[FormName, tuple[str, str, str]] = {
    "json": ('{"name": "weather", "arguments": {"city": "Oslo"}}', "", "Result of weather:\n21 C in Oslo"),
    "bracket": ('I look.\nAction: weather[{"city": "Oslo"}]', "I look.", "Observation: 21 C in Oslo"),
}


@each_way
@pytest.mark.parametrize("form", FORMS)
async def test_tools_told_in_words(aimock: AIMock, way: str, form: FormName) -> None:
    """The server knows of no tools: it gets texts and gives texts."""
    written, words, result = FORMS[form]
    aimock.says(
        fixture({"content": "21 C."}, {"userMessage": result}),
        fixture({"content": written}, {"userMessage": "Weather?", "systemMessage": "Tool: weather"}, chunkSize=3),
    )
    async with at(aimock) as model, Executor(model=TextProtocol(model, form), tools=[weather]) as executor:
        run, shown = await run_of(executor, way, chat, "Weather?", "r")
    assert (run.status, run.output) == ("completed", "21 C.")
    first, found, last = run.values["messages"]
    assert (first["content"], first["tool_calls"][0]["arguments"]) == (words, {"city": "Oslo"})
    assert (found["role"], found["content"], last["content"]) == ("tool", "21 C in Oslo", "21 C.")
    assert shown == (f"{words}21 C." if way == "pieces" else "")
    for request in aimock.journal:
        check(request, way)
        assert not {"tools", "tool_choice"} & request.body.keys()
    assert [message["role"] for message in aimock.journal[1].body["messages"]] == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip
