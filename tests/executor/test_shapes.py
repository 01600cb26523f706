"""The shapes that cost more than they touch, were it not for what is shared: by counts, at a size and at ten times it.

What is counted is calls of functions, in this library and in what it uses, and bytes: no times.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tracemalloc
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, Limits, Outcome, append, node
from orchestrator.executor import heartbeat, journal
from tests.support.sizes import sized

HOUR = 3600.0


class Message(BaseModel):
    role: str = "user"
    content: str = ""
    parts: list[str] = []


class Talk(BaseModel):
    n: int = 0
    until: int = 0
    messages: list[Message] = []
    lines: Annotated[list[str], append] = []


class Documents(BaseModel):
    items: list[dict[str, Any]] = []
    lines: Annotated[list[str], append] = []
    found: Annotated[list[int], append] = []


def loop(*, reads: bool) -> Graph:
    @node(effect="pure")
    async def work(state: Talk) -> Outcome[Literal["again", "enough"]]:
        if reads:
            assert state.messages[-1].parts.pop() == "a"  # of a copy of its own
        return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)

    return Graph(
        name="loop", state=Talk, nodes={"work": work}, output="n", limits=Limits(steps=None),
        edges="START -> work\nwork -> work : again\nwork -> END : enough",
    )  # fmt: skip


def mapped(field: str) -> Graph:
    @node(effect="pure")
    async def begin(state: Documents) -> None: ...

    @node(effect="pure")
    async def read(state: Documents, item: dict[str, Any]) -> dict[str, object]:
        return {field: item["number"] if field == "found" else "a line"}

    @node(effect="pure", join="all")
    async def gather(state: Documents) -> None: ...

    return Graph(
        name="mapped", state=Documents, nodes={"begin": begin, "read": read, "gather": gather},
        edges="START -> begin\nbegin -> read : each items\nread -> gather -> END", limits=Limits(steps=None),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an executor does every so many seconds depends on how busy the machine is."""
    monkeypatch.setattr(journal, "FLUSH_AFTER", HOUR)
    monkeypatch.setattr(journal, "SUMMARY_SECONDS", HOUR)
    monkeypatch.setattr(heartbeat, "POLL", HOUR)


def calls(graph: Graph, given: dict[str, Any]) -> int:
    """How many functions of Python are called by a run, the second one of its graph."""

    async def work() -> int:
        count = 0

        def note(_frame: object, event: str, _argument: object) -> None:
            nonlocal count
            count += event == "call"

        async with Executor("memory://", lease_ttl=HOUR) as executor:
            await executor.start(graph, {**given, "until": 2} if "until" in given else {"items": []})
            gc.disable()  # what is told of garbage that is collected would count
            sys.setprofile(note)
            try:
                run = await executor.start(graph, given)
            finally:
                sys.setprofile(None)
                gc.enable()
            assert run.status == "completed"
        return count

    return anyio.run(work)


def a_step(graph: Graph, given: dict[str, Any]) -> float:
    """Calls for each of twenty further steps, of a run too short for a snapshot at its end."""
    return (calls(graph, {**given, "until": 25}) - calls(graph, {**given, "until": 5})) / 20


def peak(graph: Graph, given: dict[str, Any]) -> int:
    """The most bytes that a run needs at once."""

    async def work() -> int:
        async with Executor("memory://", lease_ttl=HOUR) as executor:
            await executor.start(graph, {"items": []})
            tracemalloc.start()
            try:
                await executor.start(graph, given)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    return anyio.run(work)


def messages(count: int) -> dict[str, Any]:
    return {"messages": [{"content": f"message {n}", "parts": ["a"]} for n in range(count)]}


def documents(count: int) -> dict[str, Any]:
    return {"items": [{"number": n, "text": ["some", {"text": n}]} for n in range(count)]}


@pytest.mark.full
@pytest.mark.parametrize("reads", [False, True], ids=["beside", "reads"])
def test_a_step_makes_as_many_calls_with_ten_times_as_many_messages(*, reads: bool) -> None:
    few, many = (a_step(loop(reads=reads), messages(count)) for count in (50, 500))
    assert many < 1.5 * few, (few, many)  # the loop of asyncio makes a few now and then


@pytest.mark.full
@pytest.mark.parametrize("field", ["found", "lines"])
def test_a_branch_makes_as_many_calls_among_ten_times_as_many(field: str) -> None:
    """With the join, what lists show, and the tries to make a snapshot."""
    graph = mapped(field)

    def a_branch(count: int) -> float:
        return (calls(graph, documents(2 * count)) - calls(graph, documents(count))) / count

    few, many = a_branch(100), a_branch(sized(1000, 4000))
    assert many < 1.2 * few, (few, many)


@pytest.mark.full
def test_a_branch_needs_no_more_memory_among_ten_times_as_many() -> None:
    """It copies its own item: a list of the others, even one that shares them, would need eight bytes for each."""

    def a_branch(count: int) -> float:
        needed: list[int] = []
        before, all_begun = 0, anyio.Event()

        @node(effect="pure")
        async def begin(state: Documents) -> None: ...

        @node(effect="pure")
        async def read(state: Documents, item: dict[str, Any]) -> dict[str, object]:
            nonlocal before
            needed.append(tracemalloc.get_traced_memory()[1] - before)
            item["text"].clear()  # of a copy of its own
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            if len(needed) == count:
                all_begun.set()
            await all_begun.wait()  # what one branch let go of would be there for the next one
            return {"found": item["number"]}

        graph = Graph(
            name="mapped", state=Documents, nodes={"begin": begin, "read": read},
            edges="START -> begin\nbegin -> read : each items\nread -> END", limits=Limits(steps=None),
        )  # fmt: skip
        peak(graph, documents(count))
        assert len(needed) == count
        return statistics.mean(needed[1:])  # the first one comes with what is made once for the run

    few, many = a_branch(50), a_branch(500)
    assert many < 1.3 * few, (few, many)


@pytest.mark.full
def test_a_branch_that_appends_holds_no_more_of_a_list_ten_times_as_long() -> None:
    graph = mapped("lines")

    def a_branch(length: int) -> float:
        lines = {"lines": ["line"] * length}
        return (peak(graph, {**documents(400), **lines}) - peak(graph, {**documents(200), **lines})) / 200

    few, many = a_branch(1_000), a_branch(10_000)
    assert many < 1.5 * few, (few, many)
