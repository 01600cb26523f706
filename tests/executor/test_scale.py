"""Ten times as many live runs, items of a map, records or bytes of state cost at most ten times as much."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import anyio
import pytest
from pydantic import BaseModel

import orchestrator
from orchestrator import Executor, Graph, Limits, Outcome, Update, append, node
from orchestrator.graph import Node

HERE = str(Path(orchestrator.__file__).parent)
STORM = 20
"""From this scale on, sizes are full."""


class Costs:
    """What some work costs: calls of the library's functions, processor time, and the most memory at a time."""

    calls = 0
    seconds = 0.0
    memory = 0

    def __init__(self, count: int) -> None:
        self.count = count

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event == "call" and frame.f_code.co_filename.startswith(HERE)

    async def of(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work."""
        tracemalloc.start()
        began = time.process_time()
        sys.setprofile(self._note)
        try:
            await work()
        finally:
            sys.setprofile(None)
            self.seconds += time.process_time() - began
            self.memory = max(self.memory, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    def __str__(self) -> str:
        return f"{self.count:10,}: {self.calls / self.count:10,.1f} calls, {self.memory / self.count:12,.0f} bytes each"


class Wide(BaseModel):
    items: list[int] = []
    log: Annotated[list[int], append] = []


class Long(BaseModel):
    until: int = 0
    count: int = 0
    text: str = ""
    large: list[dict[str, str]] = []


@node(effect="pure")
def begin(state: Wide) -> None:
    pass


@node(effect="pure")
def item(state: Wide, item: int) -> Update:
    return {"log": item}


@node(effect="pure", join="all")
def together(state: Wide) -> None:
    pass


@node
def step(state: Long) -> Outcome[Literal["again", "enough"]]:
    again = state.count + 1 < state.until
    return Outcome("again" if again else "enough", {"count": state.count + 1, "text": f"{state.count:>65536}"})


@node
def small(state: Long) -> Outcome[Literal["again", "enough"]]:
    return Outcome("again" if state.count + 1 < state.until else "enough", {"count": state.count + 1})


def loop(work: Node) -> Graph:
    edges = "START -> step\nstep -> step : again\nstep -> END : enough"
    return Graph(
        name="loop", state=Long, nodes={"step": work}, edges=edges, output="count", limits=Limits(steps=None)
    )  # fmt: skip


async def live(count: int, place: Path) -> Costs:
    """Runs that are all inside of a node at the same time."""
    costs, inside, go_on = Costs(count), 0, anyio.Event()

    @node(effect="pure")
    async def wait(state: Long) -> Update:
        nonlocal inside
        inside += 1
        if inside == count:
            go_on.set()
        await go_on.wait()
        return {"count": 1}

    graph = Graph(name="waits", state=Long, nodes={"wait": wait}, edges="START -> wait -> END", output="count")

    async def work() -> None:
        async with Executor() as executor, anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(executor.start, graph)

    await costs.of(work)
    assert inside == count
    return costs


async def mapped(count: int, place: Path) -> Costs:
    """The items of one map."""
    graph = Graph(
        name="wide", state=Wide, nodes={"begin": begin, "item": item, "together": together}, output="log",
        edges="START -> begin\nbegin -> item : each items\nitem -> together -> END", limits=Limits(steps=None),
    )  # fmt: skip
    costs = Costs(count)

    async def work() -> None:
        run = await graph.run({"items": list(range(count))})
        assert sorted(run.output) == list(range(count))

    await costs.of(work)
    return costs


async def journal(count: int, place: Path) -> Costs:
    """Records of 64 KiB in the journal of a run in a file, which is written, loaded and listed."""
    costs, url, graph = Costs(count), f"sqlite:///{place}/{count}.db", loop(step)

    async def work() -> None:
        async with Executor(url) as executor:
            await executor.start(graph, {"until": count}, run_id="r")
        async with Executor(url) as executor:
            assert (await executor.load("r")).output == count
            assert sum([1 async for event in executor.events("r")]) >= count

    await costs.of(work)
    return costs


async def state(count: int, place: Path) -> Costs:
    """Kibibytes of a state that twenty steps do not touch."""
    costs, graph = Costs(count), loop(small)
    large = [{"text": f"{number:>1000}"} for number in range(count)]

    async def work() -> None:
        async with Executor(f"sqlite:///{place}/{count}.db") as executor:
            run = await executor.start(graph, {"until": 20, "large": large}, run_id="r")
            assert run.output == 20
        async with Executor(f"sqlite:///{place}/{count}.db") as executor:
            assert len((await executor.load("r")).values["large"]) == count

    await costs.of(work)
    return costs


@pytest.mark.storm
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize(
    ("work", "bounded", "full"),
    [(live, 100, 2_000), (mapped, 300, 10_000), (journal, 32, 1_600), (state, 100, 5_000)],
)
async def test_ten_times_as_much_costs_ten_times_as_much(
    work: Callable[[int, Path], Awaitable[Costs]], bounded: int, full: int, tmp_path: Path, scale: int
) -> None:
    """Calls and bytes are counted; the time of the processor is asserted only where it would be that of the square."""
    few = full if scale >= STORM else bounded
    await work(5, tmp_path)  # what is done once is done
    one, ten = await work(few, tmp_path), await work(few * 10, tmp_path)
    print(f"\n{work.__doc__}\n{one}\n{ten}, {ten.seconds / one.seconds:.1f} x the time")
    assert ten.calls < 14 * one.calls
    assert ten.memory < 20 * one.memory
    assert ten.seconds < 40 * one.seconds + 0.5
