"""The floors: what the same work costs with no framework at all."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.benchmarks.subjects import Figures, Preparation, Workload, sizes
from tests.benchmarks.subjects.stopwatch import Stopwatch, repeated

PRAGMAS = (
    "page_size = 4096",
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "wal_autocheckpoint = 1024",
    "journal_size_limit = 16777216",
)
"""Those of the SQLite store."""
RECORD = b"x" * 240
"""About what a step of a loop that counts has to say."""
FEW = 3
"""Steps of the history that is loaded before the one that is measured."""
WAL = 5 * 2**20
"""Bytes of a log that is written before it is used: more than comes together between two checkpoints."""


def stored_bytes(path: Path) -> int:
    """Bytes of a database after it was closed."""
    return sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))


def opened(path: Path, *, sized: bool = False) -> sqlite3.Connection:
    """A database like that of the SQLite store, with a log that is written from its start.

    Args:
        path: Of the database.
        sized: Whether the log has its size from the beginning, so that a commit overwrites it: a file that does not
            grow needs no update of its length.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS records (run INTEGER, seq INTEGER, data BLOB, PRIMARY KEY (run, seq))"
    )
    if sized:
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE filling (data BLOB)")
        connection.execute("INSERT INTO filling VALUES (zeroblob(?))", (WAL,))
        connection.execute("COMMIT")
        connection.execute("DROP TABLE filling")
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    return connection


def commits(path: Path, count: int, payload: Callable[[int], bytes], runs: int = 1, *, sized: bool = False) -> Figures:
    """Rows, each committed before the next."""
    connection = opened(path, sized=sized)
    with Stopwatch() as took:
        for seq in range(count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO records VALUES (?, ?, ?)", (seq % runs, seq // runs, payload(seq)))
            connection.execute("COMMIT")
    if sized:
        connection.execute("VACUUM")  # what filled the log
    connection.close()
    return {**took.figures("us", count), "bytes": stored_bytes(path) / count}


def durable(folder: Path, *, sized: bool = False) -> Figures:
    return commits(folder / "f.db", sizes.DURABLE, lambda _: RECORD, sized=sized)


def one_sqlite(folder: Path) -> Figures:
    """A run that is created in one commit and ended in another."""
    took = commits(folder / "f.db", 2 * sizes.SINGLE, lambda _: RECORD)
    return {name: 2 * value for name, value in took.items()}


def written(number: int) -> bytes:
    """What a step that adds a kibibyte has to say."""
    return json.dumps({"lines": sizes.line(number)}).encode() + RECORD


def history(steps: int, folder: Path, *, sized: bool = False) -> Figures:
    return commits(folder / "f.db", steps, written, sized=sized)


def to_load(history: Callable[[int, Path], object]) -> dict[str, Preparation]:
    """Preparations for all `load_N`: the history of N steps, and beside it one of few (`loaded`)."""

    def both(steps: int, folder: Path) -> None:
        (folder / "few").mkdir()
        history(FEW, folder / "few")
        history(steps, folder)

    return {f"load_{steps}": partial(both, steps) for steps in sizes.HISTORIES}


def loaded(load: Callable[[int, Path], Figures], steps: int, folder: Path) -> Figures:
    """What `load` gives, after it loaded a history of few steps, so that no import is measured."""
    load(FEW, folder / "few")
    return load(steps, folder)


def load(steps: int, folder: Path) -> Figures:
    """The store opened and every row read and parsed; then once more."""

    def rows() -> int:
        found = connection.execute("SELECT data FROM records ORDER BY run, seq")
        return len([json.loads(data[: -len(RECORD)])["lines"] for (data,) in found])

    with Stopwatch() as took:
        connection = opened(folder / "f.db")
        assert rows() == steps
    figures = {**took.figures("ms"), **repeated(rows, "warm_")}
    connection.close()
    return figures


def concurrent(folder: Path, *, sized: bool = False) -> Figures:
    return commits(folder / "f.db", sizes.RUNS * sizes.RUN_STEPS, lambda _: RECORD, sizes.RUNS, sized=sized)


async def _count(n: int) -> int:
    return n + 1


def loop(folder: Path, steps: int = 100_000) -> Figures:
    async def run() -> Stopwatch:
        n = 0
        with Stopwatch() as took:
            while n < steps:
                n = await _count(n)
        return took

    return asyncio.run(run()).figures("us", steps)


def fan(branches: int, folder: Path) -> Figures:
    times = max(1, 20_000 // branches)

    async def run() -> Stopwatch:
        with Stopwatch() as took:
            for _ in range(times):
                async with asyncio.TaskGroup() as tasks:
                    found = [tasks.create_task(_count(n)) for n in range(branches)]
                assert len([task.result() for task in found]) == branches
        return took

    return asyncio.run(run()).figures("us", times * branches)


def to_resume(folder: Path) -> None:
    connection = opened(folder / "f.db")
    rows = ((1, seq, json.dumps({"seq": seq, "node": "count", "update": {"n": seq}})) for seq in range(sizes.RESUMED))
    connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
    connection.close()


def resume(folder: Path) -> Figures:
    """Every row read and parsed, and one committed."""
    with Stopwatch() as took:
        connection = opened(folder / "f.db")
        found = [json.loads(data) for (data,) in connection.execute("SELECT data FROM records ORDER BY run, seq")]
        connection.execute("INSERT INTO records VALUES (?, ?, ?)", (1, sizes.RESUMED, RECORD))
    connection.close()
    assert len(found) == sizes.RESUMED
    return took.figures("ms")


def to_list(folder: Path) -> None:
    for count in sizes.LISTED:
        connection = opened(folder / f"{count}.db")
        connection.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, status TEXT, created INTEGER, state TEXT)")
        connection.execute("CREATE INDEX listed ON runs (status, created)")
        state = json.dumps({"n": 3, "until": 3, "answer": ""})
        rows = ((f"run-{n}", "paused", n, state) for n in range(count))
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
        connection.close()


def many(folder: Path) -> Figures:
    def listed(connection: sqlite3.Connection) -> None:
        page = connection.execute(
            "SELECT * FROM runs WHERE status = 'paused' ORDER BY created DESC LIMIT ?", [sizes.PAGE]
        )
        assert len(page.fetchall()) == sizes.PAGE

    def found(connection: sqlite3.Connection, count: int) -> None:
        row = connection.execute("SELECT state FROM runs WHERE id = ?", [f"run-{count // 2}"]).fetchone()
        assert json.loads(row[0])["n"] == 3

    figures: dict[str, float] = {}
    for name, count in zip(("few", "many"), sizes.LISTED, strict=True):
        connection = opened(folder / f"{count}.db")
        figures |= repeated(partial(found, connection, count), f"open_{name}_")
        figures |= repeated(partial(listed, connection), f"list_{name}_")
        connection.close()
    return figures


def waiting(runs: int, folder: Path) -> Figures:
    """A task and a future for each."""
    from tests.benchmarks.subjects.idle import idle

    async def run() -> Figures:
        kept: list[object] = []

        async def wait() -> None:
            await asyncio.get_running_loop().create_future()

        async def start(first: int, last: int) -> None:
            kept.extend(asyncio.create_task(wait()) for _ in range(first, last))
            await asyncio.sleep(0)

        figures = await idle(start, runs)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return figures

    return asyncio.run(run())


def fresh(*code: str, status: int = 0, times: int = 3) -> Figures:
    """A new interpreter that does this, the least of several; it ends with `status`."""
    wall, cpu = [], []
    for _ in range(times):
        used, started = _children(), time.perf_counter()
        done = subprocess.run([sys.executable, *code], check=False, capture_output=True, env=dict(os.environ))
        wall.append(time.perf_counter() - started)
        cpu.append(_children() - used)
        assert done.returncode == status, (code, done.stderr)
    return {"s": min(wall), "cpu_s": min(cpu)}


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def imported(code: str, folder: Path) -> Figures:
    """What an import adds to an interpreter that does nothing."""
    done, nothing = fresh("-c", code), fresh("-c", "pass")
    return {name: max(0.0, done[name] - nothing[name]) for name in done}


def react(calls: int, folder: Path) -> Figures:
    from tests.benchmarks.subjects import loopback

    return loopback.bare(calls)


def bare_command(folder: Path) -> Figures:
    return fresh("-c", "import pydantic")


WORKLOADS: dict[str, Workload] = {
    "loop": loop,
    "one_memory": loop,
    "durable": durable,
    "durable_pure": durable,
    "one_sqlite": one_sqlite,
    "concurrent": concurrent,
    **{f"history_{steps}": partial(history, steps) for steps in sizes.HISTORIES},
    **{f"load_{steps}": partial(loaded, load, steps) for steps in sizes.HISTORIES},
    "resume": resume,
    "many": many,
    **{f"fan_{branches}": partial(fan, branches) for branches in sizes.FANS},
    **{f"map_{branches}": partial(fan, branches) for branches in sizes.MAPS},
    **{f"waiting_{runs}": partial(waiting, runs) for runs in sizes.WAITING},
    "react": partial(react, sizes.CALLS),
    **{f"react_{calls}": partial(react, calls) for calls in sizes.TALKS},
    **dict.fromkeys(("help", "cli_runs", "cli_show", "cli_run"), bare_command),
}
PREPARED: dict[str, Preparation] = {
    **to_load(history),
    "resume": to_resume,
    "many": to_list,
}
