"""A program that begins a run and is gone before any step of it has landed.

`python -m tests.executor.dying URL BACKEND`: the run is `r`, of the graph `DYING`.
"""

from __future__ import annotations

import os
import signal
import sys

import anyio

from orchestrator import Executor, Graph, Update, node
from tests.support.executors import Log, chain

doomed = False


@node
async def first(state: Log) -> Update:
    """Go on, or take the process along."""
    if doomed:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"log": "first"}


DYING: Graph = chain(first, name="dying")


async def begin(url: str) -> None:
    """Begin the run."""
    async with Executor(url) as executor:
        await executor.start(DYING, {"question": "?"}, run_id="r")


if __name__ == "__main__":
    from tests.executor import dying  # the graph's code, by the name that others know it by

    dying.doomed = True
    anyio.run(dying.begin, sys.argv[1], backend=sys.argv[2])
