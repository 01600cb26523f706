"""Among many runs a list costs what it costs among few: steps of SQLite's virtual machine, not seconds, are counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import orchestrator.stores.sqlite.listing as listing
from orchestrator import Context, Executor, Update, tool
from orchestrator.errors import ToolError
from orchestrator.nodes import Ask
from orchestrator.stores.sqlite import SQLiteStore
from tests.support.executors import chain, says, single
from tests.support.many_runs import copied
from tests.support.sizes import quick_on, sized

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]
T = TypeVar("T")
FEW, MANY = 500, sized(2500, 5000)
SAMPLES = ("asks", *["done"] * 6, "broken", "failed", "other")
"""The runs that are copied in turn: a tenth waits, fails, or has a tool that failed."""


class Steps:
    """Counts what readers of a store ask of SQLite's virtual machine, in tens of instructions."""

    def __init__(self, store: SQLiteStore) -> None:
        self.count = 0
        read = store._readers.read_now

        def counted(action: Callable[[sqlite3.Connection], T]) -> T:
            def watched(connection: sqlite3.Connection) -> T:
                connection.set_progress_handler(self._step, 10)
                try:
                    return action(connection)
                finally:
                    connection.set_progress_handler(None, 0)

            return read(watched)

        store._readers.read_now = counted  # type: ignore[method-assign]

    def _step(self) -> int:
        self.count += 1
        return 0


@tool(effect="idempotent")
async def refuse() -> str:
    """Refuse."""
    raise ToolError("no")


async def filled(executor: Executor) -> None:
    """The runs that are copied."""

    async def calls(ctx: Context[Any]) -> Update:
        await ctx.tool("refuse")
        return {"log": "done"}

    async def breaks() -> Update:
        raise RuntimeError("broken")

    asking = chain(says("a"), Ask(prompt="Go on?", answer="question"), name="asking")
    await executor.start(asking, run_id="asks")
    await executor.start(chain(says("a"), says("b")), "an umbrella", run_id="done")
    await executor.start(single(calls, name="calls"), run_id="broken")
    await executor.start(single(breaks, name="breaks"), run_id="failed")
    await executor.start(chain(says("a"), name="rare"), run_id="other")


LISTS: dict[str, dict[str, Any]] = {
    "all": {}, "running": {"status": "running"}, "interrupted": {"status": "interrupted"},
    "paused": {"status": "paused"}, "several": {"status": ["failed", "completed", "paused"]},
    "graph": {"graph": "chain"}, "no graph": {"graph": "none"},
    "graph and status": {"graph": "asking", "status": "paused"},
    "wrong graph and status": {"graph": "asking", "status": "failed"},
    "label": {"labels": {"team": "t3"}},
    "labels": {"labels": {"team": "t0", "rare": "yes"}}, "no label": {"labels": {"team": "none"}},
    "label and status": {"labels": {"team": "t3"}, "status": "completed"}, "waiting": {"waiting": True},
    "waiting and over": {"waiting": True, "status": "cancelled"}, "failed tool": {"failed_tool": "*"},
    "failed tool of a name": {"failed_tool": "refuse"}, "no failed tool": {"failed_tool": "none"},
    "parent": {"parent": "done"}, "forks of one": {"parent": "done", "relation": "fork"},
    "forks": {"relation": "fork"}, "one word": {"search": "umbrella 77"},
    "no word": {"search": "nothing"}, "word and status": {"search": "1777", "status": "completed"},
}  # fmt: skip
QUESTIONS: dict[str, dict[str, Any]] = {
    "questions": {}, "kinds": {"kinds": ["approval", "input"]}, "other kinds": {"kinds": ["timer"]},
    "questions of a label": {"labels": {"rare": "yes"}}, "questions of no graph": {"graph": "none"},
}  # fmt: skip


@pytest.mark.full
async def test_a_page_of_any_list_costs_no_more_among_many_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "COUNTED", 50)  # fewer runs are looked up one by one, more are met on a walk
    async with Executor(f"sqlite:///{tmp_path}/runs.db", tools=[refuse]) as executor:
        store = executor.store
        assert isinstance(store, SQLiteStore)
        await filled(executor)
        steps = Steps(store)

        async def costs() -> dict[str, int]:
            await executor.runs(search="umbrella")  # brings the index up to date
            found = {}
            for name, filters in LISTS.items():
                steps.count = 0
                page = await executor.runs(**filters, limit=20)
                found[name] = steps.count
                if page.cursor is not None:
                    steps.count = 0
                    await executor.runs(**filters, limit=20, after=page.cursor)
                    found[f"{name}: next"] = steps.count
            for name, filters in QUESTIONS.items():
                steps.count = 0
                await executor.questions(**filters, limit=20)
                found[name] = steps.count
            return found

        await copied(store, SAMPLES, FEW)
        few = await costs()
        await copied(store, SAMPLES, MANY - FEW, first=FEW)
        many = await costs()
        grown = {name: (few.get(name), cost) for name, cost in many.items() if cost > 1.5 * few.get(name, 0) + 100}
        assert grown == {}


@pytest.mark.full
async def test_sums_of_many_runs_are_those_of_the_runs_and_no_statement_grows_with_their_parts(tmp_path: Path) -> None:
    async with Executor(f"sqlite:///{tmp_path}/runs.db", tools=[refuse]) as executor:
        store = executor.store
        assert isinstance(store, SQLiteStore)
        await filled(executor)
        await copied(store, SAMPLES, FEW)
        steps = Steps(store)
        whole = await executor.stats()
        for by in ("tool", "node", ("graph", "node")):
            steps.count = 0
            rows = await executor.stats(by)
            # one row of SQLite for each run, whatever it did
            assert steps.count * 10 <= 30 * (FEW + len(SAMPLES)), by
            assert rows
        nodes = {row.group["node"]: row for row in await executor.stats("node")}
        done = sum(SAMPLES[number % len(SAMPLES)] == "done" for number in range(FEW)) + 1
        assert nodes["n1"].runs == done + FEW // len(SAMPLES) + 1  # `asks` has a second node, too
        assert whole[0].runs == FEW + 5
        assert nodes["work"].failed_tool_calls == whole[0].failed_tool_calls == FEW // len(SAMPLES) + 1
