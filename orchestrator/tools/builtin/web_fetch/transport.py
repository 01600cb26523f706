"""Connections to the addresses that were checked, and to no others. Heavy to load: imported when it is needed."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, cast

import httpcore2
import httpx2

from orchestrator.tools.builtin.web_fetch.guard import Guard

ERRORS = (
    httpx2.HTTPError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)  # fmt: skip
TIMEOUTS = (httpx2.TimeoutException, httpcore2.TimeoutException)


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Resolves a name once, and connects to what was judged: a name that changes in between changes nothing."""

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
        """Never: a socket of this machine is nothing of the web."""
        raise httpcore2.ConnectError("sockets of this machine are not connected to")


class CheckedTransport(httpx2.AsyncBaseTransport):
    """One request at a time, each on a connection of its own. No proxy: that would resolve names by itself."""

    def __init__(self, guard: Guard, context: ssl.SSLContext) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context, max_connections=1, max_keepalive_connections=0, network_backend=CheckedNetwork(guard)
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See the base class."""
        url = httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        found = await self._pool.handle_async_request(
            httpcore2.Request(request.method, url, headers=request.headers.raw, extensions=request.extensions)
        )
        assert isinstance(found.stream, AsyncIterable)
        return httpx2.Response(found.status, headers=found.headers, stream=_Body(found.stream))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
