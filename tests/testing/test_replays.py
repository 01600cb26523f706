"""Recorded runs as regression tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Update, node
from orchestrator.models.base import ModelRequest
from orchestrator.stores import open_store
from orchestrator.strategies import react, tool_user
from orchestrator.testing import ScriptedModel, assert_replays, assert_replays_sync
from orchestrator.tools import tools_from_ref
from tests.support.sizes import quick_on, sized


class Essay(BaseModel):
    topic: str = ""
    notes: str = ""
    text: str = ""


def essay(prompt: str = "Write about", notes: str = "Notes on") -> Graph:
    @node
    async def note(state: Essay, ctx: Context) -> Update:
        return {"notes": (await ctx.model.complete(f"{notes} {state.topic}")).text}

    @node
    async def write(state: Essay, ctx: Context) -> Update:
        return {"text": (await ctx.model.complete(f"{prompt} {state.topic}: {state.notes}")).text}

    return Graph(
        name="essay", state=Essay, input="topic", output="text", nodes={"note": note, "write": write},
        edges="START -> note -> write -> END",
    )  # fmt: skip


def echo(request: ModelRequest) -> str:
    return request.messages[-1].content.upper()


async def _recorded(url: str, count: int) -> list[str]:
    store = open_store(url)
    async with Executor(store, graphs=[essay()], model=ScriptedModel(echo)) as executor:
        runs = [(await executor.start("essay", f"topic {number}")).run_id for number in range(count)]
    await store.close()
    return runs


@quick_on("trio")
@pytest.mark.anyio
async def test_a_hundred_recorded_runs_of_several_strategies_replay_without_a_call(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    tools = tools_from_ref("arithmetic")
    from orchestrator import OfflineModel

    graphs = (tool_user.graph, react.graph)
    count = sized(2, 50)
    for graph in graphs:
        async with Executor(store, graphs=[graph], model=OfflineModel(), tools=tools) as executor:
            for number in range(count):
                await executor.start(graph, f"What is {number}+(2*4)?", approve="none")
    for graph in graphs:
        replays = await assert_replays(store, graph, tools=tools)
        assert len(replays) == count
        assert sum(one.made for one in replays) == 0
        assert all(one.saved.calls == one.parent.usage.calls > 0 for one in replays)
    again = await assert_replays(store, react.graph, tools=tools)  # not the replays of before
    assert len(again) == count
    await store.close()


@pytest.mark.anyio
async def test_a_changed_prompt_fails_with_a_table_and_the_first_differences(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    runs = await _recorded(url, 7)
    assert [one.parent.run_id for one in await assert_replays(url, essay())] == runs
    with pytest.raises(AssertionError) as failed:
        await assert_replays(url, essay("Tell me about"))
    said = str(failed.value)
    assert said.startswith("7 of 7 runs do something else when they are replayed:")
    assert "diverged at write: model scripted" in said
    assert "-Write about topic 0: NOTES ON TOPIC 0" in said
    assert "+Tell me about topic 0: NOTES ON TOPIC 0" in said
    assert "… and 2 more" in said
    with pytest.raises(AssertionError, match="1 of 2 runs"):
        await assert_replays(url, _odd(), runs[:2])


def _odd() -> Graph:
    plain = essay()

    @node
    async def write(state: Essay, ctx: Context) -> Update:
        prompt = "Write about" if state.topic == "topic 0" else "Write of"
        return {"text": (await ctx.model.complete(f"{prompt} {state.topic}: {state.notes}")).text}

    return plain.model_copy(update={"nodes": {**plain.nodes, "write": write}})


@pytest.mark.anyio
async def test_other_ways_to_the_same_answer_are_accepted_on_request(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    runs = await _recorded(url, 2)

    async def always(request: ModelRequest) -> str:
        said = request.messages[-1].content
        return said.upper().replace("JOT DOWN", "NOTES ON")

    changed, model = essay(notes="Jot down"), ScriptedModel(always)
    with pytest.raises(AssertionError):
        await assert_replays(url, changed, runs, model=model, live="always")
    replays = await assert_replays(url, changed, runs, model=model, live="always", answers_only=True)
    assert [one.made for one in replays] == [2, 2]


def test_it_can_be_used_without_an_event_loop(tmp_path: Path) -> None:
    import anyio

    url = f"sqlite:///{tmp_path}/runs.db"
    runs = anyio.run(_recorded, url, 2)
    assert len(assert_replays_sync(url, essay(), runs)) == 2
    with pytest.raises(AssertionError, match="2 of 2"):
        assert_replays_sync(url, essay("Tell me about"))
    with pytest.raises(AssertionError, match="no such runs"):
        assert_replays_sync(url, essay(), labels={"nothing": "here"})
