"""DBOS on SQLite: each step of a workflow is committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from dbos import DBOS, DBOSConfig

from tests.benchmarks.subjects import Figures, Workload, sizes
from tests.benchmarks.subjects.floor import imported, stored_bytes


@DBOS.step()
async def one(n: int) -> int:
    return n + 1


@DBOS.step()
async def line(n: int) -> str:
    return sizes.line(n)


@DBOS.workflow()
async def counting(until: int) -> int:
    n = 0
    while n < until:
        n = await one(n)
    return n


@DBOS.workflow()
async def logging(until: int) -> int:
    lines: list[str] = []
    while len(lines) < until:
        lines.append(await line(len(lines)))
    return len(lines)


def launched(folder: Path, work: Callable[[], Awaitable[object]]) -> float:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{folder}/d.db",
        "log_level": "ERROR",
        "run_admin_server": False,
    }
    DBOS(config=config)
    DBOS.launch()

    async def run() -> float:
        started = time.perf_counter()
        await work()
        return time.perf_counter() - started

    seconds = asyncio.run(run())
    DBOS.destroy()
    return seconds


def durable(folder: Path) -> Figures:
    seconds = launched(folder, lambda: counting(sizes.DURABLE))
    return {"us": seconds / sizes.DURABLE * 1e6, "bytes": stored_bytes(folder / "d.db") / sizes.DURABLE}


def history(steps: int, folder: Path) -> Figures:
    seconds = launched(folder, lambda: logging(steps))
    return {"us": seconds / steps * 1e6, "bytes": stored_bytes(folder / "d.db") / steps}


def concurrent(folder: Path) -> Figures:
    async def all_of_them() -> None:
        await asyncio.gather(*(counting(sizes.RUN_STEPS) for _ in range(sizes.RUNS)))

    return {"us": launched(folder, all_of_them) / sizes.RUNS / sizes.RUN_STEPS * 1e6}


WORKLOADS: dict[str, Workload] = {
    "durable": durable,
    **{f"history_{n}": partial(history, n) for n in sizes.HISTORIES if n <= sizes.PEERS_HISTORY},
    "concurrent": concurrent,
    "import": partial(imported, "import dbos"),
}
