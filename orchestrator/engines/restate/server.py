"""The HTTP/2 server of a worker, which Restate calls."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import hypercorn
import hypercorn.asyncio
import restate

from orchestrator.errors import EngineUnavailable

if TYPE_CHECKING:
    from hypercorn.typing import ASGIFramework

STREAMS = 32
"""Deliveries of one connection. Restate opens a further connection for more, which may lead to another worker."""
_GRACE = 5.0
"""Seconds that deliveries get to be answered when the server stops."""


async def listen(service: restate.VirtualObject, address: tuple[str, int], stop: anyio.Event) -> None:
    """Serve a service until `stop` is set.

    Args:
        service: the service.
        address: host and port. Several processes of a machine may listen there; the kernel spreads the connections.
        stop: ends it, when the deliveries under way have been answered.

    Raises:
        EngineUnavailable: the port cannot be listened on.
        RuntimeError: the event loop is not asyncio's, which the SDK of Restate needs.
    """
    if not _on_asyncio():
        raise RuntimeError("Restate delivers to asyncio only: run the executor with anyio.run(main, backend='asyncio')")
    app = await _application(service)
    bound = _socket(address)
    config = hypercorn.Config()
    config.bind = [f"fd://{bound.detach()}"]
    config.h2_max_concurrent_streams = STREAMS
    config.graceful_timeout = _GRACE
    config.keep_alive_timeout = 3600.0
    config.errorlog = logging.getLogger("orchestrator.engines.restate")
    await hypercorn.asyncio.serve(app, config, shutdown_trigger=stop.wait, mode="asgi")


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _socket(address: tuple[str, int]) -> socket.socket:
    """A socket that other processes may be bound to as well."""
    host, port = address
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise EngineUnavailable(
            f"{host}:{port} cannot be listened on: {error.strerror or error}; choose another one with ?listen="
        ) from error
    return bound


async def _application(service: restate.VirtualObject) -> ASGIFramework:
    """The app of the SDK. It leaves SIGTERM to the process, and answers what a server says at its start and end."""
    inner: Any = restate.app([service])
    # Its first call would take SIGTERM for itself, for good. In another thread it cannot, and does not try again.
    await anyio.to_thread.run_sync(asyncio.run, _first_call(inner))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await inner(scope, receive, send)
            return
        for what in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{what}.complete"})

    return app


async def _first_call(app: Any) -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: object) -> None:
        """Drop the answer."""

    await app({"type": "http", "path": "/health", "headers": [], "http_version": "2"}, receive, send)
