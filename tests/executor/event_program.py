"""Processes that share a run which takes events: `python -m tests.executor.event_program DO URL BACKEND ...`.

hold        goes on with the run whenever it can, until it has ended
send FROM   sends every event, twice each and beginning at one of them, until each is known to be in the run
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import anyio
from pydantic import BaseModel

from orchestrator import Executor, Graph, Outcome, append, node
from orchestrator.errors import RunConflict, RunEnded
from orchestrator.nodes import Wait

RUN = "r"


class Taken(BaseModel):
    """What came."""

    wanted: int = 30
    got: Annotated[list[int], append] = []


@node(outcomes=("more", "all"))
async def work(state: Taken) -> Any:
    """Takes a moment, in which events come to a run that is held."""
    await anyio.sleep(0.01)
    return Outcome("all" if len(state.got) == state.wanted else "more")


def takes() -> Graph[Taken]:
    """A loop that takes an event in each round."""
    return Graph(
        name="takes", state=Taken, input="wanted", output="got",
        nodes={"wait": Wait(event="tick", into="got"), "work": work},
        edges="START -> wait -> work -> wait : more\nwork -> END : all",
    )  # fmt: skip


async def hold(url: str) -> None:
    """Go on with the run until it has ended."""
    while True:
        async with Executor(url, graphs=[takes()]) as executor:
            for _ in range(50):
                try:
                    await executor.resume(RUN)
                except RunConflict:
                    pass
                except RunEnded:
                    return
                await anyio.sleep(0.005)


async def send(url: str, first: int, many: int) -> None:
    """Send all events, each twice at once."""
    numbers = [*range(first, many), *range(first)]
    async with Executor(url) as executor:

        async def one(number: int) -> None:
            while True:
                try:
                    await executor.send(RUN, "tick", number, id=f"e{number}", resume=False)
                except RunConflict:
                    await anyio.sleep(0.01)
                except RunEnded:
                    return
                else:
                    return

        for number in numbers:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, number)
                tasks.start_soon(one, number)


def main() -> None:
    do, url, backend, *more = sys.argv[1:]
    if do == "hold":
        anyio.run(hold, url, backend=backend)
    else:
        anyio.run(send, url, int(more[0]), int(more[1]), backend=backend)
    print("done")


if __name__ == "__main__":
    main()
