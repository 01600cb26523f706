"""An HTTP client that reads answers up to a maximum unpacked size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import httpx2
from openai import DefaultAsyncHttpxClient

from orchestrator.errors import ReplyTooLarge

_PACKED = ("content-encoding", "content-length", "transfer-encoding")
"""Headers about the transfer of the answer, which do not apply to the unpacked body."""


class BoundedClient(DefaultAsyncHttpxClient):
    """The client of `openai`, which reads whole answers here. Streams of events are left to a reader that counts their
    bytes."""

    def __init__(self, model: str, limit: int, **options: Any) -> None:
        super().__init__(**options)
        self._model, self._limit = model, limit

    async def send(self, request: httpx2.Request, *, stream: bool = False, **how: Any) -> httpx2.Response:
        """See `AsyncClient.send`.

        Raises:
            ReplyTooLarge: the answer exceeds the maximum size.
        """
        response = await super().send(request, stream=True, **how)
        if stream and response.is_success and "event-stream" in response.headers.get("content-type", ""):
            return response
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
        return httpx2.Response(response.status_code, headers=headers, content=b"".join(parts), request=request)


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
