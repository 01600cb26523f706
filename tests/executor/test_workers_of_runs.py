"""Executors that take up runs which no executor drives."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from orchestrator import Context, Executor, Graph, OfflineModel, Update, node
from orchestrator.errors import StoreUnavailable
from orchestrator.nodes import Sleep
from orchestrator.stores.base import Lease, Store
from orchestrator.stores.requests import ClaimRequest
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.stores.sqlite import SQLiteStore
from tests.support.executors import Log, chain, hanging, says, single
from tests.support.sizes import quick_on, sized
from tests.support.stores import Places, kinds

pytestmark = pytest.mark.anyio

SOON = 30.0
HELLO = chain(says("hello"), name="hello")


@pytest.fixture
def store(url: str) -> str:
    return url


@node
async def patient(state: Log, ctx: Context) -> Update:
    """Ask without a deadline."""
    return {"log": str(getattr(await ctx.ask("input", prompt="well?"), "value", "denied"))}


@node
async def hurried(state: Log, ctx: Context) -> Update:
    """Ask, with a deadline that may pass."""
    return {"log": (await ctx.ask("input", prompt="now?", deadline=0.2)).type}


ASKS, LATE = chain(patient, name="asks"), chain(hurried, name="late")


async def all_are(executor: Executor, status: str, count: int) -> None:
    """Wait until so many runs have this status."""
    with anyio.fail_after(SOON):
        while len((await executor.runs(status=status, limit=10_000)).runs) < count:  # noqa: ASYNC110  others drive them
            await anyio.sleep(0.02)


@kinds("sqlite", "postgresql")
async def test_a_worker_drives_what_was_enqueued_answered_interrupted_and_is_due(store: str) -> None:
    slow, began = hanging()
    hangs = chain(slow, name="hangs")
    async with Executor(store, graphs=[HELLO, ASKS, LATE, hangs], idle="sleep") as executor:
        with anyio.move_on_after(None) as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await began.wait()
                    scope.cancel()

                tasks.start_soon(cancel)
                await executor.start(hangs, run_id="interrupted")
        await executor.enqueue(HELLO, run_id="enqueued")
        await executor.start(LATE, run_id="due")
        run = await executor.start(ASKS, run_id="answered")
        await executor.answer("answered", run.waiting[0].id, "yes", resume=False)
        await executor.start(ASKS, run_id="waits")
        await executor.start(ASKS, run_id="paused")
        await executor.pause("paused")
        later = await executor.enqueue(HELLO, run_id="later", at=time.time() + 3600)
        async with Executor(store, graphs=[HELLO, ASKS, LATE, hangs]) as worker, anyio.create_task_group() as tasks:
            tasks.start_soon(worker.work)
            await all_are(executor, "completed", 4)
            tasks.cancel_scope.cancel()
        found = {info.run_id: info.status for info in (await executor.runs()).runs}
        assert found == {
            "interrupted": "completed", "enqueued": "completed", "due": "completed", "answered": "completed",
            "waits": "paused", "paused": "paused", later: "running",
        }  # fmt: skip


@pytest.mark.full
@kinds("sqlite", "postgresql")
async def test_workers_share_runs_and_each_run_is_driven_once(store: str) -> None:
    count = sized(40, 400)
    driven: list[str] = []

    @node
    async def note(state: Log, ctx: Context) -> Update:
        """Note who ran."""
        driven.append(ctx.run_id)
        await anyio.sleep(0.005)
        return {"log": "x"}

    graph = chain(note, name="g")
    async with Executor(store, graphs=[graph]) as one, Executor(store, graphs=[graph]) as two:
        for number in range(count):
            await one.enqueue(graph, run_id=f"r{number}")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: one.work(slots=5))
            tasks.start_soon(lambda: two.work(slots=5))
            await all_are(one, "completed", count)
            tasks.cancel_scope.cancel()
    assert sorted(driven) == sorted(f"r{number}" for number in range(count))


async def test_a_worker_drives_no_more_runs_than_it_has_slots(store: str) -> None:
    at_once, most = 0, 0
    full = anyio.Event()

    @node
    async def count(state: Log) -> Update:
        """Count those that run; the first ones wait until there are as many as there are slots."""
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if most >= 3:
            full.set()
        await full.wait()
        await anyio.sleep(0.03)
        at_once -= 1
        return {"log": "x"}

    graph = chain(count, name="g")
    async with Executor(store, graphs=[graph, HELLO]) as executor, anyio.create_task_group() as tasks:
        for number in range(12):
            await executor.enqueue(graph, run_id=f"r{number}")
        await executor.enqueue(HELLO, run_id="other")
        tasks.start_soon(lambda: executor.work(slots=3, graphs=["g"]))
        await all_are(executor, "completed", 12)
        assert most == 3
        assert (await executor.load("other")).queued
        tasks.cancel_scope.cancel()


async def test_cancelling_a_worker_gives_its_runs_back(store: str) -> None:
    began = anyio.Event()

    @node
    async def hang(state: Log) -> Update:
        """Never end."""
        began.set()
        await anyio.sleep_forever()

    graph = chain(hang, name="g")
    async with Executor(store, graphs=[graph]) as executor:
        await executor.enqueue(graph, run_id="r")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.work)
            await began.wait()
            tasks.cancel_scope.cancel()
        assert (await executor.load("r")).status == "interrupted"
        assert await executor.store.lease("r") is None


async def test_a_worker_that_is_asked_to_stop_lets_the_step_end_and_begins_no_other(store: str) -> None:
    began, gate, stop = anyio.Event(), anyio.Event(), anyio.Event()

    @node
    async def first(state: Log) -> Update:
        """Wait for the test."""
        began.set()
        await gate.wait()
        return {"log": "first"}

    graph = chain(first, says("second"), name="g")
    async with Executor(store, graphs=[graph]) as executor:
        await executor.enqueue(graph, run_id="r")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: executor.work(stop=stop))
            await began.wait()
            stop.set()
            await anyio.sleep(0.1)
            await executor.enqueue(graph, run_id="more")
            gate.set()
        run = await executor.load("r")
        assert (run.status, run.values["log"]) == ("interrupted", ["first"])
        assert await executor.store.lease("r") is None
        assert (await executor.load("more")).queued
        assert (await executor.resume("r")).output == ["first", "second"]


async def test_a_run_that_cannot_be_driven_backs_off_and_says_why(store: str) -> None:
    @node
    async def asks_a_model(state: Log, ctx: Context) -> Update:
        """Ask a model that is not there."""
        return {"log": (await ctx.model.complete("?")).text}

    graph = chain(asks_a_model.with_(model="far"), name="g")
    async with Executor(store, graphs=[graph], models={"far": OfflineModel()}) as executor:
        await executor.enqueue(graph, run_id="r")
    async with Executor(store, graphs=[graph, HELLO]) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(executor.work)
        await executor.enqueue(HELLO, run_id="good")
        with anyio.fail_after(SOON):
            while (info := await executor.store.info("r")).deaths < 2:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert "far" in info.fault
        assert info.retry_at is not None
        assert info.retry_at > time.time()
        await all_are(executor, "completed", 1)
        tasks.cancel_scope.cancel()


async def test_a_run_whose_process_died_too_often_goes_on_by_hand_only(store: str) -> None:
    async with Executor(store, graphs=[HELLO]) as executor:
        await executor.enqueue(HELLO, run_id="r")
        for number in range(MAX_DEATHS):
            hold = await _taken(executor.store, number)
            await executor.store.drop_lease("r", hold, fault="the process died")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.work)
            await anyio.sleep(0.3)
            assert (await executor.load("r")).seq == 1
            assert await executor.recover() == []
            assert (await executor.resume("r")).status == "completed"
            tasks.cancel_scope.cancel()
        info = await executor.store.info("r")
        assert (info.deaths, info.retry_at, info.fault) == (0, None, "")


@kinds("sqlite", "postgresql")
async def test_a_parked_run_that_was_refused_is_taken_up_by_a_worker_of_a_version_that_fits(store: str) -> None:
    async def another(state: Log) -> Update:
        return {"log": "another"}

    other = single(another, name="asks")
    async with Executor(store, graphs=[ASKS], idle="sleep") as executor:
        for run_id in ("refused", "failing"):
            run = await executor.start(ASKS, "x", run_id=run_id)
            await executor.answer(run_id, run.waiting[0].id, "yes", resume=False)
        await gave_up(executor.store, "failing", "RuntimeError: broken", MAX_DEATHS)
    async with Executor(store, graphs=[other], idle="sleep") as executor:
        await worked(executor, "refused", 1)
        fault = (await executor.store.info("refused")).fault
        assert fault.startswith("GraphChanged: ")
        await gave_up(executor.store, "refused", fault, MAX_DEATHS - 1)
        assert {one.run_id for one in await executor.workers.parked()} == {"refused", "failing"}
        await worked(executor, "refused", MAX_DEATHS + 1)  # tried once by each worker, and parked
    async with Executor(store, graphs=[ASKS], idle="sleep") as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: executor.work(slots=1, poll=0.05))
        await all_are(executor, "completed", 1)
        (left,) = await executor.workers.parked()
        assert (left.run_id, left.deaths) == ("failing", MAX_DEATHS)
        tasks.cancel_scope.cancel()


async def gave_up(store: Store, run_id: str, fault: str, times: int) -> None:
    """Let drives of a run be given up."""
    for number in range(times):
        assert await store.take_lease(Lease(run_id, f"{run_id} {number}", "far"), ttl=60.0)
        await store.drop_lease(run_id, f"{run_id} {number}", fault=fault)


async def worked(executor: Executor, run_id: str, deaths: int) -> None:
    """Work until so many drives of a run were given up."""
    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: executor.work(slots=1, poll=0.05))
            while (await executor.store.info(run_id)).deaths < deaths:  # noqa: ASYNC110  the worker counts them
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()


async def _taken(store: Store, number: int) -> str:
    from orchestrator.stores.base import Lease
    from orchestrator.stores.owner import Owner

    owner = Owner.here()
    lease = Lease("r", f"t{number}", owner.executor, owner.data())
    assert await store.take_lease(lease, ttl=60.0)
    return lease.token


async def test_a_worker_survives_a_store_that_fails_for_a_while(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = 0
    async with Executor(store, graphs=[HELLO]) as executor, anyio.create_task_group() as tasks:
        claim = executor.store.claim

        async def failing(request: ClaimRequest) -> object:
            nonlocal failures
            failures += 1
            if failures <= 3:
                raise StoreUnavailable("the disk is full")
            return await claim(request)

        monkeypatch.setattr(executor.store, "claim", failing)
        await executor.enqueue(HELLO, run_id="r")
        tasks.start_soon(lambda: executor.work(poll=0.05))
        await all_are(executor, "completed", 1)
        tasks.cancel_scope.cancel()
    assert failures > 3


# -- sleeping runs -----------------------------------------------------------------------------------------------------


async def lateness(store: str, count: int, spread: float, *, poll: float = 1.0, lead: float = 2.0) -> list[float]:
    """How late runs wake that sleep in one worker, in seconds, in order.

    Args:
        lead: seconds until the first of them is due.
    """
    nodes = {"nap": Sleep(until="question"), "say": says("up")}
    graph = Graph(name="naps", state=Log, nodes=nodes, input="question", edges="START -> nap -> say -> END")
    late: list[float] = []
    async with Executor(store, graphs=[graph]) as executor, anyio.create_task_group() as tasks:
        first = time.time() + lead
        dues = {f"r{number}": first + spread * number / count for number in range(count)}
        for run_id, due in dues.items():
            await executor.enqueue(graph, datetime.fromtimestamp(due, UTC).isoformat(), run_id=run_id)
        tasks.start_soon(lambda: executor.work(slots=20, poll=poll))
        with anyio.fail_after(60 + lead + 2 * spread + count / 50):
            while (await executor.runs(status=("running", "paused"), limit=1)).runs:  # noqa: ASYNC110
                await anyio.sleep(0.3)
        for run_id, due in dues.items():
            fired = [one for one in await executor.store.read(run_id) if one.type == "timer_fired"]
            late += [one.ts - due for one in fired]
        tasks.cancel_scope.cancel()
    return sorted(late)


async def test_sleeping_runs_wake_when_they_are_due_and_not_when_the_worker_polls(store: str) -> None:
    late = await lateness(store, 30, 0.5, poll=3600.0, lead=0.5)
    assert all(one >= -0.01 for one in late)


@pytest.mark.storm
@pytest.mark.timed
@quick_on("asyncio")
async def test_thousands_of_sleeping_runs_wake_in_time(places: Places, scale: int) -> None:
    """`--storm-scale N`: 500 N runs, up to 10,000 in 60 seconds. On a machine that is busy otherwise it tries again."""
    count = min(10_000, 500 * scale)
    for attempt in (1, 2, 3):
        lead = attempt * (3 + count / 60)  # until then all of them have to be asleep
        late = await lateness(places.new(), count, max(10.0, 60.0 * count / 10_000), lead=lead)
        middle, most = late[len(late) // 2], late[int(len(late) * 0.99)]
        print(f"{count} runs, late by {middle:.3f} s (p50), {most:.3f} s (p99), {late[-1]:.3f} s (max)")
        assert late[0] >= -0.01
        if most < 1.0:
            return
    raise AssertionError(f"late by {most:.3f} s (p99)")


async def test_a_worker_whose_runs_all_sleep_asks_the_store_nothing(tmp_path: Path) -> None:
    asked: list[str] = []
    graph = Graph(name="naps", state=Log, nodes={"nap": Sleep(seconds=3600)}, edges="START -> nap -> END")
    opened = SQLiteStore(tmp_path / "runs.db")
    hour = 3600.0  # a worker without runs, too, says that it lives, every third of a lease
    try:
        async with (
            Executor(opened, graphs=[graph], lease_ttl=hour) as executor,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(lambda: executor.work(poll=0.1))
            tasks.start_soon(lambda: executor.start(graph, run_id="watched"))
            for number in range(3):
                await executor.enqueue(graph, run_id=f"r{number}")
            await all_are(executor, "paused", 4)
            read, write = opened._readers.read_now, opened._writer.write

            def reads(action: object) -> object:
                asked.append(f"read {action}")
                return read(action)  # type: ignore[arg-type]

            def writes(*args: object) -> object:
                asked.append(f"write {args}")
                return write(*args)  # type: ignore[arg-type]

            opened._readers.read_now = reads  # type: ignore[method-assign,assignment]
            opened._writer.write = writes  # type: ignore[method-assign,assignment]
            for _ in range(4):  # the last of them may only just have gone to sleep
                asked.clear()
                await anyio.sleep(sized(0.8, 10.0))
                if not asked:
                    break
            assert asked == []
            opened._readers.read_now, opened._writer.write = read, write  # type: ignore[method-assign]
            tasks.cancel_scope.cancel()
    finally:
        await opened.close()
