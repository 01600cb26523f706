"""A storm: a plan of faults, and meanwhile runs that are submitted once, twice or never, answered and cancelled."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import anyio
import anyio.to_thread

from orchestrator.errors import EngineUnavailable, RunError, StoreError
from orchestrator.kernel.status import FINAL
from tests.engines.crew import PATIENCE, TTL, Crew, Server
from tests.executor.errand_program import IRREVERSIBLE
from tests.support.postgres import PostgresServer

Kind: TypeAlias = Literal["kill", "stop", "end", "engine", "store"]
"""A fault.

- kill: SIGKILL of a worker; another process begins in its place.
- stop: SIGSTOP of a worker, later SIGCONT.
- end: SIGTERM of a worker; another process begins in its place.
- engine: SIGKILL of the engine's server, which is started again.
- store: SIGKILL of all processes of the database, which is started again.
"""
KINDS: tuple[Kind, ...] = get_args(Kind)
_OPEN = {"errand": 6, "asking": 4, "resting": 4}
"""Runs of each graph that are open at any time."""


@dataclass(frozen=True)
class Fault:
    """One of them."""

    kind: Kind
    victim: int
    """Of faults of workers: 0 is the one that made the last call, 1 the other one."""
    after: float
    """Seconds of work before it."""
    length: float
    """Seconds until it is healed."""


def plan(seed: int, count: int) -> list[Fault]:
    """So many faults, all kinds equally often."""
    chance = random.Random(seed)
    found: list[Fault] = []
    while len(found) < count:
        for kind in chance.sample(KINDS, len(KINDS)):
            lengths = {"stop": (0.2 * TTL, 1.8 * TTL), "engine": (0.0, 1.5), "store": (0.0, 1.0)}
            length = chance.uniform(*lengths.get(kind, (0.0, 0.3)))
            found.append(Fault(kind, chance.randrange(2), chance.uniform(0.2, 1.2), length))
    return found[:count]


@dataclass
class Office:
    """Keeps runs open, submits them as it happens, and answers what they ask."""

    crew: Crew
    seed: int
    open: dict[str, str] = field(default_factory=dict)
    """Run -> its graph."""
    submits: Counter[int] = field(default_factory=Counter)
    """How often runs were submitted when they began -> runs."""
    store_failures: int = 0
    engine_failures: int = 0
    cancelled: set[str] = field(default_factory=set)
    closes: bool = False

    async def work(self) -> None:
        """Work until it is told to close, and all runs have ended."""
        chance = random.Random(self.seed)
        while self.open or not self.closes:
            try:
                await self._round(chance)
            except StoreError:
                self.store_failures += 1
            except EngineUnavailable:
                self.engine_failures += 1
            for worker in self.crew.workers:
                worker.revive()
            await anyio.sleep(0.05)

    async def _round(self, chance: random.Random) -> None:
        crew = self.crew
        heads = await crew.executor.store.heads([*self.open])
        for run_id, (_, status) in heads.items():
            if status in FINAL:
                del self.open[run_id]
        counts = Counter(self.open.values())
        for graph, count in _OPEN.items():
            for _ in range(0 if self.closes else count - counts[graph]):
                run_id = await crew.begin(graph, chance.randrange(300, 3000), submit=False)
                self.open[run_id] = graph
                times = chance.choices((1, 2, 0), (7, 2, 1))[0]
                self.submits[times] += 1
                for _ in range(times):
                    await crew.engine.submit(run_id)
        await crew.settle([*self.open])
        await self._answer(chance)

    async def _answer(self, chance: random.Random) -> None:
        executor, engine = self.crew.executor, self.crew.engine
        for info in (await executor.runs(waiting=True, limit=100)).runs:
            if self.open.get(info.run_id) != "asking" or chance.random() < 0.7:
                continue  # later, or its timer comes first
            for question in (await executor.load(info.run_id)).waiting:
                if question.kind != "input":
                    continue
                try:
                    if chance.random() < 0.05:
                        await executor.cancel(info.run_id, by="somebody")
                        self.cancelled.add(info.run_id)
                        await engine.cancel(info.run_id)
                    else:
                        await executor.answer(info.run_id, question.id, "yes", resume=False)
                        await engine.submit(info.run_id)
                except RunError:
                    continue


async def strike(crew: Crew, server: Server, store: PostgresServer, fault: Fault) -> None:
    """Let a fault happen, and heal it."""
    await anyio.sleep(fault.after)
    busiest = crew.driver(crew.world.asked[-1].what) if crew.world.asked else crew.workers[0]
    worker = busiest if fault.victim == 0 else next(one for one in crew.workers if one is not busiest)
    worker.revive()
    if fault.kind in ("kill", "end"):
        worker.down = True
        worker.signal(signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM)
        await anyio.to_thread.run_sync(worker.wait)
        await anyio.sleep(fault.length)
        worker.begin()
    elif fault.kind == "stop":
        worker.signal(signal.SIGSTOP)
        await anyio.sleep(fault.length)
        worker.signal(signal.SIGCONT)
    else:
        struck = server if fault.kind == "engine" else store
        await anyio.to_thread.run_sync(struck.kill)
        await anyio.sleep(fault.length)
        await anyio.to_thread.run_sync(struck.start)


@dataclass(frozen=True)
class Figures:
    """What came of a storm."""

    seconds: float
    faults: Counter[str]
    statuses: Counter[str]
    unsubmitted: int
    """Runs that were never submitted when they began."""
    irreversible: int
    """Irreversible effects that are to be there."""
    missing: int
    doubled: int
    """Effects that were done again without a question, or after somebody had found the first."""
    excused: int
    """Effects that were done again after somebody had looked, and found nothing."""
    questions: int
    happened: int
    """Questions whose effect had happened."""

    def check(self) -> None:
        """Hold them against the laws."""
        assert set(self.statuses) <= {"completed", "cancelled"}, self.statuses
        assert self.doubled == self.missing == 0, self

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"{self.faults.total()} faults in {self.seconds:.0f} s: {dict(self.faults)}",
            f"{self.statuses.total()} runs: {dict(self.statuses)}; {self.unsubmitted} never submitted when they began",
            f"{self.irreversible} irreversible effects: {self.missing} lost, {self.doubled} doubled",
            f"{self.excused} effects done again after somebody had looked and found nothing",
            f"{self.questions} questions about effects whose outcome is unknown, {self.happened} of which had happened",
        ]


async def storm(crew: Crew, server: Server, store: PostgresServer, faults: Sequence[Fault], seed: int) -> Figures:
    """Let faults happen while an office works, wait until all runs have ended, and count."""
    began, office = time.monotonic(), Office(crew, seed)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(office.work)
        for fault in faults:
            await strike(crew, server, store, fault)
        office.closes = True
        with anyio.move_on_after(PATIENCE):
            while office.open:  # noqa: ASYNC110  the office empties it
                await anyio.sleep(0.1)
        logs = "\n".join(one.log[-4000:] for one in crew.workers)
        assert not office.open, f"these do not end: {office.open}\n{logs}"
    await anyio.to_thread.run_sync(crew.world.settle)
    runs = {run_id: await crew.executor.load(run_id) for run_id in crew.run_ids}
    completed = [run_id for run_id, run in runs.items() if run.status == "completed"]
    done = set(crew.world.results.values())
    wanted = [f"{what}({run_id})" for run_id in completed for what in IRREVERSIBLE]
    excused = Counter(key for key, found in crew.looked if not found)
    asked = Counter(one.key for one in crew.world.asked if one.what in IRREVERSIBLE)
    again = {key: count - 1 - excused[key] for key, count in asked.items() if count > 1}
    return Figures(
        seconds=time.monotonic() - began,
        faults=Counter(fault.kind for fault in faults),
        statuses=Counter(run.status for run in runs.values()),
        unsubmitted=office.submits[0],
        irreversible=len(wanted),
        missing=len(set(wanted) - done),
        doubled=sum(more > 0 for more in again.values()),
        excused=sum(more <= 0 for more in again.values()),
        questions=len(crew.looked),
        happened=sum(found for _, found in crew.looked),
    )
