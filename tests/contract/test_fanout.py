"""The contract of fan-outs, losers and cancels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Executor, Toolbox, Update, node, tool
from orchestrator.nodes import Ask
from tests.contract.sample import World, logs, single, tool_of, use
from tests.support.one_node import of_calls

pytestmark = pytest.mark.anyio


async def test_siblings_that_landed_never_run_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    world = World()
    ran: list[int] = []

    @node
    async def work(item: int) -> Update:
        ran.append(item)
        if item == 2:
            await world.do("2")
        return {"log": item}

    graph = single(
        work, "START -> plan -> work : each items\nwork -> j -> END", takes=None, plan=logs("plan"),
        j=logs("j").with_(join="all"),
    )  # fmt: skip
    async with Executor(url, graphs=[graph]) as ex, ex.stream(graph, {"items": [1, 2, 3, 4]}, run_id="r") as live:
        landed = 0
        async for event in live:
            landed += event.type == "step_done"
            if landed == 4:  # plan and three of the four
                break
    async with Executor(url, graphs=[graph]) as ex:
        loaded = await ex.load("r")
        assert loaded.status == "interrupted"
        run = await ex.resume("r")
    assert run.output == ["plan", 1, 2, 3, 4, "j"]
    assert sorted(ran) == [1, 2, 2, 3, 4]


async def test_a_failing_sibling_discards_nothing_that_was_finished() -> None:
    @node
    async def work(item: int) -> Update:
        if item == 2:
            await anyio.sleep(0.05)
            raise ValueError("broken")
        return {"log": item}

    graph = single(
        work, "START -> plan -> work : each items\nwork -> j -> END", takes=None, plan=logs("plan"),
        j=logs("j").with_(join="all"),
    )  # fmt: skip
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph, {"items": [1, 2, 3]})
        assert (run.status, run.error.message) == ("failed", "broken")
        landed = {point.update["log"] for point in await ex.history(run.run_id) if point.outcome}
    assert landed == {"plan", 1, 3}


async def test_cancel_always_cancels_and_never_discards_finished_work() -> None:
    began = anyio.Event()

    @node
    async def stubborn() -> Update:
        began.set()
        try:
            await anyio.sleep(30)
        except BaseException:
            return {"log": "no"}
        return {"log": "no"}

    graph = single(logs("finished"), "START -> work -> b -> END", b=stubborn)
    async with Executor(graphs=[graph]) as ex:
        run_id = await ex.submit(graph)
        await began.wait()
        run = await ex.cancel(run_id, by="ann", reason="enough")
        assert run.status == "cancelled"
        assert run.values["log"][0] == "finished"
        again = await ex.load(run_id)
        assert (again.status, again.values) == ("cancelled", run.values)
        paused = await ex.start(single(Ask(prompt="?"), name="asks"))
        assert (await ex.cancel(paused.run_id)).status == "cancelled"


async def test_every_call_of_a_transcript_has_exactly_one_result_also_after_errors_and_unknown_tools() -> None:
    @tool(risk="none", effect="pure")
    def ok(n: int) -> int:
        """Works."""
        return n

    @tool(risk="none", effect="pure")
    def bad() -> None:
        """Breaks."""
        raise RuntimeError("broken")

    calls = [
        {"id": "1", "name": "ok", "arguments": {"n": 1}}, {"id": "2", "name": "bad", "arguments": {}},
        {"id": "3", "name": "nobody", "arguments": {}}, {"id": "4", "name": "ok", "arguments": {"n": "many"}},
        {"id": "5", "name": "ok", "arguments": None, "raw": "{n: 1"}, {"id": "6", "name": "ok", "arguments": {"n": 6}},
    ]  # fmt: skip
    graph = of_calls()
    run = await graph.run({"pending": calls}, tools=Toolbox(ok, bad))
    assert [message["tool_call_id"] for message in run.output] == ["1", "2", "3", "4", "5", "6"]  # in call order
    assert [message["content"].startswith("Error:") for message in run.output] == [False, True, True, True, True, False]


@pytest.mark.parametrize("effect", ["idempotent", "irreversible"])
async def test_a_loser_of_a_race_and_a_cancelled_run_have_their_calls_settled_and_shown_not_asked(effect: Any) -> None:
    world = World()

    @node(effect="pure")
    async def waits() -> Update:
        await world.hangs.wait()
        return {"log": "quick"}

    graph = single(waits, "START -> work, use -> j -> END", use=use, j=logs("j").with_(join=1))
    async with Executor(graphs=[graph], tools=[tool_of(world, effect)]) as ex:
        run = await ex.start(graph)
        assert (run.status, run.output) == ("completed", ["quick", "j"])
        (settled,) = [event.data async for event in ex.events(run.run_id) if event.type == "effect_settled"]
        assert (settled["ok"], settled.get("unknown", False)) == (False, effect == "irreversible")
    world = World()
    async with Executor(tools=[tool_of(world, effect)]) as ex:
        run_id = await ex.submit(single(use))
        await world.hangs.wait()
        assert (await ex.cancel(run_id)).waiting == ()
        (settled,) = [event.data async for event in ex.events(run_id) if event.type == "effect_settled"]
        assert (settled["ok"], settled.get("unknown", False)) == (False, effect == "irreversible")
