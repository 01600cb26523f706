"""The floors: what the same work costs with no framework at all."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.benchmarks.subjects import Figures, Workload, sizes

PRAGMAS = (
    "page_size = 8192",
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "wal_autocheckpoint = 500",
    "journal_size_limit = 16777216",
)
"""Those of the SQLite store."""
RECORD = b"x" * 240
"""About what a step of a loop that counts has to say."""


def stored_bytes(path: Path) -> int:
    """Bytes of a database after it was closed."""
    return sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))


def opened(path: Path) -> sqlite3.Connection:
    """A database like that of the SQLite store."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS records (run INTEGER, seq INTEGER, data BLOB, PRIMARY KEY (run, seq))"
    )
    return connection


def commits(path: Path, count: int, payload: Callable[[int], bytes], runs: int = 1) -> Figures:
    """Rows, each committed before the next."""
    connection = opened(path)
    started = time.perf_counter()
    for seq in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO records VALUES (?, ?, ?)", (seq % runs, seq // runs, payload(seq)))
        connection.execute("COMMIT")
    seconds = time.perf_counter() - started
    connection.close()
    return {"us": seconds / count * 1e6, "bytes": stored_bytes(path) / count}


def durable(folder: Path) -> Figures:
    return commits(folder / "f.db", sizes.DURABLE, lambda _: RECORD)


def history(steps: int, folder: Path) -> Figures:
    return commits(folder / "f.db", steps, lambda n: json.dumps({"lines": sizes.line(n)}).encode() + RECORD)


def concurrent(folder: Path) -> Figures:
    return commits(folder / "f.db", sizes.RUNS * sizes.RUN_STEPS, lambda _: RECORD, sizes.RUNS)


async def _count(n: int) -> int:
    return n + 1


def loop(folder: Path) -> Figures:
    async def run() -> float:
        n, started = 0, time.perf_counter()
        while n < 100_000:
            n = await _count(n)
        return (time.perf_counter() - started) / n

    return {"us": asyncio.run(run()) * 1e6}


def fan(branches: int, folder: Path) -> Figures:
    async def run() -> float:
        started = time.perf_counter()
        for _ in range(20):
            async with asyncio.TaskGroup() as tasks:
                found = [tasks.create_task(_count(n)) for n in range(branches)]
            assert len([task.result() for task in found]) == branches
        return (time.perf_counter() - started) / 20 / branches

    return {"us": asyncio.run(run()) * 1e6}


def resume(folder: Path) -> Figures:
    """Every row read and parsed."""
    connection = opened(folder / "f.db")
    rows = ((1, seq, json.dumps({"seq": seq, "node": "count", "update": {"n": seq}})) for seq in range(sizes.RESUMED))
    connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
    connection.close()
    started = time.perf_counter()
    connection = opened(folder / "f.db")
    found = [json.loads(data) for (data,) in connection.execute("SELECT data FROM records ORDER BY run, seq")]
    seconds = time.perf_counter() - started
    connection.close()
    assert len(found) == sizes.RESUMED
    return {"ms": seconds * 1e3}


def fresh(*code: str) -> Figures:
    """A new interpreter that does this, the least of five."""
    found = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, *code], check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
        found.append(time.perf_counter() - started)
    return {"s": min(found)}


def imported(code: str, folder: Path) -> Figures:
    """What an import adds to an interpreter that does nothing."""
    return {"s": max(0.0, fresh("-c", code)["s"] - fresh("-c", "pass")["s"])}


def react(folder: Path) -> Figures:
    from tests.benchmarks.subjects import loopback

    return loopback.floor()


WORKLOADS: dict[str, Workload] = {
    "loop": loop,
    "durable": durable,
    "durable_pure": durable,
    **{f"history_{steps}": partial(history, steps) for steps in sizes.HISTORIES},
    **{f"fan_{branches}": partial(fan, branches) for branches in sizes.FANS},
    "concurrent": concurrent,
    "resume": resume,
    "react": react,
    "help": lambda folder: fresh("-c", "import argparse; argparse.ArgumentParser().format_help()"),
}
