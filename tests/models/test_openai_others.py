"""`OpenAIModel` against llmock, a fake OpenAI server written by others: it has no idea of what we expect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from llmock.scenarios import Behavior, Fail, Match, ToolFault
from llmock.scenarios import Reply as Says
from llmock.scenarios import ToolCall as Calls
from llmock.testing import LLMockServer
from pydantic import BaseModel

from orchestrator import Executor, Graph, OpenAIModel, Outcome, Retry, tool
from orchestrator.context import Context
from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.graph.function import node
from orchestrator.kernel.records import encode
from orchestrator.models import Message, assistant, system, tool_result, user
from orchestrator.nodes import Execute
from orchestrator.tools import Toolbox

pytestmark = pytest.mark.anyio

KEY = "sk-not-a-real-key-42"
once = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tables of cases that no event loop has a part in."""


@tool(risk="read", effect="read")
def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    """The weather in a city.

    Args:
        city: name of the city.
        unit: degrees.
    """
    return f"21 {unit} in {city}"


@asynccontextmanager
async def asked(server: LLMockServer, *behaviors: Behavior) -> AsyncIterator[OpenAIModel]:
    server.state.scenarios.add(*behaviors)
    async with OpenAIModel("gpt-4o", base_url=server.base_url(), api_key=KEY) as model:
        yield model


def bodies(server: LLMockServer) -> list[dict[str, object]]:
    return [record.body for record in server.state.journal.records()]


async def test_a_plain_answer(server: LLMockServer) -> None:
    async with asked(server, Says(text="Bonjour.")) as model:
        reply = await model.complete("How do they greet in France?")
    assert (reply.text, reply.tool_calls, reply.finish) == ("Bonjour.", (), "stop")
    assert reply.model == "gpt-4o"
    assert reply.usage is not None
    assert (reply.usage.input_tokens > 0, reply.usage.output_tokens > 0) == (True, True)
    told = reply.details["usage"]
    assert isinstance(told, dict)
    assert told["total_tokens"] == reply.usage.tokens
    (record,) = server.state.journal.records()
    assert (record.path, record.stream, record.sdk_retry_count) == ("/v1/chat/completions", False, 0)


async def test_a_tool_call(server: LLMockServer) -> None:
    async with asked(server, Says(tool_calls=(Calls("weather", {"city": "Paris"}),))) as model:
        reply = await model.complete("Weather in Paris?", [weather])
    (call,) = reply.tool_calls
    assert (call.name, call.arguments, call.raw) == ("weather", {"city": "Paris"}, '{"city": "Paris"}')
    assert call.id.startswith("call_")
    assert (reply.text, reply.finish) == ("", "tool_calls")
    assert bodies(server)[0]["tools"] == Toolbox(weather).to_params()


async def test_parallel_tool_calls_and_text_keep_their_order(server: LLMockServer) -> None:
    calls = (Calls("weather", {"city": "Tokyo"}), Calls("weather", {"city": "Paris", "unit": "F"}))
    async with asked(server, Says(text="I look.", tool_calls=calls)) as model:
        reply = await model.complete("Weather in Tokyo and Paris?", Toolbox(weather))
    assert reply.text == "I look."
    assert [call.arguments for call in reply.tool_calls] == [
        {"city": "Tokyo"},
        {"city": "Paris", "unit": "F"},
    ]
    assert len({call.id for call in reply.tool_calls}) == 2


async def test_a_whole_conversation_with_results_is_understood(server: LLMockServer) -> None:
    async with asked(server) as model:
        messages: list[Message] = [system("Be brief."), user("Weather in Paris?")]
        reply = await model.complete(messages, [weather])
        (call,) = reply.tool_calls  # the server makes arguments from the schema
        assert call.arguments is not None
        result = await weather.invoke(weather.validate(call.arguments))
        messages += [reply.message, tool_result(call, result.text)]
        final = await model.complete([*messages, assistant("So."), *messages[-2:]], [weather])
    assert final.tool_calls == ()
    assert final.text


async def test_a_structured_answer(server: LLMockServer) -> None:
    class Place(BaseModel):
        city: str
        inhabitants: int

    async with asked(server) as model:
        reply = await model.complete("The capital of France?", output=Place)
    assert isinstance(reply.parsed, Place)
    written = bodies(server)[0]["response_format"]
    assert isinstance(written, dict)
    assert written["json_schema"]["strict"] is True


async def test_options_reach_the_server(server: LLMockServer) -> None:
    options = {"temperature": 0.2, "max_tokens": 5}
    model = OpenAIModel("gpt-4o", base_url=server.base_url(), extra_body={"top_k": 3}, **options)
    async with model:
        await model.complete("Hi", temperature=0.9)
    (body,) = bodies(server)
    assert (body["temperature"], body["max_tokens"], body["top_k"]) == (0.9, 5, 3)


@once
@pytest.mark.parametrize(
    ("status", "mend"),
    [
        (400, "rejects this request"),
        (401, "the key is wrong or missing: set OPENAI_API_KEY, or pass api_key='env:NAME'"),
        (403, "the key has no access to this model"),
        (404, "the model does not exist, or base_url is not the server's API root"),
        (422, "rejects this request"),
    ],
)
async def test_a_refusal_for_good_says_what_to_mend(server: LLMockServer, status: int, mend: str) -> None:
    async with asked(server, Fail(status)) as model:
        with pytest.raises(ModelError, match=f"model 'gpt-4o': HTTP {status}: .*{mend}") as caught:
            await model.complete("Hi")
    assert type(caught.value) is (ModelMisconfigured if status in (401, 403, 404) else ModelError)
    assert not caught.value.retryable


@once
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_refusal_for_now_is_worth_another_attempt_and_makes_none_by_itself(
    server: LLMockServer, status: int
) -> None:
    async with asked(server, Fail(status)) as model:
        with pytest.raises(ModelUnavailable, match=f"is refusing requests \\(HTTP {status}\\)") as caught:
            await model.complete("Hi")
    assert caught.value.retryable
    assert [record.status for record in server.state.journal.records()] == [status]


async def test_a_server_may_ask_to_wait(server: LLMockServer) -> None:
    async with asked(server, Fail(429, retry_after=1.5)) as model:
        with pytest.raises(ModelUnavailable, match=r"HTTP 429\), and asks to wait 1.5 s") as caught:
            await model.complete("Hi")
    assert caught.value.retry_after == 1.5


async def test_arguments_that_are_no_json_are_kept_as_they_came(server: LLMockServer) -> None:
    async with asked(server, ToolFault("malformed_arguments")) as model:
        reply = await model.complete("Weather in Paris?", [weather])
        (call,) = reply.tool_calls
        assert call.arguments is None
        assert call.raw.startswith("{")
        again = [user("Weather in Paris?"), reply.message, tool_result(call, "Error: no JSON")]
        assert (await model.complete(again, [weather])).text  # and can be sent back


async def test_a_name_that_no_tool_has_is_kept(server: LLMockServer) -> None:
    async with asked(server, ToolFault("unknown_tool")) as model:
        (call,) = (await model.complete("Weather in Paris?", [weather])).tool_calls
    assert call.name == "llmock_unknown_tool"


# -- in a run ------------------------------------------------------------------------------------------------------


class Chat(Execute.ListState):
    question: str = ""
    answer: str = ""


@node(retry=Retry(attempts=3, wait=0.01))
async def talk(state: Chat, ctx: Context[None]) -> Outcome[Literal["call", "end"]]:
    """Ask the model, with all that was said and found."""
    messages = [user(state.question)]
    for result in state.observations:
        data = result.data or {}
        calls = [call for call in state.pending if call.id == result.tool_call_id]
        messages += [assistant(tool_calls=calls), result.model_copy(update={"data": data})]
    reply = await ctx.model.complete(messages, ctx.tools)
    if reply.tool_calls:
        return Outcome("call", pending=list(reply.tool_calls))
    return Outcome("end", answer=reply.text)


chat = Graph(
    name="chat",
    state=Chat,
    input="question",
    nodes={"talk": talk, "execute": Execute(calls="pending", results="observations")},
    edges="""
        START   -> talk
        talk    -> execute : call
        execute -> talk
        talk    -> END     : end
    """,
    output="answer",
)


async def test_a_run_calls_tools_and_makes_refused_calls_again_in_its_journal(server: LLMockServer) -> None:
    calls = (Calls("weather", {"city": "Tokyo"}), Calls("weather", {"city": "Paris"}))
    async with (
        asked(
            server,
            Fail(429, retry_after=0.2),
            Fail(503),
            Says(tool_calls=calls),
            Says(text="Both 21.", match=Match(tools=True)),
        ) as model,
        Executor(model=model, tools=[weather]) as executor,
    ):
        run = await executor.start(chat, "Weather in Tokyo and Paris?")
        records = await executor.store.read(run.run_id)
    assert (run.status, run.output) == ("completed", "Both 21.")
    assert [message["content"] for message in run.values["observations"]] == ["21 C in Tokyo", "21 C in Paris"]
    retried = [record for record in records if record.type == "step_retried"]
    assert [record.error.type for record in retried] == ["ModelUnavailable"] * 2
    requests = server.state.journal.records()
    assert [record.status for record in requests] == [429, 503, 200, 200]
    assert requests[1].started_at - requests[0].ended_at >= 0.2  # as long as it asked for
    assert run.usage.tokens == sum(_tokens(record.usage) for record in records if record.type == "effect_settled")
    assert run.usage.tokens > 0


def _tokens(usage: object) -> int:
    return getattr(usage, "tokens", 0)


async def test_what_somebody_has_to_mend_interrupts_the_run_at_once(server: LLMockServer) -> None:
    async with asked(server, Fail(401, times=1)) as model, Executor(model=model, tools=[weather]) as executor:
        with pytest.raises(ModelMisconfigured, match="set OPENAI_API_KEY"):
            await executor.start(chat, "Weather?", run_id="r")
        run = await executor.load("r")
        stored = [encode(record).decode() for record in await executor.store.read("r")]
        assert run.status == "interrupted"
        assert run.error is not None
        assert run.error.type == "ModelMisconfigured"
        assert len(server.state.journal.records()) == 1
        assert KEY not in "".join(stored)
        assert (await executor.resume("r")).status == "completed"


async def test_what_the_server_does_not_take_fails_the_run_at_once(server: LLMockServer) -> None:
    async with asked(server, Fail(400, times=None)) as model, Executor(model=model, tools=[weather]) as executor:
        run = await executor.start(chat, "Weather?")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "ModelError"
    assert len(server.state.journal.records()) == 1
