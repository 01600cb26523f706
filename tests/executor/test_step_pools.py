"""Pools of nodes in an executor: one at a time in a run, or in all its runs, through crashes, questions and files."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Update, append, node, tool
from orchestrator.nodes import Confirm, Subgraph
from orchestrator.render import to_text
from orchestrator.testing import assert_crash_safe
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio


class Job(BaseModel):
    pages: list[int] = [1, 2, 3, 4]
    printed: Annotated[list[int], append] = []


class Sheet(BaseModel):
    page: int = 0


class Busy:
    """Counts who is inside at the same time. All wait until as many have been as are expected."""

    def __init__(self, expected: int = 1) -> None:
        self.inside = self.most = 0
        self.expected, self.reached = expected, anyio.Event()
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    async def crowd(self) -> None:
        """Wait for the others; a moment longer than they need, for those that must not come."""
        if self.most >= self.expected:
            self.reached.set()
        with anyio.fail_after(20):
            await self.reached.wait()
        for _ in range(5):
            await checkpoint()

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1


@node(pool="printer")
async def pressed(state: Job, ctx: Context[Busy], item: int) -> Update:
    with ctx.deps:
        await ctx.deps.crowd()
    return {"printed": item}


@node(join="all", effect="pure")
def bound(state: Job) -> None: ...


def printing(size: int | None = 1, work: Any = pressed, name: str = "printing") -> Graph:
    """A map whose items need the printer."""
    return Graph(
        name=name,
        state=Job,
        nodes={"print": work, "bind": bound},
        edges="START -> print : each pages\nprint -> bind -> END",
        output="printed",
        pools={"printer": size},
    )


@pytest.mark.parametrize(("size", "most"), [(1, 1), (2, 2), (None, 4)])
async def test_as_many_steps_run_at_once_as_the_pool_has_places(size: int | None, most: int) -> None:
    busy = Busy(most)
    run = await printing(size).run(deps=busy)
    assert (run.status, run.output, busy.most) == ("completed", [1, 2, 3, 4], most)


async def test_sync_functions_in_threads_keep_out_of_each_others_way() -> None:
    @node(pool="printer")
    def slow(state: Job, ctx: Context[Busy], item: int) -> Update:
        with ctx.deps:
            threading.Event().wait(0.001)
        return {"printed": item}

    busy = Busy()
    run = await printing(1, slow).run(deps=busy)
    assert (run.output, busy.most) == ([1, 2, 3, 4], 1)


@pytest.mark.parametrize("size", [1, 2])
async def test_an_executor_counts_the_steps_of_all_its_runs(size: int) -> None:
    busy, graph = Busy(size), printing(None)
    async with Executor(graphs=[graph], deps=busy, pools={"printer": size}) as executor:
        runs = [await executor.submit(graph) for _ in range(3)]
        for run_id in runs:
            assert (await executor.wait(run_id)).output == [1, 2, 3, 4]
    assert busy.most == size


async def test_a_step_that_waits_for_a_graph_as_a_tool_lets_that_graph_use_the_pool() -> None:
    """Otherwise it would wait forever: the inner run needs the one place that its caller has."""
    busy, inner = Busy(), printing(1, name="inner")

    @node(pool="printer", tools=[inner.as_tool("press", "Prints.", risk="none")])
    async def calls(state: Job, ctx: Context[Busy]) -> Update:
        await ctx.tool("press", pages=[7, 8])
        return {"printed": 9}

    graph = Graph(
        name="outer", state=Job, nodes={"calls": calls}, edges="START -> calls -> END", pools={"printer": 1},
        output="printed",
    )  # fmt: skip
    with anyio.fail_after(20):
        async with Executor(graphs=[graph], deps=busy, pools={"printer": 1}, concurrency=1) as executor:
            run = await executor.start(graph)
    assert (run.status, run.output, busy.most) == ("completed", [9], 1)


@pytest.mark.parametrize("size", [0, -2])
async def test_a_pool_without_places_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"pools=\{'api': "):
        Executor(pools={"api": size})


def counter() -> dict[str, Any]:
    written: list[int] = []

    @tool(risk="write", effect="irreversible")
    def order(page: int) -> int:
        """Order a page."""
        written.append(page)
        return page

    return {"tools": [order]}


@node(pool="printer")
async def orders(state: Job, ctx: Context, item: int) -> Update:
    await ctx.tool("order", page=item)
    return {"printed": item}


@node
async def one_sheet(state: Sheet, ctx: Context) -> Update:
    await ctx.tool("order", page=3)
    return {"page": 3}


def sections() -> Graph:
    """A section of a question and an irreversible call, once per item."""
    inner = Graph(
        name="sheet",
        state=Sheet,
        nodes={"ask": Confirm(prompt="Print?"), "order": one_sheet},
        edges="START -> ask\nask -> order : approved\nask -> END : denied\norder -> END",
    )
    return Graph(
        name="sections",
        state=Job,
        nodes={"sheet": Subgraph(inner, outputs={"printed": "page"}, pool="printer"), "bind": bound},
        edges="START -> sheet : each pages\nsheet -> bind -> END",
        output="printed",
        pools={"printer": 1},
    )


@quick_on("asyncio")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_no_crash_changes_what_a_pool_admits(store: str) -> None:
    most = sized(4, None) if store == "memory" else sized(3, 8)  # a trial may need fewer writes than the last of these
    graph = printing(1, orders)
    report = await assert_crash_safe(graph, {"pages": [1, 2]}, setup=counter, store=store, most=most)  # type: ignore[arg-type]
    assert report.stops >= 4
    report = await assert_crash_safe(sections(), {"pages": [1, 2]}, setup=counter, store=store, most=most)  # type: ignore[arg-type]
    assert report.stops >= 4


async def test_one_question_is_open_at_a_time_and_the_next_process_goes_on_with_the_same_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[sections()], **counter()) as executor:
        run = await executor.start("sections", {"pages": [1, 2, 3]}, run_id="r", approve="write")
    for left in (2, 1, 0):
        assert len(run.waiting) == 1
        assert sum(branch.phase == "in_line" for branch in run.branches) == left
        async with Executor(url, graphs=[sections()], **counter()) as executor:
            assert (await executor.load("r")).waiting == run.waiting
            run = await executor.answer("r", run.waiting[0].id, Approve())
    assert (run.status, run.output) == ("completed", [3, 3, 3])


@quick_on("asyncio")
async def test_replays_are_the_same_and_forks_of_every_record_come_to_the_same_end() -> None:
    async with Executor(graphs=[sections()], **counter()) as executor:
        run = await executor.start("sections", {"pages": [1, 2]}, run_id="r", approve="write")
        while run.waiting:
            run = await executor.answer("r", run.waiting[0].id, Approve())
        assert (await executor.replay("r")).same
        for at in range(1, run.seq, sized(4, 1)):
            fork = await executor.fork("r", at=at)
            while fork.waiting:
                fork = await executor.answer(fork.run_id, fork.waiting[0].id, Approve())
            assert (fork.status, fork.output) == ("completed", [3, 3]), at


async def test_a_file_says_pools_and_has_the_same_digests(tmp_path: Path) -> None:
    text = """
name: printing
state: {fields: {text: {type: str, default: ""}}}
nodes:
  print: {kind: complete, prompt: "Which?", result: text, pool: printer}
edges: START -> print -> END
pools: {printer: 1, api: null}
"""
    (tmp_path / "a.yaml").write_text(text)
    graph = Graph.load(tmp_path / "a.yaml")
    assert (graph.pools, graph.nodes["print"].pool) == ({"printer": 1, "api": None}, "printer")
    for name in ("b.yaml", "b.json"):
        graph.save(tmp_path / name)
        again = Graph.load(tmp_path / name)
        assert (again.structure, again.content) == (graph.structure, graph.content)
    free = graph.replace(print=graph.nodes["print"].with_(pool=None))
    assert free.structure != graph.structure, "a journal is folded by the pools that admitted its steps"
    assert "pool printer" in to_text(graph)


async def test_a_run_moves_to_a_version_with_fewer_places(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"

    def version(size: int) -> Graph:
        return Graph(
            name="asking", state=Job, nodes={"print": Confirm(prompt="Print?", pool="printer"), "bind": bound},
            edges="START -> print : each pages\nprint -> bind -> END", pools={"printer": size},
        )  # fmt: skip

    async with Executor(url, graphs=[version(3)]) as executor:
        run = await executor.start("asking", run_id="r")
    assert len(run.waiting) == 3
    async with Executor(url, graphs=[version(1)]) as executor:
        for waiting in (2, 1, 1, 0):
            run = await executor.answer("r", run.waiting[0].id, Approve())
            assert len(run.waiting) == waiting
    assert run.status == "completed"
