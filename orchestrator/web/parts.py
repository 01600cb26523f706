"""Answers in parts: a large body goes to the server bit by bit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from starlette.responses import Response, StreamingResponse


def response_of(
    parts: Sequence[bytes], media: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer.

    Args:
        parts: its body.
        media: its media type.
        status: its status.
        headers: further headers.
    """
    if len(parts) == 1:
        return Response(parts[0], status, headers, media)

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return StreamingResponse(body(), status, {**(headers or {}), "Content-Length": str(sum(map(len, parts)))}, media)
