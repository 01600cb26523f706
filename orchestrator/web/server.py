"""A server around the application, which ends its streams and gives its runs back when it is stopped."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import uvicorn

from orchestrator.web.connections import BoundedConfig, bounded_logs, most_connections

if TYPE_CHECKING:
    from starlette.applications import Starlette

_GRACE = 2
"""Seconds that requests get to end when the server is stopped."""


class Server(uvicorn.Server):
    """uvicorn, without handlers for signals of its own: the command line has them.

    Args:
        app: the application.
        listening: is set when requests are answered.
    """

    def __init__(self, app: Starlette, listening: anyio.Event) -> None:
        self._streams, self._listening = app.state.streams, listening
        most = most_connections()
        self._streams.lower(most // 2)  # streams leave connections for all else
        # h11, wherever it runs: it bounds the headers of a request, and keeps the host of an absolute target.
        config = BoundedConfig(
            app, most, ws="none", lifespan="off", log_level=logging.WARNING, access_log=False,
            server_header=False, proxy_headers=False, timeout_graceful_shutdown=_GRACE,
        )  # fmt: skip
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals as they are."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer requests."""
        await super().startup(sockets)
        self._listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all streams, then the other requests."""
        self._streams.close()
        await super().shutdown(sockets)


async def serve(app: Starlette, bound: socket.socket, listening: anyio.Event) -> None:
    """Serve an application until this call is cancelled.

    Args:
        app: the application.
        bound: the socket, which is closed at the end.
        listening: is set when requests are answered.
    """
    # Connections take it over. Without it the end of an answer waits for the reader's acknowledgement of its beginning.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = Server(app, listening)
    with bounded_logs():
        await _serve(server, bound)


async def _serve(server: Server, bound: socket.socket) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_if_cancelled, server)
        with anyio.CancelScope(shield=True):  # it ends in good order, when it is stopped
            await server.serve([bound])
        tasks.cancel_scope.cancel()


async def _stop_if_cancelled(server: Server) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        server.should_exit = True
