"""The contract of runs: the executor's block as printed, statuses, questions, a run's attributes, events."""

from __future__ import annotations

import ast
import json
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import (
    Context,
    Executor,
    Graph,
    Limits,
    Outcome,
    Run,
    Update,
    node,
)
from orchestrator.errors import (
    GraphUnknown,
    InvalidInput,
    RunEnded,
    RunExists,
    RunUnknown,
)
from orchestrator.executor import EVENT_TYPES
from orchestrator.nodes import Ask
from orchestrator.testing import ScriptedModel
from tests.contract.sample import State, logs, single

pytestmark = pytest.mark.anyio


class Deps(BaseModel):
    """What nodes get."""

    db: str


@node
async def think(state: State, ctx: Context[Deps]) -> Update:
    await ctx.emit("thinking", {"about": state.question})
    reply = await ctx.model.complete(state.question)
    other = await ctx.models["cheap"].complete("short")
    return {"log": [reply.text, other.text, ctx.deps.db]}


research = Graph(
    name="research", state=State, input="question", output="log",
    nodes={"think": think, "ask": Ask(prompt="Is that all?")},
    edges="START -> think -> ask -> END",
)  # fmt: skip


def models() -> dict[str, Any]:
    return {"m": ScriptedModel(lambda request: "long"), "m2": ScriptedModel(lambda request: "brief")}


async def awaited(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block with `await` at its top."""
    result = eval(compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if result is not None:
        await result
    return names


BLOCK = """
async with Executor(store="sqlite:///runs.db", graphs=[research], model=m, models={"cheap": m2}, tools=t, deps=Deps(db)) as ex:   # store defaults to memory://
    run = await ex.start(research, {"question": "..."}, run_id=None, labels={"user": "u1"})   # submit + wait: returns when it ends or pauses
    run_id = await ex.submit(research, {"question": "k"}, run_id="k")        # returns when durable; same id and input: the same run; other input: RunExists
    run = await ex.wait(run_id, timeout=None)
    async with ex.stream(research, {"question": "s"}) as live:           # events; then live.run; leaving early interrupts, never cancels
        async for event in live: seen.append(event)
    streamed = live.run
    seq = 1
    async for event in ex.events(run_id, after=seq, follow=False): told.append(event)
    q = run.waiting[0].id
    value = "yes"
    await ex.answer(run_id, q, value, by="ann", digest=None, resume=True)   # the holder goes on, else this executor
    waits = streamed.run_id
    run = await ex.resume(waits); await ex.recover()            # recover: go on with every interrupted, answered or overdue run
    run = await ex.load(run_id, at=None)                          # folds only, runs nothing, needs no code
    await ex.pause(waits); await ex.cancel(waits)               # from any process, seen within 1 s
    points = await ex.history(run_id); page = await ex.runs(status=None, graph="research", labels={"user": "u1"}, after=None, limit=50)
""".replace("Deps(db)", "Deps(db=db)")  # noqa: E501


async def test_the_block_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {
        "Executor": Executor, "research": research, "t": [], "Deps": Deps, "db": "a database", "seen": [], "told": [],
        **models(),
    }  # fmt: skip
    names = await awaited(BLOCK, names)
    assert names["run"].status == "completed"
    assert names["run"].output == [["long", "brief", "a database"]]
    assert names["run"].values["reply"] == "yes"
    assert names["streamed"].status == "paused"
    assert [event.type for event in names["seen"]] == [
        "run_started", "step_started", "emitted", "effect_intended", "token", "effect_settled", "effect_intended",
        "token", "effect_settled", "step_done", "step_started", "asked",
    ]  # fmt: skip
    assert [event.seq for event in names["told"]] == list(range(2, 2 + len(names["told"])))
    assert [(point.node, point.outcome) for point in names["points"]] == [("think", "done"), ("ask", "done")]
    assert [info.labels for info in names["page"].runs] == [{"user": "u1"}]
    assert (tmp_path / "runs.db").exists()


async def test_the_store_defaults_to_memory() -> None:
    async with Executor(graphs=[research]) as one, Executor(store="memory://", graphs=[research]) as two:
        run = await one.start(single(logs(1)))
        assert run.status == "completed"
        with pytest.raises(RunUnknown):
            await two.load(run.run_id)


# -- statuses -------------------------------------------------------------------------------------------------------


@node
async def hang(state: State) -> None:
    await anyio.sleep(30)


@node
def fail(state: State) -> None:
    raise ValueError("broken")


@node(effect="pure")
def again(state: State) -> Outcome[Literal["again", "enough"]]:
    return Outcome("again")


async def test_every_status() -> None:
    found: dict[str, Run] = {}
    async with Executor() as ex:
        for graph in (single(logs(1)), single(fail), single(Ask(prompt="?"))):
            run = await ex.start(graph)
            found[run.status] = run
        loop = single(again, "START -> work\nwork -> work : again\nwork -> END : enough").with_limits(steps=3)
        found["exhausted"] = await ex.start(loop)
        run_id = await ex.submit(single(hang))
        found["running"] = await ex.load(run_id)
        found["cancelled"] = await ex.cancel(run_id)
        with anyio.move_on_after(0.6):
            await ex.start(single(hang), run_id="i")
        found["interrupted"] = await ex.load("i")
        for status, run in found.items():
            assert run.status == status
            loaded = await ex.load(run.run_id)
            assert loaded.status == ("cancelled" if status == "running" else status)
            page = await ex.runs(status=loaded.status)
            assert run.run_id in [info.run_id for info in page.runs]
            assert {info.status for info in page.runs} == {loaded.status}
    assert set(found) == {"running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted"}


async def test_a_run_is_paused_only_when_nothing_else_in_it_can_run() -> None:
    done: list[str] = []

    @node
    async def slow(ctx: Context) -> None:
        await anyio.sleep(0.05)
        done.append(ctx.node)

    graph = single(
        logs(1), "START -> work -> ask, a\na -> b\nask, b -> j -> END",
        ask=Ask(prompt="?"), a=slow, b=slow, j=logs("j").with_(join="all"),
    )  # fmt: skip
    run = await graph.run()
    assert (run.status, done) == ("paused", ["a", "b"])


# -- a run's attributes ---------------------------------------------------------------------------------------------


async def test_the_attributes_of_a_run() -> None:
    async with Executor(
        graphs=[research], model=models()["m"], models={"cheap": models()["m2"]}, deps=Deps(db="d")
    ) as ex:
        run = await ex.start(research, "q", run_id="r", labels={"user": "u1"})
    assert (run.run_id, run.graph, run.status, run.labels) == ("r", "research", "paused", {"user": "u1"})
    assert run.values == {"question": "q", "items": [], "log": [["long", "brief", "d"]], "reply": ""}
    assert json.loads(json.dumps(run.values)) == run.values
    assert isinstance(run.state, State)
    assert run.state.log == run.values["log"]
    assert [(branch.path, branch.node, branch.values["question"]) for branch in run.branches] == [("", "ask", "q")]
    assert run.output is None
    assert [question.kind for question in run.waiting] == ["input"]
    assert (run.usage.calls, run.steps, run.error) == (2, 1, None)
    assert run.seconds >= 0
    assert run.to_svg().lstrip().startswith("<")
    assert run.to_svg(at=1) != run.to_svg()
    assert {"image/svg+xml", "text/plain"} <= run._repr_mimebundle_().keys()


async def test_without_the_class_state_is_an_attribute_view(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    run = await single(logs(1)).run("q", store=url)
    async with Executor(url) as ex:
        loaded = await ex.load(run.run_id)
    assert not isinstance(loaded.state, State)
    assert (loaded.state.question, loaded.state.log) == ("q", [1])
    assert loaded.values == run.values
    assert "work" in loaded.to_svg()


async def test_while_a_fork_is_open_values_are_the_trunk_and_branches_the_live_tokens() -> None:
    graph = single(
        logs("work"), "START -> work -> a, b\na -> ask\nask, b -> j -> END", a=logs("a"), b=logs("b"),
        ask=Ask(prompt="?"), j=logs("j").with_(join="all"),
    )  # fmt: skip
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        assert run.values["log"] == ["work"]
        found = {branch.path: (branch.node, branch.values["log"]) for branch in run.branches}
        assert found == {"work.0": ("ask", ["work", "a"]), "work.1": ("j", ["work", "b"])}
        points = {point.node: (point.path, point.values["log"]) for point in await ex.history(run.run_id)}
        # A history point carries the acting branch's state.
        assert points == {"work": ("", ["work"]), "a": ("work.0", ["work", "a"]), "b": ("work.1", ["work", "b"])}


async def test_values_hold_what_the_joins_of_an_outermost_fork_merged() -> None:
    graph = single(
        logs("work"), "START -> work -> a, b, c\na, b -> j\nj, ask -> k -> END\nc -> ask", a=logs("a"), b=logs("b"),
        c=logs("c"), ask=Ask(prompt="?"), j=logs("j").with_(join="all"), k=logs("k").with_(join="all"),
    )  # fmt: skip
    run = await graph.run()
    assert run.status == "paused"
    assert run.values["log"][0] == "work"
    assert "c" not in run.values["log"]
    assert run.values["log"] == ["work", "a", "b"]


# -- beginning ------------------------------------------------------------------------------------------------------


async def test_submit_gives_the_same_run_for_the_same_id_and_input(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    graph = single(Ask(prompt="?"))
    async with Executor(url, graphs=[graph]) as ex:
        assert await ex.submit(graph, "q", run_id="k") == "k"
        assert (await ex.load("k")).values["question"] == "q"  # durable when it returns
        assert await ex.submit(graph, {"question": "q"}, run_id="k") == "k"
        assert (await ex.start(graph, "q", run_id="k")).status == "paused"
        with pytest.raises(RunExists, match="another input"):
            await ex.submit(graph, "other", run_id="k")
        with pytest.raises(RunExists, match="single"):
            await ex.submit(single(logs(1), name="other"), "q", run_id="k")
        assert len((await ex.runs()).runs) == 1


async def test_input_that_does_not_fit_is_refused_whole() -> None:
    async with Executor() as ex:
        with pytest.raises(InvalidInput) as caught:
            await ex.start(single(logs(1)), {"questoin": "q", "items": "many"})
        assert "questoin" in str(caught.value)
        assert "items" in str(caught.value)
        assert (await ex.runs()).runs == ()


async def test_wait_times_out_and_the_run_goes_on() -> None:
    async with Executor() as ex:
        run_id = await ex.submit(single(hang))
        with pytest.raises(TimeoutError):
            await ex.wait(run_id, timeout=0.05)
        assert (await ex.load(run_id)).status == "running"
        with pytest.raises(RunUnknown):
            await ex.wait("nobody")


async def test_leaving_a_stream_early_interrupts_and_never_cancels() -> None:
    async with Executor() as ex:
        async with ex.stream(single(hang)) as live:
            async for event in live:
                if event.type == "step_started":
                    break
        assert (await ex.load(live.run_id)).status == "interrupted"


# -- ends -----------------------------------------------------------------------------------------------------------


async def test_cancelling_the_awaiting_task_interrupts_and_gives_the_lease_back() -> None:
    graph = single(logs(1), "START -> work -> b -> END", b=hang)
    async with Executor(graphs=[graph]) as ex:
        with anyio.move_on_after(0.6):
            await ex.start(graph, run_id="r")
        run = await ex.load("r")
        assert (run.status, run.values["log"]) == ("interrupted", [1])  # checkpointed
        assert await ex.store.lease("r") is None


async def test_resume_of_an_ended_run_is_run_ended() -> None:
    graph = single(logs(1))
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph)
        for verb in (ex.resume, ex.pause, ex.cancel):
            with pytest.raises(RunEnded, match="has ended"):
                await verb(run.run_id)


async def test_recover_goes_on_with_interrupted_answered_and_overdue_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    begun, first = anyio.Event(), anyio.Event()

    @node
    async def once(ctx: Context) -> Update:
        begun.set()
        if not first.is_set():
            await anyio.sleep(30)
        return {"log": "once"}

    asks = single(Ask(prompt="?"), name="asks")

    def late_after(seconds: float) -> Graph:
        ask = Ask(prompt="?", deadline=seconds)
        return single(ask, "START -> work -> END\nwork -> b : error\nb -> END", name="late", b=logs("late"))

    stops = single(once, name="stops")
    async with Executor(url, graphs=[asks, stops]) as ex:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(ex.start, stops, run_id="interrupted"))
            await begun.wait()
            tasks.cancel_scope.cancel()
        await ex.start(asks, run_id="waits")
        run = await ex.start(asks, run_id="answered")
        await ex.answer("answered", run.waiting[0].id, "yes", resume=False)
    for seconds in (0.1, 1.0, 10.0):  # on a busy machine a short deadline passes before the run is put down
        late = late_after(seconds)
        async with Executor(url, graphs=[late]) as ex:
            status = (await ex.start(late, run_id="overdue")).status
            if status == "paused":
                break
            await ex.delete("overdue")
    assert status == "paused"
    await anyio.sleep(seconds)
    first.set()
    async with Executor(url, graphs=[asks, late, stops]) as ex:
        found = {run.run_id: run.status for run in await ex.recover()}
        assert found == {"interrupted": "completed", "answered": "completed", "overdue": "completed"}
        assert (await ex.load("waits")).status == "paused"


async def test_only_what_an_executor_was_given_resolves_a_graph(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    run = await single(Ask(prompt="?")).run(store=url)
    async with Executor(url) as ex:
        with pytest.raises(GraphUnknown, match="'single'"):
            await ex.resume(run.run_id)
        with pytest.raises(GraphUnknown, match="Executor\\(graphs="):
            await ex.answer(run.run_id, run.waiting[0].id, "yes")
        loaded = await ex.load(run.run_id)
        assert loaded.status == "paused"
        assert len(loaded.waiting) == 1


# -- events ---------------------------------------------------------------------------------------------------------


async def test_journaled_events_have_a_seq_and_live_ones_none_and_replay_has_the_journaled_ones() -> None:
    async with Executor(
        graphs=[research], model=models()["m"], models={"cheap": models()["m2"]}, deps=Deps(db="d")
    ) as ex:
        live = []
        async with ex.stream(research, "q") as stream:
            async for event in stream:
                live.append(event)
        replay = [event async for event in ex.events(stream.run_id)]
    assert [event for event in live if event.seq is not None] == replay
    assert [event.seq for event in replay] == list(range(1, len(replay) + 1))
    assert {event.type for event in live if event.seq is None} == {"step_started", "emitted", "token"}
    (emitted,) = [event for event in live if event.type == "emitted"]
    assert (emitted.data["name"], emitted.data["data"]) == ("thinking", {"about": "q"})
    assert {"step_started", "token", "progress", "emitted"} < set(EVENT_TYPES)


async def test_events_follow_a_run_to_its_end() -> None:
    graph = single(logs(1), "START -> work -> b -> END", b=node(lambda: {"log": 2}))
    async with Executor(graphs=[graph]) as ex:
        run_id = await ex.submit(graph)
        seen = [event async for event in ex.events(run_id, after=1, follow=True)]
    assert [event.type for event in seen if event.seq] == ["step_done", "step_done", "ended"]


async def test_pages_of_runs() -> None:
    graph = single(logs(1))
    async with Executor(graphs=[graph]) as ex:
        ids = [(await ex.start(graph, labels={"n": str(n % 2)})).run_id for n in range(5)]
        first = await ex.runs(limit=2)
        second = await ex.runs(limit=2, after=first.cursor)
        third = await ex.runs(limit=2, after=second.cursor)
        listed = [info.run_id for page in (first, second, third) for info in page.runs]
        assert sorted(listed) == sorted(ids)
        assert third.cursor is None
        assert len((await ex.runs(labels={"n": "0"})).runs) == 3
        assert (await ex.runs(graph="other")).runs == ()
        assert (await ex.runs(status="failed")).runs == ()


def test_limits_are_given_at_the_start_too() -> None:
    loop = single(again, "START -> work\nwork -> work : again\nwork -> END : enough")
    assert loop.run_sync("", limits=Limits(steps=4)).steps == 4
