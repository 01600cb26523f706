"""Burr with `SQLitePersister`."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

from burr.core import ApplicationBuilder, Condition, Result, State, action
from burr.core.persistence import SQLitePersister

from tests.benchmarks.subjects import Figures, Workload, sizes
from tests.benchmarks.subjects.floor import imported, stored_bytes


@action(reads=["n"], writes=["n"])
async def step(state: State) -> State:
    return state.update(n=state["n"] + 1)


@action(reads=["lines"], writes=["lines"])
async def write(state: State) -> State:
    return state.append(lines=sizes.line(len(state["lines"])))


def application(name: str, body: Any, given: dict[str, Any], more: str, persister: Any = None, run: str = "r") -> Any:
    builder = (
        ApplicationBuilder()
        .with_actions(**{name: body, "end": Result(*given)})
        .with_transitions((name, name, Condition.expr(more)), (name, "end"))
        .with_state(**given)
        .with_entrypoint(name)
        .with_identifiers(app_id=run)
    )
    return builder.with_state_persister(persister) if persister is not None else builder


def opened(path: Path) -> SQLitePersister:
    persister = SQLitePersister(db_path=str(path), table_name="state", connect_kwargs={"check_same_thread": False})
    persister.connection.execute("PRAGMA journal_mode = WAL")
    persister.connection.execute("PRAGMA synchronous = FULL")
    persister.initialize()
    return persister


def timed(builder: Any) -> float:
    async def run() -> float:
        app = builder.build()
        started = time.perf_counter()
        await app.arun(halt_after=["end"])
        return time.perf_counter() - started

    return asyncio.run(run())


def loop(folder: Path) -> Figures:
    return {"us": timed(application("step", step, {"n": 0}, f"n < {sizes.LOOP}")) / sizes.LOOP * 1e6}


def durable(folder: Path) -> Figures:
    persister = opened(folder / "b.db")
    seconds = timed(application("step", step, {"n": 0}, f"n < {sizes.DURABLE}", persister))
    persister.connection.close()
    return {"us": seconds / sizes.DURABLE * 1e6, "bytes": stored_bytes(folder / "b.db") / sizes.DURABLE}


def history(steps: int, folder: Path) -> Figures:
    persister = opened(folder / "b.db")
    seconds = timed(application("write", write, {"lines": []}, f"len(lines) < {steps}", persister))
    started = time.perf_counter()
    assert persister.load(None, "r") is not None
    load = time.perf_counter() - started
    persister.connection.close()
    return {"us": seconds / steps * 1e6, "bytes": stored_bytes(folder / "b.db") / steps, "ms": load * 1e3}


def concurrent(folder: Path) -> Figures:
    persister = opened(folder / "b.db")
    more = f"n < {sizes.RUN_STEPS}"

    async def run() -> float:
        apps = [application("step", step, {"n": 0}, more, persister, f"r{n}").build() for n in range(sizes.RUNS)]
        started = time.perf_counter()
        await asyncio.gather(*(app.arun(halt_after=["end"]) for app in apps))
        return time.perf_counter() - started

    return {"us": asyncio.run(run()) / sizes.RUNS / sizes.RUN_STEPS * 1e6}


WORKLOADS: dict[str, Workload] = {
    "loop": loop,
    "durable": durable,
    **{f"history_{n}": partial(history, n) for n in sizes.HISTORIES if n <= sizes.PEERS_HISTORY},
    "concurrent": concurrent,
    "import": partial(imported, "import burr.core"),
}
