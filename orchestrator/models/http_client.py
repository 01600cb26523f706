"""An HTTP client that reads answers up to a maximum unpacked size."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import anyio
import httpx2

from orchestrator.errors import ReplyTooLarge
from orchestrator.models.base import trace_headers

_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
_PACKED = ("content-encoding", "content-length", "transfer-encoding")
"""Headers about the transfer of the answer, which do not apply to the unpacked body."""


_answers: ContextVar[list[httpx2.Response] | None] = ContextVar("_answers", default=None)


@contextmanager
def answers() -> Iterator[list[httpx2.Response]]:
    """Collect the answers that the HTTP client of this task receives below a vendor's client, which returns objects."""
    found: list[httpx2.Response] = []
    before = _answers.set(found)
    try:
        yield found
    finally:
        _answers.reset(before)


class Refused(Exception):
    """Raised when a server answers with another status than success."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.response = response


class BoundedClient(httpx2.AsyncClient):
    """The HTTP client below a vendor's client. It reads whole answers here. Streams of events are left to a reader that
    counts their bytes."""

    def __init__(self, model: str, limit: int, **options: Any) -> None:
        super().__init__(limits=_LIMITS, **options)
        self._model, self._limit = model, limit

    async def send(self, request: httpx2.Request, *, stream: bool = False, **how: Any) -> httpx2.Response:
        """See `AsyncClient.send`.

        Raises:
            ReplyTooLarge: the answer exceeds the maximum size.
            Refused: its status is not success.
        """
        traced = trace_headers.get()
        for name, value in {} if traced is None else traced().items():
            request.headers.setdefault(name, value)
        response = await super().send(request, stream=True, **how)
        if stream and response.is_success and "event-stream" in response.headers.get("content-type", ""):
            return _told(response)
        parts: list[bytes] = []
        counted = Counted(self._model, self._limit)
        received = response.aiter_bytes()
        try:
            async for part in received:
                counted.add(part)
                parts.append(part)
        finally:
            await exhausted(received, response)
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _PACKED]
        whole = httpx2.Response(response.status_code, headers=headers, content=b"".join(parts), request=request)
        if not whole.is_success:
            raise Refused(whole)
        return _told(whole)


def _told(response: httpx2.Response) -> httpx2.Response:
    found = _answers.get()
    if found is not None:
        found.append(response)
    return response


class Counted:
    """Counts the bytes of one answer."""

    def __init__(self, model: str, limit: int) -> None:
        self._model, self._limit, self._size = model, limit, 0

    def add(self, part: bytes) -> None:
        """Count a part of the answer.

        Raises:
            ReplyTooLarge: the maximum is exceeded.
        """
        self._size += len(part)
        if self._size > self._limit:
            raise ReplyTooLarge(
                f"model {self._model!r}: the server's answer has more than {self._limit:,} bytes, unpacked; "
                "to read it, give the model a larger max_reply_bytes="
            )


async def exhausted(received: AsyncIterator[bytes], response: httpx2.Response) -> None:
    """Close the readers of a response: some of httpx2's generators would otherwise be left to garbage collection."""
    with anyio.move_on_after(1, shield=True), suppress(Exception):
        await response.aclose()
        while True:
            await anext(received)
