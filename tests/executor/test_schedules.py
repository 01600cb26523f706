"""Schedules begin runs at times: each time once, whichever workers there are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, Update, node
from orchestrator.errors import InvalidInput, InvalidValue
from orchestrator.executor.schedules import fire_due
from orchestrator.stores.copying import copy_store

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 11, 22, 12, 0, 30, tzinfo=UTC).timestamp()


class State(BaseModel):
    word: str = ""


@node
def double(state: State) -> Update:
    return {"word": state.word * 2}


GRAPH = Graph(name="daily", state=State, nodes={"double": double}, edges="START -> double -> END", input="word",
              output="word")  # fmt: skip


class At:
    """A clock that stands where it is set."""

    def __init__(self, now: float) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def steady(self) -> float:
        return self.time


@pytest.fixture(params=["memory://", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else str(request.param)


async def ids(executor: Executor) -> set[str]:
    return {info.run_id for info in (await executor.runs(limit=2000)).runs}


async def test_a_time_fires_once_and_the_run_is_enqueued(url: str) -> None:
    clock = At(NOON)
    async with Executor(url, graphs=[GRAPH], clock=clock) as executor:
        made = await executor.schedules.put(GRAPH, "*/5 * * * *", "ab", labels={"user": "u"})
        assert (made.name, made.next_at) == ("daily", NOON - 30 + 300)
        assert await fire_due(executor._host) == []
        clock.time = made.next_at + 1
        (run_id,) = await fire_due(executor._host)
        assert run_id == "daily.20261122T120500Z"
        assert await fire_due(executor._host) == []
        await executor.workers.drive(run_id)
        run = await executor.load(run_id)
        assert (run.status, run.output) == ("completed", "abab")
        assert run.labels == {"user": "u", "schedule": "daily"}
        assert (await executor.schedules.list())[0].next_at == NOON - 30 + 600


@pytest.mark.parametrize(
    ("catch_up", "times"),
    [("skip", ["120500"]), ("one", ["120500"]), ("all", ["120100", "120200", "120300", "120400", "120500"])],
)
async def test_missed_times_are_skipped_or_caught_up_as_the_schedule_says(catch_up: str, times: list[str]) -> None:
    clock = At(NOON)
    async with Executor(graphs=[GRAPH], clock=clock) as executor:
        await executor.schedules.put(GRAPH, "* * * * *", "x", catch_up=catch_up)
        clock.time = NOON - 30 + 310
        assert await fire_due(executor._host) == [f"daily.20261122T{time}Z" for time in times]


@pytest.mark.parametrize(("catch_up", "count"), [("skip", 0), ("one", 1), ("all", 3)])
async def test_what_was_missed_long_ago_fires_as_the_schedule_says(catch_up: str, count: int) -> None:
    clock = At(NOON)
    async with Executor(graphs=[GRAPH], clock=clock) as executor:
        await executor.schedules.put(GRAPH, "0 * * * *", "x", catch_up=catch_up)
        clock.time = NOON + 3 * 3600 + 600
        found = await fire_due(executor._host)
        assert len(found) == count
        assert found[-1:] == (["daily.20261122T150000Z"] if count else [])


async def test_the_same_schedule_again_keeps_its_next_time_and_another_replaces_it(url: str) -> None:
    clock = At(NOON)
    async with Executor(url, graphs=[GRAPH], clock=clock) as executor:
        first = await executor.schedules.put("daily", "0 * * * *", "x")
        clock.time = NOON + 7200
        assert await executor.schedules.put("daily", "0 * * * *", "x") == first
        other = await executor.schedules.put("daily", "0 * * * *", "y")
        assert other.next_at > first.next_at
        assert await executor.schedules.list() == [other]
        assert await executor.schedules.delete("daily")
        assert not await executor.schedules.delete("daily")
        assert await fire_due(executor._host) == []


async def test_workers_that_look_at_the_same_time_begin_each_run_once(tmp_path: Path) -> None:
    clock, url = At(NOON), f"sqlite:///{tmp_path}/runs.db"
    async with (
        Executor(url, graphs=[GRAPH], clock=clock) as one,
        Executor(url, graphs=[GRAPH], clock=clock) as other,
        Executor(url, clock=clock) as without,
    ):
        await one.schedules.put(GRAPH, "* * * * *", "x", catch_up="all")
        clock.time = NOON + 600
        assert await fire_due(without._host) == []
        async with anyio.create_task_group() as tasks:
            for executor in (one, other, one, other):
                tasks.start_soon(fire_due, executor._host)
        assert len(await ids(one)) == 10


async def test_a_time_that_fired_before_the_worker_was_killed_does_not_fire_again() -> None:
    clock = At(NOON)
    async with Executor(graphs=[GRAPH], clock=clock) as executor:
        made = await executor.schedules.put(GRAPH, "* * * * *", "x")
        clock.time = made.next_at + 5
        await fire_due(executor._host)
        await executor.store.move_schedule("daily", at=made.next_at + 60, to=made.next_at)  # as if it never moved
        await fire_due(executor._host)
        assert len(await ids(executor)) == 1


async def test_a_paused_schedule_begins_nothing_and_resumes_with_the_first_time_from_then_on(url: str) -> None:
    clock = At(NOON)
    async with Executor(url, graphs=[GRAPH], clock=clock) as executor:
        made = await executor.schedules.put(GRAPH, "*/5 * * * *", "x", catch_up="all")
        paused = await executor.schedules.pause("daily")
        assert paused == replace(made, paused=True)
        clock.time = NOON + 3600
        assert await fire_due(executor._host) == []
        assert await executor.schedules.put(GRAPH, "*/5 * * * *", "x", catch_up="all") == paused
        assert (await executor.schedules.put(GRAPH, "*/10 * * * *", "x", catch_up="all")).paused
        resumed = await executor.schedules.resume("daily")
        assert resumed is not None
        assert (resumed.paused, resumed.next_at) == (False, NOON - 30 + 3600 + 600)
        assert await executor.schedules.resume("daily") == resumed
        assert await fire_due(executor._host) == []
        clock.time = resumed.next_at
        assert len(await fire_due(executor._host)) == 1
        assert await executor.schedules.pause("none") is None
        assert await executor.schedules.resume("none") is None


async def test_a_time_fires_in_one_of_two_stores_after_a_copy(tmp_path: Path) -> None:
    clock = At(NOON)
    async with (
        Executor(f"sqlite:///{tmp_path}/one.db", graphs=[GRAPH], clock=clock) as one,
        Executor(graphs=[GRAPH], clock=clock) as copy,
    ):
        made = await one.schedules.put(GRAPH, "*/5 * * * *", "x")
        await copy_store(one.store, copy.store)
        clock.time = made.next_at + 1
        assert [await fire_due(each._host) for each in (one, copy)] == [["daily.20261122T120500Z"], []]
        await copy_store(one.store, copy.store, start_schedules=True)
        clock.time += 300  # the one that moved in begins where the other one stood
        assert await fire_due(copy._host) == ["daily.20261122T121000Z"]
        assert await ids(copy) == {"daily.20261122T120500Z", "daily.20261122T121000Z"}


async def test_what_cannot_be_scheduled_is_refused(url: str) -> None:
    async with Executor(url, graphs=[GRAPH]) as executor:
        for wrong in ({"cron": "61 * * * *"}, {"timezone": "Mars/Base"}, {"catch_up": "twice"}, {"name": "a b"},
                      {"name": "x" * 200}):  # fmt: skip
            with pytest.raises(InvalidValue):
                await executor.schedules.put(GRAPH, **{"cron": "* * * * *", **wrong})  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await executor.schedules.put(GRAPH, "* * * * *", {"nope": 1})
        assert await executor.schedules.list() == []


async def test_a_schedule_whose_input_no_longer_fits_is_logged_and_the_others_fire(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Other(BaseModel):
        number: int

    changed = Graph(name="daily", state=Other, nodes={"double": double}, edges="START -> double -> END")
    clock = At(NOON)
    good = GRAPH.model_copy(update={"name": "good"})
    async with Executor(graphs=[GRAPH, good], clock=clock) as executor:
        await executor.schedules.put(GRAPH, "* * * * *", "x")
        await executor.schedules.put(good, "* * * * *", "x")
        executor._host.resources.graphs["daily"] = changed
        clock.time = NOON + 40
        assert await fire_due(executor._host) == ["good.20261122T120100Z"]
    assert "schedule daily" in caplog.text
