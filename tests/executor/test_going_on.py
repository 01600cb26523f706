"""A run that stopped goes on: ways to go on that meet each other. Each way alone has tests of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Update, append, node, tool
from orchestrator.errors import RunEnded
from orchestrator.nodes import Ask, Sleep, Subgraph, Wait
from orchestrator.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    item: str = ""
    paid: str = ""
    payment: dict[str, str] = {}
    note: str = ""
    log: Annotated[list[str], append] = []


class Desk:
    """Tools, and what was really done by them."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.broken = True

    def tools(self) -> list[Any]:
        @tool(effect="irreversible", risk="write")
        async def charge(item: str) -> str:
            """Charge the customer."""
            self.charged.append(item)
            return f"charged {item}"

        return [charge]

    def graph(self) -> Graph:
        @node
        async def begin(state: Order) -> Update:
            return {"log": f"begin {state.item}"}

        @node
        async def pay(state: Order, ctx: Context[Any]) -> Update:
            result = await ctx.tool("charge", item=state.item)
            if self.broken:
                raise KeyError("receipt")
            return {"paid": str(result.output), "log": "pay"}

        @node
        async def close(state: Order) -> Update:
            return {"log": f"close {state.item}"}

        return Graph(
            name="order", state=Order, input="item", output="log",
            nodes={"begin": begin, "pay": pay, "ask": Ask(prompt="Close?", answer="note"), "close": close},
            edges="START -> begin -> pay -> ask -> close -> END",
        )  # fmt: skip


@pytest.fixture
async def desk() -> Desk:
    return Desk()


@pytest.fixture
async def executor(desk: Desk) -> AsyncIterator[Executor]:
    async with Executor(graphs=[desk.graph()], tools=desk.tools()) as executor:
        yield executor


async def test_a_failed_run_is_forked_and_retried_and_both_complete(desk: Desk, executor: Executor) -> None:
    run = await executor.start("order", "shoes", run_id="r")
    assert (run.status, desk.charged) == ("failed", ["shoes"])
    desk.broken = False
    retried = await executor.resume("r", retry=True)
    assert (retried.status, desk.charged) == ("paused", ["shoes"])  # what was charged is not charged again
    fork = await executor.fork("r", at=2, update={"item": "hat"}, run_id="f")
    assert (fork.status, [q.kind for q in fork.waiting]) == ("paused", ["approval"])
    assert desk.charged == ["shoes"]
    fork = await executor.answer("f", fork.waiting[0].id, Approve())
    assert (fork.status, desk.charged) == ("paused", ["shoes", "hat"])
    for name in ("r", "f"):
        run = await executor.load(name)
        run = await executor.answer(name, run.waiting[0].id, "yes")
        assert run.status == "completed"
    assert (await executor.load("f")).values["log"] == ["begin shoes", "pay", "close hat"]
    assert [info.run_id for info in await executor.forks.list("r")] == ["f"]
    different = await executor.diff("r", "f")
    assert not different.same


async def test_a_retried_run_can_be_forked_before_and_behind_its_failure(desk: Desk, executor: Executor) -> None:
    await executor.start("order", "shoes", run_id="r")
    desk.broken = False
    await executor.resume("r", retry=True)
    records = await executor.store.read("r")
    for at in range(1, len(records) + 1):
        fork = await executor.fork("r", at=at, run_id=f"f{at}", start=False)
        assert fork.values == (await executor.load("r", at=at)).values, records[at - 1].type
    assert desk.charged == ["shoes"]


async def test_a_fork_of_a_failed_run_can_fail_and_be_retried(desk: Desk, executor: Executor) -> None:
    await executor.start("order", "shoes", run_id="r")
    fork = await executor.fork("r", at=2, run_id="f")
    fork = await executor.answer("f", fork.waiting[0].id, Approve())
    assert (fork.status, desk.charged) == ("failed", ["shoes", "shoes"])
    desk.broken = False
    fork = await executor.resume("f", retry=True)
    assert (fork.status, desk.charged) == ("paused", ["shoes", "shoes"])
    assert (await executor.load("r")).status == "failed"


async def test_exported_forks_and_retried_runs_go_on_elsewhere(desk: Desk, executor: Executor) -> None:
    await executor.start("order", "shoes", run_id="r")
    desk.broken = False
    await executor.resume("r", retry=True)
    await executor.fork("r", run_id="f", update={"item": "hat"})
    lines = [line async for line in executor.export(["r", "f"])]
    async with Executor(graphs=[desk.graph()], tools=desk.tools()) as other:
        assert (await other.import_(lines)).runs == ("r", "f")
        assert (await other.load("f")).parent == (await executor.load("f")).parent
        for name, log in (("r", "close shoes"), ("f", "close hat")):
            run = await other.load(name)
            run = await other.answer(name, run.waiting[0].id, "yes")
            assert (run.status, run.values["log"][-1]) == ("completed", log)
    assert desk.charged == ["shoes"]


async def test_pruning_a_parent_leaves_its_forks(desk: Desk, executor: Executor) -> None:
    desk.broken = False
    await executor.start("order", "shoes", run_id="r")
    await executor.cancel("r")
    fork = await executor.fork("r", at=2, run_id="f", start=False)
    assert (await executor.prune(older_than=timedelta(0))).runs == ("r",)
    fork = await executor.resume("f")
    assert (fork.status, [q.kind for q in fork.waiting]) == ("paused", ["approval"])
    assert fork.parent is not None
    assert fork.parent.run_id == "r"


# -- waiting -----------------------------------------------------------------------------------------------------


def waiting() -> Graph:
    inner = Graph(
        name="inner", state=Order, input="item", output="payment",
        nodes={"wait": Wait(event="paid", match={"item": "item"}, into="payment")}, edges="START -> wait -> END",
    )  # fmt: skip

    @node
    async def finish(state: Order) -> Update:
        if not state.note:
            raise ValueError("no note")
        return {"log": f"{state.item} {state.payment}"}

    return Graph(
        name="waiting", state=Order, input=("item", "note"), output="log",
        nodes={
            "sleep": Sleep(seconds=0), "pay": Subgraph(inner, inputs={"item": "item"}, outputs={"payment": "payment"}),
            "finish": finish,
        },
        edges="START -> sleep -> pay -> finish -> END",
    )  # fmt: skip


PAID = {"item": "shoes", "by": "card"}


async def test_an_event_kept_before_a_fork_belongs_to_both_and_one_sent_later_to_one() -> None:
    graph = waiting()
    async with Executor(graphs=[graph]) as executor:
        run = await executor.start(graph, {"item": "shoes", "note": "x"}, run_id="r")
        assert [q.kind for q in run.waiting] == ["event"]
        await executor.fork("r", run_id="f")
        fork = await executor.send("f", "paid", PAID, id="1")
        assert fork.status == "completed"
        assert (await executor.load("r")).status == "paused"
        run = await executor.send("r", "paid", {**PAID, "by": "cash"}, id="1")
        assert run.status == "completed"
        assert [fork.values["log"], run.values["log"]] == [[f"shoes {PAID}"], [f"shoes { {**PAID, 'by': 'cash'} }"]]


async def test_an_event_that_a_failed_run_took_stays_taken_when_it_is_retried() -> None:
    graph = waiting()
    async with Executor(graphs=[graph]) as executor:
        await executor.start(graph, {"item": "shoes"}, run_id="r")
        run = await executor.send("r", "paid", PAID)
        assert (run.status, run.values["payment"]) == ("failed", PAID)
        with pytest.raises(RunEnded):
            await executor.send("r", "paid", PAID)
        with pytest.raises(RunEnded):
            await executor.resume("r")
        again = await executor.resume("r", retry=True)
        assert again.status == "failed"  # the note is still missing, and the event was not waited for again
        mended = await executor.fork("r", update={"note": "x"}, run_id="f")
        assert (mended.status, len(mended.values["log"])) == ("completed", 1)


# -- replay ------------------------------------------------------------------------------------------------------


async def test_a_retried_run_is_replayed_without_a_call(desk: Desk, executor: Executor) -> None:
    await executor.start("order", "shoes", run_id="r")
    desk.broken = False
    run = await executor.resume("r", retry=True)
    run = await executor.answer("r", run.waiting[0].id, "yes")
    replay = await executor.replay("r")
    assert (replay.diverged_at, replay.run.status, replay.run.output) == (None, "completed", run.output)
    assert replay.same  # the attempt that was set aside does not count
    assert desk.charged == ["shoes"]


async def test_a_run_that_waited_is_replayed_without_waiting() -> None:
    graph = waiting()
    async with Executor(graphs=[graph]) as executor:
        await executor.start(graph, {"item": "shoes", "note": "x"}, run_id="r")
        run = await executor.send("r", "paid", PAID)
        assert run.status == "completed"
        replay = await executor.replay("r")
        assert (replay.same, replay.run.status, replay.run.output) == (True, "completed", run.output)


async def test_an_event_that_is_delivered_again_after_the_end_changes_nothing() -> None:
    async with Executor(graphs=[waiting()]) as executor:
        await executor.start("waiting", {"item": "shoes", "note": "x"}, run_id="r")
        run = await executor.send("r", "paid", PAID, id="hook-1")
        assert run.status == "completed"
        assert (await executor.send("r", "paid", PAID, id="hook-1")).status == "completed"
        with pytest.raises(RunEnded):
            await executor.send("r", "paid", PAID, id="hook-2")


async def test_a_run_that_was_enqueued_without_tools_is_begun_where_its_tools_are(desk: Desk) -> None:
    desk.broken = False
    store = MemoryStore()
    graph = desk.graph()

    @tool
    def other() -> str:
        """Not offered where the run is driven."""
        return ""

    async with Executor(store, graphs=[graph], tools=[other]) as executor:
        await executor.enqueue("order", "shoes", run_id="r")
    async with Executor(store, graphs=[graph], tools=desk.tools()) as executor:
        assert (await executor.workers.drive("r")).status == "paused"
    assert desk.charged == ["shoes"]
