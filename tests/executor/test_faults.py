"""The store fails under a run: the disk is full, the file is gone or read-only, somebody closed it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Limits, Outcome, Update, node
from orchestrator.errors import RunUnknown, StoreError, StoreUnavailable
from orchestrator.stores import open_store
from tests.executor.lives import programs
from tests.executor.outside import outside
from tests.support.disks import KINDS, Disk, disk_of
from tests.support.executors import Log, says, single

pytestmark = pytest.mark.anyio


# -- disks that fill up ------------------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with disk_of(request.param, tmp_path) as found:
        yield found


async def _happen(what: Callable[[], object] | None) -> None:
    found = None if what is None else what()
    if inspect.isawaitable(found):
        await found


class Work:
    """A loop of steps, each with an effect; something can happen before one of them."""

    def __init__(self, rounds: int = 12) -> None:
        self.done: list[int] = []
        self.before: dict[int, Callable[[], object]] = {}
        self.during: dict[int, Callable[[], object]] = {}

        @node
        async def work(state: Log, ctx: Context) -> Outcome[Literal["again", "enough"]]:
            await _happen(self.before.pop(state.n, None))

            async def act(n: int) -> str:
                self.done.append(n)
                await _happen(self.during.pop(n, None))
                return f"{n} " * 4000

            text = await ctx.effect("act", act, state.n, returns=str, effect="irreversible")
            return Outcome("again" if state.n + 1 < rounds else "enough", n=state.n + 1, log=text[:2])

        self.graph = Graph(
            name="rounds", state=Log, nodes={"work": work, "last": says("last")},
            edges="START -> work\nwork -> work : again\nwork -> last : enough\nlast -> END", output="log",
            limits=Limits(steps=None),
        )  # fmt: skip
        self.output = [f"{n} "[:2] for n in range(rounds)] + ["last"]
        self.rounds = list(range(rounds))


async def test_a_full_disk_interrupts_and_the_run_goes_on_when_there_is_room(disk: Disk) -> None:
    work = Work()
    work.before[5] = disk.fill
    async with Executor(disk.url, graphs=[work.graph]) as executor:
        with pytest.raises(StoreUnavailable, match=disk.message):
            await executor.start(work.graph, run_id="r")
        assert work.done == [0, 1, 2, 3, 4]  # what could not be journaled was not begun
        with pytest.raises(StoreUnavailable, match=disk.message):
            await executor.resume("r")
        run = await executor.load("r")
        assert run.status == "interrupted"
        assert run.values["n"] in (4, 5)
        disk.free()
        run = await executor.resume("r")
        assert run.output == work.output
        assert work.done == work.rounds


async def test_an_effect_that_ended_when_the_disk_was_full_is_asked_about_and_not_done_again(disk: Disk) -> None:
    work = Work()
    work.during[5] = disk.fill
    async with Executor(disk.url, graphs=[work.graph]) as executor:
        with pytest.raises(StoreUnavailable, match=disk.message):
            await executor.start(work.graph, run_id="r")
        assert work.done == [0, 1, 2, 3, 4, 5]
        disk.free()
        run = await executor.resume("r")
        assert [question.kind for question in run.waiting] == ["unknown_outcome"]
        run = await executor.answer("r", run.waiting[0].id, {"choice": "happened", "result": "5 "})
    assert run.output == work.output
    assert work.done == work.rounds


async def test_a_run_that_nobody_awaits_is_given_up_too_and_recovered(disk: Disk) -> None:
    work = Work()
    work.before[5] = disk.fill
    async with Executor(disk.url, graphs=[work.graph], idle="sleep") as executor:
        run_id = await executor.submit(work.graph)
        with pytest.raises(StoreUnavailable, match=disk.message):
            await executor.wait(run_id, timeout=30)
        assert await executor.workers.recoverable() == [run_id]
        assert await executor.recover() == []
        disk.free()
        assert [run.output for run in await executor.recover()] == [work.output]
        assert work.done == work.rounds


async def test_who_reads_the_events_of_a_run_is_told_what_it_was_given_up_for(disk: Disk) -> None:
    work = Work()
    work.before[5] = disk.fill
    seen: list[int | None] = []

    async def read(executor: Executor) -> None:
        async with executor.stream(work.graph, run_id="r") as live:
            async for event in live:
                seen.append(event.seq)

    async with Executor(disk.url, graphs=[work.graph]) as executor:
        with pytest.raises(StoreUnavailable, match=disk.message):
            await read(executor)
        stored = [event.seq async for event in executor.events("r")]
        assert [seq for seq in seen if seq is not None] == stored  # what is shown is what is durable, to the last one
        disk.free()
        assert (await executor.resume("r")).output == work.output


async def test_branches_stop_with_their_run_and_what_landed_of_them_stays(disk: Disk) -> None:
    done: list[int] = []
    full = anyio.Event()

    @node
    async def work(state: Log, ctx: Context, item: int) -> Update:
        async def act() -> str:
            done.append(item)
            return f"{item}"

        if item == 3 and not full.is_set():
            await anyio.sleep(0.2)  # until the others are through, but for one
            disk.fill()
            full.set()
        if item == 4 and not full.is_set():
            await anyio.sleep(60)
        return {"log": await ctx.effect("act", act, returns=str) + " " * 4000}

    graph = Graph(
        name="wide", state=Log, nodes={"plan": says("plan"), "work": work, "join": says("join", join="all")},
        edges="START -> plan\nplan -> work : each items\nwork -> join -> END", output="log",
    )  # fmt: skip
    async with Executor(disk.url, graphs=[graph]) as executor:
        with anyio.fail_after(30), pytest.raises(StoreUnavailable, match=disk.message):
            await executor.start(graph, {"items": [0, 1, 2, 3, 4]}, run_id="r")
        assert sorted(done) == [0, 1, 2]
        disk.free()
        run = await executor.resume("r")
    assert [text.strip() for text in run.output] == ["plan", "0", "1", "2", "3", "4", "join"]
    assert sorted(done) == [0, 1, 2, 3, 4]


async def test_where_a_run_cannot_be_begun_there_is_none(disk: Disk) -> None:
    work = Work()
    async with Executor(disk.url, graphs=[work.graph]) as executor:
        await executor.start(work.graph, run_id="before")
        work.done.clear()
        disk.fill()
        for begin in (executor.start, executor.submit):
            with pytest.raises(StoreUnavailable, match=disk.message):
                await begin(work.graph, run_id="r")
        with pytest.raises(RunUnknown):
            await executor.load("r")
        assert [info.run_id for info in (await executor.runs()).runs] == ["before"]
        assert work.done == []
        disk.free()
        assert (await executor.start(work.graph, run_id="r")).output == work.output


async def test_an_answer_a_pause_and_a_cancel_that_cannot_be_written_change_nothing(disk: Disk) -> None:
    async def asks(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.ask("input", prompt="go?")).value}

    graph = single(asks)
    async with Executor(disk.url, graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r")
        (question,) = run.waiting
        disk.fill()
        for resume in (True, False):
            with pytest.raises(StoreUnavailable, match=disk.message):
                await executor.answer("r", question.id, "yes", resume=resume)
        for act in (executor.pause, executor.cancel):
            with pytest.raises(StoreUnavailable, match=disk.message):
                await act("r")
        now = await executor.load("r")
        assert (now.status, now.seq, now.waiting) == ("paused", run.seq, run.waiting)
        disk.free()
        assert (await executor.answer("r", question.id, "yes")).output == ["yes"]


# -- stores that are taken away ----------------------------------------------------------------------------------------


async def test_a_store_that_is_closed_under_the_run(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    work = Work()
    work.before[5] = store.close
    async with Executor(store, graphs=[work.graph]) as executor:
        with pytest.raises(StoreError, match="is closed; open it again to write"):
            await executor.start(work.graph, run_id="r")
        assert work.done == [0, 1, 2, 3, 4]
        # Nobody in this process holds the run, although the lease could not be given back.
        async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[work.graph]) as other:
            assert (await other.load("r")).status == "interrupted"
            run = await other.resume("r")
    assert run.output == work.output
    assert work.done == work.rounds


async def test_a_file_that_is_removed_or_replaced_under_the_run(tmp_path: Path) -> None:
    for number, replaced in enumerate((False, True)):
        path = tmp_path / f"{number}" / "runs.db"
        work = Work()

        def away(path: Path = path, *, replaced: bool = replaced) -> None:
            for file in path.parent.iterdir():
                file.rename(tmp_path / file.name)
            if replaced:
                path.write_bytes(b"")

        work.before[5] = away
        async with Executor(f"sqlite:///{path}", graphs=[work.graph]) as executor:
            for action in (
                lambda graph=work.graph: executor.start(graph, run_id="r"),
                lambda graph=work.graph: executor.start(graph, run_id="r"), lambda: executor.resume("r"),
                lambda: executor.load("r"), lambda: executor.wait("r"), executor.runs,
            ):  # fmt: skip
                with pytest.raises(StoreUnavailable, match=r"runs\.db"):
                    await action()
                assert work.done == [0, 1, 2, 3, 4]
            assert sorted(path.parent.iterdir()) == ([path] if replaced else [])
        for file in path.parent.iterdir():
            file.unlink()
        for file in tmp_path.iterdir():
            if file.is_file():
                file.rename(path.parent / file.name)
        async with Executor(f"sqlite:///{path}", graphs=[work.graph]) as executor:
            assert (await executor.resume("r")).output == work.output
        assert work.done == work.rounds


def test_a_file_that_may_only_be_read(tmp_path: Path, anyio_backend: str) -> None:
    path = tmp_path / "store"
    with outside() as world, programs() as (program,):
        order = functools.partial(
            program.begin, url=world.url, store=f"sqlite:///{path}/runs.db", run_id="r", powerless=True,
            backend=anyio_backend,
        )  # fmt: skip
        assert order("start").result()["status"] == "paused"
        asked = len(world.asked)
        (path / "runs.db").chmod(0o444)
        path.chmod(0o555)
        assert order("load").result()["status"] == "paused"
        for do in ("trip", "resume", "cancel", "pause"):
            told = order(do).end()
            assert told["error"] == "StoreUnavailable", told
            assert "read-only" in told["message"]
        path.chmod(0o755)
        (path / "runs.db").chmod(0o644)
        assert len(world.asked) == asked
        assert order("trip").result()["status"] == "completed"
        assert len(world.asked) == asked + 3 * 2
