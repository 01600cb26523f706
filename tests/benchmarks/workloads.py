"""The workloads. Each gives seconds (or bytes) for a stated number of steps."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import anyio
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Outcome, append, node


class Count(BaseModel):
    """A loop that counts."""

    n: int = 0
    until: int = 0


class Log(BaseModel):
    """A loop that adds a kibibyte each time round."""

    lines: Annotated[list[str], append] = []
    until: int = 0


@node(effect="pure")
async def pure(state: Count) -> Outcome[Literal["again", "enough"]]:
    """One more."""
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


@node
async def default(state: Count) -> Outcome[Literal["again", "enough"]]:
    """One more, durable before the next."""
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


@node
async def write(state: Log, ctx: Context) -> Outcome[Literal["again", "enough"]]:
    """A kibibyte more."""
    return Outcome("again" if len(state.lines) + 1 < state.until else "enough", lines=f"{len(state.lines):1024d}")


def _loop(name: str, state: type[BaseModel], step: object, output: str) -> Graph:
    edges = "START -> step\nstep -> step : again\nstep -> END : enough"
    return Graph(name=name, state=state, nodes={"step": step}, edges=edges, output=output, limits=Limits(steps=None))


PURE = _loop("pure", Count, pure, "n")
DEFAULT = _loop("default", Count, default, "n")
LOG = _loop("log", Log, write, "until")


async def _run(graph: Graph, steps: int, store: str) -> float:
    async with Executor(store=store, graphs=[graph]) as executor:
        started = time.perf_counter()
        run = await executor.start(graph, {"until": steps})
        seconds = time.perf_counter() - started
    assert run.status == "completed", run.error
    return seconds


def loop(graph: Graph, steps: int, store: str = "memory://") -> float:
    """Seconds for a run of `steps` steps."""
    return anyio.run(partial(_run, graph, steps, store))


def stored_bytes(path: Path) -> int:
    """Bytes of a store after it was closed."""
    return sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))


def fresh_process(*code: str) -> float:
    """Seconds for a new interpreter to do this, the least of five."""
    found = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, *code], check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - started)
    return min(found)
