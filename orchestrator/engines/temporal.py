"""Temporal (https://temporal.io) as the engine: a workflow for each run, whose activity drives it.

    async with worker(executor, client):  # in a separate process; `orchestrator worker --engine` does this, too
        ...

Needs the extra `temporal`, whose client works on asyncio only.

The workflow drives the run by an activity, sleeps until the run is due, and drives it again. Its history has the run's
id, statuses and waits; prompts and states are in the store. It is deterministic: all of its code is in `RunWorkflow`
and uses the clock and timers of Temporal. So it runs outside of the SDK's sandbox, which would import this package
again for each workflow, within the 2 seconds after which the SDK considers a workflow deadlocked.

Histories of older versions are replayed with the code of newer ones: a change of its awaits needs `workflow.patched`.
`tests/engines/test_temporal.py` replays recorded histories.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio

from orchestrator.engines.base import Deliveries
from orchestrator.errors import EngineUnavailable, InvalidValue, install_command
from orchestrator.executor import Executor

if TYPE_CHECKING:
    from temporalio.worker import Worker

    from orchestrator.engines.base import EngineStatus


try:
    from temporalio import activity, workflow
    from temporalio.api.enums.v1 import PendingActivityState
    from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
    from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from temporalio.envconfig import ClientConfig, ClientConnectConfig
    from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig
    from temporalio.service import RPCError, RPCStatusCode
except ImportError as error:
    raise ImportError(f"Temporal needs the extra `temporal`: {install_command('temporal')}") from error

DRIVE = "orchestrator.drive"
"""The name of the activity."""
SILENCE = timedelta(seconds=4)
"""A worker that does not report for that long is considered dead, and the run is delivered again.

If it is alive, it keeps the run because of its lease.
"""
LONGEST = timedelta(days=30)
"""Time limit of a delivery. The next one waits for the drive."""
_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=0,
)
"""Retries of deliveries whose worker has died.

If a run cannot be driven, the activity does not fail: its outcome has the time of the next delivery, so that an answer
need not wait for the retry.
"""
_EVENTS = 1000
"""Events of a history after which the workflow continues in a new one. Workers that resume it replay the history."""
_NOW = 0.001
"""Delays in seconds up to this one need no timer."""


@dataclass(frozen=True)
class Outcome:
    """Result of a delivery."""

    status: str
    """The run's status."""
    wait: float | None = None
    """Seconds after which to deliver it again; None: when it is submitted again, or never."""
    tries: int = 0
    """See `Delivered.tries`."""


@workflow.defn(name="orchestrator.run", sandboxed=False)
class RunWorkflow:
    """Delivers a run to workers whenever it is submitted or due."""

    def __init__(self) -> None:
        self._at: float | None = None
        """Time of the next delivery by the workflow's clock; None: none."""
        self._cancelled = False

    @workflow.run
    async def run(self, run_id: str, wait: float | None = None, tries: int = 0) -> str:
        """Deliver the run until it has ended, or waits for something other than time.

        Args:
            run_id: the run's id.
            wait: seconds until the first delivery; None: a signal sets it.
            tries: see `Delivered.tries`.

        Returns:
            The run's status, as reported by deliveries.
        """
        status = "queued"
        if wait is not None:
            self._ask(wait)
        while await self._is_time():
            self._at = None
            outcome = await workflow.execute_activity(
                DRIVE,
                args=[run_id, tries],
                result_type=Outcome,
                start_to_close_timeout=LONGEST,
                heartbeat_timeout=SILENCE,
                retry_policy=_RETRIES,
                cancellation_type=workflow.ActivityCancellationType.ABANDON,
            )
            status, tries = outcome.status, outcome.tries
            if outcome.wait is not None and not self._cancelled:
                self._ask(outcome.wait)
            if self._at is not None and _is_long():
                workflow.continue_as_new(args=[run_id, self._at - workflow.time(), tries])
        return "cancelled" if self._cancelled else status

    @workflow.signal
    def submit(self, wait: float) -> None:
        """Deliver the run after a number of seconds, or earlier if it is due."""
        self._cancelled = False
        self._ask(wait)

    @workflow.signal
    def cancel(self) -> None:
        """Cancel further deliveries. A delivery in progress continues."""
        self._cancelled, self._at = True, None

    def _ask(self, wait: float) -> None:
        at = workflow.time() + max(0.0, wait)
        self._at = at if self._at is None else min(self._at, at)

    async def _is_time(self) -> bool:
        """Wait until the run is due; return False if it is not."""
        while self._at is not None and (left := self._at - workflow.time()) > _NOW:
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(partial(self._changed, self._at), timeout=left)
        return self._at is not None

    def _changed(self, at: float) -> bool:
        return self._at != at


def _is_long() -> bool:
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= _EVENTS


log = logging.getLogger("orchestrator.worker")

PORT = 7233
"""The port that Temporal uses by default."""
TASK_QUEUE = "orchestrator"
"""The name of the task queue by default."""

_PATIENCE = timedelta(seconds=10)
"""Time within which the server must answer."""
_TASK = timedelta(seconds=5)
"""Time limit of a decision of the workflow, which takes milliseconds; after it, another worker is asked."""
_BEAT = 1.0
"""Seconds between reports that a drive continues."""
_STICKY = timedelta(seconds=1)
"""Time that a workflow waits for the worker that caches it, before another one replays its history."""
_GRACE = timedelta(seconds=15)
"""Time that deliveries have to finish when the worker stops; longer than that of steps by default."""
_PARAMETERS = ("task_queue", "profile")


@dataclass(frozen=True)
class TemporalAddress:
    """Parts of the URL of a Temporal server."""

    target: str
    """Host and port of the server, such as `127.0.0.1:7233`."""
    namespace: str
    """The namespace, which has to exist."""
    task_queue: str
    """The task queue that workers poll. Apps that share a namespace, but no store, need separate queues."""
    profile: str | None
    """The profile of Temporal's configuration file that has the certificates or the API key; None: no TLS."""


def address_of(url: str) -> TemporalAddress:
    """Read `temporal://HOST:PORT/NAMESPACE?task_queue=NAME&profile=NAME`.

    Args:
        url: host and port are 127.0.0.1:7233 by default, the namespace `default`, and the task queue `orchestrator`.
            `profile` is a profile of Temporal's configuration file (`~/.config/temporalio/temporal.toml`, or
            `TEMPORAL_CONFIG_FILE`), from which TLS, certificates and the API key are read.

    Raises:
        InvalidValue: the URL is not valid.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidValue(
            "a temporal:// URL must be temporal://HOST:PORT, with [ ] around an IPv6 address", where="engine"
        ) from None
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(given.keys() - set(_PARAMETERS))
    if parts.username is not None or unknown:
        what = f"parameter {unknown[0]!r}" if unknown else "user or password"
        raise InvalidValue(f"a temporal:// URL has no {what}: use {', '.join(_PARAMETERS)}", where="engine")
    namespace = unquote(parts.path.strip("/")) or "default"
    if "/" in namespace:
        raise InvalidValue(f"{namespace} is not a namespace: use temporal://HOST:PORT/NAMESPACE", where="engine")
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port or PORT
    except ValueError:
        raise InvalidValue(f"{parts.netloc}: use HOST:PORT with a port below 65536", where="engine") from None
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return TemporalAddress(target, namespace, given.get("task_queue") or TASK_QUEUE, given.get("profile") or None)


class TemporalEngine:
    """The Temporal server of a URL: an `Engine`. Its client needs asyncio.

    Args:
        url: `temporal://HOST:PORT/NAMESPACE` with the parameters of docs/engines.md.

    Raises:
        InvalidValue: the URL is not valid.
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
                RunWorkflow.run,
                run_id,
                id=_id(run_id),
                task_queue=self.address.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal="submit",
                start_signal_args=[wait],
                task_timeout=_TASK,
                rpc_timeout=_PATIENCE,
            )
        except RPCError as error:
            raise self._unavailable(error) from error

    async def cancel(self, run_id: str) -> None:
        """See `Engine.cancel`. A delivery in progress continues; it does nothing with an ended run."""
        handle = await self._handle(run_id)
        try:
            await handle.signal(RunWorkflow.cancel, rpc_timeout=_PATIENCE)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended, or does not exist
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
        pause = 0.2
        while not deliveries.draining.is_set():
            try:
                await _run(worker(deliveries, await self._connected(), task_queue=self.address.task_queue), deliveries)
            except (EngineUnavailable, RPCError, RuntimeError) as error:
                log.warning("Temporal delivers no runs; the next attempt is in %.1f s: %s", pause, error)
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
        """Return the client, which reconnects automatically once it was connected.

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
            except RuntimeError as error:  # the errors of the SDK
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
    """Poll until the deliveries are drained, and their activities have been answered."""

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
    """Return the SDK's runtime of this process. By default it logs to stdout, which is for the output of commands."""
    forwarding = LogForwardingConfig(logging.getLogger("temporalio"))
    # Without the client's attempts: our own errors report their failures.
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig("ERROR,temporalio_sdk_core=WARN", forwarding)))


def _id(run_id: str) -> str:
    return f"run:{run_id}"


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
    from temporalio.worker import Worker  # takes 0.2 s, which a process that only submits runs saves

    deliveries = executor if isinstance(executor, Deliveries) else Deliveries(executor)

    @activity.defn(name=DRIVE)
    async def drive(run_id: str, tries: int) -> Outcome:
        beats = asyncio.create_task(_report())
        try:
            delivered = await deliveries.deliver(run_id, tries)
        finally:
            beats.cancel()
        # A time would be interpreted by the clock of the server, which may differ.
        wait = None if delivered.due is None else max(0.0, delivered.due - time.time())
        return Outcome(delivered.status, wait, delivered.tries)

    return Worker(
        client,
        task_queue=task_queue,
        workflows=[RunWorkflow],
        activities=[drive],
        max_concurrent_activities=deliveries.slots,
        sticky_queue_schedule_to_start_timeout=_STICKY,
        max_heartbeat_throttle_interval=timedelta(seconds=_BEAT),
        graceful_shutdown_timeout=_GRACE,
    )


async def _report() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(_BEAT)
