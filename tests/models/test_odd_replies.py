"""Odd replies and errors as servers in use send them, whole and streamed: each has one right outcome.

The table is `odd_replies.yaml`; it says what its sections and outcomes are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, OpenAIModel, Retry, node, tool
from orchestrator.errors import ModelError
from orchestrator.models import Price, Profile, Reply, with_middleware
from orchestrator.models.middleware import Fallback
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from tests.models.peers import KEY, ask, chat, tries_of
from tests.support.wire import Raw, Wire, said, served, sse

pytestmark = pytest.mark.anyio

TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("odd_replies.yaml").read_text(encoding="utf-8")
)
ERRORS = {
    "again": "ReplyIncomplete",
    "unavailable": "ModelUnavailable",
    "misconfigured": "ModelMisconfigured",
    "failed": "ModelError",
    "too_long": "RequestTooLong",
}
QUICK = Retry(attempts=5, wait=0)
FUNCTION = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


class Nothing(BaseModel):
    pass


@tool(risk="none", effect="pure")
def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


def choice(message: dict[str, Any], finish: object, part: str) -> dict[str, Any]:
    """One choice of an answer, or of a chunk, with the message in it."""
    found = {"index": 0, part: {"role": "assistant", **message}, "finish_reason": finish}
    if finish == "absent":
        del found["finish_reason"]
    return found


def both(message: dict[str, Any], finish: object) -> Iterator[tuple[str, Raw]]:
    """A message as a whole answer, and as a stream of one piece."""
    yield "whole", Raw(json.dumps({"choices": [choice(message, finish, "message")]}).encode())
    yield "pieces", stream({"choices": [choice(message, finish, "delta")]})


def stream(*chunks: Any, done: bool = True, kind: str = "text/event-stream") -> Raw:
    return Raw(sse(*chunks, done=done), headers={"Content-Type": kind})


def answers_of(section: str, row: dict[str, Any]) -> Iterator[tuple[str, Raw]]:
    """The answers that a row stands for, each with the way it is asked for."""
    if section == "ends":
        called = {"tool_calls": [{**FUNCTION, "index": 0}]} if row.get("call") else {}
        yield from both({"content": row.get("text", "Paris."), **called}, row["finish"])
    elif section == "messages":
        yield from both(row["message"], row.get("finish", "stop"))
    elif section == "arguments":
        function = {"name": "add", "arguments": row["arguments"]}
        yield from both({"content": None, "tool_calls": [{**FUNCTION, "index": 0, "function": function}]}, "tool_calls")
    elif section == "streams":
        kind = row.get("type", "text/event-stream")
        if "raw" in row:
            yield "pieces", Raw(row["raw"].encode(), headers={"Content-Type": kind})
            return
        chunks = [one if isinstance(one, str) else {"choices": [{"index": 0, **one}]} for one in row["pieces"]]
        yield "pieces", stream(*chunks, done=row.get("done", True), kind=kind)
    else:
        body = row["body"] if isinstance(row["body"], str) else json.dumps(row["body"])
        kind = row.get("type", "application/json")
        for way in ("whole", "pieces"):
            yield way, Raw(body.encode(), row.get("status", 200), {"Content-Type": kind})


async def outcome(wire: Wire, way: str, answer: Raw, requests: int) -> Reply | ModelError:
    """What the model makes of an answer."""
    wire.answers, wire.seen = [answer, said("a second request")], []
    async with OpenAIModel("m", wire.url, KEY) as model:
        try:
            return await ask(model, way, "Hi", [add])
        except ModelError as error:
            return error
        finally:
            assert len(wire.seen) == requests


def check(row: dict[str, Any], found: Reply | ModelError) -> None:
    """Compare an outcome with the row."""
    wanted = next((kind for kind in ERRORS if kind in row), None)
    if wanted is not None:
        assert isinstance(found, ModelError), f"a reply, finish {getattr(found, 'finish', '')!r}"
        assert type(found).__name__ == ERRORS[wanted], str(found)
        words = row[wanted] if isinstance(row[wanted], list) else [row[wanted]]
        assert [word for word in words if str(word) not in str(found)] == [], str(found)
        return
    assert isinstance(found, Reply), f"{type(found).__name__}: {found}"
    calls = [[call.name, call.arguments] for call in found.tool_calls]
    if "want" in row:
        assert calls == [["add", row["want"]]]
        return
    assert (found.cut, found.refused) == ("cut" in row, "refused" in row), found.finish
    if "calls" in row:
        assert (calls, found.finish) == (row["calls"], "tool_calls")
        return
    text = row.get("answer", row.get("cut", row.get("refused")))
    assert found.text == text
    if "answer" in row:
        assert (calls, found.finish) == ([], "stop")
    if "tokens" in row:
        assert found.usage is not None
        assert [found.usage.input_tokens, found.usage.output_tokens] == row["tokens"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("section", TABLE)
async def test_odd_replies_have_their_one_outcome(section: str) -> None:
    """Each row of a section, whole and streamed. All run: a failure names its row."""
    failed: list[AssertionError] = []
    with served() as wire:
        for number, row in enumerate(TABLE[section], 1):
            for way, answer in answers_of(section, row):
                try:
                    check(row, await outcome(wire, way, answer, row.get("requests", 1)))
                except AssertionError as error:
                    error.add_note(f"in the row {section}-{number}-{row['server']}-{way}")
                    failed.append(error)
    if failed:
        raise ExceptionGroup(section, failed)


# -- asked again once --------------------------------------------------------------------------------------------------


def ended(text: str, finish: str, **fields: Any) -> dict[str, Any]:
    """An answer with this end, and its usage."""
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return {"choices": [choice({"content": text, **fields}, finish, "message")], "usage": usage}


@pytest.mark.parametrize("watched", [False, True], ids=["whole", "watched"])
async def test_a_reply_without_a_known_end_is_asked_for_once_more_and_both_count(watched: bool) -> None:
    with served(ended("Par", "error"), ended("Paris.", "stop")) as wire:
        async with (
            OpenAIModel("m", wire.url, KEY, retry=QUICK, price=Price(input=1, output=1)) as model,
            Executor(model=model, graphs=[chat], streams="always" if watched else "watched") as executor,
        ):
            run = await executor.start("chat", "Capital of France?", run_id="r")
            assert (run.status, run.output, len(wire.seen)) == ("completed", "Paris.", 2)
            assert (run.usage.calls, run.usage.input_tokens, run.usage.output_tokens) == (1, 14, 6)
            assert run.usage.cost == pytest.approx(20e-6)
            assert await tries_of(executor, "r") == [(False, 1, True), (True, 2, False)]
            again = (await executor.replay("r")).run
            assert (again.status, again.output, len(wire.seen)) == ("completed", "Paris.", 2)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ended("Par", "banana"), 'Profile(ends={"banana": "stop"})'),
        (ended("I add them.", "tool_calls"), "contains no tool call"),
        (ended('<tool_call>{"name": "add", "arguments": {}}</tool_call>', "stop"), "TextProtocol(model)"),
    ],
)
async def test_after_the_second_such_reply_the_step_fails(answer: dict[str, Any], words: str) -> None:
    with served(lambda seen: answer) as wire:
        async with (
            OpenAIModel("m", wire.url, KEY, retry=QUICK) as model,
            Executor(model=model, tools=[add], graphs=[react()]) as executor,
        ):
            run = await executor.start("react", "1 + 2?", run_id="r")
            assert (run.status, len(wire.seen)) == ("failed", 2)
            assert run.error is not None
            assert words in run.error.message
            assert (run.usage.input_tokens, run.usage.output_tokens) == (14, 6)


async def test_without_a_retry_and_with_a_profile_that_knows_the_end_there_is_one_request() -> None:
    with served(lambda seen: ended("Paris.", "banana")) as wire:
        async with OpenAIModel("m", wire.url, KEY, retry=None) as model, Executor(model=model) as executor:
            assert (await executor.start(chat, "q")).status == "failed"
        assert len(wire.seen) == 1
        known = Profile(ends={"banana": "stop"})
        async with OpenAIModel("m", wire.url, KEY, profile=known) as model, Executor(model=model) as executor:
            assert (await executor.start(chat, "q")).output == "Paris."
        cut = Profile(ends={"banana": "length"})
        async with OpenAIModel("m", wire.url, KEY, profile=cut) as model:
            reply = await model.complete("q")
    assert (len(wire.seen), reply.cut, reply.details["finish_reason"]) == (3, True, "banana")
    with served(ended("Paris.", "tool_calls")) as wire:
        async with OpenAIModel("m", wire.url, KEY, profile=Profile(ends={"tool_calls": "stop"})) as model:
            assert (await model.complete("q", [add])).finish == "stop"


async def test_behind_a_fallback_the_tokens_of_such_a_reply_count_and_two_of_them_are_one() -> None:
    with served(ended("Par", "error"), ended("Paris.", "stop"), *[ended("Par", "error")] * 4) as wire:
        async with OpenAIModel("a", wire.url, KEY, retry=QUICK) as first, OpenAIModel("b", wire.url, KEY) as second:
            async with Executor(model=with_middleware(first, Fallback(second))) as executor:
                run = await executor.start(chat, "q")
                assert (run.output, run.usage.input_tokens, run.usage.output_tokens) == ("Paris.", 14, 6)
                run = await executor.start(chat, "q")
            assert (run.status, len(wire.seen)) == ("failed", 6)
            assert (run.usage.input_tokens, run.usage.output_tokens) == (28, 12)


async def test_an_unknown_end_fails_at_once_where_a_node_has_read_pieces() -> None:
    @node
    async def read(ctx: Context) -> dict[str, str]:
        async for _ in ctx.model.stream("q"):
            pass
        return {}

    graph = Graph(name="g", state=Nothing, nodes={"read": read}, edges="START -> read -> END")
    with served(lambda seen: stream({"choices": [choice({"content": "Par"}, "error", "delta")]})) as wire:
        async with OpenAIModel("m", wire.url, KEY, retry=QUICK) as model, Executor(model=model) as executor:
            run = await executor.start(graph)
    assert (run.status, len(wire.seen)) == ("failed", 1)


async def test_replies_that_were_journaled_before_words_were_translated_keep_their_meaning() -> None:
    model = ScriptedModel([Reply(text="Paris.", finish=word) for word in ("MAX_TOKENS", "SAFETY", "error", "unknown")])
    async with Executor(model=model) as executor:
        for number in range(4):
            run = await executor.start(chat, "q", run_id=f"r{number}")
            again = (await executor.replay(f"r{number}")).run
            assert (run.output, again.status, again.output) == ("Paris.", "completed", "Paris.")
