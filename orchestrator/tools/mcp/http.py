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

from orchestrator.tools.mcp.oauth import StoredToken, login_command
from orchestrator.tools.mcp.stdio import LARGE, LONGEST, id_of
from orchestrator.tools.mcp.untrusted import UNREADABLE, messages_in

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
        _Client(
            auth=StoredToken(server), headers=dict(server.headers), timeout=httpx2.Timeout(_CONNECT, read=_READ)
        ) as client,
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
    """The events of a stream, with messages in the form that the protocol requires, and the server's errors marked."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._events = aiter(httpx2.EventSource(response, max_event_size=LONGEST))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        event = await anext(self._events)
        data = event.data.encode("utf-8", "replace")
        found = await _read(data)
        if not found:  # an event without data is ignored
            found = [b"" if id_of(data[:400], data[-400:]) is None else data.replace(b"\n", b" ")]
        about = f"event: message\nid: {event.id}\nretry: {event.retry}".encode()
        return b"".join(b"%b\ndata: %b\n\n" % (about, one) for one in found)

    async def aclose(self) -> None:
        await self._response.aclose()


def _marked(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return a stream of events wrapped in `_Events`; any other response unchanged."""
    if not (response.headers.get("content-type", "").lower().startswith("text/event-stream") and response.is_success):
        return response
    return httpx2.Response(response.status_code, headers=_plain(response), stream=_Events(response), request=request)


def _plain(response: httpx2.Response) -> dict[str, str]:
    """Return headers for a response whose body has been read."""
    read = ("content-encoding", "content-length", "transfer-encoding")
    return {name: value for name, value in response.headers.items() if name.lower() not in read}


async def _whole(request: httpx2.Request, response: httpx2.Response, asked: Mapping[str, object]) -> httpx2.Response:
    """Return the response with its whole body, or an error in its place."""
    from mcp.shared._httpx_utils import next_request_within_origin, redirect_location

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
    content, status = b"".join(parts), response.status_code
    found = await _read(content, asked["id"], status)
    if "mcp-session-id" in request.headers and _forgets(status, content, bool(found)):
        return _error(request, asked, EXPIRED, "it has ended the MCP session")
    if found:
        headers = _plain(response) | {"content-type": "application/json"}
        return httpx2.Response(200, headers=headers, content=found[0], request=request)
    if status in (307, 308) and next_request_within_origin(response) is None:
        place = redirect_location(response)
        return _error(request, asked, NOT_REACHED, f"it redirects to {place}; if that is the server, use this address")
    if status >= 400:
        login = f". To log in: {login_command(str(request.url))}" if status == 401 else ""
        return _error(request, asked, _code(status), f"it answered with HTTP {status}{_words_of(content)}{login}")
    if status == 200:
        said = f"its answer is not a message of JSON-RPC{_words_of(content)}"
        return _error(request, asked, UNREADABLE, said)
    left = httpx2.Response(status, headers=_plain(response), content=content, request=request)
    left.next_request = response.next_request
    return left


async def _read(content: bytes, number: object = None, status: int = 200) -> list[bytes]:
    """Return the messages of a body or an event in the form that the protocol requires.

    Args:
        content: the body, or the data of an event.
        number: id of the request that the body answers: servers sometimes write another one. None for an event.
        status: HTTP status of the response.
    """
    if len(content) >= LARGE:
        return await anyio.to_thread.run_sync(_messages, content, number, status)
    return _messages(content, number, status)


def _messages(content: bytes, number: object, status: int) -> list[bytes]:
    from mcp.types import JSONRPCResponse, jsonrpc_message_adapter

    try:
        said = jsonrpc_message_adapter.validate_json(content, by_name=False)
        if isinstance(said, JSONRPCResponse) and number in (None, said.id):
            return [content.replace(b"\r", b" ").replace(b"\n", b" ")]  # most messages, and the largest ones
    except (ValueError, RecursionError):
        pass
    if status >= 400 and b'"jsonrpc"' not in content:
        return []  # the error of a gateway, which may have the same keys
    try:
        found = [one for one in messages_in(content, number) if number is None or "method" not in one]
    except (ValueError, RecursionError):
        return []
    for one in found:
        if status in (401, 403) and "error" in one:
            one["error"]["message"] = f"HTTP {status}: {one['error']['message']}"
    return [json.dumps(one).encode() for one in found]


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
