"""The HTTP client of a streamable HTTP server, which limits the error of a request to that request.

The client's transport lets an error of one request end the connection, and with it all concurrent calls, whose callers
learn only that it was closed. Here such an error becomes the server's answer to that one request, with codes that tell
whether the call can have happened. They count only in an error that no server sent (see `untrusted`).
Answers are read up to a maximum length.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpx2

from orchestrator.tools.mcp.stdio import LONGEST, UNREADABLE
from orchestrator.tools.mcp.untrusted import marked_error

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from orchestrator.tools.mcp.servers import HttpServer

NOT_REACHED = -32091
"""Error code for a request that never reached the server."""
LOST = -32092
"""Error code for an answer that did not arrive, or was incomplete."""
EXPIRED = -32093
"""Error code for a connection that the server no longer knows."""
_SAID = 8_192
"""Bytes that are read of the body of a refusal."""
_CONNECT = 10.0
_READ = 300.0


@asynccontextmanager
async def streamable_http(server: HttpServer) -> AsyncIterator[TransportStreams]:
    """Open the streams of a server at an address."""
    from mcp.client.streamable_http import streamable_http_client

    async with (
        _Client(headers=dict(server.headers), timeout=httpx2.Timeout(_CONNECT, read=_READ)) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=LONGEST) as streams,
    ):
        yield streams


class _Client(httpx2.AsyncClient):
    async def send(self, request: httpx2.Request, *, stream: bool = False, **how: Any) -> httpx2.Response:
        asked = _asked(request)
        if asked is None:
            return _marked(request, await super().send(request, stream=stream, **how))
        try:
            response = await super().send(request, stream=True, **how)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol, httpx2.ProxyError) as error:
            return _error(request, asked, NOT_REACHED, _why(error))
        except httpx2.TransportError as error:
            return _error(request, asked, LOST, f"the connection broke: {_why(error)}")
        marked = _marked(request, response)
        return await _whole(request, response, asked) if marked is response else marked


class _Events(httpx2.AsyncByteStream):
    """The events of a stream, with the server's errors marked."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._events = aiter(httpx2.EventSource(response, max_event_size=LONGEST))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        event = await anext(self._events)
        lines = [f"event: {event.event}", f"id: {event.id}", f"retry: {event.retry}"]  # an invalid event is ignored
        lines += [f"data: {line}" for line in (marked_error(event.data) or event.data).split("\n")]
        return "\n".join([*lines, "\n"]).encode()

    async def aclose(self) -> None:
        await self._response.aclose()


def _marked(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return a stream of events wrapped in `_Events`; any other response unchanged."""
    if not (response.headers.get("content-type", "").startswith("text/event-stream") and response.is_success):
        return response
    return httpx2.Response(response.status_code, headers=_plain(response), stream=_Events(response), request=request)


def _plain(response: httpx2.Response) -> dict[str, str]:
    """Return headers for a response whose body has been read."""
    read = ("content-encoding", "content-length", "transfer-encoding")
    return {name: value for name, value in response.headers.items() if name.lower() not in read}


async def _whole(request: httpx2.Request, response: httpx2.Response, asked: Mapping[str, object]) -> httpx2.Response:
    """Return the response with its whole body, or an error in its place."""
    parts: list[bytes] = []
    size = 0
    try:
        # Cancelled from inside: leaving the loop would leave the library's generators unclosed.
        with anyio.CancelScope() as reading:
            async for part in response.aiter_bytes():
                size += len(part)
                if size > LONGEST:
                    reading.cancel()
                else:
                    parts.append(part)
    except httpx2.TransportError as error:
        return _error(request, asked, LOST, f"the connection broke: {_why(error)}")
    except httpx2.DecodingError as error:
        return _error(request, asked, UNREADABLE, f"its answer cannot be read: {_why(error)}")
    finally:
        await response.aclose()
    if size > LONGEST:
        return _error(request, asked, UNREADABLE, f"it answered with more than {LONGEST:,} bytes")
    content = b"".join(parts)
    told, headers = marked_error(content), _plain(response)
    if "mcp-session-id" in request.headers and _forgets(response.status_code, content, told is not None):
        return _error(request, asked, EXPIRED, "it has ended the MCP session")
    # The client uses `server/discover` to identify a server: older ones answer it with such a status.
    if response.status_code >= 400 and asked["method"] != "server/discover" and told is None:
        said = f"it answered with HTTP {response.status_code}{_words_of(content)}"
        return _error(request, asked, _code(response.status_code), said)
    if told is not None:
        content, headers = told.encode(), headers | {"content-type": "application/json"}
    found = httpx2.Response(response.status_code, headers=headers, content=content, request=request)
    found.next_request = response.next_request
    return found


def _forgets(status: int, content: bytes, is_error: bool) -> bool:
    """Return True if the refusal of a request means that the server does not know the connection.

    The specification requires 404. The reference servers answer 400 with the message that the session ID is not valid.
    """
    said = content[:_SAID].lower()
    if status == 404:
        return not is_error or b"session" in said
    return status == 400 and any(word in said for word in (b"session id", b"session-id", b"session_id", b"sessionid"))


def _words_of(content: bytes) -> str:
    """Return the text of a refusal, unless it is a page of HTML. Before quoting it, remove secrets, then cut it."""
    words = " ".join(content[:_SAID].decode("utf-8", "replace").split())
    return f": {words}" if words and not words.startswith("<") else ""


def _code(status: int) -> int:
    """Return the error code: after 5xx of a gateway the call may have happened; after 4xx and 503 it has not."""
    return LOST if status >= 500 and status != 503 else NOT_REACHED


def _asked(request: httpx2.Request) -> Mapping[str, object] | None:
    """Return the JSON-RPC request that is sent; None if it is something else, such as a notification."""
    if request.method != "POST":
        return None
    try:
        sent = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return None
    return sent if isinstance(sent, dict) and "id" in sent and "method" in sent else None


def _error(request: httpx2.Request, asked: Mapping[str, object], code: int, message: str) -> httpx2.Response:
    said = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": code, "message": message}}
    return httpx2.Response(200, json=said, request=request)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
