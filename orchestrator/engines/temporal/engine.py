"""A Temporal server from outside: runs are submitted, cancelled and looked up; and the worker that it delivers to."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

import anyio
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode

from orchestrator.engines.temporal.address import address_of
from orchestrator.engines.temporal.workflow import RunWorkflow
from orchestrator.errors import EngineUnavailable

if TYPE_CHECKING:
    from temporalio.worker import Worker

    from orchestrator.engines.base import Deliveries, EngineStatus

log = logging.getLogger("orchestrator.worker")

_PATIENCE = timedelta(seconds=10)
"""Within which the server answers."""
_TASK = timedelta(seconds=5)
"""What a worker gets for a decision of the workflow, which takes milliseconds, before another one is asked."""


class TemporalEngine:
    """The Temporal server of a URL: an `Engine`. Its client needs asyncio.

    Args:
        url: `temporal://HOST:PORT/NAMESPACE` with the parameters of docs/engines.md.

    Raises:
        InvalidValue: the URL is wrong.
    """

    def __init__(self, url: str = "temporal://127.0.0.1:7233") -> None:
        self.address = address_of(url)
        self._client: Client | None = None

    async def submit(self, run_id: str, *, at: float | None = None) -> None:
        """See `Engine.submit`. A run that waits for a timer is woken."""
        wait = 0.0 if at is None else max(0.0, at - time.time())
        client = await self._connected()
        try:
            await client.start_workflow(
                RunWorkflow.run, run_id, id=_id(run_id), task_queue=self.address.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal="submit", start_signal_args=[wait], task_timeout=_TASK, rpc_timeout=_PATIENCE,
            )  # fmt: skip
        except RPCError as error:
            raise self._unavailable(error) from error

    async def cancel(self, run_id: str) -> None:
        """See `Engine.cancel`. A delivery that is under way goes on; it does nothing with an ended run."""
        handle = await self._handle(run_id)
        try:
            await handle.signal(RunWorkflow.cancel, rpc_timeout=_PATIENCE)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended, or there is none
                raise self._unavailable(error) from error

    async def status(self, run_id: str) -> EngineStatus:
        """See `Engine.status`. Temporal forgets workflows after the retention period of the namespace."""
        handle = await self._handle(run_id)
        try:
            found = await handle.describe(rpc_timeout=_PATIENCE)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return "unknown"
            raise self._unavailable(error) from error
        if found.status is not WorkflowExecutionStatus.RUNNING:
            return "done"
        started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        pending = found.raw_description.pending_activities
        return "running" if any(one.state == started for one in pending) else "queued"

    async def serve(self, deliveries: Deliveries, *, stop: anyio.Event) -> None:
        """See `ServedEngine.serve`. Workers need no port: they ask the server for work.

        Raises:
            RuntimeError: the event loop is not asyncio's.
        """
        from orchestrator.engines.temporal.worker import worker

        pause = 0.2
        while not deliveries.draining.is_set():
            try:
                await _run(worker(deliveries, await self._connected(), task_queue=self.address.task_queue), deliveries)
            except (EngineUnavailable, RPCError, RuntimeError) as error:
                log.warning("Temporal delivers no runs, the next attempt is in %.1f s: %s", pause, error)
                with anyio.move_on_after(pause):
                    await deliveries.draining.wait()
                pause = min(30.0, pause * 2)
        await stop.wait()

    async def aclose(self) -> None:
        """See `ServedEngine.aclose`."""
        self._client = None  # its connection ends with it

    async def _handle(self, run_id: str) -> WorkflowHandle[RunWorkflow, str]:
        return (await self._connected()).get_workflow_handle_for(RunWorkflow.run, _id(run_id))

    async def _connected(self) -> Client:
        """The client, which connects again by itself once it is connected.

        Raises:
            EngineUnavailable: the server cannot be reached.
            RuntimeError: the event loop is not asyncio's.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("Temporal's client needs asyncio: use anyio.run(main, backend='asyncio')") from None
        if self._client is None:
            try:
                self._client = await Client.connect(**self._options(), runtime=_runtime())
            except RuntimeError as error:  # what the SDK raises
                raise self._unavailable(error) from error
        return self._client

    def _options(self) -> ClientConnectConfig:
        found = ClientConnectConfig()
        if self.address.profile is not None:
            found = ClientConfig.load_client_connect_config(self.address.profile)
        return {**found, "target_host": self.address.target, "namespace": self.address.namespace}

    def _unavailable(self, error: Exception) -> EngineUnavailable:
        return EngineUnavailable(
            f"Temporal at {self.address.target}, namespace {self.address.namespace}: {error}; start it, or correct the"
            " temporal:// URL"
        )


async def _run(served: Worker, deliveries: Deliveries) -> None:
    """Have a worker poll until the deliveries are drained, and its activities have been answered."""

    async def shut_down() -> None:
        await deliveries.draining.wait()
        await served.shutdown()

    ends = asyncio.create_task(shut_down())
    log.info("workers of the task queue %s are registered with Temporal", served.task_queue)
    try:
        await served.run()
    finally:
        ends.cancel()


@cache
def _runtime() -> Runtime:
    """The SDK's runtime of this process. By default it logs on stdout, among the output of commands."""
    forwarding = LogForwardingConfig(logging.getLogger("temporalio"))
    # Without the attempts of the client: where they fail, our errors say so.
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig("ERROR,temporalio_sdk_core=WARN", forwarding)))


def _id(run_id: str) -> str:
    return f"run:{run_id}"
