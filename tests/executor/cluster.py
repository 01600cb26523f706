"""A cluster on one machine: a database, workers on hosts of their own, and an office that hands out runs and answers.

The diary of all effects is the server of `outside`, at this process' own address of the network.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread
import psycopg

from orchestrator import Executor
from orchestrator.errors import RunError, StoreError
from orchestrator.kernel.status import FINAL
from tests.executor.cluster_faults import Fault
from tests.executor.errand_program import ERRAND, errand
from tests.executor.outside import Outside, ask, outside
from tests.support.database_host import DatabaseHost
from tests.support.hosts import Host, Program, network
from tests.support.programs import ROOT

OPEN = 8
"""Runs that are open at any time, beside one of each host's own."""
SLOTS = OPEN + 1
"""Runs that a worker drives at a time: it never waits for a slot to take over what another one left."""
POLL = 0.5
"""Seconds between two looks of a worker for runs."""
PATIENCE = 60.0
"""Seconds after which something is taken never to happen."""


class Worker:
    """The worker of a host: one process after the other, each with a name of its own outside."""

    def __init__(self, host: Host, order: dict[str, object]) -> None:
        self.host, self._order = host, order
        self.lives: list[str] = []
        self._program: Program | None = None

    @property
    def life(self) -> str:
        """The name of its process."""
        return self.lives[-1]

    def begin(self) -> None:
        """Begin a process."""
        number = len(self.lives)
        self.lives.append(f"{self.host.name}-{number}")
        order = {**self._order, "life": self.life, "own": self.host.name, "backend": ("asyncio", "trio")[number % 2]}
        with (self.host.folder / "worker.log").open("ab") as log:
            self._program = self.host.run(
                [sys.executable, "-m", "tests.executor.errand_program", json.dumps(order)],
                env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def ended(self) -> bool:
        """Whether its process has ended by itself."""
        return self._program is not None and self._program.ended

    @property
    def log(self) -> str:
        """What its processes wrote."""
        return (self.host.folder / "worker.log").read_text(errors="replace")

    def kill(self) -> None:
        """End its process."""
        assert self._program is not None
        assert not self._program.ended, self.log[-4000:]
        self._program.kill()

    def signal(self, number: int) -> None:
        """Send its process a signal."""
        assert self._program is not None
        assert not self._program.ended, self.log[-4000:]
        self._program.signal(number)


class Office:
    """Keeps runs open, and answers questions about effects as somebody who looks outside first."""

    def __init__(self, url: str, world: Outside, own: Sequence[str]) -> None:
        self._url, self._world = url, world
        self._graphs = [ERRAND] * OPEN + [errand(name) for name in own]
        """Of the runs that are open."""
        self.run_ids: list[str] = []
        """Those of a host's own begin with its name."""
        self.looked: list[tuple[float, str, bool]] = []
        """When somebody looked, the key, and whether the effect was there."""
        self.failures: list[tuple[float, str]] = []
        """When the store failed, and how."""
        self._open: dict[int, str] = {}
        """Place among the graphs -> run."""
        self._closes = self._ends = False
        self._thread = threading.Thread(target=self._run)
        self._fault: BaseException | None = None

    def begin(self) -> None:
        """Open."""
        self._thread.start()

    def close(self) -> None:
        """Hand nothing more out, and return when all runs have ended.

        Raises:
            AssertionError: they do not.
        """
        self._closes = True
        self._thread.join(PATIENCE)
        self._ends = True
        self._thread.join(PATIENCE)
        self.check()
        assert not self._open, f"{len(self._open)} runs do not end: {self._open}; {self.failures[-3:]}"

    def check(self) -> None:
        """Raise what ended its work too early, if anything did."""
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            anyio.run(self._work)
        except BaseException as error:
            self._fault = error

    async def _work(self) -> None:
        graphs = [*{one.name: one for one in self._graphs}.values()]
        while not self._ends and not (self._closes and not self._open):
            try:
                async with Executor(self._url, graphs=graphs) as executor:
                    while not self._ends and not (self._closes and not self._open):
                        await self._round(executor)
                        await anyio.sleep(0.1)
            except StoreError as error:
                self.failures.append((time.time(), str(error)))
                await anyio.sleep(0.1)

    async def _round(self, executor: Executor) -> None:
        heads = await executor.store.heads(self._open.values())
        ended = {run_id for run_id, (_, status) in heads.items() if status in FINAL}
        self._open = {place: run_id for place, run_id in self._open.items() if run_id not in ended}
        for place, graph in enumerate(self._graphs):
            if not self._closes and place not in self._open:
                run_id = f"{graph.name}-{len(self.run_ids)}"
                await executor.enqueue(graph, len(self.run_ids), run_id=run_id)  # again, if the store failed in it
                self.run_ids.append(run_id)
                self._open[place] = run_id
        for info in (await executor.runs(waiting=True, limit=100)).runs:
            for question in (await executor.load(info.run_id)).waiting:
                assert question.kind == "unknown_outcome", question
                key = str(question.payload["key"])
                found = await anyio.to_thread.run_sync(partial(ask, self._world.url, what="known", key=key))
                self.looked.append((time.time(), key, found is not None))
                said = "retry" if found is None else {"choice": "happened", "result": found}
                with contextlib.suppress(RunError):
                    await executor.answer(info.run_id, question.id, said, resume=False, by="somebody who looked")


@dataclass(frozen=True)
class Struck:
    """A fault that was, with its times: Unix seconds."""

    fault: Fault
    life: str
    """The process that it hit; empty for a fault of the database."""
    began: float
    healed: float
    works: float
    """When the victim, or its successor, made a call again; for a fault of the database when both workers had."""


class Cluster:
    """See `cluster`."""

    def __init__(
        self, world: Outside, database: DatabaseHost, workers: list[Worker], office: Office, ttl: float
    ) -> None:
        self.world, self.database, self.workers, self.office, self.ttl = world, database, workers, office, ttl
        self.struck: list[Struck] = []

    def strike(self, fault: Fault) -> Struck:
        """Let a fault happen, heal it, and wait until the victim works again.

        Raises:
            AssertionError: it does not.
        """
        time.sleep(fault.after)
        worker = self.workers[fault.victim]
        of_worker = not fault.kind.startswith("database")
        life = worker.life if of_worker else ""
        begin, heal = self._ways(fault, worker)
        began = time.time()
        begin()
        time.sleep(fault.length)
        heal()
        healed = time.time()
        for one in [worker] if of_worker else self.workers:
            self.wait_for(lambda one=one: self._asked(one, healed), f"{one.host.name} after {fault}", one)  # type: ignore[misc]
        works = time.time()
        found = Struck(fault, life, began, healed, works)
        self.struck.append(found)
        return found

    def state(self, worker: Worker | None) -> str:
        """What a worker and the database do just now."""
        if worker is not None:
            worker.signal(signal.SIGUSR1)
            time.sleep(0.5)
        query = (
            "SELECT pid, client_addr::text, state, wait_event, clock_timestamp() - state_change, pg_blocking_pids(pid),"
            " left(query, 90) FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY 1"
        )
        with psycopg.connect(self.database.url()) as connection:
            sessions = "\n".join(str(row) for row in connection.execute(query).fetchall())
        return (worker.log[-8000:] if worker else "") + "\n" + sessions

    def _asked(self, worker: Worker, since: float) -> bool:
        return any(one.at > since and one.life == worker.life for one in self.world.asked[-300:])

    def _ways(self, fault: Fault, worker: Worker) -> tuple[Callable[[], object], Callable[[], object]]:
        host, database = worker.host, self.database.host
        ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "kill": (worker.kill, worker.begin),
            "stop": (partial(worker.signal, signal.SIGSTOP), partial(worker.signal, signal.SIGCONT)),
            "down": (host.down, host.up),
            "silent": (host.unplug, host.plug),
            "mute": (partial(host.lose, database), partial(host.find, database)),
            "deaf": (partial(database.lose, host), partial(database.find, host)),
            "database_kill": (self.database.kill, self.database.start),
            "database_down": (database.down, database.up),
            "database_silent": (database.unplug, database.plug),
        }
        return ways[fault.kind]

    def wait_for(self, true: Callable[[], object], what: str, worker: Worker | None = None) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            self.office.check()
            gone = worker is not None and worker.ended
            assert not gone, f"{what}: the worker has ended\n" + (worker.log[-6000:] if worker else "")
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: it never is\n{self.state(worker)}")
            time.sleep(0.01)


@contextmanager
def cluster(
    *, seed: int, ttl: float, workers: int = 2, slowest: float = 0.3, **parameters: object
) -> Iterator[Cluster]:
    """A cluster that works, and leaves nothing behind.

    Args:
        seed: of how long effects take.
        ttl: seconds that leases last.
        workers: how many hosts have a worker.
        slowest: seconds that an effect takes at most.
        parameters: of the store's URL.
    """
    with network() as net, outside(seed, slowest, net.address) as world:
        database = DatabaseHost(net.host("database"))
        database.make()
        url = database.url(**parameters)
        order: dict[str, object] = {
            "store": url, "world": [net.address, world.server_address[1]], "ttl": ttl, "slots": SLOTS, "poll": POLL
        }  # fmt: skip
        staff = [Worker(net.host(f"worker{number}"), order) for number in range(workers)]
        office = Office(url, world, [worker.host.name for worker in staff])
        found = Cluster(world, database, staff, office, ttl)
        for worker in staff:
            worker.begin()
        office.begin()
        try:
            for worker in staff:
                found.wait_for(lambda one=worker: found._asked(one, 0.0), f"{worker.host.name} begins", worker)  # type: ignore[misc]
            yield found
        finally:
            office._ends = True
            office._thread.join(PATIENCE)
