"""No conversation ends a run because it became too long: loops of many rounds against a server with a small window."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Executor, Graph, Limits, OpenAIModel, Run, replace, tool
from orchestrator.cli.graph_refs import shipped
from orchestrator.models import Profile, Reply, ToolCall
from orchestrator.strategies.chat import chat
from orchestrator.strategies.code_act import code_act
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.plan_and_solve import plan_and_solve
from orchestrator.strategies.react import react
from orchestrator.strategies.swarm import Member, swarm
from orchestrator.testing import ScriptedModel, assert_crash_safe
from tests.support.sizes import sized
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

    def __init__(self, rounds: int, text: str = "I read on.", calls: int = 1, *, code: bool = False) -> None:
        self.rounds, self.text, self.calls, self.code = rounds, text, calls, code
        self.asked: Counter[str] = Counter()
        self.prefixes: list[str] = []

    def __call__(self, seen: Seen) -> Raw | dict[str, Any]:
        size = len(json.dumps(seen.body).encode())
        if size + 4 * seen.body.get("max_tokens", 0) > WINDOW:
            self.asked["refused"] += 1
            return refused(400, "This model's maximum context length is 7500 tokens.", "context_length_exceeded")
        usage = {"prompt_tokens": size // 4, "completion_tokens": 5, "total_tokens": size // 4 + 5}
        if seen.body["messages"][0]["content"].startswith("You plan"):
            return said('{"steps": ["Read all pages.", "Say what they are."]}', usage=usage)
        system = str(seen.body["messages"][0]["content"])
        if "tools" not in seen.body and not (self.code and "def read(" in system):
            self.asked["summaries"] += 1
            return said(f"Summary {self.asked['summaries']}: all pages so far are lorem ipsum.", usage=usage)
        self.prefixes.append(json.dumps(seen.body["messages"]))
        self.asked["rounds"] += 1
        if self.asked["rounds"] > self.rounds:
            return said("All pages are lorem ipsum.", usage=usage)
        if self.code:
            return said(f"{self.text}\n```python\nprint(read({self.asked['rounds']}))\n```", usage=usage)
        call = {"name": "read", "arguments": json.dumps({"page": self.asked["rounds"]})}
        ids = [f"c{self.asked['rounds']}-{n}" for n in range(self.calls)]
        calls = [{"id": id_, "type": "function", "function": call} for id_ in ids]
        return called(*calls, content=self.text, usage=usage)


def model_of(wire: Wire, window: int | None) -> OpenAIModel:
    return OpenAIModel("m", wire.url, profile=Profile(window=window))


async def assert_stable(server: Server, executor: Executor, run: Run, steps: int = 1) -> None:
    """Requests of a step begin with the one before them, byte for byte, except after the conversation was shortened."""
    taken = Counter(point.outcome for point in await executor.history(run.run_id))
    shortened, pairs = taken["compacted"] + taken["cleared"], list(pairwise(server.prefixes))
    changed = sum(not after.startswith(before[:-1]) for before, after in pairs)
    assert 0 < changed < shortened + steps, "between two summaries or clearings, providers can cache"
    assert not taken["compacted"] or taken["compacted"] < len(pairs) / 2


def swarm_of(**options: Any) -> Graph:
    return swarm({"reader": Member("pages", tools=[read]), "writer": Member("texts")}, **options)


BUILDERS: dict[str, Callable[..., Graph]] = {
    "react": react,
    "function_call_agent": function_call_agent,
    "chat": chat,
    "swarm": swarm_of,
}


@once
@pytest.mark.parametrize("context", ["compact", "clear"])
@pytest.mark.parametrize("window", [None, 7_500])
@pytest.mark.parametrize("name", BUILDERS)
async def test_hundreds_of_rounds_complete(name: str, window: int | None, context: str) -> None:
    rounds = sized(60, 200)
    server, graph = Server(rounds), BUILDERS[name](max_steps=500, context=context)
    with served(server) as wire:
        async with model_of(wire, window) as model, Executor(model=model, tools=[read]) as executor:
            run = await executor.start(graph, "Read all pages.", limits=Limits(steps=None))
            await assert_stable(server, executor, run)
    if name == "chat":
        assert run.waiting[0].prompt == "All pages are lorem ipsum."
    else:
        assert (run.status, run.output) == ("completed", "All pages are lorem ipsum.")
    assert server.asked["rounds"] == rounds + 1
    assert bool(server.asked["refused"]) == (window is None), "a known window is never exceeded"
    least, most = (rounds // 5, rounds) if context == "compact" else (sized(-1, 1), rounds // 10)
    assert least < server.asked["summaries"] < most, "lines of cleared results add up, too"
    assert run.state.messages[0].content == "Read all pages."


@once
@pytest.mark.parametrize("context", ["compact", "clear"])
@pytest.mark.parametrize("window", [None, 7_500])
async def test_the_steps_of_a_plan_are_kept_within_the_window(context: Any, window: int | None) -> None:
    server = Server(sized(30, 60))
    graph = plan_and_solve(max_rounds=100, context=context)
    with served(server) as wire:
        async with model_of(wire, window) as model, Executor(model=model, tools=[read]) as executor:
            run = await executor.start(graph, "Read all pages.")
            await assert_stable(server, executor, run, steps=2)
    assert (run.status, run.output) == ("completed", "All pages are lorem ipsum.")
    assert server.asked["refused"] > 5 if window is None else not server.asked["refused"]
    assert bool(server.asked["summaries"]) == (context == "compact" or window is not None)


@once
@pytest.mark.parametrize("context", ["compact", "clear"])
@pytest.mark.parametrize("window", [None, 7_500])
async def test_the_outputs_of_code_are_kept_within_the_window(context: Any, window: int | None) -> None:
    server = Server(40, code=True)
    with served(server) as wire:
        async with model_of(wire, window) as model, Executor(model=model, tools=[read]) as executor:
            run = await executor.start(code_act(100, context=context), "Read all pages.")
            await assert_stable(server, executor, run)
    assert (run.status, run.output) == ("completed", "All pages are lorem ipsum.")
    assert bool(server.asked["refused"]) == (window is None)
    assert run.state.messages[0].content == "Read all pages."


def test_every_strategy_that_keeps_a_conversation_is_here() -> None:
    builders = {name: getattr(import_module(f"orchestrator.strategies.{name}"), name) for name in shipped()}
    taking = {name for name, build in builders.items() if "context" in signature(build).parameters}
    wrapping = {name for name in taking if name not in BUILDERS}
    assert wrapping == {
        "code_act", "orchestrator_workers", "plan_and_execute", "plan_and_solve", "reflexion", "self_ask", "supervisor",
    }  # fmt: skip
    for name in wrapping - {"code_act", "supervisor"}:  # their conversations are those of these two, inside a node
        inside = [node.subgraph.name for node in builders[name]().nodes.values() if node.subgraph is not None]
        assert inside in (["function_call_agent"], ["react"])


@once
@pytest.mark.parametrize("context", ["compact", "clear"])
@pytest.mark.parametrize("name", BUILDERS)
async def test_refused_requests_are_no_steps(name: str, context: str) -> None:
    """With exactly the steps that it needs, a run completes however often its server refuses requests as too long."""
    server, rounds = Server(20), 20
    graph = BUILDERS[name](max_steps=rounds + 1, context=context)
    with served(server) as wire:
        async with model_of(wire, None) as model, Executor(model=model, tools=[read]) as executor:
            run = await executor.start(graph, "Read all pages.")
    said = run.waiting[0].prompt if name == "chat" else run.output
    assert (said, run.error) == ("All pages are lorem ipsum.", None)
    assert (server.asked["rounds"], server.asked["refused"] > 3) == (rounds + 1, True)


@once
@pytest.mark.parametrize("window", [None, 7_500])
@pytest.mark.parametrize("context", ["compact", "clear"])
@pytest.mark.parametrize("name", ["react", "function_call_agent"])
async def test_the_last_answer_of_a_long_conversation(name: str, context: str, window: int | None) -> None:
    """After the last step, too, a request that is too long is made again with a shorter conversation."""
    server = Server(99)
    for steps in range(3, 9):  # of some of them the conversation is too long just then
        server.asked.clear()
        graph = BUILDERS[name](max_steps=steps, context=context, last_answer=True)
        with served(server) as wire:
            async with model_of(wire, window) as model, Executor(model=model, tools=[read]) as executor:
                run = await executor.start(graph, "Read all pages.")
        assert run.error is None or run.error.type == "LimitSpent", run.error
        assert run.output.startswith("Summary"), steps


@once
async def test_a_known_window_keeps_room_for_the_reply() -> None:
    """The server counts `max_tokens` to the request, as many do: no request is refused for it."""
    server = Server(30)
    with served(server) as wire:
        async with (
            OpenAIModel("m", wire.url, profile=Profile(window=7_500), max_tokens=4_000) as model,
            Executor(model=model, tools=[read]) as executor,
        ):
            run = await executor.start(function_call_agent(max_steps=50), "Read all pages.")
    assert (run.status, run.output) == ("completed", "All pages are lorem ipsum.")
    assert (server.asked["refused"], server.asked["summaries"] > 9) == (0, True)


@once
async def test_one_round_of_many_calls_that_is_too_long_goes_on_with_half_of_each_result() -> None:
    server = Server(3, calls=8)
    with served(server) as wire:
        async with model_of(wire, None) as model, Executor(model=model, tools=[read]) as executor:
            run = await executor.start(react(), "Read all pages.")
    assert (run.status, run.output) == ("completed", "All pages are lorem ipsum.")
    results = [message.content for message in run.state.messages if message.role == "tool"]
    assert all(text.endswith("more characters were removed to save space]") for text in results)


@once
async def test_a_fork_that_shortens_the_texts_after_a_refusal_is_not_taken_as_refused() -> None:
    server = Server(6)
    with served(server) as wire:
        async with model_of(wire, None) as model, Executor(model=model, tools=[read]) as executor:
            run = await executor.start(function_call_agent(max_steps=50), "Read all pages.")
            (step,) = [point for point in await executor.history(run.run_id) if point.outcome == "compacted"]
            before: Run = await executor.load(run.run_id, at=step.seq - 1)
            texts = [one.model_copy(update={"content": one.content[:40]}) for one in before.state.messages]
            server.asked.clear()
            server.asked["rounds"] = 6
            fork = await executor.fork(run.run_id, at=step.seq - 1, update={"messages": replace(texts)})
    assert fork.status == "completed"
    assert (server.asked["summaries"], server.asked["refused"]) == (0, 0), "there was nothing left to shorten"


@once
@pytest.mark.parametrize("context", ["compact", "clear"])
@pytest.mark.parametrize("name", ["react", "function_call_agent", "swarm"])
async def test_a_run_that_died_at_the_window_goes_on_by_a_retry_under_the_new_graph(
    tmp_path: Path, name: str, context: str
) -> None:
    """`context="none"` is the graph as it was, with the same digests."""
    server, store = Server(30), f"sqlite:///{tmp_path}/runs.db"
    with served(server) as wire:
        async with model_of(wire, None) as model:
            old = BUILDERS[name](max_steps=50, context="none")
            async with Executor(store, model=model, tools=[read], graphs=[old]) as executor:
                run = await executor.start(old, "Read all pages.")
                assert run.status == "failed"
                assert run.error is not None
                assert run.error.type == "RequestTooLong"
            new = BUILDERS[name](max_steps=50, context=context)
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
            assert "There is no answer to that: compact: no part of the conversation" in run.waiting[0].prompt
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
@pytest.mark.parametrize("context", sized(["compact"], ["compact", "clear"]))
@pytest.mark.parametrize("build", [react, function_call_agent])
async def test_a_stop_at_every_write_of_a_compaction_loses_and_repeats_nothing(
    build: Callable[..., Graph], context: str
) -> None:
    replies = {"think": [*map(called_for, range(4)), "Done."], "compact": lambda request: "All lorem ipsum."}
    with Small(replies) as model:
        report = await assert_crash_safe(build(max_steps=9, context=context), "Read.", model=model, tools=[read])
    assert report.writes > 30
