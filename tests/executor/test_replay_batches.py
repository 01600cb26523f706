"""Many runs replayed in the background."""

from __future__ import annotations

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Update, node
from orchestrator.errors import RunExists, RunUnknown
from orchestrator.testing import ScriptedModel
from tests.executor.test_diff import writing

pytestmark = pytest.mark.anyio


async def test_runs_are_replayed_in_the_background_and_one_that_cannot_be_does_not_stop_the_others() -> None:
    graph, edited = writing(), writing("Tell me about", name="edited")
    async with Executor(graphs=[graph, edited], model=ScriptedModel(["a", "b"] * 3)) as executor:
        runs = [(await executor.start(graph, topic)).run_id for topic in ("tea", "milk", "soup")]
        order = {**{name: f"re-{name}" for name in runs[:2]}, "nothing": "re-nothing", runs[2]: f"re-{runs[2]}"}
        batch = executor.replays.submit(order, edited)
        with anyio.fail_after(30):
            await batch.wait()
        assert batch.over
        assert [one.state for one in batch.runs] == ["over", "over", "failed", "over"]
        assert isinstance(batch.runs[2].error, RunUnknown)
        for name in runs:
            found = await executor.replays.load(f"re-{name}")
            assert (found.status, found.run.graph, found.made) == ("diverged", "edited", 0)
        same = executor.replays.submit({runs[0]: "same"})
        await same.wait()
        assert (await executor.replays.load("same")).same


async def test_the_same_batch_again_replays_nothing_twice() -> None:
    graph = writing()
    model = ScriptedModel(["a", "b", "c", "d"])
    async with Executor(graphs=[graph], model=model) as executor:
        run = await executor.start(graph, "tea")
        for _ in range(2):
            batch = executor.replays.submit({run.run_id: "again"})
            await batch.wait()
            assert batch.runs[0].state == "over"
        assert (await executor.runs(relation="replay")).runs[0].run_id == "again"
        assert len((await executor.runs(relation="replay")).runs) == 1
        other = executor.replays.submit({run.run_id: "again"}, live="ask")
        await other.wait()
        assert other.runs[0].state == "failed"
        assert "is not this replay" in str(other.runs[0].error)
        with pytest.raises(RunExists, match="is not this replay"):
            await executor.replay(run.run_id, writing(name="other"), replay_id="again")
        with pytest.raises(RunExists, match="is not this replay"):
            await executor.replay(run.run_id, update={"topic": "milk"}, replay_id="again")


class Slow(BaseModel):
    n: int = 0


async def test_a_batch_that_is_stopped_begins_no_further_replay_and_goes_on_later() -> None:
    began, both, go = list[int](), anyio.Event(), anyio.Event()
    slow = False

    @node(effect="pure")
    async def wait(state: Slow, ctx: Context) -> Update:
        if slow:
            began.append(state.n)
            if len(began) == 2:
                both.set()
            await go.wait()
        return {"n": state.n + 1}

    graph = Graph(name="slow", state=Slow, input="n", output="n", nodes={"wait": wait}, edges="START -> wait -> END")
    async with Executor(graphs=[graph]) as executor:
        runs = [(await executor.start(graph, number)).run_id for number in range(4)]
        slow = True
        order = {name: f"re-{name}" for name in runs}
        batch = executor.replays.submit(order, concurrency=2)
        with anyio.fail_after(30):
            await both.wait()
            assert [one.state for one in batch.runs] == ["running", "running", "waiting", "waiting"]
            batch.stop()
            await batch.wait()
        assert [one.state for one in batch.runs] == ["stopped"] * 4
        assert sorted(began) == [0, 1]
        with pytest.raises(RunUnknown):
            await executor.load(f"re-{runs[3]}")
        go.set()
        again = executor.replays.submit(order)
        with anyio.fail_after(30):
            await again.wait()
        assert [one.state for one in again.runs] == ["over"] * 4
        assert [(await executor.replays.load(name)).same for name in order.values()] == [True] * 4


async def test_leaving_the_executor_stops_a_batch() -> None:
    graph = writing()
    async with Executor(graphs=[graph], model=ScriptedModel(["a", "b"])) as executor:
        run = await executor.start(graph, "tea")
        batch = executor.replays.submit({run.run_id: "late"})
    assert batch.over
    assert batch.runs[0].state in ("over", "stopped")


async def test_arguments_that_have_no_meaning_are_refused_at_once() -> None:
    async with Executor() as executor:
        for given, said in (({"live": "sometimes"}, "live="), ({"concurrency": 0}, "concurrency="), ({"at": -1}, "at")):
            with pytest.raises(ValueError, match=said):
                executor.replays.submit({"one": "two"}, **given)  # type: ignore[arg-type]  # wrong on purpose
