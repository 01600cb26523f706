"""Pages fetched within limits: of size, of type, of redirects."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.web_fetch.guard import Guard

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

_MOVED = (301, 302, 303, 307, 308)
_PACKED = ("", "identity", "gzip", "x-gzip", "deflate")
_HEADERS = {"Accept-Encoding": "gzip, deflate", "Accept-Language": "en, *;q=0.5"}


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
        import httpx2

        from orchestrator.tools.builtin.web_fetch.transport import ERRORS, TIMEOUTS, CheckedTransport

        url = self.guard.url(given)
        try:
            async with httpx2.AsyncClient(
                transport=CheckedTransport(self.guard, _context()),
                headers={**_HEADERS, "User-Agent": self.agent},
                timeout=self.seconds,
                trust_env=False,
                follow_redirects=False,
            ) as client:
                for moves in range(self.redirects + 1):
                    client.cookies.clear()
                    found = await self._one(client, str(url))
                    if isinstance(found, Page):
                        return replace(found, moved=moves > 0)
                    url = self.guard.url(found, url)
        except TIMEOUTS:
            raise ToolError(f"{url} did not answer within {self.seconds:g} s") from None
        except httpx2.DecodingError:
            raise ToolError(f"{url} sent what cannot be unpacked") from None
        except ERRORS as error:
            raise ToolError(f"{url} could not be fetched: {error or type(error).__name__}") from None
        raise ToolError(f"{given!a} leads on more than {self.redirects} times, at last to {url}")

    async def _one(self, client: AsyncClient, url: str) -> Page | str:
        """A page, or where it is instead."""
        async with client.stream("GET", url) as response:
            headers = response.headers
            where = headers.get("location")
            if response.status_code in _MOVED and where:
                return str(where)
            kind, _, rest = headers.get("content-type", "").partition(";")
            kind = kind.strip().lower()
            if response.is_error:
                data, _ = await self._read(response, 10_000) if self.accepts(kind) else (b"", False)
                return Page(url, response.status_code, kind, _charset(rest), data, False)
            if not self.accepts(kind):
                raise ToolError(f"{url} is of the type {kind[:100] or 'unknown'}, which is not read here")
            data, cut = await self._read(response, self.limit)
            return Page(url, response.status_code, kind, _charset(rest), data, cut)

    async def _read(self, response: Response, limit: int) -> tuple[bytes, bool]:
        packed = response.headers.get("content-encoding", "").strip().lower()
        if packed not in _PACKED:
            raise ToolError(f"{response.url} is packed as {packed[:100]!r}, which was not asked for")
        data = bytearray()
        async with aclosing(response.aiter_bytes()) as parts:  # unpacked piece by piece, at most 1 MiB at once
            async for part in parts:
                data += part
                if len(data) > limit or response.num_bytes_downloaded > limit:
                    return bytes(data[:limit]), True
        return bytes(data), False


@cache
def _context() -> ssl.SSLContext:
    """What certificates are checked with: those that this machine trusts. Reading them takes a while."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").lower()
    return ""
