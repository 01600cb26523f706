"""A simulation of many workers on one PostgreSQL server, with costs that were measured.

    python -m tests.benchmarks.simulation [--seed N]

It writes the table of docs/scale.md: how busy the server is, how long appends and runs wait, and how long the runs of
a worker that is killed stand still. What is simulated: runs arrive at random; each takes a slot of a worker, and
alternates between work of its own and appends. A worker has one connection that writes: what its runs append while one
commit is under way goes into the next, in one statement. The server has some processors, which serve statements in the
order in which they come, and one log, which one flush at a time makes durable for all commits that wait for it. Each
worker renews its leases with one row, and claims runs with as many as it has free slots.

Not simulated: the network beyond a fixed delay, vacuum and checkpoints, reads by people, and locks between statements
(runs are disjoint).
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tests.benchmarks.pages import with_parts

KEPT = Path(__file__).with_name("postgres.json")
PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


@dataclass(frozen=True)
class Costs:
    """Seconds that the server works, as measured."""

    commit: float
    """A commit with its first append, without the flush."""
    append: float
    """Each further append of the same commit."""
    flush: float
    """Making the log durable, for all commits that wait."""
    claim: float
    """A claim, whatever it finds."""
    beat: float
    """Renewing the leases of a worker."""
    delay: float = 0.0005
    """There and back between a worker and the server."""


@dataclass(frozen=True)
class Load:
    """What is asked of the workers."""

    name: str
    runs_per_day: float
    workers: int
    slots: int
    appends: int = 52
    """Durable appends of a run: of 12 steps, and of 24 effects with an intent each."""
    alive: float = 300.0
    """Seconds of a run's own work, between its appends."""
    peak: float = 1.0
    """How many times the average number of runs arrive."""
    processors: int = 8
    """Of the server."""
    ttl: float = 30.0
    """Seconds that a lease lasts without a beat."""
    poll: float = 1.0
    """Seconds between two claims of a worker that found nothing."""
    seconds: float = 60.0
    """How long is observed, from the moment on at which as many runs are alive as arrive in their lifetime."""
    kill_at: float | None = 10.0
    """When one worker is killed; None: none is."""


@dataclass
class Outcome:
    """What was seen."""

    seconds: float
    processors: int
    busy: float = 0.0
    """Seconds of work of the server's processors."""
    commits: int = 0
    appended: int = 0
    flushes: int = 0
    append_waits: list[float] = field(default_factory=list)
    """Seconds from an append to its durability."""
    start_waits: list[float] = field(default_factory=list)
    """Seconds from the arrival of a run to its claim."""
    stalls: list[float] = field(default_factory=list)
    """Seconds from the death of a worker to the claim of each of its runs by another."""
    arrived: int = 0
    ended: int = 0
    alive_at_start: int = 0
    alive_at_end: int = 0
    """Runs that are driven, or wait to be."""

    @property
    def load(self) -> float:
        """The part of the server's processors that works."""
        return self.busy / (self.processors * self.seconds)


_Event: TypeAlias = tuple[float, int, Callable[[], None]]


class _Run:
    __slots__ = ("arrived", "asked", "left", "lost_at")

    def __init__(self, arrived: float, left: int) -> None:
        self.arrived, self.left = arrived, left
        self.asked = 0.0
        """When its append was asked for."""
        self.lost_at: float | None = None
        """When the worker that drove it died; None: no worker did."""


class _Worker:
    __slots__ = ("alive", "busy", "claims", "queue", "runs")

    def __init__(self) -> None:
        self.runs: set[_Run] = set()
        self.queue: list[_Run] = []
        """Runs whose append waits for the commit that is under way."""
        self.busy = False
        """Whether a commit is under way."""
        self.claims = False
        self.alive = True


class Simulation:
    """One load with one set of costs. The same seed gives the same outcome."""

    def __init__(self, load: Load, costs: Costs, seed: int = 0) -> None:
        self._load, self._costs, self._random = load, costs, random.Random(seed)
        self._now, self._number = 0.0, 0
        self._events: list[_Event] = []
        self._free = load.processors
        self._statements: deque[tuple[float, Callable[[], None]]] = deque()
        """Work for the server that waits for a processor, and what follows it."""
        self._unflushed: list[Callable[[], None]] = []
        self._flushing = False
        self._waiting: deque[_Run] = deque()
        self._workers = [_Worker() for _ in range(load.workers)]
        self.outcome = Outcome(load.seconds, load.processors)

    def run(self) -> Outcome:
        """Simulate, and return what was seen."""
        load, rate = self._load, self._load.runs_per_day * self._load.peak / 86_400
        alive = min(round(rate * load.alive), load.workers * load.slots)
        for number in range(alive):  # runs of every age, spread over the workers
            run = _Run(0.0, self._random.randint(1, load.appends))
            self._drive(self._workers[number % load.workers], run)
        self.outcome.alive_at_start = alive
        self._after(self._random.expovariate(rate), lambda: self._arrive(rate))
        for worker in self._workers:
            self._after(self._random.uniform(0, load.poll), partial(self._claim, worker))
            self._after(self._random.uniform(0, load.ttl / 3), partial(self._beat, worker))
        if load.kill_at is not None and load.workers > 1:
            self._after(load.kill_at, self._kill)
        while self._events and self._events[0][0] <= load.seconds:
            self._now, _, event = heapq.heappop(self._events)
            event()
        self.outcome.alive_at_end = sum(len(worker.runs) for worker in self._workers) + len(self._waiting)
        return self.outcome

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self._now + seconds, self._number, event))

    # ---------------------------------------------------------------------------------- runs

    def _arrive(self, rate: float) -> None:
        self.outcome.arrived += 1
        self._waiting.append(_Run(self._now, self._load.appends))
        self._after(self._random.expovariate(rate), lambda: self._arrive(rate))

    def _drive(self, worker: _Worker, run: _Run) -> None:
        worker.runs.add(run)
        self._work(worker, run)

    def _work(self, worker: _Worker, run: _Run) -> None:
        self._after(self._random.expovariate(self._load.appends / self._load.alive), lambda: self._append(worker, run))

    def _append(self, worker: _Worker, run: _Run) -> None:
        if not worker.alive:
            return
        run.asked = self._now
        worker.queue.append(run)
        if not worker.busy:
            self._commit(worker)

    def _commit(self, worker: _Worker) -> None:
        batch, worker.queue, worker.busy = worker.queue, [], True
        work = self._costs.commit + self._costs.append * (len(batch) - 1)

        def durable() -> None:
            self.outcome.commits += 1
            self.outcome.appended += len(batch)
            self._after(self._costs.delay / 2, lambda: self._committed(worker, batch))

        self._after(self._costs.delay / 2, lambda: self._serve(work, lambda: self._flush(durable)))

    def _committed(self, worker: _Worker, batch: Sequence[_Run]) -> None:
        worker.busy = False
        for run in batch:
            run.left -= 1
            self.outcome.append_waits.append(self._now - run.asked)
            if not worker.alive:
                continue
            if run.left > 0:
                self._work(worker, run)
            else:
                worker.runs.discard(run)
                self.outcome.ended += 1
        if worker.queue and worker.alive:
            self._commit(worker)

    # -------------------------------------------------------------------------------- server

    def _serve(self, work: float, then: Callable[[], None]) -> None:
        if not self._free:
            self._statements.append((work, then))
            return
        self._free -= 1
        self.outcome.busy += work
        self._after(work, lambda: self._served(then))

    def _served(self, then: Callable[[], None]) -> None:
        self._free += 1
        if self._statements:
            self._serve(*self._statements.popleft())
        then()

    def _flush(self, then: Callable[[], None]) -> None:
        self._unflushed.append(then)
        if not self._flushing:
            self._begin_flush()

    def _begin_flush(self) -> None:
        self._flushing, those, self._unflushed = True, self._unflushed, []
        self.outcome.flushes += 1

        def done() -> None:
            self._flushing = False
            for one in those:
                one()
            if self._unflushed and not self._flushing:
                self._begin_flush()

        self._after(self._costs.flush, done)

    # ------------------------------------------------------------------------------- workers

    def _beat(self, worker: _Worker) -> None:
        if worker.alive:
            self._serve(self._costs.beat, lambda: self._flush(lambda: None))
            self._after(self._load.ttl / 3, lambda: self._beat(worker))

    def _claim(self, worker: _Worker) -> None:
        """Ask for runs. At once again if all free slots were filled, else after a rest."""
        if not worker.alive:
            return

        def found() -> None:
            free = self._load.slots - len(worker.runs)
            taken = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
            for run in taken:
                if run.lost_at is None:
                    self.outcome.start_waits.append(self._now - run.arrived)
                else:
                    self.outcome.stalls.append(self._now - run.lost_at)
                self._drive(worker, run)
            self._after(0.0 if taken and len(taken) == free else self._load.poll, lambda: self._claim(worker))

        if len(worker.runs) >= self._load.slots:
            self._after(self._load.poll, lambda: self._claim(worker))
        else:
            self._after(self._costs.delay, lambda: self._serve(self._costs.claim, lambda: self._flush(found)))

    def _kill(self) -> None:
        worker = max(self._workers, key=lambda one: len(one.runs))
        worker.alive = False
        died = self._now
        lost = sorted(worker.runs, key=lambda run: (run.arrived, run.left))
        worker.runs = set()

        def lapsed() -> None:
            for run in lost:
                run.lost_at = died
                self._waiting.append(run)

        # its last beat was up to a third of the lease ago
        self._after(self._load.ttl - self._random.uniform(0, self._load.ttl / 3), lapsed)


LOADS = (
    Load("20 workers, 100,000 runs a day", 1e5, 20, 50),
    Load("20 workers, 1,000,000 runs a day", 1e6, 20, 250),
    Load("20 workers, 1,000,000 a day, 5 times the average", 1e6, 20, 1000, peak=5),
    Load("1,000 workers, 1,000,000 a day, 5 times the average", 1e6, 1000, 20, peak=5),
    Load("1,000 workers, 5,000,000 a day, 5 times the average", 5e6, 1000, 100, peak=5),
)
"""What docs/scale.md shows."""


def at(part: float, values: Sequence[float]) -> float:
    """A percentile: the smallest value that this part of them does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def table(costs: Costs, loads: Sequence[Load] = LOADS, seed: int = 0) -> str:
    """The outcomes as a Markdown table."""
    head = (
        "| load | appends a second | server busy | commits a second | an append, p50 / p99 |"
        " a run waits, p50 / p99 | a killed worker's runs stand still, p50 / worst |"
    )
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|"]
    lines.extend(row(load, Simulation(load, costs, seed).run()) for load in loads)
    return "\n".join(lines)


def row(load: Load, seen: Outcome) -> str:
    """One outcome as a row of the table."""
    return (
        f"| {load.name} | {seen.appended / seen.seconds:,.0f} | {seen.load:.1%} of {seen.processors} processors"
        f" | {seen.commits / seen.seconds:,.0f}"
        f" | {1e3 * at(0.5, seen.append_waits):.1f} / {1e3 * at(0.99, seen.append_waits):.1f} ms"
        f" | {at(0.5, seen.start_waits):.2f} / {at(0.99, seen.start_waits):.2f} s"
        f" | {at(0.5, seen.stalls):.1f} / {max(seen.stalls, default=0.0):.1f} s |"
    )


def kept_costs() -> Costs:
    """The costs that `python -m tests.benchmarks.postgres` measured and kept."""
    return Costs(**json.loads(KEPT.read_text())["costs"])


def main() -> None:
    """Write the table into the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=0)
    made = table(kept_costs(), seed=options.parse_args().seed)
    PAGE.write_text(with_parts(PAGE.read_text(encoding="utf-8"), {"simulation": made}), encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
