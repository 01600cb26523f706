"""Runs of every strategy that calls tools, left where they stood, in the store `data/stopped.db.xz`.

`python -m tests.graphs.stopped` wrote it, with the code of commit 18e4c521. It is never written again by later code:
its runs must go on. `NAME-asks` waits for a person to allow a call; the process of `NAME-gone` was killed in the middle
of one.
"""

from __future__ import annotations

import lzma
import os
import signal
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from orchestrator import Executor, Graph
from orchestrator.models import OfflineModel
from orchestrator.tools import tool

STORE = Path(__file__).parent / "data" / "stopped.db.xz"
NAMES = ("react", "function_call", "function_call_agent", "chat", "tool_user", "plan_and_solve", "rewoo")
QUESTION = "What is 12 * 7 + 3?"
ANSWER = "87"
under_way: list[str] = []
"""Calls that never end, in the process that is killed."""


async def _multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    return a * b


async def _hang(a: float, b: float) -> float:
    under_way.append("multiply")
    await anyio.sleep(3600)
    return a * b


_hang.__doc__ = _multiply.__doc__
multiply = tool(name="multiply", risk="write", effect="idempotent")(_multiply)


@tool(risk="write", effect="idempotent")
async def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The number to add to it.
    """
    return a + b


def graph_named(name: str) -> Graph:
    """A strategy with its defaults."""
    graph = import_module(f"orchestrator.strategies.{name}").graph
    assert isinstance(graph, Graph)
    return graph


async def ask(url: str) -> None:
    """Write the runs that wait for a person."""
    async with Executor(url, model=OfflineModel(), tools=[multiply, add]) as executor:
        for name in NAMES:
            run = await executor.start(graph_named(name), QUESTION, run_id=f"{name}-asks")
            assert [question.kind for question in run.waiting] == ["approval"]


async def be_killed(url: str) -> None:
    """Write the others, and die while all of them are in a call."""
    hanging = tool(name="multiply", risk="write", effect="idempotent")(_hang)
    async with Executor(url, model=OfflineModel(), tools=[hanging, add], lease_ttl=1) as executor:
        for name in NAMES:
            await executor.submit(graph_named(name), QUESTION, run_id=f"{name}-gone", approve="dangerous")
        while len(under_way) < len(NAMES):  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(0.01)
        await anyio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Write the file."""
    vars(socket)["gethostname"] = lambda: "host"
    if sys.argv[1:]:
        anyio.run(be_killed, sys.argv[1])
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/runs.db"
        subprocess.run([sys.executable, "-m", "tests.graphs.stopped", url], check=False)
        anyio.run(ask, url)  # and whatever the killed process left in the write-ahead log is in the file now
        STORE.write_bytes(lzma.compress(Path(folder, "runs.db").read_bytes(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
