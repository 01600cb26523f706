"""A worker whose runs an engine delivers, with a claim loop that takes up what it does not deliver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from orchestrator.engines.base import Deliveries

if TYPE_CHECKING:
    from collections.abc import Collection

    from orchestrator.engines.base import ServedEngine
    from orchestrator.executor import Executor, WorkerHealth

POLL = 30.0
"""Seconds between two looks for runs that the engine did not deliver."""


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
    """Drive the runs that an engine delivers, and those that it does not deliver, until cancelled.

    The latter were never submitted, or the engine lost them, or it waits for a worker that is frozen. A look at the
    store finds them every `poll` seconds.

    Args:
        executor: an open executor with the graphs of the runs.
        engine: the engine.
        slots: how many delivered runs are driven at the same time, and how many that were found by looking.
        poll: seconds between two looks at the store.
        graphs: names of graphs whose runs are driven; None: of all graphs of the executor.
        stop: when it is set, no further run is driven, and the call returns when those under way have been interrupted:
            each when the steps that run have ended.
        grace: seconds that these steps get.
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
