"""What the pages on models say, run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph
from orchestrator.errors import ModelUnavailable
from orchestrator.models import Cache, Price, Profile, TextProtocol, with_middleware
from orchestrator.models.profile import profile_of
from orchestrator.models.server import ServerModel
from orchestrator.nodes import Complete
from orchestrator.strategies.tool_user import tool_user
from orchestrator.tools import tools_from_ref
from tests.contract.test_readme import blocks, load
from tests.support.wire import Raw, served

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("code", BLOCKS)
def test_each_example_runs(code: str) -> None:
    made: dict[str, object] = {}
    exec(code, made)  # the project's own page
    assert any(isinstance(value, ServerModel) for value in made.values()) or "executor" in made


def test_the_table_of_flags_is_the_profile() -> None:
    rows = dict(re.findall(r"^\| `(\w+)`:? [^|]*\| ([^|]*) \|", PAGE, re.M) or [])
    named = set(re.findall(r"^\| `(\w+)`", PAGE, re.M))
    assert named >= set(Profile.model_fields)
    assert rows["system_role"] == "`system`"
    ours = profile_of("gpt-4o", None)
    assert (ours.strict_tools, ours.parallel_calls, ours.max_tokens) == (True, True, "max_completion_tokens")


# -- a model of one's own ---------------------------------------------------------------------------------------------


class Asked(BaseModel):
    question: str
    answer: str = ""


REPLY = Complete(prompt="{question}", result="answer")
QUESTION = Graph(
    name="question",
    state=Asked,
    nodes={"reply": REPLY},
    edges="START -> reply -> END",
    input="question",
    output="answer",
)


def poem(text: str, **fields: Any) -> dict[str, Any]:
    return {"text": text, "read": 100, "written": 50, "cut": False, **fields}


def of_the_page(number: int, url: str, **options: Any) -> Any:
    name = ("Bard", "Rhapsode")[number]
    return vars(load(blocks("docs/own_models.md")[number], f"own_models_{number}"))[name](url, **options)


@pytest.mark.anyio
async def test_a_model_of_ones_own_is_retried_counted_priced_and_read() -> None:
    busy = Raw(b"later", 503)
    with served(busy, poem("a rose"), poem("a rose"), poem("cut", cut=True)) as wire:
        model = of_the_page(0, wire.url, price=Price(input=10_000, output=20_000))
        async with Executor(model=with_middleware(model, Cache())) as executor:
            run = await executor.start(QUESTION, "What is it?")
            assert (run.output, run.usage.calls, run.usage.tokens, run.usage.cost) == ("a rose", 1, 150, 2.0)
            assert not run.usage.estimated
            again = await executor.start(QUESTION, "What is it?")
            assert (again.output, len(wire.seen)) == ("a rose", 2)
        assert wire.seen[0].body == {"texts": ["user: What is it?"]}
        assert (await model.complete("?", temperature=1)).text == "a rose"
        assert wire.seen[-1].body["temperature"] == 1
        assert (await model.complete("?")).cut
    with pytest.raises(ModelUnavailable, match="bard: "):
        await model.complete("?")


@pytest.mark.anyio
@pytest.mark.parametrize("number", [0, 1])
async def test_a_model_of_ones_own_gets_all_that_a_decision_asks(number: int) -> None:
    """Its form, and the question, also after a correction, which is the last message."""
    replies = ["hm", '{"tool": "power"}', '{"a": 2, "b": 3}', '{"next": {"answer": "8"}}']
    written = {"read": 100, "written": 50}
    lines = [b"\n".join(json.dumps(one).encode() for one in ({"text": text}, written)) for text in replies]
    with served(*(poem(text) if number == 0 else Raw(line) for text, line in zip(replies, lines, strict=True))) as wire:
        async with Executor(model=of_the_page(number, wire.url), tools=tools_from_ref("arithmetic")) as executor:
            run = await executor.start(tool_user(confirm=None), "What is 2 ** 3?")
    assert (run.status, run.output) == ("completed", "8")
    system, question, *correction = wire.seen[1].body["texts"]
    assert system.startswith("system: ")
    assert "What is 2 ** 3?" in question
    assert "user: Your reply cannot be used" in correction[1]
    for request, name in zip(wire.seen, ("tool", "tool", "a", "next"), strict=True):
        schema = request.body["schema"] if number else json.loads(request.body["texts"][-1].partition("Schema: ")[2])
        assert name in schema["properties"]


@pytest.mark.anyio
async def test_a_model_of_ones_own_calls_tools_by_the_text_protocol() -> None:
    call = poem('Action: power[{"a": 2, "b": 3}]')
    with served(call, poem("8")) as wire:
        reply = await TextProtocol(of_the_page(0, wire.url), "bracket").complete("?", tools_from_ref("arithmetic"))
    assert [(one.name, one.arguments) for one in reply.tool_calls] == [("power", {"a": 2, "b": 3})]


@pytest.mark.anyio
async def test_a_stream_of_ones_own_is_seen_as_it_arrives_and_counted() -> None:
    lines = [
        json.dumps(one).encode() + b"\n" for one in ({"text": "a "}, {"text": "rose"}, {"read": 100, "written": 50})
    ]
    with served(*(Raw(parts=lines) for _ in range(3)), Raw(parts=lines[:2])) as wire:
        async with Executor(model=of_the_page(1, wire.url)) as executor:
            async with executor.stream(QUESTION, "?") as events:
                seen = [event async for event in events]
            assert [event.data["text"] for event in seen if event.type == "token"] == ["a ", "rose"]
            run = await executor.load(seen[0].run_id)
            assert (run.output, run.usage.tokens) == ("a rose", 150)
            assert (await executor.start(QUESTION, "?")).output == "a rose"
        layered = with_middleware(of_the_page(1, wire.url), Cache())
        assert [event.text async for event in layered.stream("?")] == ["a ", "rose", ""]
        with pytest.raises(ModelUnavailable, match="ended its stream"):
            await of_the_page(1, wire.url).complete("?")
