"""Workers as processes, an engine's server, a store and what is outside: what the cases of every engine work with."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from orchestrator import Executor, Run
from orchestrator.engines import Deliveries, EngineStatus, ServedEngine, engine_at
from orchestrator.errors import RunError
from orchestrator.executor.lease import is_held
from orchestrator.kernel.status import FINAL
from tests.engines.program import GRAPHS
from tests.executor.errand_program import IRREVERSIBLE
from tests.executor.outside import Outside, ask, outside
from tests.support.programs import ROOT

TTL = 2.0
"""Seconds that leases of workers last."""
PATIENCE = 60.0
"""Seconds after which something is taken never to happen."""


class Server(Protocol):
    """The server of an engine."""

    @property
    def url(self) -> str:
        """Of the engine, for workers and for those who submit."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...

    def start(self) -> None:
        """Start it again with the same files, and wait until it takes runs."""
        ...


class Nobody:
    """In the place of a server where workers find their runs by themselves."""

    url = ""

    def kill(self) -> None:
        """Nothing is killed."""

    def start(self) -> None:
        """Nothing is started."""


class Unserved:
    """In the place of an engine there."""

    async def submit(self, run_id: str, *, at: float | None = None) -> None:
        """Workers hear of it from the store."""

    async def cancel(self, run_id: str) -> None:
        """There is nothing to cancel."""

    async def status(self, run_id: str) -> EngineStatus:
        """Nobody knows."""
        return "unknown"

    async def serve(self, deliveries: Deliveries, *, stop: anyio.Event) -> None:
        """Nothing is delivered."""

    async def aclose(self) -> None:
        """Nothing is open."""


class Worker:
    """One process after the other, each with a name of its own outside."""

    def __init__(self, name: str, folder: Path, order: dict[str, object]) -> None:
        self.name, self._folder, self._order = name, folder, order
        self.lives: list[str] = []
        self.down = False
        """Whether it is to have no process just now."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def life(self) -> str:
        """The name of its process."""
        return self.lives[-1]

    def is_ready(self) -> bool:
        """Whether its process has begun to take runs."""
        return self.log.count("are registered") == len(self.lives)

    @property
    def log(self) -> str:
        """What its processes wrote."""
        return (self._folder / f"{self.name}.log").read_text(errors="replace")

    def begin(self) -> None:
        """Begin a process."""
        self.down = False
        self.lives.append(f"{self.name}-{len(self.lives)}")
        order = {**self._order, "life": self.life}
        command = [sys.executable, "-m", "tests.engines.program", json.dumps(order)]
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def revive(self) -> None:
        """Begin a process if one ended by itself: it could not open the store. A supervisor does so."""
        if self._process is not None and not self.down and self._process.poll() is not None:
            assert "StoreUnavailable" in self.log[-2000:], self.log[-4000:]
            self.begin()

    def signal(self, number: int) -> None:
        """Send its process a signal."""
        assert self._process is not None
        assert self._process.poll() is None, self.log[-4000:]
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Wait until its process ends; its exit code."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)


class Crew:
    """See `crew`."""

    def __init__(self, executor: Executor, engine: ServedEngine, world: Outside, workers: Sequence[Worker]) -> None:
        self.executor, self.engine, self.world, self.workers = executor, engine, world, workers
        self.run_ids: list[str] = []
        self._numbers = itertools.count()
        self.looked: list[tuple[str, bool]] = []
        """The keys of effects that somebody looked for, and whether they had happened."""

    async def begin(self, graph: str, number: int = 0, *, submit: bool = True) -> str:
        """Enqueue a run, and submit it."""
        run_id = await self.executor.enqueue(GRAPHS[graph], number, run_id=f"{graph}-{next(self._numbers)}")
        self.run_ids.append(run_id)
        if submit:
            await self.engine.submit(run_id)
        return run_id

    async def ended(self, *run_ids: str) -> list[Run]:
        """Wait until runs have ended. Somebody looks for effects of which nothing is known."""
        with anyio.move_on_after(PATIENCE):
            while left := await self.left(run_ids or self.run_ids):
                await self.settle(left)
                await anyio.sleep(0.05)
            return [await self.executor.load(one) for one in run_ids or self.run_ids]
        rows = [await self.executor.store.info(one) for one in await self.left(run_ids or self.run_ids)]
        logs = "\n".join(f"{one.name}:\n{one.log[-3000:]}" for one in self.workers)
        raise AssertionError(f"these do not end: {rows}\n{logs}")

    async def left(self, run_ids: Sequence[str]) -> list[str]:
        """Those that have not ended."""
        heads = await self.executor.store.heads(run_ids)
        return [one for one in run_ids if heads[one][1] not in FINAL]

    async def settle(self, run_ids: Sequence[str]) -> None:
        """Answer questions about effects of which nothing is known as somebody who looked."""
        waiting = {info.run_id for info in (await self.executor.runs(waiting=True, limit=1000)).runs}
        for run_id in waiting.intersection(run_ids):
            for question in (await self.executor.load(run_id)).waiting:
                if question.kind != "unknown_outcome" or is_held(await self.executor.store.lease(run_id)):
                    continue
                key = str(question.payload["key"])
                found = await anyio.to_thread.run_sync(partial(ask, self.world.url, what="known", key=key))
                self.looked.append((key, found is not None))
                said = "retry" if found is None else {"choice": "happened", "result": found}
                try:
                    await self.executor.answer(run_id, question.id, said, resume=False, by="somebody who looked")
                except RunError:
                    continue
                await self.engine.submit(run_id)

    async def until(self, true: Callable[[], object], what: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            logs = "\n".join(f"{one.name}:\n{one.log[-3000:]}" for one in self.workers)
            assert time.monotonic() < deadline, f"{what}: it never is\n{logs}"
            await anyio.sleep(0.01)

    def driver(self, what: str = "slow") -> Worker:
        """The worker that asked for something last."""
        life = next(one.life for one in reversed(self.world.asked) if one.what == what)
        return next(worker for worker in self.workers if life in worker.lives)

    def check(self) -> None:
        """Nothing irreversible was done twice unless somebody looked and found nothing, and nothing is missing."""
        self.world.settle()
        times = Counter(one.key for one in self.world.asked if one.what in IRREVERSIBLE)
        excused = Counter(key for key, found in self.looked if not found)
        doubled = {key: count for key, count in times.items() if count > 1 + excused[key]}
        assert not doubled, f"done twice: {doubled}"


def worker(folder: Path, name: str, server: Server, store: str, world: Outside, **order: object) -> Worker:
    """A worker that is not yet begun."""
    known: dict[str, object] = {
        "store": store, "engine": server.url, "world": world.server_address[:2], "ttl": TTL, "poll": 60.0,
        "grace": 10.0, "graphs": [*GRAPHS],
    }  # fmt: skip
    return Worker(name, folder, known | order)


@asynccontextmanager
async def crew(
    folder: Path, server: Server, store: str, *orders: dict[str, object], slowest: float = 0.05
) -> AsyncIterator[Crew]:
    """Workers that have begun, and leave nothing behind.

    Args:
        folder: for their logs.
        server: of the engine.
        store: the URL of the store.
        orders: for each worker what its order says otherwise; none: two workers.
        slowest: seconds that an effect takes at most.
    """
    engine = engine_at(server.url) if server.url else Unserved()
    with outside(1, slowest) as world:
        async with Executor(store, graphs=[*GRAPHS.values()], idle="sleep") as executor:
            workers = [
                worker(folder, f"worker{number}", server, store, world, **order)
                for number, order in enumerate(orders or ({}, {}))
            ]
            found = Crew(executor, engine, world, workers)
            try:
                for one in workers:
                    one.begin()
                for one in workers:
                    await found.until(one.is_ready, f"{one.name} receives deliveries")
                yield found
            finally:
                for one in workers:
                    one.close()
                await engine.aclose()
