"""Deleting runs: with the runs that their calls began, never with others, and never one that is driven."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Update, node
from orchestrator.errors import RunConflict, RunUnknown
from orchestrator.executor import lease as leases
from orchestrator.nodes import Ask

pytestmark = pytest.mark.anyio


class State(BaseModel):
    word: str = ""
    reply: str = ""


def calling(name: str, *tools: str) -> Graph:
    """A graph that calls tools, and waits at last if it is the innermost."""

    @node
    async def work(ctx: Context[Any]) -> Update:
        return {"reply": " ".join([str((await ctx.tool(tool, word="a")).output) for tool in tools]) or name}

    return Graph(name=name, state=State, nodes={"work": work}, edges="START -> work -> END", input="word",
                 output="reply")  # fmt: skip


def family() -> tuple[Graph, list[Any]]:
    """A graph that calls another one twice, which calls a third."""
    inner, middle = calling("inner"), calling("middle", "inner_tool")
    outer = calling("outer", "middle_tool", "middle_tool")
    return outer, [inner.as_tool("inner_tool", "x"), middle.as_tool("middle_tool", "x")]


@pytest.fixture(params=["memory://", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else str(request.param)


async def ids(executor: Executor) -> set[str]:
    return {info.run_id for info in (await executor.runs(limit=500)).runs}


async def test_runs_that_its_calls_began_are_deleted_with_a_run_and_no_others(url: str) -> None:
    outer, tools = family()
    async with Executor(url, graphs=[outer], tools=tools) as executor:
        await executor.start(outer, "x", run_id="kept")
        await executor.start(outer, "x", run_id="labelled", labels={"parent": "r"})
        kept = await ids(executor)
        await executor.start(outer, "x", run_id="r")
        own = await ids(executor) - kept
        deleted = await executor.delete("r")
        assert deleted[0] == "r"
        assert len(deleted) == 5  # two calls, each with one of its own
        assert set(deleted) == own
        assert await ids(executor) == kept
        with pytest.raises(RunUnknown):
            await executor.delete("r")
        run = await executor.start(outer, "x", run_id="r")
        assert (run.status, run.output) == ("completed", "inner inner")


async def test_they_stay_where_that_is_asked_for(url: str) -> None:
    outer, tools = family()
    async with Executor(url, graphs=[outer], tools=tools) as executor:
        await executor.start(outer, "x", run_id="r")
        assert await executor.delete("r", children=False) == ["r"]
        assert len(await ids(executor)) == 4


async def test_a_run_that_is_driven_is_refused_and_so_is_one_whose_child_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    asks = Graph(name="asks", state=State, nodes={"ask": Ask(prompt="?", answer="reply")},
                 edges="START -> ask -> END", input="word", output="reply")  # fmt: skip
    outer = calling("outer", "asks_tool")
    held, go = anyio.Event(), anyio.Event()

    @node
    async def hold() -> Update:
        held.set()
        await go.wait()
        return {"reply": "held"}

    holding = Graph(name="asks", state=State, nodes={"ask": hold}, edges="START -> ask -> END", input="word",
                    output="reply")  # fmt: skip
    async with Executor(url, graphs=[outer, asks], tools=[asks.as_tool("asks_tool", "x")]) as executor:
        await executor.start(outer, "x", run_id="r")
        (child,) = (await ids(executor)) - {"r"}
        async with Executor(url, graphs=[holding]) as other, anyio.create_task_group() as tasks:
            await other.submit(holding, "x", run_id="driven")
            await held.wait()
            for one in (executor, other):
                with pytest.raises(RunConflict, match="driven"):
                    await one.delete("driven")
            # the child is held by somebody, as if it were just driven
            lease = await leases.take(other._host.presence, child)
            with pytest.raises(RunConflict, match=child):
                await executor.delete("r")
            assert await ids(executor) == {"r", child, "driven"}
            assert await executor.store.lease("r") is None
            await leases.give_back(other.store, child, lease.token)
            assert await executor.delete("r") == ["r", child]
            go.set()
            assert (await other.wait("driven")).status == "completed"
            tasks.cancel_scope.cancel()
        assert await executor.delete("driven") == ["driven"]


async def test_a_damaged_run_is_deleted_too(tmp_path: Path) -> None:
    outer, tools = family()
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[outer], tools=tools) as executor:
        run = await executor.start(outer, "x", run_id="r")
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        ((number,),) = connection.execute("SELECT id FROM runs WHERE run_id = 'r'").fetchall()
        connection.execute("UPDATE records SET data = 'x' WHERE id = ?", (number << 32 | run.seq,))
    connection.close()
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        assert len(await executor.delete("r")) == 5
        assert await ids(executor) == set()


async def test_of_a_deletion_that_broke_off_the_rest_is_deleted_later(url: str) -> None:
    outer, tools = family()
    async with Executor(url, graphs=[outer], tools=tools) as executor:
        await executor.start(outer, "x", run_id="r")
        innermost = (await executor.runs(limit=100)).runs[0].run_id
        await executor.store.delete(innermost)  # they go first: a process that died then has left the others
        assert len(await executor.delete("r")) == 4
        assert await ids(executor) == set()
