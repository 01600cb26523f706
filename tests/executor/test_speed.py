"""Guards against getting slower that cannot flake: how many calls a step makes, and time only beside the floor's.

The floor is the same work with no framework, in the same run (`tests/benchmarks`); bounds are far above what is usual.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType

import anyio

import orchestrator
from orchestrator import Executor
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
    assert 20 < more(steps(ours.PURE, 50), steps(ours.PURE, 250), 200, "memory://") < 82  # 75


def test_a_durable_step_makes_few_calls_more(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/{{}}.db"
    assert 40 < more(steps(ours.DEFAULT, 50), steps(ours.DEFAULT, 250), 200, store) < 125  # 104


def test_a_branch_makes_few_calls() -> None:
    assert 40 < more(branches(50), branches(250), 200, "memory://") < 150  # 109


def cpu(work: Callable[[], object]) -> float:
    """Seconds of a processor, the least of three."""
    found = []
    for _ in range(3):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


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
