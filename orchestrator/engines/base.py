"""Interface of engines, and deliveries: a delivery drives the run and returns when to deliver it again.

An engine delivers at least once, late, or never, and that is enough:

- A run that is delivered twice is driven once: in one process the second waits, between processes the lease decides.
- A run that is never delivered is acquired by the claim loop of a worker (`Executor.work`), which polls slowly.
- A delivery that ends, because its connection is cut or its engine dies, does not end the drive. The next
  delivery waits for it.
"""

from __future__ import annotations

import logging
import random
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import anyio

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import (
    GraphUnknown,
    InvalidValue,
    OrchestratorError,
    RunConflict,
    RunUnknown,
    StoreError,
    StoreUnavailable,
)
from orchestrator.executor.run_status import is_parked
from orchestrator.executor.start import check_run_id
from orchestrator.kernel.status import FINAL

if TYPE_CHECKING:
    from collections.abc import Collection

    from anyio.abc import TaskStatus

    from orchestrator.executor import Executor, WorkerHealth


log = logging.getLogger("orchestrator.worker")

EngineStatus: TypeAlias = Literal["unknown", "queued", "running", "done"]
"""Status of a run at an engine: unknown, to be delivered, being delivered, or delivered."""

_FIRST, _LONGEST = 0.25, 30.0
"""Shortest and longest delay in seconds before a run that could not be driven is delivered again.

It doubles each time.
"""
_SOON = 0.05
"""Seconds before a run that can continue immediately is delivered again."""
_DRAINS = 0.5
"""Seconds before a run that was delivered to a stopping worker is delivered again."""


class Engine(Protocol):
    """Delivers runs to workers. It only gets a run's id."""

    @abstractmethod
    async def submit(self, run_id: str, *, at: float | None = None) -> None:
        """Submit a run for delivery to a worker, which drives it until it ends or pauses.

        Call it when the run is durable: after `Executor.enqueue`, or after `Executor.answer(resume=False)`. It may be
        called again. The engine may deliver the run twice, late, or never: workers find runs that it does not deliver.

        Args:
            run_id: the run's id.
            at: when to deliver it, in Unix seconds; None: immediately.

        Raises:
            EngineUnavailable: the engine cannot be reached, or rejects the request. The run is in the store regardless.
        """
        ...

    @abstractmethod
    async def cancel(self, run_id: str) -> None:
        """Cancel further deliveries of a run, as far as still possible.

        Only future deliveries are cancelled. Call `Executor.cancel` first, which ends the run.

        Args:
            run_id: the run's id.

        Raises:
            EngineUnavailable: the engine cannot be reached. A delivery of an ended run does nothing.
        """
        ...

    @abstractmethod
    async def status(self, run_id: str) -> EngineStatus:
        """Return the status of a run at the engine. The run's own status is in the store.

        Args:
            run_id: the run's id.

        Raises:
            EngineUnavailable: the engine cannot be reached.
        """
        ...


class ServedEngine(Engine, Protocol):
    """An engine whose deliveries a process can receive."""

    @abstractmethod
    async def serve(self, deliveries: Deliveries, *, stop: anyio.Event) -> None:
        """Receive deliveries until `stop` is set, and hand them to `deliveries`.

        An unreachable engine is not an error: the connection is tried again.

        Args:
            deliveries: drives the runs.
            stop: ends it. The caller then drains `deliveries`; this returns when they have been answered.

        Raises:
            EngineUnavailable: this process cannot receive any, for example because its port is taken.
        """
        ...

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections to the engine."""
        ...


class Delivered(NamedTuple):
    """Result of a delivery."""

    status: str
    """The run's status."""
    due: float | None = None
    """Time of the next delivery in Unix seconds; None: when it is submitted again, or never."""
    tries: int = 0
    """Number of consecutive deliveries that could not drive it. The next one receives this number."""


class Deliveries:
    """Drives runs that an engine delivers to this process.

    Args:
        executor: an open executor with the graphs of the runs.
        slots: maximum number of runs driven at the same time. Further deliveries wait.
        graphs: names of graphs whose runs are driven; None: of all graphs of the executor.
        wait: seconds that a delivery waits for another executor that drives the run.
        health: counts the drives and the slots, as in `Executor.work(health=)`.

    Raises:
        ValueError: `slots` or `wait` is out of range.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        slots: int = 20,
        graphs: Collection[str] | None = None,
        wait: float = 1.0,
        health: WorkerHealth | None = None,
    ) -> None:
        if slots < 1 or wait < 0:
            raise ValueError(f"slots={slots}, wait={wait}: slots must be 1 or more, and wait 0 seconds or more")
        self._executor, self._graphs, self._wait, self._health = executor, graphs, wait, health
        if health is not None:
            health.delivery_slots = slots
        self.slots = slots
        """Number of runs that are driven at the same time."""
        self.draining = anyio.Event()
        """Set when no further run is driven here. The engine is then not asked for deliveries."""
        self._places = anyio.Semaphore(slots)
        self._under_way: dict[str, _Drive] = {}

    async def deliver(self, run_id: str, tries: int = 0) -> Delivered:
        """Drive a run until it ends or pauses, and return when to deliver it again.

        The drive is a task of the executor: cancelling this call does not end it. A second call waits for it, and then
        drives the run again if it can continue, for example because it was answered when it had just paused. Errors
        that prevent the run from being driven are logged, and it is delivered again later: by then another worker may
        have its graph, the store may be available, or the executor that holds the run may have ended.

        Args:
            run_id: the run's id.
            tries: `Delivered.tries` of the previous delivery; 0 without one.
        """
        while (earlier := self._under_way.get(run_id)) is not None:
            await earlier.over.wait()
        if self.draining.is_set():
            return Delivered("running", SYSTEM_CLOCK.now() + _DRAINS, tries)
        drive = self._under_way[run_id] = _Drive()
        try:
            await self._executor.workers.start_task(partial(self._drive, drive, run_id, tries))
        except BaseException:
            if not drive.began:  # the task was cancelled before its first step
                self._forget(drive, run_id)
            raise
        await drive.over.wait()
        return drive.delivered or _again("running", tries)

    async def drain(self, grace: float) -> None:
        """Stop driving new runs, and interrupt active ones once their running steps have ended.

        Args:
            grace: seconds that these steps have to finish.
        """
        self.draining.set()
        with anyio.move_on_after(grace):
            while self._under_way:
                for run_id in self._under_way:
                    self._executor.workers.wind_down(run_id)
                await anyio.sleep(_SOON)  # repeated: some runs were only being acquired

    async def _drive(self, drive: _Drive, run_id: str, tries: int, status: TaskStatus[None]) -> None:
        drive.began = True
        status.started()
        try:
            async with self._places:
                drains = self.draining.is_set()
                drive.delivered = _again("running", tries) if drains else await self._driven(run_id, tries)
        finally:
            self._forget(drive, run_id)

    def _forget(self, drive: _Drive, run_id: str) -> None:
        del self._under_way[run_id]
        drive.over.set()

    async def _driven(self, run_id: str, tries: int) -> Delivered:
        store = self._executor.store
        try:
            check_run_id(run_id)
        except InvalidValue as error:  # clients of the engine may submit any id
            log.warning("a delivery has an invalid run id: %s", error)
            return Delivered("unknown")
        try:
            info = await store.info(run_id)
            if self._graphs is not None and info.graph not in self._graphs:
                return _again(info.status, tries + 1)
            if is_parked(info):
                return Delivered(info.status)
            if info.status not in FINAL and info.retry_at is not None and info.retry_at > SYSTEM_CLOCK.now():
                return Delivered(info.status, info.retry_at, tries)
            driven = await self._executor.workers.drive(run_id, wait=self._wait, health=self._health)
        except RunUnknown:
            return Delivered("unknown")
        except (GraphUnknown, RunConflict, StoreError) as error:
            if self._health is not None and isinstance(error, StoreUnavailable):
                self._health.fail(error)
            log.info("run %s is delivered again later: %s", run_id, error)
            return _again("running", tries + 1)
        except Exception as error:  # any error: the other deliveries must continue
            unforeseen = None if isinstance(error, OrchestratorError) else error
            log.warning("run %s was given up, and is delivered again later: %s", run_id, error, exc_info=unforeseen)
            return _again("running", tries + 1)
        log.info("run %s: %s", run_id, driven.status)
        if driven.due is None and driven.status in ("running", "interrupted"):
            return _again(driven.status, tries)
        if driven.due is None:
            return Delivered(driven.status)
        return Delivered(driven.status, max(driven.due, SYSTEM_CLOCK.now() + _SOON))


class _Drive:
    """A drive that deliveries wait for."""

    __slots__ = ("began", "delivered", "over")

    def __init__(self) -> None:
        self.began = False
        self.delivered: Delivered | None = None
        self.over = anyio.Event()


def _again(status: str, tries: int) -> Delivered:
    """Return the result of a delivery that is repeated: soon, or with growing delays if the run could not be driven."""
    wait = _SOON if not tries else min(_LONGEST, _FIRST * 2.0 ** min(tries - 1, 10)) * random.uniform(0.5, 1.0)
    return Delivered(status, SYSTEM_CLOCK.now() + wait, tries)


POLL = 30.0
"""Seconds between polls for runs that the engine did not deliver."""


async def work(
    executor: Executor,
    engine: ServedEngine,
    *,
    slots: int = 20,
    poll: float = POLL,
    graphs: Collection[str] | None = None,
    stop: anyio.Event | None = None,
    grace: float = 10.0,
    health: WorkerHealth | None = None,
) -> None:
    """Drive the runs that an engine delivers, and those that it fails to deliver, until cancelled.

    The latter were never submitted, or the engine lost them, or it waits for a worker that is frozen. A query of
    the store finds them every `poll` seconds.

    Args:
        executor: an open executor with the graphs of the runs.
        engine: the engine.
        slots: maximum number of delivered runs driven at the same time, and of runs found by polling.
        poll: seconds between polls of the store.
        graphs: names of graphs whose runs are driven; None: of all graphs of the executor.
        stop: when set, no further run is driven, and the call returns when the active ones have been interrupted, each
            after its running steps.
        grace: seconds that these steps have to finish.
        health: source of probes and metrics. Counts delivered runs and runs found by polling.

    Raises:
        EngineUnavailable: this process cannot receive deliveries, for example because its port is taken.
        ValueError: `slots` or `poll` is out of range.
    """
    stop, drained = stop or anyio.Event(), anyio.Event()
    deliveries = Deliveries(executor, slots=slots, graphs=graphs, health=health)

    async def serve() -> None:
        await engine.serve(deliveries, stop=drained)

    async def reconcile() -> None:
        await executor.work(
            slots=slots, poll=poll, graphs=graphs, eager=False, stop=stop, grace=grace, drained=drained, health=health
        )
        stop.set()  # the executor may have been closed

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        tasks.start_soon(reconcile)
        await stop.wait()
        await deliveries.drain(grace)
        drained.set()
