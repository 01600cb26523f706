"""A worker for Restate: the service that it calls, and the HTTP/2 server of that service.

The service is one virtual object for each run, which drives it and sends itself the next timer.

Restate makes one delivery of a run at a time; the others wait. It journals the result of a delivery together with the
next delivery. The object stores the time of the only valid timer: a timer that a later delivery replaced does nothing,
so a run with many answers and deadlines has a single timer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypedDict

import anyio
import anyio.to_thread

from orchestrator.engines.base import Deliveries
from orchestrator.engines.restate.address import EXTRA, HANDLER, SERVICE
from orchestrator.errors import EngineUnavailable
from orchestrator.executor import Executor

try:
    import hypercorn
    import hypercorn.asyncio
    import restate
except ImportError as error:
    raise ImportError(EXTRA) from error

KEPT = timedelta(hours=1)
"""Time for which Restate remembers deliveries that have ended, for `Engine.status`."""
LONGEST = timedelta(hours=1)
"""Longest inactivity of a delivery, after which Restate asks it to end.

After the same time again it cuts the connection, and delivers the run again, which waits for the drive.
"""
_RETRIES = restate.InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    exponentiation_factor=2.0,
    max_interval=timedelta(seconds=10),
    max_attempts=10_000,
    on_max_attempts="kill",
)
"""Retries of deliveries whose worker has died. When they end, nothing is lost: workers also poll for such runs."""


class _Outcome(TypedDict):
    """Result of a delivery, as Restate journals it."""

    status: str
    due: float | None
    tries: int
    wait: float
    """Seconds from the end of the delivery until it is due."""


def service(
    executor: Executor | Deliveries, *, name: str = SERVICE, longest: timedelta = LONGEST
) -> restate.VirtualObject:
    """Make the service through which Restate delivers runs to this process.

        app = restate.app([service(executor)])

    Serve the app over HTTP/2, for example with hypercorn, and register its URL with Restate. The SDK of Restate handles
    SIGTERM if it runs in the main thread.

    Args:
        executor: an open executor with the graphs of the runs; or `Deliveries`, to bound how many are driven.
        name: the name of the service, as in the URL of the engine.
        longest: how long Restate waits before it asks a delivery to end, and then again before it cuts its connection.
            The run continues regardless; the next delivery waits for it.

    Raises:
        ImportError: the extra `restate` is not installed.
    """
    deliveries = executor if isinstance(executor, Deliveries) else Deliveries(executor)
    found = restate.VirtualObject(
        name,
        inactivity_timeout=longest,
        abort_timeout=longest,
        journal_retention=KEPT,
        invocation_retry_policy=_RETRIES,
    )

    @found.handler(HANDLER)
    async def deliver(ctx: restate.ObjectContext, sent: dict[str, float]) -> str:
        """Drive the run. A timer brings its `due` and `tries`; a submitted run brings nothing."""
        run_id, due = ctx.key(), sent.get("due")
        pending = await ctx.get("due", type_hint=float)
        if due is not None and due != pending:
            return "replaced"

        async def drive() -> _Outcome:
            status, again, tries = await deliveries.deliver(run_id, int(sent.get("tries", 0)))
            wait = 0.0 if again is None else max(0.0, again - time.time())
            return {"status": status, "due": again, "tries": tries, "wait": wait}

        outcome = await ctx.run_typed("drive", drive)
        again = outcome["due"]
        if again is None:
            ctx.clear_all()
        elif due is not None or again != pending:
            ctx.set("due", again)
            timer = {"due": again, "tries": float(outcome["tries"])}
            ctx.object_send(deliver, run_id, timer, send_delay=timedelta(seconds=outcome["wait"]))
        return outcome["status"]

    return found


STREAMS = 4
"""Deliveries per connection. Restate opens further connections for more, which may lead to another worker."""
_GRACE = 5.0
"""Seconds in which deliveries must be answered when the server stops."""


async def listen(
    service: restate.VirtualObject,
    address: tuple[str, int],
    stop: anyio.Event,
    *,
    listening: Callable[[], object] = lambda: None,
) -> None:
    """Serve a service until `stop` is set.

    Args:
        service: the service.
        address: host and port. Several processes of a machine may listen there; the kernel spreads the connections.
        stop: ends it, once the deliveries in progress have been answered.
        listening: called once when connections are accepted.

    Raises:
        EngineUnavailable: the port cannot be bound.
        RuntimeError: the event loop is not asyncio's, which the SDK of Restate needs.
    """
    if not _on_asyncio():
        raise RuntimeError("Restate delivers to asyncio only: run the executor with anyio.run(main, backend='asyncio')")
    app = _App(restate.app([service]))
    await app.leave_signals()
    bound = _socket(address)
    listening()
    config = hypercorn.Config()
    config.bind = [f"fd://{bound.detach()}"]
    config.h2_max_concurrent_streams = STREAMS
    config.graceful_timeout = _GRACE
    config.keep_alive_timeout = 3600.0
    config.errorlog = logging.getLogger("orchestrator.engines.restate")

    async def ends() -> None:
        await stop.wait()
        await app.close()

    try:
        await hypercorn.asyncio.serve(app, config, shutdown_trigger=ends, mode="asgi")
    except Exception:
        if not stop.is_set():
            raise
        # Hypercorn raises the errors of its connections when it ends, including those for frames of closed streams.
        config.errorlog.info("connections from Restate broke while the worker was stopping", exc_info=True)
    finally:
        app.closing.set()


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _socket(address: tuple[str, int]) -> socket.socket:
    """Return a socket that other processes may bind to as well."""
    host, port = address
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
        bound.listen()
    except OSError as error:
        bound.close()
        raise EngineUnavailable(
            f"{host}:{port} cannot be listened on: {error.strerror or error}; choose another one with ?listen="
        ) from error
    return bound


class _App:
    """The app of the SDK, which leaves SIGTERM to the process, and can be closed."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._under_way = 0
        self._idle = anyio.Event()
        self.closing = anyio.Event()
        """Once set, calls in progress end as if their connections were cut: the SDK ignores cancellation."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for what in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{what}.complete"})
            return
        self._under_way += 1
        try:
            await self._inner(scope, partial(self._received, receive), send)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
                self._idle = anyio.Event()

    async def leave_signals(self) -> None:
        """Make the first call, in which the SDK installs its handler of SIGTERM. It cannot do so in another thread."""
        await anyio.to_thread.run_sync(asyncio.run, self._inner(_HEALTH, _nothing, _drop))

    async def close(self) -> None:
        """Give the active calls some time to end, then end them."""
        with anyio.move_on_after(_GRACE):
            while self._under_way:
                await self._idle.wait()
        self.closing.set()

    async def _received(self, receive: Any) -> Any:
        """Return the next event of a call."""
        event: Any = {"type": "http.disconnect"}
        if self.closing.is_set():
            return event
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await self.closing.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            event = await receive()
            tasks.cancel_scope.cancel()
        return event


_HEALTH = {"type": "http", "path": "/health", "headers": [], "http_version": "2"}


async def _nothing() -> dict[str, object]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _drop(_: object) -> None:
    """Discard a part of a response."""
