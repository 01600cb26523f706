"""Guards against getting slower that cannot flake: how many calls a step makes, and time only beside the floor's.

The floor is the same work with no framework, in the same run (`tests/benchmarks`); bounds are far above what is usual.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest

import orchestrator
from orchestrator import Executor
from orchestrator.executor import heartbeat, journal
from tests.benchmarks.subjects import floor, ours

HERE = str(Path(orchestrator.__file__).parent)


async def calls(work: Callable[[Executor], Awaitable[object]], store: str) -> int:
    """How many of this library's functions are called while an executor does some work, the second time."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(HERE)

    async with Executor(store) as executor:
        await work(executor)
        sys.setprofile(note)
        try:
            await work(executor)
        finally:
            sys.setprofile(None)
    return count


def more(
    few: Callable[[Executor], Awaitable[object]], many: Callable[[Executor], Awaitable[object]], by: int, store: str
) -> float:
    """Calls for each of `by` further things."""
    first = anyio.run(calls, few, store.format(1))
    return (anyio.run(calls, many, store.format(2)) - first) / by


def steps(graph: orchestrator.Graph, count: int) -> Callable[[Executor], Awaitable[object]]:
    return lambda executor: executor.start(graph, {"until": count})


def branches(count: int) -> Callable[[Executor], Awaitable[object]]:
    return lambda executor: executor.start(ours.FAN, {"items": list(range(count))})


def test_a_step_in_memory_makes_few_calls() -> None:
    assert 20 < more(steps(ours.PURE, 50), steps(ours.PURE, 250), 200, "memory://") < 55  # 45


@pytest.mark.full
def test_a_durable_step_makes_few_calls_more(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/{{}}.db"
    assert 40 < more(steps(ours.DEFAULT, 50), steps(ours.DEFAULT, 250), 200, store) < 108  # 90


def test_a_branch_makes_few_calls() -> None:
    assert 40 < more(branches(50), branches(250), 200, "memory://") < 118  # 97


def one_step(executor: Executor) -> Awaitable[object]:
    return executor.start(ours.PURE, {"until": 1})


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what an executor does every so many seconds: how often depends on how busy the machine is."""
    monkeypatch.setattr(journal, "FLUSH_AFTER", 3600.0)
    monkeypatch.setattr(heartbeat, "POLL", 3600.0)


@pytest.mark.usefixtures("alone")
def test_a_run_of_one_step_in_memory_makes_few_calls() -> None:
    assert 200 < anyio.run(calls, one_step, "memory://") < 470  # 437


@pytest.mark.usefixtures("alone")
def test_a_durable_run_of_one_step_makes_few_calls_more(tmp_path: Path) -> None:
    assert 200 < anyio.run(calls, one_step, f"sqlite:///{tmp_path}/runs.db") < 570  # 529


@pytest.mark.usefixtures("alone")
def test_a_graph_of_many_nodes_makes_the_beginning_of_its_runs_no_dearer() -> None:
    def chain(nodes: int) -> Callable[[Executor], Awaitable[object]]:
        names = [f"n{number}" for number in range(nodes)]
        graph = orchestrator.Graph(
            name="chain", state=ours.Count, nodes={"step": ours.pure, **dict.fromkeys(names, ours.begun)},
            edges=f"START -> step\nstep -> n0 : again\n{' -> '.join(names)} -> END\nstep -> END : enough",
        )  # fmt: skip
        return lambda executor: executor.start(graph, {"until": 1})

    assert more(chain(5), chain(105), 100, "memory://") < 0.5


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("graph", [ours.PURE, ours.DEFAULT], ids=["pure", "durable"])
def test_a_run_makes_one_task_one_scope_and_one_event_however_many_steps_it_has(
    graph: orchestrator.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[str] = Counter()

    def counted(name: str) -> None:
        kind = getattr(anyio, name)

        def make(*args: object, **kw: object) -> object:
            made[name] += 1
            return kind(*args, **kw)

        monkeypatch.setattr(anyio, name, make)

    async def count() -> None:
        async with Executor() as executor:
            await steps(graph, 3)(executor)  # what is done once is done
            loop = asyncio.get_running_loop()

            def task(loop: asyncio.AbstractEventLoop, work: Any, **kw: Any) -> asyncio.Task[Any]:
                made["task"] += 1
                return asyncio.Task(work, loop=loop, **kw)

            loop.set_task_factory(task)
            made.clear()
            await steps(graph, 40)(executor)
            found.update(made)
            loop.set_task_factory(None)

    found: dict[str, int] = {}
    counted("CancelScope")
    counted("Event")
    anyio.run(count)
    assert found == {"task": 1, "CancelScope": 1, "Event": 1}


def cpu(work: Callable[[], object]) -> float:
    """Seconds of a processor, the least of three."""
    found = []
    for _ in range(3):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


@pytest.mark.full
def test_a_durable_step_stays_near_a_bare_commit(tmp_path: Path) -> None:
    files = iter(range(100))

    def library() -> None:
        folder = tmp_path / str(next(files))
        folder.mkdir()
        ours.durable(ours.DEFAULT, 200, folder)

    def bare() -> None:
        floor.commits(tmp_path / f"f{next(files)}.db", 200, lambda _: floor.RECORD)

    assert cpu(library) < 40 * cpu(bare)  # four to six, in memory; less on a disk


def test_a_step_in_memory_stays_near_bare_asyncio(tmp_path: Path) -> None:
    library = cpu(partial(ours.loop, ours.PURE, 500)) / 500
    bare = cpu(partial(floor.loop, tmp_path)) / 100_000
    assert library < 2000 * bare  # about 200
