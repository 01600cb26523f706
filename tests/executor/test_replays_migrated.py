"""Replays of runs that moved to another version of their graph: in either version, without a call."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Run, Update, append, node, tool
from orchestrator.graph import Migration
from orchestrator.models.base import ModelRequest
from orchestrator.nodes import Ask, Subgraph
from orchestrator.stores import Store
from orchestrator.testing import ScriptedModel, assert_replays
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class Old(BaseModel):
    topic: str = ""
    note: str = ""
    parts: list[str] = []
    log: Annotated[list[str], append] = []


class New(BaseModel):
    topic: str = ""
    remark: str = ""
    pieces: list[str] = []
    tone: str = "dry"
    log: Annotated[list[str], append] = []


class Inner(BaseModel):
    topic: str = ""
    text: str = ""


@node
async def writes(state: Inner, ctx: Context[Any]) -> Update:
    return {"text": (await ctx.model.complete(f"write {state.topic}")).text}


def asks(prompt: str) -> Any:
    @node
    async def ask(state: Any, ctx: Context[Any]) -> Update:
        words = prompt.format(topic=state.topic, item=ctx.item, log=state.log)
        return {"log": (await ctx.model.complete(words)).text}

    return ask


@tool(effect="irreversible", risk="none")
async def pay(what: str) -> str:
    """Pay."""
    return f"paid {what}"


@node
async def pays(state: Any, ctx: Context[Any]) -> Update:
    return {"log": str((await ctx.tool("pay", what=state.topic)).output)}


def splits(field: str) -> Any:
    @node
    async def split() -> Update:
        return {field: ["a", "b"]}

    return split


def version(state: type[BaseModel], names: dict[str, str]) -> Graph:
    """A graph with a subgraph, branches, a map, a question in the middle, and the like behind it."""
    name = {one: names.get(one, one) for one in ("draft", "write", "left", "right", "split", "part", "ask", "polish")}
    inner = Graph(
        name="inner", state=Inner, nodes={name["write"]: writes},
        edges=f"START -> {name['write']} -> END", input="topic", output="text",
    )  # fmt: skip
    return Graph(
        name="g", state=state, input="topic", output="log",
        nodes={
            name["draft"]: Subgraph(graph=inner, inputs={"topic": "topic"}, outputs={"log": "text"}),
            name["left"]: asks("left {topic}"), name["right"]: pays,
            name["split"]: splits(names.get("parts", "parts")).with_(join="all"),
            name["part"]: asks("part {item}"),
            name["ask"]: Ask(prompt="?", answer=names.get("note", "note"), join="all"),
            name["polish"]: asks("polish {log}"),
        },
        edges=f"""
            START -> {name["draft"]} -> {name["left"]}, {name["right"]} -> {name["split"]}
            {name["split"]} -> {name["part"]} : each {names.get("parts", "parts")}
            {name["part"]} -> {name["ask"]} -> {name["polish"]} -> END
        """,
    )  # fmt: skip


NAMES = {
    "draft": "sketch", "write": "pen", "left": "one", "right": "two", "split": "cut", "part": "piece", "ask": "confirm",
    "polish": "shine", "note": "remark", "parts": "pieces",
}  # fmt: skip
OLD, NEW = version(Old, {}), version(New, NAMES)
MOVE = Migration(
    nodes={
        "draft": "sketch", "draft/write": "sketch/pen", "left": "one", "right": "two", "split": "cut", "part": "piece",
        "ask": "confirm", "polish": "shine",
    },
    state={"remark": "note", "pieces": "parts"},
)  # fmt: skip


def echo(request: ModelRequest) -> str:
    return f"re: {request.messages[-1].content}"


async def moved(store: Store, *, answered: bool = True) -> Run:
    """A run that began in the old version, and ended in the new one."""
    async with Executor(store, graphs=[OLD], model=ScriptedModel(echo), tools=[pay]) as executor:
        assert (await executor.start(OLD, "tea", run_id="r")).status == "paused"
    async with Executor(store, graphs=[NEW], model=ScriptedModel(echo), tools=[pay]) as executor:
        run = await executor.resume("r", migrate=MOVE)
        assert run.status == "paused"
        if answered:
            run = await executor.answer("r", run.waiting[0].id, "ok")
            assert run.status == "completed"
    return run


@pytest.mark.parametrize(
    ("graphs", "at", "taken"),
    [
        ([NEW], None, 1), ([NEW, OLD], None, 1), ([OLD], None, 6),
        ([NEW], 0, 6), ([NEW, OLD], 0, 6), ([OLD], 0, 6),
    ],
    ids=["new", "both", "old", "new from the start", "both from the start", "old from the start"],
)  # fmt: skip
async def test_a_migrated_run_replays_in_either_version(
    store: Store, graphs: list[Graph], at: int | None, taken: int
) -> None:
    run = await moved(store)
    async with Executor(store, graphs=graphs, tools=[pay]) as executor:  # without a model
        replay = await executor.replay("r", at=at)
        assert replay.same, f"{replay.diverged_at}\n{replay.diff.to_text()}"
        assert (replay.status, replay.made, replay.saved.calls) == ("completed", 0, taken)
        assert replay.run.output == run.output
        again = await executor.replay(replay.run.run_id)
        assert (again.same, again.made, again.saved.calls) == (True, 0, taken)


async def test_a_migrated_run_replays_from_every_record_in_the_version_that_it_had_there(store: Store) -> None:
    run = await moved(store)
    moves = next(record.seq for record in run.records() if record.type == "migrated")
    for graph, places in ((OLD, range(1, moves)), (NEW, range(moves, run.seq))):
        async with Executor(store, graphs=[graph], tools=[pay]) as executor:
            for at in places[:: sized(4, 1)]:
                replay = await executor.replay("r", at=at)
                assert replay.same, f"{at} {replay.diverged_at}\n{replay.diff.to_text()}"
                assert replay.made == 0


async def test_a_migrated_run_that_waits_replays_in_either_version_to_its_question(store: Store) -> None:
    await moved(store, answered=False)
    for graph in (NEW, OLD):
        async with Executor(store, graphs=[graph], tools=[pay]) as executor:
            for at in (None, 0):
                replay = await executor.replay("r", at=at)
                assert (replay.status, replay.same, replay.made) == ("paused", True, 0), replay.diff.to_text()


async def test_another_prompt_behind_a_migration_diverges_and_one_before_it_is_not_asked(store: Store) -> None:
    await moved(store)
    nodes = {**NEW.nodes, "one": asks("LEFT {topic}")}
    before = NEW.model_copy(update={"nodes": nodes})
    behind = NEW.model_copy(update={"nodes": {**NEW.nodes, "shine": asks("SHINE {log}")}})
    async with Executor(store, graphs=[NEW], tools=[pay]) as executor:
        assert (await executor.replay("r", before)).same
        replay = await executor.replay("r", before, at=0)
        assert (replay.status, replay.diverged_at and replay.diverged_at.node) == ("diverged", "one")
        replay = await executor.replay("r", behind)
        assert (replay.status, replay.diverged_at and replay.diverged_at.node) == ("diverged", "shine")


async def test_a_fork_that_migrated_replays_behind_its_migration_and_from_the_start(store: Store) -> None:
    async with Executor(store, graphs=[OLD], model=ScriptedModel(echo), tools=[pay]) as executor:
        run = await executor.start(OLD, "tea", run_id="r")
    async with Executor(store, graphs=[NEW], model=ScriptedModel(echo), tools=[pay]) as executor:
        fork = await executor.fork("r", at=run.seq, migrate=MOVE)
        fork = await executor.answer(fork.run_id, fork.waiting[0].id, "ok")
        assert fork.status == "completed"
        for at in (None, 0):
            replay = await executor.replay(fork.run_id, at=at)
            assert replay.same, replay.diff.to_text()
            assert replay.made == 0


async def test_a_step_at_which_a_run_moved_has_its_new_name(store: Store) -> None:
    run = await moved(store)
    asked = [record.seq for record in run.records() if record.type == "answered"]
    async with Executor(store) as executor:
        found = await executor.load("r")
        assert [step.step for step in found.why(asked[0]).steps] == ["confirm"]
        assert [step.step for step in found.why(5).steps] == ["draft/write"]  # it ended before


async def test_migrated_runs_are_regression_tests_too(store: Store) -> None:
    await moved(store)
    await assert_replays(store, NEW, ["r"], tools=[pay])
