"""Replays of runs that have not ended, or not well: each stops where the run stands."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Limits, Run, Update, node, tool
from orchestrator.executor import Replay
from orchestrator.graph import Node
from orchestrator.models.base import ModelRequest
from orchestrator.nodes import Ask, Sleep, Wait
from orchestrator.stores import Store
from orchestrator.testing import ScriptedModel
from tests.executor.test_replay import Log as State
from tests.executor.test_replay import chain as asking
from tests.executor.test_replay import taken
from tests.support.executors import chain

pytestmark = pytest.mark.anyio


@tool(effect="read", risk="none")
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@node
async def looks(ctx: Context[Any]) -> Update:
    return {"log": str((await ctx.tool("look", what="tea")).output)}


@node
async def fails() -> Update:
    raise ZeroDivisionError("a bug")


INNER = Graph(
    name="inner", state=State, nodes={"ask": Ask(prompt="Which?", answer="answer")}, edges="START -> ask -> END",
    input="topic", output="answer",
)  # fmt: skip


@node
async def calls(ctx: Context[Any]) -> Update:
    return {"log": str((await ctx.tool("inner", topic="tea")).output)}


STOPS: dict[str, tuple[tuple[Node, ...], str]] = {
    "at a question": ((looks, Ask(prompt="?", answer="question"), looks), "paused"),
    "at a timer": ((looks, Sleep(seconds=5_000), looks), "paused"),
    "at an event": ((looks, Wait(event="paid"), looks), "paused"),
    "at a question inside a graph as a tool": ((looks, calls, looks), "paused"),
    "failed": ((looks, fails, looks), "failed"),
    "exhausted": ((looks, looks, looks, looks), "exhausted"),
}


async def replayed(executor: Executor, run_id: str) -> Replay:
    """The replay, which is the same from each record from which the step in question begins as it did."""
    replay = await executor.replay(run_id)
    assert replay.same, f"{replay.diverged_at}\n{replay.diff.to_text()}"
    assert replay.made == 0
    again = await executor.replay(replay.run.run_id)
    assert (again.same, again.made, again.status) == (True, 0, replay.status)
    return replay


@pytest.mark.parametrize("where", STOPS)
async def test_the_replay_of_a_run_that_stands_somewhere_stops_there(store: Store, where: str) -> None:
    nodes, status = STOPS[where]
    graph = chain(*nodes)
    limits = Limits(steps=3) if status == "exhausted" else None
    tools = [look, INNER.as_tool("inner", "Ask.")]
    async with Executor(store, graphs=[graph], tools=tools, idle="sleep") as executor:
        run = await executor.start(graph, {}, limits=limits)
        assert run.status == status
        replay = await replayed(executor, run.run_id)
    assert replay.status == status
    assert [one.kind for one in replay.run.waiting] == [one.kind for one in run.waiting]
    assert replay.run.values["log"] == run.values["log"]


async def test_the_replay_of_a_run_that_stands_at_a_breakpoint_is_live_behind_it(store: Store) -> None:
    graph = asking("one {topic}", "two {log}")
    async with Executor(store, graphs=[graph], model=ScriptedModel(lambda _: "done")) as executor:
        run = await executor.start(graph, "tea", pause_before={"n1"})
        assert run.status == "paused"
        replay = await executor.replay(run.run_id)
    assert (replay.status, str(replay.diverged_at), replay.made) == ("diverged", "n1: model scripted", 0)
    assert taken(replay) == ["n0"]


@pytest.mark.parametrize("pauses", [{"pause_before": {"n0", "n1"}}, {"pause_after": {"n0"}, "pause_before": {"n2"}}])
async def test_a_run_that_went_through_breakpoints_replays_to_its_end_without_a_call(
    store: Store, pauses: dict[str, Any]
) -> None:
    graph = asking("one {topic}", "two {log}", "three {log}")
    async with Executor(store, graphs=[graph], model=ScriptedModel(lambda _: "done")) as executor:
        run = await executor.start(graph, "tea", **pauses)
        times = 0
        while run.status == "paused":
            run, times = await executor.resume(run.run_id), times + 1
        assert (run.status, times) == ("completed", 2)
        await replays_to_the_end(executor, run)


async def test_a_run_that_a_user_paused_and_resumed_replays_to_its_end_without_a_call(store: Store) -> None:
    reached, paused = anyio.Event(), anyio.Event()

    async def slow(request: ModelRequest) -> str:
        if request.messages[-1].content.startswith("two") and not paused.is_set():
            reached.set()
            await paused.wait()
        return "done"

    graph = asking("one {topic}", "two {log}", "three {log}")
    async with Executor(store, graphs=[graph], model=ScriptedModel(slow)) as executor:
        run_id = await executor.submit(graph, "tea")
        await reached.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.pause, run_id)
            async for event in executor.events(run_id, follow=True):
                if event.type == "paused":
                    break
            paused.set()
        assert (await executor.wait(run_id)).status == "paused"
        behind = await executor.replay(run_id)
        assert (behind.status, str(behind.diverged_at), behind.made) == ("diverged", "n2: model scripted", 0)
        run = await executor.resume(run_id)
        assert run.status == "completed"
        await replays_to_the_end(executor, run)


async def replays_to_the_end(executor: Executor, run: Run) -> None:
    """A replay from the beginning, and from each record, is the same, without a call."""
    for at in (None, *range(1, run.seq)):
        replay = await executor.replay(run.run_id, at=at)
        assert (replay.same, replay.made, replay.status) == (True, 0, "completed"), (at, replay.diverged_at)
    assert (await executor.replay(run.run_id)).saved.calls == run.usage.calls


async def test_the_replay_of_a_run_that_was_interrupted_in_a_call_ends_at_this_call(store: Store) -> None:
    reached = anyio.Event()

    async def slow(request: ModelRequest) -> str:
        if request.messages[-1].content.startswith("two"):
            reached.set()
            await anyio.sleep_forever()
        return "done"

    graph = asking("one {topic}", "two {log}")
    async with Executor(store, graphs=[graph], model=ScriptedModel(slow)) as executor:
        run_id = await executor.submit(graph, "tea")
        await reached.wait()
    async with Executor(store, graphs=[graph], model=ScriptedModel(lambda _: "done")) as executor:
        assert (await executor.load(run_id)).status == "interrupted"
        never = await executor.replay(run_id)
        assert (never.status, never.same, never.made) == ("diverged", False, 0)
        assert never.diverged_at is not None
        assert never.diverged_at.why == "the replayed run has no result for it"
        always = await executor.replay(run_id, live="always")
        assert (always.status, always.made, always.saved.calls) == ("completed", 1, 1)
