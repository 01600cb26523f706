"""`python -m tests.engines.figures [RUNS]`: what deliveries by Restate cost on this machine, as docs/engines.md has it.

Needs the program of a Restate server, see `tests.support.restate`. Figures of a busy machine say little.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import anyio

from tests.engines.crew import TTL, crew
from tests.support import restate
from tests.support.postgres import PostgresServer

_AT_ONCE = 20
"""Submissions under way at the same time."""


async def rate(server: restate.RestateServer, url: str, folder: Path, count: int) -> None:
    """Runs a second of 4 effects each, with 2 workers."""
    async with crew(folder, server, url, slowest=0.0) as found:
        await found.ended(await found.begin("errand"))
        for one in range(count):
            await found.begin("errand", one, submit=False)
        limit, began = anyio.CapacityLimiter(_AT_ONCE), time.monotonic()

        async def submit(run_id: str) -> None:
            async with limit:
                await found.engine.submit(run_id)

        async with anyio.create_task_group() as tasks:
            for run_id in found.run_ids[1:]:
                tasks.start_soon(submit, run_id)
        submitted = time.monotonic() - began
        while await found.left(found.run_ids):  # noqa: ASYNC110  other processes drive them
            await anyio.sleep(0.02)
        seconds = time.monotonic() - began
        by_worker = Counter(one.life for one in found.world.asked)
    print(
        f"{count} runs of 4 effects: {count / seconds:.1f} a second; submitted in {submitted:.1f} s; {dict(by_worker)}"
    )


async def kills(server: restate.RestateServer, url: str, folder: Path, count: int) -> None:
    """Seconds from SIGKILL of a worker until its run goes on in the other."""
    taken = []
    async with crew(folder, server, url) as found:
        for number in range(count):
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
            await found.until(lambda v=victim, n=number: v.log.count("are registered") == len(v.lives), "it is back")  # type: ignore[misc]
    print(
        f"kill -9 of a worker -> goes on in the other: median {statistics.median(taken):.2f} s, "
        f"worst {max(taken):.2f} s of {count}; leases of {TTL} s, same machine"
    )


def main(count: int) -> None:
    """Measure, and print."""
    program = restate.command()
    assert program is not None, "no Restate server: set RESTATE_SERVER"
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    store = PostgresServer.make(durable=True)
    try:
        store.make_template()
        for number, what in enumerate((rate, kills)):
            folder = Path(tempfile.mkdtemp())
            store.create_database(f"figures{number}")
            with restate.running(program, folder) as server:
                anyio.run(what, server, store.url(f"figures{number}"), folder, count if what is rate else 10)
    finally:
        store.remove()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
