"""A server for the application, which ends its streams and releases its runs when it is stopped.

Its connections are bounded, with time limits for the head of a request and for responses. A client needs no token to
open idle connections, and each takes a file descriptor. So a server reserves half of the descriptors of its process for
connections. When all are in use, a new connection replaces the one that has waited longest for its client to send a
request or to read a response; if none waits, the new one is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.applications import Starlette


HEAD_TIME = 10.0
"""Seconds in which the head of a request must arrive."""
READ_TIME = 30.0
"""Seconds within which a client must read some part of a waiting response."""
KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: more than clients and load balancers keep one, so that none sends a
request while this server closes its connection. A new connection may take its place earlier.
"""
_MOST = 4096
_EVERY = 60.0
"""Seconds within which a line is logged only once."""


def most_connections() -> int:
    """Return the maximum number of connections, from the limit of open descriptors of the process."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return _MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(8, min(_MOST, soft // 2))


class BoundedConfig(uvicorn.Config):
    """A configuration of uvicorn with bounded connections.

    Args:
        app: the application.
        most: maximum number of simultaneous connections.
        options: further options of uvicorn.
    """

    def __init__(self, app: Any, most: int, **options: Any) -> None:
        # asyncio accepts three times the backlog of connections before the first of them can be replaced.
        super().__init__(app, http=_Connection, backlog=max(8, min(128, most // 8)), **options)
        self.most = most
        self.waiting: dict[_Connection, None] = {}
        """Connections without a complete request, or with an unread response; the longest wait first."""


class _Connection(H11Protocol):
    """A connection that is closed if the head of a request does not arrive in time, or a response is not read."""

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    @property
    def _waiting(self) -> dict[_Connection, None]:
        return cast("BoundedConfig", self.config).waiting

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > cast("BoundedConfig", self.config).most:
            oldest = next(iter(self._waiting), self)
            oldest._give_up("more connections than the server takes")
        if not transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_reading()
        self._stop_waiting()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._waiting.setdefault(self)
        self._watch_reader()

    def resume_writing(self) -> None:
        self._stop_reading()
        if self.cycle is not None and not self.cycle.response_complete:
            self._waiting.pop(self, None)
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # After a response, the rest of a body is not a request either.
        if self.conn.their_state is h11.IDLE or (self.cycle is not None and self.cycle.response_complete):
            self._wait()
        elif self.conn.their_state is h11.SEND_BODY:
            self._stop_head_timer()
            self._waiting.setdefault(self)  # the application limits the time for the body
        else:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._waiting[self] = None  # uvicorn's keep-alive closes it until the next byte arrives
        elif not self.transport.is_closing() and self.cycle.response_complete:
            self._wait()
        else:
            self._stop_waiting()  # the next request arrived with the previous one

    def _watch_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(READ_TIME, self._check_reader, left)

    def _check_reader(self, left: int) -> None:
        if self.transport.get_write_buffer_size() >= left:
            self._give_up("the client does not read a response")
        else:
            self._watch_reader()

    def _stop_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _wait(self) -> None:
        self._waiting.setdefault(self)
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIME, self._give_up, "no request came")

    def _stop_waiting(self) -> None:
        if self._read_timer is None:
            self._waiting.pop(self, None)
        self._stop_head_timer()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self, why: str) -> None:
        self._stop_reading()
        self._stop_waiting()
        self.connections.discard(self)
        self.logger.warning("connections are closed: %s", why)
        self.transport.abort()


class Seldom(logging.Filter):
    """Passes each message of a logger at most once a minute: clients must not be able to fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}
        self._held = Counter[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if a record should be logged."""
        message, now = record.getMessage()[:200], time.monotonic()
        if now < self._next.get(message, 0.0):
            self._held[message] += 1
            return False
        if len(self._next) > 100:
            self._next.clear()
        self._next[message] = now + _EVERY
        held = self._held.pop(message, 0)
        if held:
            record.msg, record.args = f"{record.getMessage()} ({held} more since the last such line)", ()
        return True


@contextmanager
def bounded_logs() -> Iterator[None]:
    """Bound the logs of the server and its event loop while it runs: the loggers belong to the whole process."""
    added = [(logging.getLogger(name), Seldom()) for name in ("uvicorn.error", "asyncio")]
    for logger, seldom in added:
        logger.addFilter(seldom)
    try:
        yield
    finally:
        for logger, seldom in added:
            logger.removeFilter(seldom)


_GRACE = 2
"""Seconds that requests have to end when the server is stopped."""


class Server(uvicorn.Server):
    """uvicorn, without its own signal handlers: the command line has them.

    Args:
        app: the application.
        listening: set once requests are answered.
    """

    def __init__(self, app: Starlette, listening: anyio.Event) -> None:
        self._streams, self._listening = app.state.streams, listening
        most = most_connections()
        self._streams.lower(most // 2)  # streams must leave connections for other requests
        # always h11: it bounds the headers of a request, and keeps the host of an absolute target.
        config = BoundedConfig(
            app,
            most,
            ws="none",
            lifespan="off",
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=_GRACE,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signal handlers unchanged."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer requests."""
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
        listening: set once requests are answered.
    """
    # Connections inherit it. Without it the end of a response waits for the reader's acknowledgement of its start.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = Server(app, listening)
    with bounded_logs():
        await _serve(server, bound)


async def _serve(server: Server, bound: socket.socket) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_if_cancelled, server)
        with anyio.CancelScope(shield=True):  # it ends in order when it is stopped
            await server.serve([bound])
        tasks.cancel_scope.cancel()


async def _stop_if_cancelled(server: Server) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        server.should_exit = True
