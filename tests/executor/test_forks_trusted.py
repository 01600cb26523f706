"""Forks of sealed runs, by several processes at once, and in other versions of a graph."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from orchestrator import Approve, Executor, Graph, Limits, Run, Update, node
from orchestrator.errors import GraphChanged, InvalidValue, RunExists
from orchestrator.executor import Seal
from orchestrator.kernel.seals import audit
from tests.executor.test_forking import BILL, Bill, Desk, asked, confirmed, first, last, pays
from tests.support.programs import CODE, Piped
from tests.support.sizes import quick_on

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]
KEY = b"k" * 32


async def believed(executor: Executor, run_id: str) -> set[int]:
    """The records whose seal is valid."""
    return set(audit(executor.seal, run_id, await executor.store.read(run_id)).believed)


async def test_a_fork_is_believed_as_far_as_its_parent(tmp_path: Path) -> None:
    url, desk = f"sqlite:///{tmp_path}/runs.db", Desk()
    seal = Seal(KEY, "here")
    async with Executor(url, graphs=[BILL], tools=desk.tools(), seal=seal) as executor:
        run = await executor.start(BILL, {}, run_id="r")
        assert await believed(executor, "r") == set(range(1, run.seq + 1))
        fork = await executor.fork("r", at=4)
        fork = await executor.answer(fork.run_id, asked(fork).id, Approve())
        assert fork.output == run.output
        assert await believed(executor, fork.run_id) == set(range(1, fork.seq + 1))
    async with Executor(url, graphs=[BILL], tools=desk.tools()) as stranger:
        await stranger.fork("r", at=4, run_id="unsealed", start=False)
        await stranger.start(BILL, {}, run_id="foreign")
    async with Executor(url, graphs=[BILL], tools=desk.tools(), seal=seal) as executor:
        assert await believed(executor, "unsealed") == set()
        made = await executor.fork("foreign", at=4, run_id="g", start=False)
        assert await believed(executor, "g") == {made.seq}  # the record of the fork alone


async def test_an_approval_of_a_foreign_run_does_not_count_in_its_fork(tmp_path: Path) -> None:
    url, desk, graph = f"sqlite:///{tmp_path}/runs.db", Desk(), confirmed("look")
    async with Executor(url, graphs=[graph], tools=desk.tools()) as stranger:
        run = await stranger.start(graph, {}, run_id="r")
        run = await stranger.answer("r", asked(run).id, Approve())
        records = await stranger.store.read("r")
    async with Executor(url, graphs=[graph], tools=desk.tools(), seal=Seal(KEY, "here")) as executor:
        for record in records[2:-3]:
            fork = await executor.fork("r", at=record.seq)
            made = [one.type for one in records[: record.seq]].count("effect_settled")
            assert bool(fork.waiting) != bool(made)


FORKS = """
import sys

import anyio

from orchestrator import Executor

async def main():
    async with Executor(sys.argv[1]) as executor:
        print("ready", flush=True)
        sys.stdin.readline()
        fork = await executor.fork("r", at=4, update={"note": "x"}, run_id="f", start=False)
        print(fork.run_id, fork.seq, flush=True)

anyio.run(main)
"""


def forked_by_several(url: str, count: int) -> list[str]:
    """What processes say that fork a run under one id at the same time."""
    with ExitStack() as stack:
        processes = [stack.enter_context(closing(Piped([FORKS, url], module=CODE, stdin=None))) for _ in range(count)]
        for process in processes:
            assert process.line() == "ready\n"
        for process in processes:
            process.write("\n")
        return [process.read()[0].strip() for process in processes]


@quick_on("trio")
async def test_processes_that_fork_a_run_under_one_id_make_one_fork(tmp_path: Path) -> None:
    url, desk = f"sqlite:///{tmp_path}/runs.db", Desk()
    async with Executor(url, graphs=[BILL], tools=desk.tools()) as executor:
        await executor.start(BILL, {}, run_id="r")
        told = await anyio.to_thread.run_sync(forked_by_several, url, 3)
        assert told == ["f 5"] * 3
        with pytest.raises(RunExists):
            await executor.fork("r", at=4, update={"note": "y"}, run_id="f")
        assert [info.run_id for info in await executor.forks.list("r")] == ["f"]


@node
async def last_of_all() -> Update:
    return {"log": "last of all"}


def bill(**changes: Any) -> Graph:
    nodes = {"first": first, "pays": pays, "last": last}
    edges = "START -> first -> pays -> last -> END"
    made: dict[str, Any] = {"name": "bill", "state": Bill, "nodes": nodes, "edges": edges, "output": "log"}
    return Graph(**{**made, **changes})


async def test_a_fork_goes_on_in_another_version_of_its_graph(tmp_path: Path) -> None:
    url, desk = f"sqlite:///{tmp_path}/runs.db", Desk()
    new = bill(nodes={"first": first, "pays": pays, "last": last_of_all}, limits=Limits(steps=50))
    longer = bill(
        nodes={"first": first, "pays": pays, "last": last, "more": last_of_all},
        edges="START -> first -> pays -> last -> more -> END",
    )
    async with Executor(url, graphs=[BILL], tools=desk.tools()) as executor:
        await executor.start(BILL, {}, run_id="r")
        at = next(one.seq for one in await executor.store.read("r") if one.type == "step_done" and one.node == "pays")  # type: ignore[union-attr]
        fork = await executor.fork("r", at=at, graph=new)
        assert fork.output == ["first", "paid 1", "last of all"]
        fork = await executor.fork("r", at=at, graph=longer)
        assert fork.output == ["first", "paid 1", "last", "last of all"]
        kept = await executor.fork("r", at=at, graph=new, start=False)
        assert (await executor.resume(kept.run_id)).output == ["first", "paid 1", "last of all"]
        other = bill(name="other")
        with pytest.raises(InvalidValue, match="a version of it, not in 'other'"):
            await executor.fork("r", at=at, graph=other)
        gone = bill(nodes={"first": first, "pays": pays}, edges="START -> first -> pays -> END")
        with pytest.raises(GraphChanged):
            await executor.fork("r", at=at, graph=gone)
        assert len(await executor.forks.list("r")) == 3
    assert desk.paid == [1]


async def test_a_failed_run_is_forked_with_mended_code() -> None:
    @node
    async def breaks() -> Update:
        raise ValueError("broken")

    @node
    async def works() -> Update:
        return {"log": "works"}

    def made(work: Any) -> Graph:
        return bill(nodes={"first": first, "pays": work, "last": last})

    async with Executor(graphs=[made(breaks)]) as executor:
        run = await executor.start("bill", {}, run_id="r")
        assert run.status == "failed"
        fork: Run = await executor.fork("r", graph=made(works))
        assert fork.output == ["first", "works", "last"]
