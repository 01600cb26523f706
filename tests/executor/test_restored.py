"""A store that was restored from a backup: calls that its runs may have made since are asked about."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Update, Value, node
from orchestrator.errors import InvalidValue
from orchestrator.tools import tool

pytestmark = pytest.mark.anyio

LATER = datetime.now(UTC) + timedelta(days=1)
"""All runs of these tests are created before."""


class Bill(BaseModel):
    paid: list[str] = []


def bills(made: list[str], on_call: Callable[[int], Awaitable[None]], *, reconcile: bool = False) -> Graph:
    """A graph that pays three times; `made` is what the bank has."""

    @node
    async def pay(state: Bill, ctx: Context) -> Update:
        number = len(state.paid)
        await on_call(number)

        async def call() -> str:
            made.append(f"payment {number}")
            return f"receipt {number}"

        def find(key: str) -> str | None:
            return f"receipt {number}" if f"payment {number}" in made else None

        found = find if reconcile else None
        receipt = await ctx.effect(f"pay{number}", call, returns=str, effect="irreversible", reconcile=found)
        return {"paid": [*state.paid, receipt]}

    nodes = {f"pay{number}": pay for number in range(3)}
    return Graph(name="bills", state=Bill, nodes=nodes, edges="START -> pay0 -> pay1 -> pay2 -> END", output="paid")


async def nothing(_: int) -> None:
    return


@asynccontextmanager
async def backed_up(place: Path, made: list[str]) -> AsyncIterator[str]:
    """Yield the URL of a backup that was made before the second of three payments; the run has made all of them."""
    before, after = place / "before.db", place / "after.db"

    async def back_up(number: int) -> None:
        if number == 1:
            await anyio.sleep(0.05)  # what came before is durable
            with closing(sqlite3.connect(before)) as source, closing(sqlite3.connect(after)) as copy:
                source.backup(copy)

    async with Executor(f"sqlite:///{before}", graphs=[graph := bills(made, back_up)]) as executor:
        assert (await executor.start(graph, run_id="r")).status == "completed"
    assert made == ["payment 0", "payment 1", "payment 2"]
    yield f"sqlite:///{after}"


async def test_a_run_asks_about_each_call_that_the_backup_does_not_have(tmp_path: Path) -> None:
    made: list[str] = []
    async with (
        backed_up(tmp_path, made) as url,
        Executor(url, graphs=[bills(made, nothing)], restored_at=LATER) as executor,
    ):
        run = await executor.resume("r")
        for number in (1, 2):
            (asked,) = run.waiting
            assert (asked.kind, asked.payload["tool"], asked.payload["why"]) == (
                "unknown_outcome", f"pay{number}", "restored",
            )  # fmt: skip
            assert "restored from a backup" in asked.prompt
            run = await executor.answer("r", asked.id, Value(value={"choice": "happened", "result": f"known {number}"}))
        assert (run.status, run.output) == ("completed", ["receipt 0", "known 1", "known 2"])
    assert made == ["payment 0", "payment 1", "payment 2"]


async def test_a_fork_asks_about_a_call_that_was_approved_before_the_backup(tmp_path: Path) -> None:
    made: list[str] = []
    async with backed_up(tmp_path, made) as url:
        graph = bills(made, nothing)
        async with Executor(url, graphs=[graph], restored_at=LATER) as executor:
            fork = await executor.fork("r", run_id="f")
            (asked,) = fork.waiting
            await executor.answer("f", asked.id, Approve(), resume=False)  # the backup has this answer
        async with Executor(url, graphs=[graph], restored_at=LATER) as executor:
            fork = await executor.resume("f")
            (asked,) = fork.waiting
            assert (asked.kind, asked.payload["why"]) == ("unknown_outcome", "restored")
            said = {"choice": "happened", "result": "known 1"}
            fork = await executor.answer("f", asked.id, Value(value=said))
            (asked,) = fork.waiting  # of the next payment
            assert asked.kind == "approval"
        since = datetime.now(UTC)
        async with Executor(url, graphs=[graph], restored_at=since) as executor:
            assert (await executor.answer("f", asked.id, Approve())).status == "completed"  # approved after the restore
    assert made.count("payment 1") == 1
    assert made.count("payment 2") == 2


async def test_a_call_that_did_not_happen_is_made_after_the_answer(tmp_path: Path) -> None:
    made: list[str] = []
    async with backed_up(tmp_path, made) as url:
        made.remove("payment 2")
        for number, said in ((1, {"choice": "happened", "result": "known 1"}), (2, "retry")):
            async with Executor(url, graphs=[bills(made, nothing)], restored_at=LATER) as executor:  # another process
                run = await executor.resume("r")
                (asked,) = run.waiting
                assert asked.payload["tool"] == f"pay{number}"
                run = await executor.answer("r", asked.id, Value(value=said))
        assert (run.status, run.output) == ("completed", ["receipt 0", "known 1", "receipt 2"])
    assert made == ["payment 0", "payment 1", "payment 2"]


async def test_a_call_that_can_be_looked_up_is_not_asked_about(tmp_path: Path) -> None:
    made: list[str] = []
    graph = bills(made, nothing, reconcile=True)
    async with backed_up(tmp_path, made) as url, Executor(url, graphs=[graph], restored_at=LATER) as executor:
        made.remove("payment 2")
        assert (await executor.resume("r")).output == ["receipt 0", "receipt 1", "receipt 2"]
    assert made == ["payment 0", "payment 1", "payment 2"]


async def test_without_the_time_of_the_restore_such_calls_are_made_again(tmp_path: Path) -> None:
    made: list[str] = []
    async with backed_up(tmp_path, made) as url, Executor(url, graphs=[bills(made, nothing)]) as executor:
        assert (await executor.resume("r")).status == "completed"
    assert made.count("payment 2") == 2


async def test_runs_that_were_created_since_ask_nothing() -> None:
    made: list[str] = []
    graph = bills(made, nothing)
    async with Executor(graphs=[graph], restored_at=datetime.now(UTC) - timedelta(seconds=1)) as executor:
        assert (await executor.start(graph)).status == "completed"


async def test_a_graph_that_a_restored_run_calls_as_a_tool_asks_too(tmp_path: Path) -> None:
    made: list[str] = []

    @tool(effect="irreversible", risk="none")
    def transfer() -> str:
        """Transfer the money."""
        made.append("transfer")
        return "done"

    class Inner(BaseModel):
        said: str = ""

    @node
    async def inside(state: Inner, ctx: Context) -> Update:
        return {"said": str((await ctx.tool("transfer")).output)}

    @node
    async def outside(state: Inner, ctx: Context) -> Update:
        return {"said": str((await ctx.tool("inner")).output)}

    inner = Graph(name="inner", state=Inner, nodes={"in": inside}, edges="START -> in -> END", output="said")
    outer = Graph(name="outer", state=Inner, nodes={"out": outside}, edges="START -> out -> END", output="said")
    tools = [transfer, inner.as_tool(name="inner", description="Transfers.")]
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[outer, inner], tools=tools) as executor:
        await executor.enqueue(outer, run_id="r")
    async with Executor(url, graphs=[outer, inner], tools=tools, restored_at=LATER) as executor:
        run = await executor.resume("r")
        while run.status == "paused":  # the inner run is as new as this process
            (asked,) = run.waiting
            assert made == []
            assert asked.payload["tool"] in ("transfer", "inner")
            # by the time of the restore, which is to come, its approval is from before
            answer = Value(value="retry") if asked.kind == "unknown_outcome" else Approve()
            run = await executor.answer("r", asked.id, answer)
        assert (run.status, made) == ("completed", ["transfer"])


def test_another_kind_of_time_is_refused() -> None:
    with pytest.raises(InvalidValue, match="restored_at"):
        Executor(restored_at=17.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"restored_at=.* has no time zone"):
        Executor(restored_at=datetime(2026, 11, 30))
    with pytest.raises(ValueError, match=r"restored_at='soon': use an age .* or a date"):
        Executor(restored_at="soon")


@pytest.mark.parametrize("said", ["2999-01-01", "2999-01-01T08:00", "2999-01-01T08:00Z"])
async def test_a_time_can_be_given_as_commands_read_it(tmp_path: Path, said: str) -> None:
    made: list[str] = []
    async with (
        backed_up(tmp_path, made) as url,
        Executor(url, graphs=[bills(made, nothing)], restored_at=said) as executor,
    ):
        run = await executor.resume("r")
        assert run.waiting[0].kind == "unknown_outcome"
