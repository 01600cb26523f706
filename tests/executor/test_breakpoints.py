"""Runs that pause before and after the nodes that were named."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from orchestrator import Executor, Graph, Run, Update, node
from orchestrator.errors import InvalidValue
from orchestrator.kernel.snapshot import dump, load
from orchestrator.nodes import Subgraph
from orchestrator.stores.base import Store
from tests.support.executors import Log, chain, counting, says
from tests.support.programs import run as run_program

pytestmark = pytest.mark.anyio


def stands(run: Run) -> tuple[str, str, list[str]]:
    """Status, what is asked, and what was done."""
    asked = [f"{question.kind} {question.node}: {question.prompt}" for question in run.waiting]
    return run.status, " ".join(asked), list(run.values["log"])


def nested() -> Graph:
    inner = chain(says("a"), says("b"), name="inner")
    nodes = {"first": says("first"), "outer": Subgraph(inner, outputs={"answer": "answer"}), "last": says("last")}
    edges = "START -> first -> outer -> last -> END"
    return Graph(name="nested", state=Log, nodes=nodes, edges=edges, output="log")


async def test_a_run_pauses_before_a_node_and_goes_on_past_it(store: Store) -> None:
    async with Executor(store) as executor:
        run = await executor.start(chain(says("a"), says("b"), says("c")), run_id="r", pause_before={"n1"})
        assert stands(run) == ("paused", "pause n1: paused before n1", ["a"])
        assert (await store.info("r")).status == "paused"
        run = await executor.resume("r")
        assert (run.status, run.output) == ("completed", ["a", "b", "c"])


async def test_a_run_pauses_after_a_node(store: Store) -> None:
    async with Executor(store) as executor:
        graph = chain(says("a"), says("b"), says("c"))
        run = await executor.start(graph, run_id="r", pause_after={"n0", "n1"})
        assert stands(run) == ("paused", "pause n0: paused after n0", ["a"])
        run = await executor.resume("r")
        assert stands(run) == ("paused", "pause n1: paused after n1", ["a", "b"])
        run = await executor.resume("r")
        assert (run.status, run.output) == ("completed", ["a", "b", "c"])


async def test_a_run_may_pause_before_its_first_step_and_each_time_around(store: Store) -> None:
    async with Executor(store) as executor:
        run = await executor.start(counting(), {"until": 3}, run_id="r", pause_before={"count"})
        info = await store.info("r")
        assert (run.status, info.status, info.waiting, run.steps) == ("paused", "paused", 1, 0)
        for steps in (1, 2):
            run = await executor.resume("r")
            assert (run.status, run.steps) == ("paused", steps)
        assert (await executor.resume("r")).output == 3


async def test_breakpoints_are_changed_and_taken_away_by_resume(store: Store) -> None:
    graph = chain(*[says(sign) for sign in "abcd"])
    async with Executor(store) as executor:
        await executor.start(graph, run_id="r", pause_before={"n1", "n2"})
        run = await executor.resume("r", pause_before=set(), pause_after={"n2"})
        assert stands(run) == ("paused", "pause n2: paused after n2", ["a", "b", "c"])
        async with executor.stream(run_id="r", pause_before={"n3"}) as live:
            assert [event.type async for event in live if event.seq] == ["resumed"]
        assert stands(live.run) == ("paused", "pause n3: paused before n3", ["a", "b", "c"])
        assert (await executor.resume("r")).output == list("abcd")


async def test_nodes_inside_of_subgraphs_are_named_by_their_path(store: Store) -> None:
    async with Executor(store) as executor:
        places = {"outer", "outer/n1"}
        run = await executor.start(nested(), run_id="r", pause_before=places, pause_after={"outer"})
        assert stands(run)[1] == "pause outer: paused before outer"
        run = await executor.resume("r")
        assert stands(run)[1] == "pause n1: paused before outer/n1"
        assert run.waiting[0].path == "outer"
        run = await executor.resume("r")
        assert stands(run)[1] == "pause outer: paused after outer"
        run = await executor.resume("r")
        assert run.status == "completed"


async def test_branches_that_stand_before_a_breakpoint_are_let_through_together(store: Store) -> None:
    done: list[int] = []

    @node(effect="pure")
    def work(state: Log, item: int) -> Update:
        done.append(item)
        return {"log": str(item)}

    graph = Graph(
        name="map", state=Log, nodes={"begin": says("begin"), "work": work},
        edges="START -> begin -> work : each items\nwork -> END", output="log",
    )  # fmt: skip
    async with Executor(store) as executor:
        run = await executor.start(graph, {"items": [1, 2, 3]}, run_id="r", pause_before={"work"})
        assert stands(run)[1] == "pause work: paused before work"
        assert done == []
        run = await executor.resume("r")
        assert (run.status, sorted(done)) == ("completed", [1, 2, 3])


async def test_what_runs_beside_a_breakpoint_ends_first(store: Store) -> None:
    beside = says("beside", lambda: anyio.sleep(0.02), effect="idempotent")
    nodes = {"beside": beside, "held": says("held")}
    graph = Graph(name="two", state=Log, nodes=nodes, edges="START -> beside, held -> END", output="log")
    async with Executor(store) as executor:
        run = await executor.start(graph, run_id="r", pause_before={"held"})
        assert (run.status, run.steps) == ("paused", 1)
        run = await executor.resume("r")
        assert (run.status, run.output) == ("completed", ["beside", "held"])


async def test_a_name_that_no_node_has_is_refused_with_the_likeliest_one(store: Store) -> None:
    async with Executor(store) as executor:
        graph = nested()
        for name, words in (
            ("frist", r"pause_before: graph 'nested' has no node 'frist'; did you mean 'first'\?"),
            ("outer/n7", r"no node 'outer/n7'; did you mean 'outer/n[01]'\?"),
            ("xyz", r"no node 'xyz'; it has first, outer, outer/n0, outer/n1, last"),
        ):
            with pytest.raises(InvalidValue, match=words):
                await executor.start(graph, run_id="r", pause_before={name})
        assert not (await executor.runs()).runs
        await executor.start(graph, run_id="r", pause_before={"last"})
        with pytest.raises(InvalidValue, match=r"pause_after: .* has no node 'lost'; did you mean 'last'"):
            await executor.resume("r", pause_after={"lost"})
        with pytest.raises(InvalidValue, match="give a set of names of nodes"):
            await executor.resume("r", pause_after="last")
        assert (await executor.resume("r")).status == "completed"


async def test_recover_leaves_a_run_at_its_breakpoint(store: Store) -> None:
    async with Executor(store) as executor:
        await executor.start(chain(says("a"), says("b")), run_id="r", pause_before={"n1"})
        assert await executor.recover() == []
        assert (await executor.load("r")).status == "paused"


async def test_a_snapshot_keeps_breakpoints(store: Store) -> None:
    async with Executor(store) as executor:
        run = await executor.start(chain(*[says(sign) for sign in "abc"]), run_id="r", pause_before={"n1"})
        again = load(run.machine.plan, dump(run.machine))
        assert again.breakpoints == run.machine.breakpoints
        assert again.breakpoints is not None
        assert again.breakpoints.at == "n1"


@pytest.mark.parametrize("after", ["a pause", "a resumption"])
async def test_breakpoints_hold_when_the_process_dies(tmp_path: Path, after: str) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    code = f"import tests.executor.test_breakpoints as t, anyio; anyio.run(t.dies, {url!r}, {after!r})"
    assert run_program([code], loads=[__name__]).code == -signal.SIGKILL
    async with Executor(url, graphs=[dying]) as executor:
        run = await executor.load("r")
        if after == "a pause":
            assert stands(run) == ("paused", "pause n1: paused before n1", ["a"])
        else:
            assert run.status == "interrupted"
        run = await executor.resume("r")
        if after == "a pause":
            assert stands(run) == ("paused", "pause n2: paused before n2", ["a", "b"])
            run = await executor.resume("r")
        else:
            assert stands(run) == ("paused", "pause n2: paused before n2", ["a", "b"])
            run = await executor.resume("r")
        assert (run.status, run.output) == ("completed", ["a", "b", "c"])


doomed = False


@node
async def second(state: Log) -> Update:
    """Go on, or take the process along."""
    if doomed:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"log": "b"}


dying = chain(says("a"), second, says("c"), name="dying")


async def dies(url: str, after: str) -> None:
    """A process that is killed at a breakpoint, or behind it."""
    global doomed
    doomed = after == "a resumption"
    async with Executor(url) as executor:
        await executor.start(dying, run_id="r", pause_before={"n1", "n2"})
        if after == "a pause":
            os.kill(os.getpid(), signal.SIGKILL)
        await executor.resume("r")
