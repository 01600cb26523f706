"""Many runs resumed at once: all that match, so many at a time, and what cannot go on is reported."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Limits, Update, node
from orchestrator.executor import ResumedRun
from orchestrator.stores.memory import MemoryStore
from tests.support.executors import Log, chain, counting, says

pytestmark = pytest.mark.anyio


class Bug:
    """Code that fails while it is there, and counts how many steps run at once."""

    def __init__(self) -> None:
        self.there, self.running, self.most = True, 0, 0

    def graph(self, name: str = "work") -> Graph:
        @node
        async def work(state: Log) -> Update:
            self.running += 1
            self.most = max(self.most, self.running)
            await anyio.sleep(0.005)
            self.running -= 1
            if self.there:
                raise ZeroDivisionError("a bug")
            return {"log": "work"}

        return chain(says("a"), work, name=name)


async def test_all_runs_that_match_go_on_so_many_at_a_time() -> None:
    bug, seen = Bug(), list[tuple[ResumedRun, int, int]]()
    graph, other = bug.graph(), bug.graph("other")
    async with Executor(MemoryStore(), graphs=[graph, other]) as executor:
        for number in range(8):
            await executor.start(graph, "?", run_id=f"run-{number}", labels={"half": str(number % 2)})
        await executor.start(other, "?", run_id="other")
        bug.there, bug.most = False, 0
        found = await executor.resume_all(
            "failed", graph="work", labels={"half": "1"}, retry=True, concurrency=2,
            on_progress=lambda one, done, total: seen.append((one, done, total)),
        )  # fmt: skip
        assert sorted(one.run_id for one in found.runs) == ["run-1", "run-3", "run-5", "run-7"]
        assert found.counts == {"completed": 4}
        assert not found.errors
        assert bug.most == 2
        assert [(done, total) for _, done, total in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
        assert {(one.before, one.status) for one, _, _ in seen} == {("failed", "completed")}
        rest = await executor.resume_all(("failed", "cancelled"), retry=True)
        assert sorted(one.run_id for one in rest.runs) == ["other", "run-0", "run-2", "run-4", "run-6"]
        assert (await executor.resume_all("failed", retry=True)).runs == ()


async def test_what_cannot_go_on_is_reported_and_holds_nothing_up() -> None:
    bug, store = Bug(), MemoryStore()
    graph, gone, spent = bug.graph(), bug.graph("gone"), counting(steps=2)
    async with Executor(store, graphs=[graph, gone]) as executor:
        for number in range(3):
            await executor.start(graph, "?", run_id=f"run-{number}")
        await executor.start(gone, "?", run_id="gone")
        await executor.start(spent, {"until": 4}, run_id="spent")
    bug.there = False
    async with Executor(store, graphs=[graph, spent]) as executor:
        found = await executor.resume_all(("failed", "exhausted"), retry=True)
        assert found.counts == {"completed": 3, "": 2}
        assert "GraphUnknown" in found.errors["gone"]
        assert "steps=2 are spent" in found.errors["spent"]
        raised = await executor.resume_all("exhausted", retry=True, limits=Limits(steps=9))
        assert raised.counts == {"completed": 1}


async def test_statuses_that_cannot_be_resumed_are_refused() -> None:
    async with Executor(MemoryStore()) as executor:
        for status, retry, why in (
            ("completed", True, "'completed' cannot be resumed"),
            ("faild", True, "'faild' cannot be resumed"),
            ((), True, "no status"),
            ("failed", False, "retry=True"),
        ):
            with pytest.raises(ValueError, match=why):
                await executor.resume_all(status, retry=retry)
        with pytest.raises(ValueError, match="concurrency=0"):
            await executor.resume_all("paused", concurrency=0)


async def test_runs_that_graph_tools_began_go_on_with_those_that_called_them() -> None:
    bug = Bug()
    inner = bug.graph("inner")

    @node
    async def call(ctx: Context[Any]) -> Update:
        return {"log": str((await ctx.tool("inner", question="?", check=True)).output)}

    graph = chain(call, name="caller")
    async with Executor(MemoryStore(), graphs=[graph], tools=[inner.as_tool("inner", "Works.")]) as executor:
        await executor.start(graph, "?", run_id="caller")
        bug.there = False
        found = await executor.resume_all("failed", retry=True)
        assert [one.run_id for one in found.runs] == ["caller"]
        assert {info.status for info in (await executor.runs()).runs} == {"completed"}
        assert len((await executor.runs()).runs) == 2
