"""An order that is priced, approved by a signal and shipped, with a retry: with Temporal.

python temporal_theirs.py 127.0.0.1:7233
"""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

attempts: list[str] = []


@activity.defn
async def price(item: str) -> int:
    return len(item)


@activity.defn
async def ship(item: str) -> str:
    attempts.append(item)
    if len(attempts) == 1:
        raise ConnectionError("the carrier does not answer")
    return f"{item} shipped after {len(attempts)} attempts"


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.approved: bool | None = None
        self.total: int | None = None

    @workflow.signal
    def approve(self, approved: bool) -> None:
        self.approved = approved

    @workflow.update
    async def priced(self) -> int | None:
        await workflow.wait_condition(lambda: self.total is not None)
        return self.total

    @workflow.run
    async def run(self, item: str) -> str:
        self.total = await workflow.execute_activity(price, item, start_to_close_timeout=timedelta(seconds=10))
        await workflow.wait_condition(lambda: self.approved is not None, timeout=timedelta(days=7))
        if not self.approved:
            return "denied"
        return await workflow.execute_activity(
            ship,
            item,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=3, initial_interval=timedelta(seconds=0.1)),
        )


async def main() -> None:
    client = await Client.connect(sys.argv[1])
    worker = Worker(
        client,
        task_queue="orders",
        workflows=[Order],
        activities=[price, ship],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        handle = await client.start_workflow(Order.run, "tea", id="1", task_queue="orders")
        print("waits:", await handle.execute_update(Order.priced))
        await handle.signal(Order.approve, True)
        print(await handle.result())


asyncio.run(main())
