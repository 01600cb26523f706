"""Web requests within limits of size, type and redirects."""

from __future__ import annotations

import codecs
import os
import re
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, cast

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.web_fetch.guard import Guard, shown_address

if TYPE_CHECKING:
    from httpcore2 import AsyncConnectionPool
    from httpx2 import URL

_MOVED = (301, 302, 303, 307, 308)
_PACKED = ("", "identity", "gzip", "x-gzip")
_HEADERS = (("Accept", "*/*"), ("Accept-Encoding", "gzip"), ("Accept-Language", "en, *;q=0.5"))
_PIECES = 1000
"""Maximum number of pieces of a compressed page. Each costs some work, and the smallest have 20 bytes."""
_OF_ERRORS = 10_000
"""Bytes that are read of the body of an error."""
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*+=\s*+["']?\s*+([A-Za-z0-9_:-]{1,40})""", re.IGNORECASE)
_DECLARED = re.compile(rb"""^<\?xml[^>]{0,200}?encoding\s*+=\s*+["']([A-Za-z0-9_:-]{1,40})""")
_KNOWN = re.compile(
    r"utf-?8|utf-?16(le|be)?|(us-)?ascii|iso-?8859-\d{1,2}|latin-?1|(windows-|cp)125\d|koi8-[ru]|gb2312|gbk|gb18030|"
    r"big5(-hkscs)?|euc-(jp|kr)|shift[_-]jis|iso-2022-jp|macintosh"
)
_BROWSERS = {
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "latin-1": "cp1252",
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "gb2312": "gbk",
    "macintosh": "mac-roman",
    "utf-16": "utf-16-le",
}
"""Encodings that browsers use for some names."""


@dataclass(frozen=True, slots=True)
class WebPage:
    """Response of an address."""

    url: str
    """Final address, after all redirects."""
    status: int
    type: str
    """Media type without parameters, in lower case; empty if the server gives none."""
    charset: str
    """Character set that the server gives."""
    data: bytes
    cut: bool
    """True if the body was longer than the limit."""
    moved: bool = False
    """True if it was reached by a redirect."""


@dataclass(frozen=True, slots=True)
class Fetching:
    """Limits of a request."""

    guard: Guard
    limit: int
    """Bytes of a page, unpacked."""
    redirects: int
    seconds: float
    """Seconds for one network operation; a tool's `timeout` limits the total."""
    accepts: Callable[[str], bool]
    """Returns True for accepted media types."""
    agent: str
    named: str = ""
    """Name of the address in errors, if its query holds a token that must not be shown; empty: the address itself."""
    headers: tuple[tuple[str, str], ...] = ()
    """Additional headers, also sent to redirect targets: use `redirects=0` if they are secret."""

    async def get(self, given: str) -> WebPage:
        """Fetch an address.

        Raises:
            ToolError: the address is not allowed, cannot be fetched, or its response is not accepted.
        """
        from orchestrator.tools.builtin.web_fetch.transport import ERRORS, TIMEOUTS, pool

        url = self.guard.url(given)
        try:
            async with pool(self.guard, _context()) as connections:
                for moves in range(self.redirects + 1):
                    found = await self._one(connections, url)
                    if isinstance(found, WebPage):
                        return replace(found, moved=moves > 0)
                    if moves == self.redirects:
                        where = "" if self.named else f", last to {shown_address(found)}"
                        raise ToolError(
                            f"{self.named or shown_address(given)} redirects more than {moves} times{where}"
                        )
                    url = self.guard.url(found, url)
        except TIMEOUTS:
            raise ToolError(f"{self.named or url} did not answer within {self.seconds:g} s") from None
        except ERRORS as error:
            raise ToolError(f"{self.named or url} could not be fetched: {error or type(error).__name__}") from None
        raise AssertionError("the last of the addresses was a page, or one too many")

    async def _one(self, connections: AsyncConnectionPool, url: URL) -> WebPage | str:
        """Return a page, or the address that it redirects to."""
        from orchestrator.tools.builtin.web_fetch.transport import request

        name = self.named or str(url)
        headers = (*_HEADERS, ("User-Agent", self.agent), *self.headers)
        response = await connections.handle_async_request(request(url, headers, self.seconds))
        try:
            said = {header.lower(): _letters(value).strip() for header, value in response.headers}
            where = said.get(b"location")
            if response.status in _MOVED and where:
                return where
            kind, _, rest = said.get(b"content-type", "").partition(";")
            kind, packed = kind.strip().lower(), said.get(b"content-encoding", "").lower()
            failed = response.status >= 400
            if not self.accepts(kind) and not failed:
                raise ToolError(f"{name} is of the type {kind[:100] or 'unknown'!a}, which cannot be read")
            limit = min(self.limit, _OF_ERRORS) if failed else self.limit
            data, cut = await _read(response.stream, packed, limit, name) if self.accepts(kind) else (b"", False)
            return WebPage(str(url), response.status, kind, _charset(rest), data, cut)
        finally:
            await response.aclose()


async def _read(stream: object, packed: str, limit: int, name: str) -> tuple[bytes, bool]:
    """Return an unpacked body, and whether it was longer than the limit."""
    if packed not in _PACKED:
        raise ToolError(f"{name} is packed as {packed[:100]!a}, which was not requested")
    unpacking = _Unpacking() if packed not in ("", "identity") else None
    data, came = bytearray(), 0
    parts = cast("AsyncGenerator[bytes]", cast("AsyncIterable[bytes]", stream).__aiter__())
    async with aclosing(parts):
        async for part in parts:
            came += len(part)
            try:
                # One byte more than the limit shows that there is more, without unpacking it.
                data += unpacking.unpacked(part, limit + 1 - len(data)) if unpacking else part
            except zlib.error:
                raise ToolError(f"{name} sent data that cannot be decompressed") from None
            if len(data) > limit or came > limit:
                return bytes(data[:limit]), True
    if unpacking and came and not unpacking.whole:  # the part received would look like the whole page
        raise ToolError(f"{name} sent an incomplete page: try again")
    return bytes(data), False


class _Unpacking:
    """Unpacks gzip, which may consist of several members."""

    def __init__(self) -> None:
        self._piece = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._left = _PIECES

    def unpacked(self, part: bytes, most: int) -> bytes:
        """Unpack the next bytes to at most `most` bytes, even if there are more.

        Raises:
            zlib.error: the data is not gzip, or has thousands of members.
        """
        found = bytearray()
        while part and len(found) < most:
            if self._piece.eof:
                part = part.lstrip(b"\0")  # some servers pad with zero bytes
                if part:
                    self._left -= 1
                    if not self._left:
                        raise zlib.error("too many pieces")
                    self._piece = zlib.decompressobj(zlib.MAX_WBITS | 16)
                continue
            found += self._piece.decompress(part, most - len(found))
            part = self._piece.unused_data
        return bytes(found)

    @property
    def whole(self) -> bool:
        """Return True if the last member is complete."""
        return self._piece.eof


def _letters(value: bytes) -> str:
    try:
        return value.decode()  # servers mostly write non-ASCII characters into addresses unquoted
    except UnicodeDecodeError:
        return value.decode("latin-1")


@cache
def _context() -> ssl.SSLContext:
    """Return a context with the certificates that this machine trusts, or `SSL_CERT_FILE`. Cached: loading is slow."""
    import httpx2

    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # including errors in a file of certificates
        given = " and ".join(name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name))
        where = f"; look at what {given} names" if given else ""
        raise ToolError(f"the certificates to check servers with cannot be read: {error}{where}") from None


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").lower()
    return ""


def text_of(data: bytes, charset: str, *, markup: bool = False) -> str | None:
    """Decode a text, with U+FFFD for invalid bytes; None if it is not text.

    Args:
        charset: the encoding that the server gives.
        markup: whether the page itself may name its encoding.
    """
    name = next((name for mark, name in _MARKS if data.startswith(mark)), "")
    if not name and _KNOWN.fullmatch(charset):
        name = charset
    if not name and markup:
        said = _DECLARED.search(data[:1024]) or _META.search(data[:2048])
        told = said[1].decode("ascii").lower() if said else ""
        # A page whose markup is readable here is not in UTF-16, even if it claims to be.
        name = told if _KNOWN.fullmatch(told) and not told.startswith(("utf-16", "utf16")) else ""
    name = _BROWSERS.get(name, name or "utf-8")
    try:
        found = data.decode(name, "replace")
    except LookupError:
        found = data.decode("utf-8", "replace")
    return None if "\0" in found[:10_000] else found
