"""Pages fetched within limits: of size, of type, of redirects."""

from __future__ import annotations

import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, cast

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.web_fetch.guard import Guard

if TYPE_CHECKING:
    from httpcore2 import AsyncConnectionPool
    from httpx2 import URL

_MOVED = (301, 302, 303, 307, 308)
_PACKED = ("", "identity", "gzip", "x-gzip")
_HEADERS = (("Accept", "*/*"), ("Accept-Encoding", "gzip"), ("Accept-Language", "en, *;q=0.5"))
_OF_ERRORS = 10_000
"""Bytes that are read of what goes with an error."""


@dataclass(frozen=True, slots=True)
class Page:
    """What an address gave."""

    url: str
    """Where it was in the end, behind all redirects."""
    status: int
    type: str
    """Its media type without parameters, in small letters; empty if the server says none."""
    charset: str
    """What the server says of its letters."""
    data: bytes
    cut: bool
    """Whether there was more than the limit allows."""
    moved: bool = False
    """Whether it was somewhere else at first."""


@dataclass(frozen=True, slots=True)
class Fetching:
    """Limits of what is fetched."""

    guard: Guard
    limit: int
    """Bytes of a page, unpacked."""
    redirects: int
    seconds: float
    """Time for one thing that the network does; all together is what a tool's `timeout` is for."""
    accepts: Callable[[str], bool]
    """Whether a media type is one that is wanted."""
    agent: str

    async def get(self, given: str) -> Page:
        """Fetch an address.

        Raises:
            ToolError: it may not be fetched, cannot be, or what it gives is not wanted.
        """
        from orchestrator.tools.builtin.web_fetch.transport import ERRORS, TIMEOUTS, pool

        url = self.guard.url(given)
        try:
            async with pool(self.guard, _context()) as connections:
                for moves in range(self.redirects + 1):
                    found = await self._one(connections, url)
                    if isinstance(found, Page):
                        return replace(found, moved=moves > 0)
                    url = self.guard.url(found, url)
        except TIMEOUTS:
            raise ToolError(f"{url} did not answer within {self.seconds:g} s") from None
        except ERRORS as error:
            raise ToolError(f"{url} could not be fetched: {error or type(error).__name__}") from None
        raise ToolError(f"{given!a} leads on more than {self.redirects} times, at last to {url}")

    async def _one(self, connections: AsyncConnectionPool, url: URL) -> Page | str:
        """A page, or where it is instead."""
        from orchestrator.tools.builtin.web_fetch.transport import request

        headers = (*_HEADERS, ("User-Agent", self.agent))
        response = await connections.handle_async_request(request(url, headers, self.seconds))
        try:
            said = {name.lower(): value.decode("latin-1").strip() for name, value in response.headers}
            where = said.get(b"location")
            if response.status in _MOVED and where:
                return where
            kind, _, rest = said.get(b"content-type", "").partition(";")
            kind, packed = kind.strip().lower(), said.get(b"content-encoding", "").lower()
            failed = response.status >= 400
            if not self.accepts(kind) and not failed:
                raise ToolError(f"{url} is of the type {kind[:100] or 'unknown'!a}, which is not read here")
            limit = min(self.limit, _OF_ERRORS) if failed else self.limit
            data, cut = await _read(response.stream, packed, limit, url) if self.accepts(kind) else (b"", False)
            return Page(str(url), response.status, kind, _charset(rest), data, cut)
        finally:
            await response.aclose()


async def _read(stream: object, packed: str, limit: int, url: URL) -> tuple[bytes, bool]:
    """A body, unpacked, and whether there was more than the limit allows."""
    if packed not in _PACKED:
        raise ToolError(f"{url} is packed as {packed[:100]!a}, which was not asked for")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16) if packed not in ("", "identity") else None
    data, came = bytearray(), 0
    parts = cast("AsyncGenerator[bytes]", cast("AsyncIterable[bytes]", stream).__aiter__())
    async with aclosing(parts):
        async for part in parts:
            came += len(part)
            try:
                # One byte more than is wanted tells that there is more, without unpacking it.
                data += unpacking.decompress(part, limit + 1 - len(data)) if unpacking else part
            except zlib.error:
                raise ToolError(f"{url} sent what cannot be unpacked") from None
            if len(data) > limit or came > limit:
                return bytes(data[:limit]), True
    return bytes(data), False


@cache
def _context() -> ssl.SSLContext:
    """What certificates are checked with: those that this machine trusts, or `SSL_CERT_FILE`. Read once: it is slow."""
    import httpx2

    return httpx2.create_ssl_context()


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").lower()
    return ""
