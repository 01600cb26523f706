"""Server-sent events: streams that end with their source, their reader, or the server, and delay none of them.

A stream that follows a store reads it only after something was written to it, as far as the store can detect that.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio
from pydantic import BaseModel

from orchestrator.errors import RunUnknown
from orchestrator.json import cut_up
from orchestrator.stores.base import Changing
from orchestrator.web.problems import HttpProblem, log

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream
    from starlette.types import Receive, Scope, Send

    from orchestrator.stores.base import Store
    from orchestrator.web.settings import Settings


MEDIA = "text/event-stream"
RECONNECT = "retry: 1000\n\n"
"""The first line of a stream: milliseconds after which a browser connects again."""
_AHEAD = 64
"""Events that are buffered for a reader."""


def event_text(data: BaseModel) -> str:
    """Return a document as an event of a stream."""
    return f"data: {json.dumps(data.model_dump(mode='json'))}\n\n"


class OpenStreams:
    """The open streams, whose number is limited."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._scopes: set[anyio.CancelScope] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._scopes)

    def lower(self, limit: int) -> None:
        """Lower the limit of open streams."""
        self._limit = min(self._limit, limit)

    def check(self) -> None:
        """Check that another stream can be opened.

        Raises:
            HttpProblem: no further stream can be opened.
        """
        if self._closed or len(self._scopes) >= self._limit:
            why = "it is shutting down" if self._closed else f"it has {self._limit} open streams, its limit"
            raise HttpProblem(503, "streams-full", f"this server opens no further stream: {why}", headers=_LATER)

    @asynccontextmanager
    async def waiting(self, receive: Receive, seconds: float, least: float = 0.0) -> AsyncIterator[None]:
        """Count a request that waits for a run, until its time is over, or the client or the server ends.

        Args:
            receive: reports when the client disconnects.
            seconds: its longest wait; `least` while the limit of open streams is reached.
            least: seconds for which it continues without its client, to finish its work.
        """
        longest = seconds if len(self._scopes) < self._limit else min(seconds, least)
        with self.opened() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_disconnected, receive, scope, min(seconds, least))
                with anyio.move_on_after(longest):
                    yield
                tasks.cancel_scope.cancel()

    @contextmanager
    def opened(self) -> Iterator[anyio.CancelScope]:
        """Count a stream, or a request that waits for a run, while it is open; cancelling the scope ends it."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._closed:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def close(self) -> None:
        """End all streams, and refuse new ones."""
        self._closed = True
        for scope in [*self._scopes]:
            scope.cancel()


_LATER = {"Retry-After": "5"}


class EventStream:
    """An ASGI response that streams events.

    The source is read as fast as the reader takes the events, with a small buffer; further events wait in the source,
    which has its own bounds. A reader that reads nothing for `patience` seconds is disconnected: a browser reconnects
    with the number of its last record.

    Args:
        events: the events, each as text of the stream.
        streams: counts the stream.
        settings: its time limits.
        allowed: whether the reader still has access, called every `recheck` seconds; None: always.
        headers: further headers of the response.
        gone: called when the reader disconnects before the end; None: nothing is done.
    """

    def __init__(
        self,
        events: AsyncIterator[str],
        streams: OpenStreams,
        settings: Settings,
        allowed: Callable[[], Awaitable[bool]] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        gone: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        streams.check()
        self._headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._gone = gone
        self._events, self._streams, self._settings, self._allowed = events, streams, settings, allowed
        self._over = False
        """True if the end was sent, or cannot be sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the events, the reader or the server end."""
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", f"{MEDIA}; charset=utf-8".encode()),
                (b"x-accel-buffering", b"no"),
                *self._headers,
            ],
        }
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        with self._streams.opened() as whole:
            async with anyio.create_task_group() as tasks:
                sender, receiver = anyio.create_memory_object_stream[str](_AHEAD)
                tasks.start_soon(self._listen, receive, whole)
                tasks.start_soon(self._read, sender)
                if self._allowed is not None:
                    tasks.start_soon(self._ask, self._allowed, whole)
                await send(start)
                with receiver:
                    while await self._patiently(send, await self._next(receiver)):
                        pass
                tasks.cancel_scope.cancel()
        if not self._over:  # the server ends
            await self._patiently(send, "")

    async def _next(self, receiver: AsyncIterator[str]) -> str:
        """Return the next event, or a comment if none arrives for a while; empty at the end."""
        with anyio.move_on_after(self._settings.heartbeat):
            try:
                return await anext(receiver)
            except StopAsyncIteration:
                return ""
        return ":\n\n"

    async def _patiently(self, send: Send, text: str) -> bool:
        """Send a text; return True if more may follow."""
        for piece in cut_up(text) if text else ("",):
            message = {"type": "http.response.body", "body": piece.encode(), "more_body": bool(piece)}
            with anyio.move_on_after(self._settings.patience) as waiting:
                await send(message)
            self._over = not piece or waiting.cancelled_caught
            if self._over:
                break
        return not self._over

    async def _read(self, sender: MemoryObjectSendStream[str]) -> None:
        with sender:
            await sender.send(RECONNECT)
            try:
                async for text in self._events:
                    await sender.send(text)
            except RunUnknown:  # the run was deleted while it was followed
                return
            except Exception:  # the response has started, so it can only be closed
                log.exception("a stream of events failed")

    async def _ask(self, allowed: Callable[[], Awaitable[bool]], whole: anyio.CancelScope) -> None:
        """End the stream once its reader loses access."""
        try:
            while True:
                await anyio.sleep(self._settings.recheck)
                if not await allowed():
                    break
        except Exception:  # no access if the check fails
            log.exception("authorize failed for an open stream")
        whole.cancel()

    async def _listen(self, receive: Receive, whole: anyio.CancelScope) -> None:
        """End the stream when its reader disconnects."""
        await _disconnected(receive, whole)
        self._over = True
        if self._gone is not None:
            with anyio.CancelScope(shield=True):
                await self._gone()


async def _disconnected(receive: Receive, scope: anyio.CancelScope, seconds: float = 0.0) -> None:
    """Cancel a scope a number of seconds after the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    await anyio.sleep(seconds)
    scope.cancel()


class StoreWatch:
    """Waits until a stream should read the store.

    Args:
        store: the store.
        settings: the times of the application.
        rest: minimum of seconds between readings, for expensive ones.
    """

    def __init__(self, store: Store, settings: Settings, *, rest: float = 0.0) -> None:
        self._store, self._settings, self._rest = store, settings, rest
        self._changes: object = None
        self._looked = -float("inf")

    async def wait(self) -> None:
        """Wait until a read is due. Changes without a write, such as an expired lease, are read after a heartbeat."""
        while True:
            changes = self._store.changes() if isinstance(self._store, Changing) else None
            since = time.monotonic() - self._looked
            new = changes is None or changes != self._changes or since >= self._settings.heartbeat
            if new and since >= self._rest:
                self._changes = changes  # asked before reading: later writes are read next time
                self._looked = time.monotonic()
                return
            await anyio.sleep(self._settings.poll)
