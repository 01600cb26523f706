"""Runs whose drive in the background was given up are tried again by the executor that is open."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from orchestrator import Context, Executor, Run, Update, node
from orchestrator.errors import ModelMisconfigured, OrchestratorError, StoreUnavailable
from orchestrator.models import ModelRequest, Reply, RequestModel
from orchestrator.nodes import Sleep
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.testing import MockClock
from tests.support.executors import Log, chain, says

pytestmark = pytest.mark.anyio


class Outage(RequestModel):
    """A model that refuses the first calls."""

    name = "outage"

    def __init__(self, refusals: int) -> None:
        self.refusals, self.calls = refusals, 0

    async def respond(self, request: ModelRequest) -> Reply:
        self.calls += 1
        if self.calls <= self.refusals:
            raise ModelMisconfigured(f"refused {self.calls}")
        return Reply(text="hello")


@node
async def talk(state: Log, ctx: Context) -> Update:
    """Ask the model."""
    return {"log": f"{(await ctx.model.complete('hi')).text} {ctx.context}"}


GRAPH = chain(talk, name="talks")


async def until_over(executor: Executor, run_id: str) -> tuple[Run, list[str]]:
    """Wait until a run is over; what it was given up for meanwhile."""
    faults: list[str] = []
    while True:
        try:
            return await executor.wait(run_id), faults
        except OrchestratorError as error:
            faults.append(str(error))


async def test_a_run_that_was_submitted_is_tried_again_until_it_succeeds(clock: MockClock) -> None:
    model, seen = Outage(3), list[tuple[str, str]]()

    async def observe(run: Run, seq: int) -> None:
        seen.append((run.status, "" if run.standby is None else run.standby.fault))

    async with Executor(model=model, clock=clock, observers=[observe]) as executor:
        began = clock.now()
        await executor.submit(GRAPH, run_id="r", context="mine")
        run, faults = await until_over(executor, "r")
        assert (run.status, run.output) == ("completed", ["hello mine"])
        assert list(dict.fromkeys(faults)) == [
            "refused 1",
            "refused 2",
            "refused 3",
        ]
        assert clock.now() - began >= 1 + 2 + 4
        info = await executor.store.info("r")
        assert (info.deaths, info.fault) == (0, "")
    assert model.calls == 4
    faults = [fault for status, fault in seen if status == "interrupted"]
    assert faults == [f"ModelMisconfigured: refused {number}" for number in (1, 2, 3)]
    assert seen[-1] == ("completed", "")


async def test_after_five_times_only_resume_continues_it(clock: MockClock) -> None:
    model = Outage(MAX_DEATHS)
    async with Executor(model=model, clock=clock) as executor:
        await executor.submit(GRAPH, run_id="r")
        run, faults = await until_over(executor, "r")
        assert run.status == "interrupted"
        assert faults[-1].endswith(f"refused {MAX_DEATHS}")
        await anyio.sleep(24 * 3600)
        assert (await executor.store.info("r")).deaths == model.calls == MAX_DEATHS
        assert (await executor.resume("r")).status == "completed"


@pytest.mark.parametrize("how", ["caller", "asleep"])
async def test_a_run_is_left_alone_whose_caller_got_the_error_or_whose_executor_sleeps(
    clock: MockClock, how: str
) -> None:
    model = Outage(1)
    async with Executor(model=model, clock=clock, idle="sleep" if how == "asleep" else "awake") as executor:
        if how == "asleep":
            await executor.submit(GRAPH, run_id="r")
        with pytest.raises(ModelMisconfigured):
            await (executor.wait("r") if how == "asleep" else executor.start(GRAPH, run_id="r"))
        await anyio.sleep(24 * 3600)
        assert (await executor.load("r")).status == "interrupted"
    assert model.calls == 1


@pytest.mark.parametrize("how", ["resume", "pause", "cancel"])
async def test_a_run_that_backs_off_does_what_it_is_asked_to(clock: MockClock, how: str) -> None:
    model = Outage(1)
    async with Executor(model=model, clock=clock) as executor:
        await executor.submit(GRAPH, run_id="r")
        with pytest.raises(ModelMisconfigured):
            await executor.wait("r")
        if how == "resume":
            assert (await executor.resume("r")).status == "completed"
        else:
            run = await (executor.pause("r") if how == "pause" else executor.cancel("r"))
            await anyio.sleep(24 * 3600)
            assert (await executor.load("r")).status == run.status == ("interrupted" if how == "pause" else "cancelled")
            assert model.calls == 1


async def test_runs_that_were_recovered_are_tried_again(clock: MockClock) -> None:
    model, store = Outage(2), MemoryStore()
    async with Executor(store, model=model, clock=clock, idle="sleep") as executor:
        await executor.enqueue(GRAPH, run_id="r")
    async with Executor(store, model=model, clock=clock, graphs=[GRAPH]) as executor:
        assert await executor.recover() == []
        run, _ = await until_over(executor, "r")
        assert run.status == "completed"


class Unavailable(MemoryStore):
    """A store that refuses to give leases for a while."""

    refusals = 0

    async def take_lease(self, *given: Any, **options: Any) -> bool:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("the disk is full")
        return await super().take_lease(*given, **options)


async def test_a_timer_that_is_due_while_the_store_fails_is_not_lost(clock: MockClock) -> None:
    store = Unavailable()
    graph = chain(Sleep(seconds=10), says("up"), name="naps")
    async with Executor(store, clock=clock) as executor:
        await executor.submit(graph, run_id="r")
        while (await executor.load("r")).status != "paused":  # noqa: ASYNC110
            await anyio.sleep(0.01)
        store.refusals = 4
        run, faults = await until_over(executor, "r")
    assert run.output == ["up"]
    assert {*faults} <= {"the disk is full"}
    assert store.refusals == 0
