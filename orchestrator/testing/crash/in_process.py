"""`assert_crash_safe`: stop a run in this process at every write to its journal."""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from orchestrator.errors import StoreError
from orchestrator.executor.calls.effect import witness
from orchestrator.executor.executor import Executor
from orchestrator.executor.failures import unwrap_single
from orchestrator.graph_class import Graph
from orchestrator.stores import open_store
from orchestrator.stores.base import Store
from orchestrator.testing.crash.facts import CrashReport, CrashUnsafe, Facts, Promise, journal_faults
from orchestrator.testing.crash.life import Answering, Answers, Side, StoppingStore, World, journals, live
from orchestrator.views.run import Run

_LIVES = 100
"""Number of lives after which a run counts as endless."""


async def assert_crash_safe(
    graph: Graph,
    input: object = None,  # noqa: A002  as in `Executor.start`
    *,
    setup: Callable[[], Mapping[str, object]] | None = None,
    store: Literal["memory", "sqlite"] | Callable[[], Store] = "memory",
    answer: Answering | None = None,
    stops: int = 1,
    most: int | None = None,
    seed: int = 0,
    **executor: object,
) -> CrashReport:
    """Stop a run at every write to its journal, resume it each time, and compare.

    Every write is tried twice: once it is lost, once it is stored but not acknowledged. Models are asked once per call:
    a reply is the same in every trial. Tools and functions are really called, so let `setup` create what they change.

    The comparison covers status, error, output, state, steps, usage and the work of every step. These must hold: a
    journaled result is never requested again, nor given to another request; no call is made that was not journaled
    before, and none is journaled as done without being made; irreversible calls happen once; nothing durable is lost.

    Args:
        graph: the graph; its outcome must not depend on timing or chance, except through models.
        input: as in `Executor.start`.
        setup: called once per trial; returns arguments of `Executor`, such as tools around a new database.
        store: where the runs are stored: in memory, in a new SQLite file each, or in the store that a function makes.
        answer: answers the questions of the run, and gives the data of the events for which it waits. If it returns
            None, the kit answers: it approves approvals, gives the true outcomes of effects with unknown outcomes, and
            sends events with the data that they must match. Times for which the run waits pass at once.
        stops: how often each trial is stopped: first at its write, then at random.
        most: maximum number of writes to try, evenly spread; None: all.
        seed: the seed of the random choices.
        executor: arguments of `Executor`: model, models, tools, deps, concurrency, on_change.

    Returns:
        The totals of the trials.

    Raises:
        CrashUnsafe: a trial differs; the message names the write and the difference.
        ValueError: the undisturbed run waits for something that never happens.
    """
    trials = _Trials(graph, input, setup or dict, store, answer, executor)
    report = CrashReport()
    async with trials.trial() as whole:
        facts = await whole.undisturbed()
        report.status, report.writes, report.effects = facts.status, whole.writes, len(whole.world.calls)
    chance = random.Random(seed)
    for at in _spread(report.writes, most):
        for side in ("before", "after"):
            async with trials.trial(whole.world.replies) as trial:
                places = [at, *(chance.randint(1, report.writes) for _ in range(stops - 1))]
                found = await trial.stopped(places, side)
            trial.hold(f"stopped {side} write {at} of {report.writes}", facts, found)
            report.stops += trial.stops
            report.asked += trial.answers.asked
            report.repeated += sum(max(0, call.begun - 1) for call in trial.world.calls.values())
    return report


def _spread(writes: int, most: int | None) -> Iterator[int]:
    if most is None or most >= writes:
        yield from range(1, writes + 1)
        return
    yield from sorted({1 + round(i * (writes - 1) / max(1, most - 1)) for i in range(most)})


@dataclass
class _Trials:
    """Settings of all trials."""

    graph: Graph
    input: object
    setup: Callable[[], Mapping[str, Any]]
    store: Literal["memory", "sqlite"] | Callable[[], Store]
    answer: Answering | None
    executor: Mapping[str, Any]

    @asynccontextmanager
    async def trial(self, replies: Mapping[str, object] | None = None) -> AsyncIterator[_Trial]:
        """Yield a trial with a new store and a new world."""
        with tempfile.TemporaryDirectory(prefix="crash-kit-") as folder:
            if callable(self.store):
                inner = self.store()
            else:
                inner = open_store("memory://" if self.store == "memory" else f"sqlite:///{folder}/runs.db")
            try:
                async with anyio.create_task_group() as tasks:
                    world = World(tasks, dict(replies or {}))
                    token = witness.set(world)
                    try:
                        yield _Trial(self, inner, world, {**self.executor, **self.setup()})
                        await world.settle()
                    finally:
                        witness.reset(token)
            except BaseExceptionGroup as group:
                raise unwrap_single(group) from None
            finally:
                await inner.close()


@dataclass
class _Trial:
    """A run that is stopped and resumed several times."""

    trials: _Trials
    inner: Store
    world: World
    executor: Mapping[str, Any]
    writes: int = 0
    stops: int = 0
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers = Answers(self.trials.answer, self.world.calls)

    async def undisturbed(self) -> Facts:
        """Return the facts of the run without any stop."""
        run = await self._live(None, "before")
        if run is None:
            raise RuntimeError("the store failed without having been stopped")
        return Facts.of(run, await journals(self.inner))

    async def stopped(self, places: list[int], side: Side) -> Facts:
        """Return the facts of the run, stopped at these writes of its lives, and resumed until it ends.

        Raises:
            CrashUnsafe: it does not end.
        """
        for number in range(_LIVES):
            run = await self._live(places[number] if number < len(places) else None, side)
            written = await journals(self.inner)
            if run is not None:
                self.faults += journal_faults(written, self.world.calls, ended=True)
                return Facts.of(run, written)
            self.stops += 1
            self.faults += journal_faults(written, self.world.calls, ended=False)
        raise CrashUnsafe(f"the run has not ended after {_LIVES} lives")

    def hold(self, place: str, whole: Facts, found: Facts) -> None:
        """Raise if the facts of a stopped run differ from those of the undisturbed one.

        Raises:
            CrashUnsafe: something differs; the message lists it.
        """
        faults = [*self.world.faults, *self.faults, *whole.differences(found)]
        if faults:
            lines = "\n".join(f"  - {fault}" for fault in dict.fromkeys(faults))
            raise CrashUnsafe(f"graph {self.trials.graph.name!r}, {place}:\n{lines}")

    async def _live(self, at: int | None, side: Side) -> Run | None:
        """Run one life; return None if it was stopped."""
        promise = Promise.of(await journals(self.inner), self.world.calls)
        life = self.world.life = StoppingStore(self.inner, at, side)
        run = None
        try:
            async with Executor(
                life.store, graphs=[self.trials.graph], **{"idle": "sleep", **self.executor}
            ) as executor:
                run = await live(executor, self.trials.graph, self.trials.input, self.answers)
        except StoreError:
            if not life.stopped:
                raise
        await self.world.settle()
        self.writes += life.writes
        self.faults += promise.broken(await journals(self.inner), self.world.calls)
        return None if life.stopped else run
