"""DBOS on SQLite: each step of a workflow is committed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TypeVar

from dbos import DBOS, DBOSClient, DBOSConfig, SetWorkflowID

from tests.benchmarks.subjects import Figures, Preparation, Workload, sizes
from tests.benchmarks.subjects.floor import imported, loaded, stored_bytes, to_load
from tests.benchmarks.subjects.idle import idle
from tests.benchmarks.subjects.stopwatch import Stopwatch, repeated

T = TypeVar("T")
DAY = 86_400.0


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


@DBOS.workflow()
async def asking(until: int) -> int:
    n = 0
    while n < until:
        n = await one(n)
    assert await DBOS.recv_async("answer", timeout_seconds=DAY)
    return n


def launch(folder: Path, polling: float = 1.0) -> None:
    """With DBOS's defaults.

    Args:
        folder: Of the database.
        polling: How often it looks for messages, in seconds.
    """
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url(folder),
        "log_level": "ERROR",
        "run_admin_server": False,
        "notification_listener_polling_interval_sec": polling,
    }
    DBOS(config=config)
    DBOS.launch()


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/d.db"


def launched(folder: Path, work: Callable[[], Awaitable[object]]) -> Stopwatch:
    launch(folder)

    async def run() -> Stopwatch:
        with Stopwatch() as took:
            await work()
        return took

    took = asyncio.run(run())
    DBOS.destroy()
    return took


def durable(folder: Path) -> Figures:
    took = launched(folder, lambda: counting(sizes.DURABLE))
    return {**took.figures("us", sizes.DURABLE), "bytes": stored_bytes(folder / "d.db") / sizes.DURABLE}


def one_sqlite(folder: Path) -> Figures:
    async def all_of_them() -> None:
        for _ in range(sizes.SINGLE):
            await counting(1)

    return launched(folder, all_of_them).figures("us", sizes.SINGLE)


def history(steps: int, folder: Path) -> Figures:
    async def work() -> None:
        with SetWorkflowID("r"):
            await logging(steps)

    took = launched(folder, work)
    return {**took.figures("us", steps), "bytes": stored_bytes(folder / "d.db") / steps}


def load(steps: int, folder: Path) -> Figures:
    """The state are local variables of a workflow, so what is loaded are the results of its steps."""

    def results() -> int:
        return len([str(found["output"]) for found in client.list_workflow_steps("r")])

    with Stopwatch() as took:
        client = DBOSClient(system_database_url=url(folder))
        assert results() == steps
    figures = {**took.figures("ms"), **repeated(results, "warm_")}
    client.destroy()
    return figures


def concurrent(folder: Path) -> Figures:
    async def all_of_them() -> None:
        await asyncio.gather(*(counting(sizes.RUN_STEPS) for _ in range(sizes.RUNS)))

    return launched(folder, all_of_them).figures("us", sizes.RUNS * sizes.RUN_STEPS)


def left(work: Coroutine[object, object, T]) -> T:
    """Run this, and leave workflows that wait as they are: `asyncio.run` would wait for their threads."""
    return asyncio.new_event_loop().run_until_complete(work)


async def begun(run: str) -> None:
    """A workflow that counts and then waits for its message."""
    with SetWorkflowID(run):
        await DBOS.start_workflow_async(asking, sizes.RESUMED if run == "r" else 3)


async def done(folder: Path, steps: int) -> None:
    """Come back when as many steps are stored, and what follows them had time to wait."""
    with sqlite3.connect(folder / "d.db") as connection:
        for _ in range(3000):
            (count,) = connection.execute("SELECT count(*) FROM operation_outputs").fetchone()
            if count >= steps:
                return await asyncio.sleep(1)
            await asyncio.sleep(0.1)
    raise TimeoutError(f"{count} of {steps} steps")


def to_resume(folder: Path) -> None:
    """Its process ends while it waits."""
    launch(folder)

    async def run() -> None:
        await begun("r")
        await done(folder, sizes.RESUMED)

    left(run())


def resume(folder: Path) -> Figures:
    """Recovered when DBOS is launched; its steps are taken from what is stored."""
    with Stopwatch() as took:
        launch(folder, polling=0.01)
        DBOS.send("r", "yes", "answer")
        found: int = DBOS.retrieve_workflow("r").get_result(polling_interval_sec=0.01)
    assert found == sizes.RESUMED
    DBOS.destroy()
    return took.figures("ms")


def to_list(folder: Path) -> None:
    """One workflow that waits, and copies of its rows."""
    launch(folder)

    async def run() -> None:
        await begun("sample")
        await done(folder, 3)

    left(run())
    for count in sizes.LISTED:
        (folder / str(count)).mkdir()
        with sqlite3.connect(folder / "d.db") as source, sqlite3.connect(folder / str(count) / "d.db") as target:
            source.backup(target)
            for table in ("workflow_status", "workflow_inputs", "operation_outputs"):
                query = f"SELECT name FROM pragma_table_info('{table}')"
                names = ", ".join(name for (name,) in target.execute(query) if name != "workflow_uuid")
                if not names:  # an older form of the database has no such table
                    continue
                target.execute(
                    "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?) "
                    f"INSERT INTO {table} (workflow_uuid, {names}) SELECT 'run-' || n, {names} "
                    f"FROM {table}, numbers WHERE workflow_uuid = 'sample'",
                    [count],
                )
    (folder / "d.db").unlink()


def many(folder: Path) -> Figures:
    """`list_workflow_steps` of one, and `list_workflows`."""
    figures: dict[str, float] = {}
    for name, count in zip(("few", "many"), sizes.LISTED, strict=True):
        client = DBOSClient(system_database_url=url(folder / str(count)))

        def opened(client: DBOSClient = client, run: str = f"run-{count // 2}") -> None:
            assert len(client.list_workflow_steps(run)) >= 3

        def listed(client: DBOSClient = client) -> None:
            assert len(client.list_workflows(status="PENDING", sort_desc=True, limit=sizes.PAGE)) == sizes.PAGE

        opened(), listed()
        figures |= {**repeated(opened, f"open_{name}_"), **repeated(listed, f"list_{name}_")}
        client.destroy()
    return figures


def waiting(runs: int, folder: Path) -> Figures:
    """Workflows in `recv`."""
    launch(folder)

    async def start(first: int, last: int) -> None:
        for number in range(first, last):
            await begun(f"w{number}")
        await done(folder, 3 * last)

    return left(idle(start, runs))


WORKLOADS: dict[str, Workload] = {
    "durable": durable,
    "one_sqlite": one_sqlite,
    "concurrent": concurrent,
    **{f"history_{n}": partial(history, n) for n in sizes.HISTORIES},
    **{f"load_{n}": partial(loaded, load, n) for n in sizes.HISTORIES},
    "resume": resume,
    "many": many,
    f"waiting_{sizes.WAITING[0]}": partial(waiting, sizes.WAITING[0]),
    "import": partial(imported, "import dbos"),
}
PREPARED: dict[str, Preparation] = {**to_load(history), "resume": to_resume, "many": to_list}
