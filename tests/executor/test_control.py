"""Commands whose outcome is told by somebody else: the drive of this executor, or the holder of the run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Update, node
from orchestrator.errors import StaleAnswer, StoreError
from orchestrator.stores import open_store
from orchestrator.stores.base import Message
from orchestrator.stores.sqlite import SQLiteStore
from tests.executor.test_processes import until
from tests.support.executors import Log, says

pytestmark = pytest.mark.anyio


@node
async def ask(state: Log, ctx: Context) -> Update:
    """Wait for a person."""
    return {"log": (await ctx.ask("input", prompt="go on?")).value}


def beside(gate: anyio.Event) -> Graph:
    """One branch asks, another one works until the gate opens."""
    return Graph(
        name="beside", state=Log,
        nodes={"begin": says("begun"), "ask": ask, "work": says("worked", gate.wait), "end": says("end", join="all")},
        edges="START -> begin -> ask, work\nask, work -> end -> END", output="log",
    )  # fmt: skip


class Slow(SQLiteStore):
    """Its reader sees a message, and goes on when the run that it was for has moved on."""

    gate: anyio.Event

    async def inbox(self, run_ids: object) -> list[Message]:
        found = await super().inbox(run_ids)  # type: ignore[arg-type]
        if found:
            self.gate.set()
            await until(partial(self._given_back, found[0].run_id))
        return found

    async def _given_back(self, run_id: str) -> bool:
        records = await self.read(run_id)
        return any(record.type == "ended" for record in records) and await self.lease(run_id) is None


async def _asked(executor: Executor) -> str:
    while True:
        run = await executor.load("r")
        if run.waiting:
            return run.waiting[0].id
        await anyio.sleep(0.01)


@pytest.mark.parametrize("act", ["answer", "cancel"])
async def test_what_the_holder_took_just_before_it_ended_the_run_counts(tmp_path: Path, act: str) -> None:
    gate = anyio.Event()
    graph = beside(gate)
    slow = Slow(tmp_path / "runs.db")
    slow.gate = gate
    async with (
        Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[graph]) as holder,
        Executor(slow, graphs=[graph]) as executor,
    ):
        await holder.submit(graph, run_id="r")
        question = await _asked(executor)
        if act == "answer":
            run = await executor.answer("r", question, "yes", by="ann")
            assert run.status == "completed"
            with pytest.raises(StaleAnswer):
                await executor.answer("r", question, "yes", by="bob")
        else:
            assert (await executor.cancel("r")).status == "cancelled"
    await slow.close()


async def test_of_two_who_leave_the_same_answer_one_counts(tmp_path: Path) -> None:
    gate = anyio.Event()
    graph = beside(gate)
    url = f"sqlite:///{tmp_path}/runs.db"
    refused: list[str] = []
    async with Executor(url, graphs=[graph]) as holder, Executor(url) as executor:
        await holder.submit(graph, run_id="r")
        question = await _asked(executor)

        async def answer(by: str) -> None:
            try:
                await executor.answer("r", question, "yes", by=by, resume=False)
            except StaleAnswer:
                refused.append(by)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, "ann")
            tasks.start_soon(answer, "bob")
        gate.set()
        await holder.wait("r")
        (answered,) = [record for record in await executor.store.read("r") if record.type == "answered"]
        assert [answered.by, *refused] in (["ann", "bob"], ["bob", "ann"])


@pytest.mark.parametrize("act", ["cancel", "pause"])
async def test_what_cannot_be_stored_is_not_told_as_done(tmp_path: Path, act: str) -> None:
    gate = anyio.Event()
    graph = beside(gate)
    url = f"sqlite:///{tmp_path}/runs.db"
    store = open_store(url)
    async with Executor(store, graphs=[graph]) as executor, anyio.create_task_group() as tasks:
        await executor.submit(graph, run_id="r")
        await _asked(executor)
        await store.close()

        async def later() -> None:
            await anyio.sleep(0.1)
            gate.set()

        tasks.start_soon(later)
        with pytest.raises(StoreError, match="is closed"):
            await getattr(executor, act)("r")
    async with Executor(url) as other:
        assert (await other.load("r")).status == "interrupted"
