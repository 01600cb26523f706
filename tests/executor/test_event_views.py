"""Runs that wait for events and times, as people see them: at every record, and why they went as they did."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Executor, Graph, Run, node
from orchestrator.kernel.plan import Plan
from orchestrator.nodes import ITEM, Sleep, Subgraph, Wait
from orchestrator.render.terminal.event_lines import EventLines
from orchestrator.testing import MockClock
from orchestrator.views.causes import Causes
from orchestrator.views.reader import read
from orchestrator.views.timeline import Timeline
from tests.executor.test_busy_chats import Gate, talks
from tests.executor.test_events import Orders, rounds

pytestmark = pytest.mark.anyio


def everything() -> Graph[Orders]:
    """Sleeps, waits in a map, waits in a graph inside, and waits in vain."""
    return Graph(
        name="everything", state=Orders, input="orders", output="got",
        nodes={"nap": Sleep(seconds=1000), "wait": Wait(event="paid", match={"order": ITEM}, into="got"),
               "join": node(lambda: None).with_(join="all"), "sub": Subgraph(rounds(2), outputs={"got": "got"}),
               "late": Wait(event="never", deadline=60)},
        edges="START -> nap\nnap -> wait : each orders\nwait -> join -> sub -> late -> END\nlate -> END : timeout",
    )  # fmt: skip


@pytest.fixture
async def run() -> Any:
    clock = MockClock()
    async with Executor(graphs=[everything()], clock=clock, idle="sleep") as ex:
        await ex.start("everything", [1, 2], run_id="r")
        clock.jump(1001)
        await ex.recover()
        await ex.send("r", "tick", "before", resume=False)
        for order in (2, 1):
            await ex.send("r", "paid", {"order": order}, by="bank")
        await ex.send("r", "tick", "after")
        clock.jump(61)
        await ex.recover()
        yield await ex.load("r"), await ex.store.read("r"), ex


async def test_a_run_is_shown_at_every_record(run: Any) -> None:
    last, records, ex = run
    assert last.status == "completed"
    for at in range(1, last.seq + 1):
        seen: Run[Any] = await ex.load("r", at=at)
        assert "<svg" in seen.to_svg()
        waiting = {asked.node for asked in seen.waiting}
        assert {name for _, name in seen.overlay().waiting} >= waiting
        assert seen.why().why
    page = last.to_html()
    assert "timer_set" in page
    assert len(await ex.history("r")) == len([one for one in records if one.type == "step_done"])


async def test_a_timeline_says_what_each_step_waited_for_and_how_long(run: Any) -> None:
    last, records, _ = run
    causes = Causes()
    rows = Timeline(causes)
    read(Plan.of(everything()), records, causes, rows)
    waits = {row.node: [(wait.why, round((wait.end or 0) - wait.start)) for wait in row.waits] for row in rows.rows}
    assert waits["nap"] == [("timer", 1001)]
    assert waits["late"] == [("event", 61)]
    assert waits["wait"] == [("event", 0)]
    assert all(one.answered for row in rows.rows for one in row.asked)
    reasons = {step.step: step for step in last.why().steps} or {}
    assert all("the journal does not say" not in step.came for step in reasons.values())


async def test_lines_of_events_say_what_came_and_until_when_a_step_waits(run: Any) -> None:
    _, _, ex = run
    lines = EventLines()
    text = "\n".join([line async for event in ex.events("r") if (line := lines.text(event)) is not None])
    assert "nap waits until 2001-09-09T02:03:20+00:00" in text
    assert 'event paid by bank  {"order": 2}' in text


async def test_why_a_step_ran_behind_an_interruption() -> None:
    import anyio

    gate = Gate()
    graph = talks("interrupt", gate)
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        await ex.send(run.run_id, "ask", "a", background=True)
        await gate.begun.wait()
        await ex.send(run.run_id, "ask", "b", resume=False)
        async with anyio.create_task_group() as tasks:
            gate.go_on.set()
            tasks.start_soon(ex.wait, run.run_id)
        run = await ex.load(run.run_id)
        for at in range(1, run.seq + 1):
            assert "<svg" in (await ex.load(run.run_id, at=at)).to_svg()
        causes = Causes()
        rows = Timeline(causes)
        read(Plan.of(graph), await ex.store.read(run.run_id), causes, rows)
        assert any(came.by == "event" and came.limit == "ask" for came in causes.origins.values())
        assert any(gone.why == "event" for gone in causes.drops.values())
