"""The worker of Temporal in a process with an executor: it polls for workflows and activities, and drives runs."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from orchestrator.engines.base import Deliveries
from orchestrator.engines.temporal.address import TASK_QUEUE
from orchestrator.engines.temporal.workflow import DRIVE, Outcome, RunWorkflow
from orchestrator.executor import Executor

_BEAT = 1.0
"""Seconds between two reports that a drive goes on."""
_STICKY = timedelta(seconds=1)
"""How long a workflow waits for the worker that has it in memory, before another one replays its history."""
_GRACE = timedelta(seconds=15)
"""What deliveries get to be answered when the worker stops: more than steps get by default."""


def worker(executor: Executor | Deliveries, client: Client, *, task_queue: str = TASK_QUEUE) -> Worker:
    """Make the worker through which Temporal delivers runs to this process.

        client = await Client.connect("127.0.0.1:7233")
        async with worker(executor, client):
            ...

    Args:
        executor: an open executor with the graphs of the runs; or `Deliveries`, to bound how many are driven.
        client: a client that is connected.
        task_queue: the task queue that the worker polls, as in the URL of the engine.

    Raises:
        ImportError: the extra `temporal` is not installed.
    """
    deliveries = executor if isinstance(executor, Deliveries) else Deliveries(executor)

    @activity.defn(name=DRIVE)
    async def drive(run_id: str, tries: int) -> Outcome:
        beats = asyncio.create_task(_report())
        try:
            delivered = await deliveries.deliver(run_id, tries)
        finally:
            beats.cancel()
        # A time would be read by the clock of the server, which may be another one.
        wait = None if delivered.due is None else max(0.0, delivered.due - time.time())
        return Outcome(delivered.status, wait, delivered.tries)

    return Worker(
        client, task_queue=task_queue, workflows=[RunWorkflow], activities=[drive],
        max_concurrent_activities=deliveries.slots, sticky_queue_schedule_to_start_timeout=_STICKY,
        max_heartbeat_throttle_interval=timedelta(seconds=_BEAT), graceful_shutdown_timeout=_GRACE,
    )  # fmt: skip


async def _report() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(_BEAT)
