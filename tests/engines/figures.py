"""`python -m tests.engines.figures [RUNS]`: what deliveries cost on this machine, as docs/engines.md has it.

With each engine of which there is a server (see `tests.support.restate` and `tests.support.temporal`), and with workers
alone, by turns. Figures of a busy machine say little.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from orchestrator.engines import POLL
from tests.engines.crew import TTL, Nobody, Server, crew
from tests.support import restate, temporal
from tests.support.postgres import PostgresServer

_AT_ONCE = 20
"""Submissions under way at the same time."""
_ROUNDS = 3


def orders(server: Server) -> list[dict[str, object]]:
    """Those of two workers, which look at the store as often as they do by default."""
    return [{"poll": POLL if server.url else 1.0} for _ in range(2)]


async def rate(server: Server, url: str, folder: Path, count: int) -> list[float]:
    """Runs a second of 4 effects each, with 2 workers, from the first `enqueue` to the last end."""
    async with crew(folder, server, url, *orders(server), slowest=0.0) as found:
        await found.ended(await found.begin("errand"))
        limit, began = anyio.CapacityLimiter(_AT_ONCE), time.monotonic()

        async def begin(number: int) -> None:
            async with limit:
                await found.begin("errand", number)

        async with anyio.create_task_group() as tasks:
            for one in range(count):
                tasks.start_soon(begin, one)
        while await found.left(found.run_ids):  # noqa: ASYNC110  other processes drive them
            await anyio.sleep(0.02)
        return [count / (time.monotonic() - began)]


async def kills(server: Server, url: str, folder: Path, count: int) -> list[float]:
    """Seconds from SIGKILL of a worker until its run goes on in the other."""
    taken = []
    async with crew(folder, server, url, *orders(server)) as found:
        for _ in range(count):
            gate, before = found.world.close("slow"), found.world.count("slow")
            run_id = await found.begin("slowly")
            await found.until(lambda before=before: found.world.count("slow") > before, "it is in the step")  # type: ignore[misc]
            victim = found.driver()
            victim.kill()
            killed = time.monotonic()
            await found.until(lambda before=before: found.world.count("slow") > before + 1, "it goes on")  # type: ignore[misc]
            taken.append(time.monotonic() - killed)
            gate.set()
            await found.ended(run_id)
            victim.begin()
            await found.until(victim.is_ready, "it is back")
    return taken


@contextmanager
def served(name: str) -> Iterator[Server]:
    """A server of an engine that runs; "": nobody."""
    folder = Path(tempfile.mkdtemp())
    if name == "restate":
        with restate.running(str(restate.command()), folder) as server:
            yield server
    elif name == "temporal":
        with temporal.running(str(temporal.command()), folder) as other:
            yield other
    else:
        yield Nobody()


def main(count: int) -> None:
    """Measure, and print."""
    commands = {"": "alone", "restate": restate.command(), "temporal": temporal.command()}
    names = [name for name, program in commands.items() if program is not None]
    rates: dict[str, list[float]] = {name: [] for name in names}
    gaps: dict[str, list[float]] = {name: [] for name in names}
    load = os.getloadavg()[0]
    store = PostgresServer.make(durable=True)
    try:
        store.make_template()
        for turn in range(_ROUNDS):
            for name in names:
                for what, into, size in ((rate, rates, count), (kills, gaps, 5)):
                    database = f"figures_{turn}_{name}_{what.__name__}"
                    store.create_database(database)
                    with served(name) as server:
                        folder = Path(tempfile.mkdtemp())
                        into[name] += anyio.run(what, server, store.url(database), folder, size)
    finally:
        store.remove()
    print(f"{count} runs of 4 effects, {_ROUNDS} rounds; leases of {TTL} s; load before it: {load:.1f}\n")
    print("| | runs a second | of workers alone | kill -9 to going on: median, worst |\n|---|---|---|---|")
    alone = statistics.median(rates[""])
    for name in names:
        found, taken = statistics.median(rates[name]), gaps[name]
        print(
            f"| {name or 'workers alone'} | {found:.1f} | {found / alone:.2f} |"
            f" {statistics.median(taken):.2f} s, {max(taken):.2f} s of {len(taken)} |"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
