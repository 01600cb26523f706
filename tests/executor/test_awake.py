"""An open executor is awake for the runs that it began, resumed or answered."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Run, Update, node
from orchestrator.errors import RunUnknown, StaleAnswer
from orchestrator.nodes import Sleep
from tests.support.executors import Log, chain, hanging, says
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

SOON = 60.0
"""Seconds; others may use the machine."""


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@node
async def hurried(state: Log, ctx: Context) -> Update:
    """Ask, with a deadline that may pass."""
    return {"log": (await ctx.ask("input", prompt="now?", deadline=0.3)).type}


@node
async def patient(state: Log, ctx: Context) -> Update:
    """Ask without a deadline."""
    answer = await ctx.ask("input", prompt="well?")
    return {"log": str(getattr(answer, "value", "denied"))}


ONE = chain(patient, name="one")
TWO = chain(patient, patient, name="two")
LATE = chain(hurried, name="late")


async def status_of(executor: Executor, run_id: str) -> str:
    """The status in the list of runs, which is the same as that of the run."""
    (info,) = [one for one in (await executor.runs()).runs if one.run_id == run_id]
    assert (await executor.load(run_id)).status == info.status
    return info.status


async def until(true: Callable[[], Awaitable[bool]], seconds: float = SOON) -> float:
    """Wait until something is so; how long it took."""
    began = time.monotonic()
    with anyio.fail_after(seconds):
        while not await true():  # noqa: ASYNC110  another executor does it
            await anyio.sleep(0.01)
    return time.monotonic() - began


async def left(call: Callable[[], Awaitable[object]], executor: Executor, status: str) -> None:
    """Cancel a call when its run has a status."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await becomes(executor, "r", status)
        tasks.cancel_scope.cancel()


async def becomes(executor: Executor, run_id: str, status: str) -> float:
    """Wait until a run has this status."""

    async def has() -> bool:
        with suppress(RunUnknown):
            return (await executor.load(run_id)).status == status
        return False

    return await until(has)


@pytest.fixture
async def other(store: str, anyio_backend: str) -> AsyncIterator[Executor]:
    """Another executor on the same store, which only does what it is asked to."""
    async with Executor(store, graphs=[ONE, TWO, LATE], idle="sleep") as executor:
        yield executor


@pytest.mark.parametrize("how", ["start", "submit", "resume", "answer"])
async def test_a_deadline_passes_while_the_executor_is_open(store: str, how: str) -> None:
    graph = chain(patient, hurried, name="g") if how == "answer" else chain(hurried, name="g")
    if how == "resume":
        async with Executor(store, graphs=[graph], idle="sleep") as executor:
            await executor.start(graph, run_id="r")
            await executor.pause("r")
    async with Executor(store, graphs=[graph]) as executor:
        if how == "start":
            assert (await executor.start(graph, run_id="r")).status == "paused"
        elif how == "submit":
            await executor.submit(graph, run_id="r")
        elif how == "resume":
            await executor.resume("r")
        else:
            (question,) = (await executor.start(graph, run_id="r")).waiting
            await executor.answer("r", question.id, "yes")
        await becomes(executor, "r", "completed")
        assert (await executor.load("r")).output[-1] == "deny"


async def test_a_deadline_passes_in_a_store_in_memory() -> None:
    async with Executor(graphs=[LATE]) as executor:
        await executor.submit(LATE, run_id="r")
        await becomes(executor, "r", "completed")


async def test_an_executor_that_sleeps_moves_nothing(store: str) -> None:
    async with Executor(store, graphs=[LATE], idle="sleep") as executor:
        await executor.start(LATE, run_id="r")
        await anyio.sleep(0.8)
        assert await status_of(executor, "r") == "paused"
        assert [run.status for run in await executor.recover()] == ["completed"]


async def test_an_executor_that_only_looks_drives_nothing(store: str) -> None:
    async with Executor(store, graphs=[LATE], idle="sleep") as executor:
        await executor.start(LATE, run_id="r")
    async with Executor(store, graphs=[LATE]) as executor:
        await executor.load("r")
        assert await executor.workers.recoverable() in ([], ["r"])
        await anyio.sleep(0.8)
        assert await status_of(executor, "r") == "paused"


async def test_an_answer_of_another_executor_moves_the_run(store: str, other: Executor) -> None:
    async with Executor(store, graphs=[TWO]) as executor:
        run = await executor.start(TWO, run_id="r")
        for number in range(2):
            (question,) = run.waiting
            await other.answer("r", question.id, number, resume=False)
            run = await _next(executor, question.id)
        assert run.status == "completed"
        assert run.output == ["0", "1"]


async def _next(executor: Executor, answered: str) -> Run:
    """The run, when it has gone on behind a question."""
    found: list[Run] = []

    async def moved() -> bool:
        run = await executor.load("r")
        found[:] = [run]
        return run.status != "running" and answered not in [one.id for one in run.waiting]

    await until(moved)
    return found[0]


async def test_a_run_that_another_executor_drove_meanwhile_is_still_watched(store: str, other: Executor) -> None:
    graph = chain(patient, hurried, name="g")
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r")
        async with Executor(store, graphs=[graph], idle="sleep") as another:
            assert (await another.answer("r", run.waiting[0].id, "yes")).status == "paused"
        await becomes(executor, "r", "completed")


async def test_the_pause_of_a_person_is_not_lifted(store: str, other: Executor) -> None:
    @node
    async def waits(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.ask("input", prompt="now?", deadline=1.2)).type}

    late = chain(waits, name="late")  # time enough for a busy machine to pause it first
    async with Executor(store, graphs=[ONE, late]) as executor:
        run = await executor.start(ONE, run_id="r")
        await other.pause("r", by="ann")
        await other.answer("r", run.waiting[0].id, "yes", resume=False)
        await executor.start(late, run_id="late")
        await other.pause("late", by="ann")
        await anyio.sleep(1.5)
        for run_id in ("r", "late"):
            run = await executor.load(run_id)
            assert run.status == "paused"
            assert "pause" in [question.kind for question in run.waiting]
        assert (await executor.resume("r")).status == "completed"
        assert (await executor.resume("late")).status == "completed"


async def test_a_run_that_its_caller_interrupted_sleeps_until_it_is_resumed(store: str) -> None:
    slow, began = hanging()
    graph = chain(slow, name="g")
    async with Executor(store, graphs=[graph]) as executor:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: executor.start(graph, run_id="r"))
            await began.wait()
            tasks.cancel_scope.cancel()
        await anyio.sleep(0.6)
        assert await status_of(executor, "r") == "interrupted"
        assert (await executor.resume("r")).status == "completed"


# -- timers ------------------------------------------------------------------------------------------------------------


def sleeping(seconds: float) -> Graph:
    """Two sleeps, and what is said behind them."""
    nodes = {"one": Sleep(seconds=seconds), "two": Sleep(seconds=seconds), "say": says("good morning")}
    return Graph(name="sleeping", state=Log, nodes=nodes, edges="START -> one -> two -> say -> END", output="log")


@pytest.mark.parametrize("how", ["start", "submit", "resume", "stream", "send", "follow"][:: sized(2, 1)])
async def test_while_only_timers_are_waited_for_a_caller_waits_on(store: str, how: str) -> None:
    graph = sleeping(0.3)
    async with Executor(store, graphs=[graph]) as executor:
        began = time.monotonic()
        run: Run
        if how == "start":
            run = await executor.start(graph, run_id="r")
        elif how == "submit":
            await executor.submit(graph, run_id="r")
            run = await executor.wait("r", timeout=SOON)
        elif how == "resume":
            await executor.enqueue(graph, run_id="r")
            run = await executor.resume("r")
        elif how == "send":
            await executor.enqueue(graph, run_id="r")
            run = await executor.send("r", "paid", 7)
        elif how == "stream":
            async with executor.stream(graph, run_id="r") as live:
                seqs = [event.seq async for event in live if event.seq is not None]
            run = live.run
            assert seqs == list(range(1, run.seq + 1))
        else:
            await executor.submit(graph, run_id="r")
            async with executor.stream(run_id="r", after=0) as live:
                seqs = [event.seq async for event in live if event.seq is not None]
            run = live.run
            assert seqs == list(range(1, run.seq + 1))
        assert (run.status, run.output) == ("completed", ["good morning"])
        assert time.monotonic() - began >= 0.55


async def test_an_executor_that_sleeps_does_not_wait_for_timers(store: str) -> None:
    graph = sleeping(0.3)
    async with Executor(store, graphs=[graph], idle="sleep") as executor:
        run = await executor.start(graph, run_id="r")
        assert (run.status, [question.kind for question in run.waiting]) == ("paused", ["timer"])
        assert (await executor.wait("r")).status == "paused"
        driven = await executor.workers.drive("r")
        assert driven.status == "paused"
        assert driven.due == run.waiting[0].deadline


async def test_a_caller_that_leaves_while_a_timer_runs_leaves_a_run_that_sleeps(store: str) -> None:
    graph = sleeping(1.0)
    async with Executor(store, graphs=[graph]) as executor:
        await left(partial(executor.start, graph, run_id="r"), executor, "paused")
        await anyio.sleep(1.2)
        assert await status_of(executor, "r") == "paused"
        assert (await executor.resume("r")).status == "completed"


async def test_a_sleep_inside_a_graph_tool_is_waited_for(store: str) -> None:
    inner = sleeping(0.3)

    @node
    async def call(state: Log, ctx: Context) -> Update:
        """Call the graph."""
        return {"log": (await ctx.tool("inner")).text}

    graph = chain(call, name="outer")
    async with Executor(store, graphs=[graph], tools=[inner.as_tool("inner", "Sleeps.")]) as executor:
        with anyio.fail_after(SOON):
            run = await executor.start(graph, run_id="r")
        assert (run.status, run.error) == ("completed", None)
        assert "good morning" in run.output[0]


async def test_closing_an_executor_does_not_wait_for_timers(store: str) -> None:
    graph = sleeping(3600)
    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks, Executor(store, graphs=[graph]) as executor:
            tasks.start_soon(lambda: executor.start(graph, run_id="r"))
            await becomes(executor, "r", "paused")


# -- answered, and driven by no executor -------------------------------------------------------------------------------


async def test_a_run_that_is_answered_without_resuming_waits_to_be_taken_up(store: str) -> None:
    async with Executor(store, graphs=[ONE]) as executor:
        run = await executor.start(ONE, run_id="r")
        answered = await executor.answer("r", run.waiting[0].id, "yes", resume=False)
        assert answered.status == "running"
        await anyio.sleep(0.6)  # given up here
        assert await status_of(executor, "r") == "running"
        assert not (await executor.runs(status="interrupted")).runs
        assert await executor.workers.recoverable() == ["r"]
        with pytest.raises(TimeoutError):
            await executor.wait("r", timeout=0.5)
        with pytest.raises(StaleAnswer):
            await executor.answer("r", run.waiting[0].id, "no")
        assert [one.status for one in await executor.recover()] == ["completed"]


async def test_a_run_whose_driver_dies_after_the_answer_is_interrupted(store: str) -> None:
    hangs = anyio.Event()

    async def hang(state: Log) -> Update:
        hangs.set()
        await anyio.sleep_forever()

    graph = Graph(name="g", state=Log, nodes={"ask": patient, "hang": node(hang)}, edges="START -> ask -> hang -> END")
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r")
        await executor.answer("r", run.waiting[0].id, "yes", resume=False)
        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(executor.resume, "r")
                await hangs.wait()
                tasks.cancel_scope.cancel()
        assert await status_of(executor, "r") == "interrupted"


async def _hang(state: Log) -> Update:
    """Never end."""
    await anyio.sleep_forever()


async def test_a_pause_of_an_interrupted_run_leaves_it_interrupted(store: str) -> None:
    graph = chain(node(_hang), name="g")
    async with Executor(store, graphs=[graph]) as executor:
        await left(partial(executor.start, graph, run_id="r"), executor, "running")
        await executor.pause("r")
        assert await status_of(executor, "r") == "interrupted"


# -- enqueued runs -----------------------------------------------------------------------------------------------------


async def test_an_enqueued_run_is_durable_and_driven_by_no_executor(store: str) -> None:
    async with Executor(store, graphs=[ONE]) as executor:
        assert await executor.enqueue(ONE, "q", run_id="r", labels={"user": "ann"}) == "r"
        assert await executor.enqueue(ONE, "q", run_id="r") == "r"
    async with Executor(store, graphs=[ONE]) as executor:
        await anyio.sleep(0.5)
        assert await status_of(executor, "r") == "running"
        assert (await executor.load("r")).seq == 1
        assert await executor.workers.recoverable() == ["r"]
        driven = await executor.workers.drive("r")
        assert (driven.status, driven.due) == ("paused", None)
        assert (await executor.workers.drive("r")).status == "paused"


async def test_another_input_under_the_id_of_an_enqueued_run_is_refused(store: str) -> None:
    from orchestrator.errors import RunExists

    async with Executor(store, graphs=[ONE, TWO]) as executor:
        await executor.enqueue(ONE, "q", run_id="r")
        for graph, given in ((ONE, "another"), (TWO, "q")):
            with pytest.raises(RunExists):
                await executor.enqueue(graph, given, run_id="r")


@pytest.mark.parametrize("how", ["start", "recover", "resume", "drive"])
async def test_an_enqueued_run_is_begun_by(store: str, how: str) -> None:
    async with Executor(store, graphs=[LATE], idle="sleep") as executor:
        await executor.enqueue(LATE, "q", run_id="r")
        if how == "start":
            assert (await executor.start(LATE, "q", run_id="r")).status == "paused"
        elif how == "recover":
            assert [run.status for run in await executor.recover()] == ["paused"]
        elif how == "resume":
            assert (await executor.resume("r")).status == "paused"
        else:
            driven = await executor.workers.drive("r")
            assert driven.status == "paused"
            (question,) = (await executor.load("r")).waiting
            assert driven.due == question.deadline is not None


async def test_wait_waits_for_an_enqueued_run_that_another_executor_drives(store: str, other: Executor) -> None:
    waited: list[str] = []
    async with Executor(store, graphs=[ONE]) as executor, anyio.create_task_group() as tasks:
        await executor.enqueue(ONE, "q", run_id="r")

        async def wait() -> None:
            waited.append((await executor.wait("r", timeout=SOON)).status)

        tasks.start_soon(wait)
        await anyio.sleep(0.5)
        assert waited == []
        await other.workers.drive("r")
    assert waited == ["paused"]


async def test_a_run_that_begins_later_is_not_begun_before(store: str) -> None:
    async with Executor(store, graphs=[ONE]) as executor:
        at = time.time() + 1.0
        await executor.enqueue(ONE, "q", run_id="r", at=at)
        assert await status_of(executor, "r") == "running"
        assert await executor.recover() == []
        early = await executor.workers.drive("r")
        if time.time() < at:
            assert (early.status, early.due) == ("running", at)
        await anyio.sleep(max(0.0, at - time.time()))
        assert (await executor.workers.drive("r")).status == "paused"


@pytest.mark.parametrize("at", [float("nan"), float("inf"), -1.0, True])
async def test_a_time_that_is_none_is_refused(at: float) -> None:
    from datetime import datetime

    from orchestrator.errors import InvalidValue

    async with Executor(graphs=[ONE]) as executor:
        for given in (at, datetime(2026, 1, 1)):
            with pytest.raises(InvalidValue, match="at"):
                await executor.enqueue(ONE, at=given)
        assert not (await executor.runs()).runs


async def test_drive_does_nothing_to_an_ended_run_and_joins_what_is_driven_here(store: str) -> None:
    gate = anyio.Event()

    @node
    async def wait(state: Log) -> Update:
        """Wait for the test."""
        await gate.wait()
        return {"log": "done"}

    graph = chain(wait, name="g")
    async with Executor(store, graphs=[graph]) as executor, Executor(store, graphs=[graph]) as second:
        from orchestrator.errors import GraphUnknown, RunConflict

        found: list[str] = []

        async def drive() -> None:
            found.append((await executor.workers.drive("r")).status)

        async with anyio.create_task_group() as tasks:
            await executor.submit(graph, run_id="r")
            tasks.start_soon(drive)
            with pytest.raises(RunConflict):
                await second.workers.drive("r", wait=0.2)
            gate.set()
        assert found == ["completed"]
        head = (await executor.load("r")).seq
        assert (await second.workers.drive("r")).status == "completed"
        assert (await executor.load("r")).seq == head
        async with Executor(store) as stranger:
            await executor.enqueue(graph, run_id="s")
            with pytest.raises(GraphUnknown):
                await stranger.workers.drive("s")
            assert await status_of(executor, "s") == "running"
            assert (await executor.workers.drive("s")).status == "completed"
