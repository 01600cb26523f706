"""No conversation ends a run because it became too long: loops of many rounds against a server with a small window."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Executor, Graph, Limits, OpenAIModel, Run, tool
from orchestrator.models import Profile, Reply, ToolCall
from orchestrator.strategies.chat import chat
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel, assert_crash_safe
from tests.support.wire import Raw, Seen, Wire, called, refused, said, served

pytestmark = pytest.mark.anyio
WINDOW = 30_000
"""Bytes of the longest request that the server accepts."""
once = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@tool(risk="read", effect="read")
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "lorem ipsum " * 400


class Server:
    """Calls a tool in each of so many rounds, then answers; it summarizes in a line, and counts what it was asked."""

    def __init__(self, rounds: int, text: str = "I read on.") -> None:
        self.rounds, self.text = rounds, text
        self.asked: Counter[str] = Counter()
        self.prefixes: list[str] = []

    def __call__(self, seen: Seen) -> Raw | dict[str, Any]:
        size = len(json.dumps(seen.body).encode())
        if size > WINDOW:
            self.asked["refused"] += 1
            return refused(400, "This model's maximum context length is 7500 tokens.", "context_length_exceeded")
        usage = {"prompt_tokens": size // 4, "completion_tokens": 5, "total_tokens": size // 4 + 5}
        if "tools" not in seen.body:
            self.asked["summaries"] += 1
            return said(f"Summary {self.asked['summaries']}: all pages so far are lorem ipsum.", usage=usage)
        self.prefixes.append(json.dumps(seen.body["messages"]))
        self.asked["rounds"] += 1
        if self.asked["rounds"] > self.rounds:
            return said("All pages are lorem ipsum.", usage=usage)
        call = {"name": "read", "arguments": json.dumps({"page": self.asked["rounds"]})}
        return called(
            {"id": f"c{self.asked['rounds']}", "type": "function", "function": call}, content=self.text, usage=usage
        )


def model_of(wire: Wire, window: int | None) -> OpenAIModel:
    return OpenAIModel("m", wire.url, profile=Profile(window=window))


BUILDERS: dict[str, Callable[..., Graph]] = {"react": react, "function_call_agent": function_call_agent, "chat": chat}


@once
@pytest.mark.parametrize("context", ["compact", "clear"])
@pytest.mark.parametrize("window", [None, 7_500])
@pytest.mark.parametrize("name", BUILDERS)
async def test_two_hundred_rounds_complete(name: str, window: int | None, context: str) -> None:
    rounds = 200 if context == "compact" else 30  # the calls themselves stay, so in the end lines are too many
    server, graph = Server(rounds), BUILDERS[name](max_steps=500, context=context)
    with served(server) as wire:
        async with model_of(wire, window) as model, Executor(model=model, tools=[read]) as executor:
            run = await executor.start(graph, "Read all pages.", limits=Limits(steps=None))
    if name == "chat":
        assert run.waiting[0].prompt == "All pages are lorem ipsum."
    else:
        assert (run.status, run.output) == ("completed", "All pages are lorem ipsum.")
    assert server.asked["rounds"] == rounds + 1
    assert bool(server.asked["refused"]) == (window is None), "a known window is never exceeded"
    assert bool(server.asked["summaries"]) == (context == "compact")
    assert run.state.messages[0].content == "Read all pages."
    stable = sum(b.startswith(a[:-1]) for a, b in zip(server.prefixes, server.prefixes[1:], strict=False))
    if context == "compact":
        assert stable >= 200 - server.asked["summaries"], "between summaries, a request begins with the one before it"
        assert stable >= 120


@once
async def test_a_run_that_died_at_the_window_goes_on_by_a_retry_under_the_new_graph(tmp_path: Path) -> None:
    """`context="none"` is the graph as it was, with the same digests."""
    server, store = Server(30), f"sqlite:///{tmp_path}/runs.db"
    with served(server) as wire:
        async with model_of(wire, None) as model:
            old = function_call_agent(max_steps=50, context="none")
            async with Executor(store, model=model, tools=[read], graphs=[old]) as executor:
                run = await executor.start(old, "Read all pages.")
                assert run.status == "failed"
                assert run.error is not None
                assert run.error.type == "RequestTooLong"
            new = function_call_agent(max_steps=50)
            async with Executor(store, model=model, tools=[read], graphs=[new]) as executor:
                run = await executor.resume(run.run_id, retry=True)
                assert (run.status, run.output) == ("completed", "All pages are lorem ipsum.")
    assert server.asked["rounds"] == 31, "no round was repeated"


@once
async def test_a_message_that_alone_is_too_long_does_not_end_a_chat() -> None:
    server = Server(0)
    with served(server) as wire:
        async with model_of(wire, None) as model, Executor(model=model, tools=[read]) as executor:
            run = await executor.start(chat(), "lorem ipsum " * 4_000)
            assert "There is no answer to that: compact: nothing is left to summarize" in run.waiting[0].prompt
            run = await executor.answer(run.run_id, run.waiting[0].id, "And a short one?")
            assert run.waiting[0].prompt == "All pages are lorem ipsum."


@once
async def test_forks_replays_and_drawings_of_compactions() -> None:
    server, graph = Server(20), function_call_agent(max_steps=50)
    with served(server) as wire:
        async with model_of(wire, 7_500) as model, Executor(model=model, tools=[read]) as executor:
            run = await executor.start(graph, "Read all pages.")
            asked = sum(server.asked.values())
            steps = [point for point in await executor.history(run.run_id) if point.outcome == "compacted"]
            assert len(steps) == server.asked["summaries"] >= 3
            before: Run = await executor.load(run.run_id, at=steps[0].seq - 1)
            texts = [message.content for message in before.state.messages]
            assert [text[:7] for text in texts if text.startswith("page")] == [f"page {n}:" for n in range(1, 6)]
            replay = await executor.replay(run.run_id)
            assert (replay.run.output, replay.run.state.messages) == (run.output, run.state.messages)
            assert sum(server.asked.values()) == asked, "a replay takes the summaries from the journal"
            assert "compacted" in run.to_mermaid()


def called_for(page: int) -> Reply:
    return Reply(text="I read on.", tool_calls=(ToolCall(id=f"c{page}", name="read", arguments={"page": page}),))


class Small(ScriptedModel):
    """A model with a small window."""

    window = 3_000


@once
@pytest.mark.parametrize("build", [react, function_call_agent])
async def test_a_stop_at_every_write_of_a_compaction_loses_and_repeats_nothing(build: Callable[..., Graph]) -> None:
    replies = {"think": [*map(called_for, range(4)), "Done."], "compact": lambda request: "All lorem ipsum."}
    with Small(replies) as model:
        report = await assert_crash_safe(build(max_steps=9), "Read.", model=model, tools=[read])
    assert report.writes > 30
