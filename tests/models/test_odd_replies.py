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

from orchestrator import OpenAIModel, tool
from orchestrator.errors import ModelError
from orchestrator.models import Reply
from tests.models.peers import KEY, ask
from tests.support.wire import Raw, said, served, sse

pytestmark = pytest.mark.anyio

TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("odd_replies.yaml").read_text(encoding="utf-8")
)
ERRORS = {
    "again": "ReplyIncomplete",
    "unavailable": "ModelUnavailable",
    "misconfigured": "ModelMisconfigured",
    "failed": "ModelError",
}
FUNCTION = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


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


def cases() -> Iterator[Any]:
    for section, rows in TABLE.items():
        for number, row in enumerate(rows, 1):
            for way, answer in answers_of(section, row):
                yield pytest.param(row, way, answer, id=f"{section}-{number}-{row['server']}-{way}")


async def outcome(way: str, answer: Raw) -> Reply | ModelError:
    """What the model makes of one answer."""
    with served(answer, said("a second request")) as wire:
        async with OpenAIModel("m", wire.url, KEY) as model:
            try:
                return await ask(model, way, "Hi", [add])
            except ModelError as error:
                return error
            finally:
                assert len(wire.seen) == 1


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


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("row", "way", "answer"), [*cases()])
async def test_an_odd_reply_has_its_one_outcome(row: dict[str, Any], way: str, answer: Raw) -> None:
    check(row, await outcome(way, answer))
