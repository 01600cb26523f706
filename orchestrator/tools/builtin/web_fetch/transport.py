"""Connections to the addresses that were checked, and to no others. Slow to import, so imported when it is needed."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any, cast

import httpcore2
import httpx2

from orchestrator.tools.builtin.web_fetch.guard import Guard

ERRORS = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol)
TIMEOUTS = httpcore2.TimeoutException


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Resolves a name once, and connects to the checked address: a name that changes in between has no effect."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  as the base class has it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """See the base class; tries one address after the other."""
        fault: Exception = httpcore2.ConnectError(f"no address of {host!r} could be reached")
        for address in await self._guard.addresses(host, port):
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                fault = error
        raise fault

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  as the base class has it
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Always raises: a local socket is not on the web."""
        raise httpcore2.ConnectError("connections to local sockets are not allowed")


def pool(guard: Guard, context: ssl.SSLContext) -> httpcore2.AsyncConnectionPool:
    """Return a pool that makes requests one at a time, each on its own connection.

    It has no proxy, which would resolve names itself, and no client, which would keep cookies and leave generators
    unclosed.
    """
    return httpcore2.AsyncConnectionPool(
        ssl_context=context, max_connections=1, max_keepalive_connections=0, network_backend=CheckedNetwork(guard)
    )


def request(url: httpx2.URL, headers: Iterable[tuple[str, str]], seconds: float) -> httpcore2.Request:
    """Build a GET request."""
    where = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    sent = [(b"Host", url.netloc), *((name.encode(), value.encode()) for name, value in headers)]
    timeout = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
    return httpcore2.Request("GET", where, headers=sent, extensions={"timeout": timeout})
