"""A connection to a server: opened on demand, shared by concurrent calls, and reopened when it is lost.

A separate task holds each connection, since the client's cancel scopes must be left by the task that entered them.
Calls may use it from any task.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from pydantic import ValidationError

from orchestrator.errors import (
    DISTRIBUTION,
    OrchestratorError,
    ToolDisconnected,
    ToolError,
    ToolUnavailable,
    install_command,
    message_of,
)
from orchestrator.tools.mcp.servers import HttpServer, Server
from orchestrator.tools.mcp.untrusted import Listed, Tail, is_marked, listed_by, plain, without
from orchestrator.tools.result import in_words, refused
from orchestrator.user_code import pass_fence

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp import Client, MCPError
    from mcp.client._transport import TransportStreams
    from mcp.types import CallToolResult

log = logging.getLogger("orchestrator")


class Progress(Protocol):
    """Callback for the progress of a call: amount done, total, and a message."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


_TRIES = 3
_LONGEST_PAUSE = 30.0
_LAST_WORDS = 7.0
"""Seconds to wait until a lost connection is closed, and so its last output complete."""
_TOLD = 2_000


@dataclass
class _OpenSession:
    """A connection, from opening to closing."""

    tail: Tail
    ready: anyio.Event = field(default_factory=anyio.Event)
    """Set when the connection can be used, or has failed."""
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set when the connection must not be used any more."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when it is completely closed."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    client: Client | None = None
    listed: Mapping[str, Listed] = field(default_factory=dict)
    stale: bool = False
    """True if the server reported that its tools have changed."""
    fault: BaseException | None = None

    @property
    def usable(self) -> bool:
        return self.client is not None and not self.over.is_set() and not self.ended.is_set()


class McpConnection:
    """A server that is connected on demand, while a task group hosts the connection.

    Args:
        server: the server.
        patience: seconds that connecting may take.
        pause: seconds before reconnecting after a failure; doubled each time, until a call succeeds.
    """

    def __init__(self, server: Server, *, patience: float = 60.0, pause: float = 0.25) -> None:
        self.server = server
        self._patience, self._pause = patience, pause
        self._hosts: list[TaskGroup] = []
        self._live: _OpenSession | None = None
        self._lock = anyio.Lock()
        self._failures = 0
        self._not_before = 0.0

    def add_host(self, host: TaskGroup) -> None:
        """Let a task group hold the connection's tasks. The first one may be in another event loop than before."""
        if not self._hosts:
            self._live, self._lock, self._not_before = None, anyio.Lock(), 0.0
        self._hosts.append(host)

    def drop_host(self, host: TaskGroup) -> None:
        """Remove a task group from the hosts. If others remain, the next call reconnects."""
        self._hosts.remove(host)

    async def listed(self) -> Mapping[str, Listed]:
        """Return the current tools of the server, by their names there.

        Raises:
            ToolUnavailable: the server cannot be reached.
        """
        async with self._lock:
            live = await self._usable(tries=1)
            if live.stale:
                await self._list(live)
            return live.listed

    async def call(self, tool: Listed, args: Mapping[str, object], progress: Progress | None = None) -> CallToolResult:
        """Call a tool. Cancelling this asks the server to stop.

        Raises:
            ToolUnavailable: the server cannot be reached; nothing was called.
            ToolDisconnected: the connection was lost during the call.
            ToolError: the server refuses the call, or has changed the tool since it was listed.
            ResultRefused: the answer cannot be read.
        """
        for last in (False, True):
            async with self._lock:
                live = await self._usable(tries=_TRIES)
                if live.stale:
                    await self._list(live)
            self._check(live, tool)
            await pass_fence()
            try:
                result = await self._ask(live, tool, args, progress)
            except _Expired:
                live.over.set()
                if last:
                    raise self._unavailable("it closes every connection immediately") from None
            else:
                self._failures = 0
                return result
        raise AssertionError

    # -- connecting ------------------------------------------------------------------------------------------------

    async def _usable(self, *, tries: int) -> _OpenSession:
        if self._live is not None and self._live.usable:
            return self._live
        for left in reversed(range(tries)):
            await anyio.sleep(max(0.0, self._not_before - anyio.current_time()))
            try:
                self._live = await self._connect()
            except ToolUnavailable as error:
                self._postpone()
                if not left or isinstance(error, _Late):
                    raise
            else:
                return self._live
        raise AssertionError

    def _postpone(self) -> None:
        pause = min(self._pause * 2**self._failures, _LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 20)
        self._not_before = anyio.current_time() + pause

    async def _connect(self) -> _OpenSession:
        if not self._hosts:
            raise ToolUnavailable(
                f"MCP server {self.server.name!r} is not connected: open its toolbox with `async with`, "
                "or give it to an executor that is open"
            )
        if importlib.util.find_spec("mcp") is None:
            raise ToolUnavailable(f"MCP servers need a further package: {install_command('mcp')}")
        live = _OpenSession(Tail(self.server.secrets))
        self._hosts[0].start_soon(self._hold, live)
        try:
            with anyio.move_on_after(self._patience) as waiting:
                await live.ready.wait()
        finally:
            if not live.usable:
                live.scope.cancel()
        if live.usable:
            return live
        with anyio.move_on_after(_LAST_WORDS):
            await live.ended.wait()
        if isinstance(live.fault, ToolUnavailable):
            raise live.fault
        if waiting.cancelled_caught and live.fault is None:
            raise _Late(str(self._unavailable(f"it did not answer within {self._patience:g} s", live)))
        raise self._unavailable(self._words(live.fault) if live.fault is not None else "it ended at once", live)

    async def _hold(self, live: _OpenSession) -> None:
        """Hold a connection from opening to closing."""
        from mcp import Client
        from mcp.types import Implementation, ToolListChangedNotification

        from orchestrator import __version__

        async def hear(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                live.stale = True

        us = Implementation(name=DISTRIBUTION, version=__version__)
        try:
            with live.scope:
                async with Client(self._streams(live), client_info=us, message_handler=hear, cache=None) as client:
                    live.listed = await listed_by(client, self.server.name)
                    live.client = client
                    live.ready.set()
                    await live.over.wait()
        except Exception as error:  # raised in the tasks that call or connect
            live.fault = error
        finally:
            live.over.set()
            live.ended.set()
            live.ready.set()

    def _streams(self, live: _OpenSession) -> AbstractAsyncContextManager[TransportStreams]:
        if isinstance(self.server, HttpServer):
            from orchestrator.tools.mcp.http import streamable_http

            return streamable_http(self.server)
        from orchestrator.tools.mcp.stdio import stdio

        return stdio(self.server, live.tail, live.over)

    async def _list(self, live: _OpenSession) -> None:
        from mcp import MCPError

        assert live.client is not None
        live.stale = False  # later changes are reported again
        try:
            with anyio.fail_after(self._patience):
                live.listed = await listed_by(live.client, self.server.name)
        except (MCPError, TimeoutError, ValueError) as error:
            live.stale = True
            raise self._unavailable(f"its tools cannot be listed: {self._words(error)}", live) from None

    # -- calling ---------------------------------------------------------------------------------------------------

    def _check(self, live: _OpenSession, tool: Listed) -> None:
        """Refuse a tool that has changed: its new form was not reviewed or approved."""
        now = live.listed.get(tool.name)
        if now is None:
            raise ToolError(f"MCP server {self.server.name!r} has no tool {plain(tool.name)!r} any more")
        if now.digest != tool.digest:
            raise ToolError(
                f"MCP server {self.server.name!r} has changed its tool {plain(tool.name)!r} since it was listed: "
                "check it and open the toolbox again"
            )

    async def _ask(
        self, live: _OpenSession, tool: Listed, args: Mapping[str, Any], progress: Progress | None
    ) -> CallToolResult:
        from mcp import MCPError
        from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, InputRequiredResult
        from pydantic import TypeAdapter

        assert live.client is not None
        request = CallToolRequest(params=CallToolRequestParams(name=tool.name, arguments=dict(args)))
        kinds: TypeAdapter[Any] = TypeAdapter(CallToolResult | InputRequiredResult)
        try:
            # Not `call_tool`, which would check the result against the server's own schema, for any length of time.
            result = await live.client.session.send_request(request, kinds, progress_callback=progress)
        except MCPError as error:
            raise await self._error_of(live, error) from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._clear(live)
            raise self._lost(live) from None
        except (ValueError, RecursionError) as error:
            raise self.refused(f"gave no result: {self._words(error)}", _refused_part(error)) from None
        if not isinstance(result, CallToolResult):
            raise ToolError(f"MCP server {self.server.name!r} requests input from the user, which is not supported")
        return result

    async def _clear(self, live: _OpenSession) -> None:
        """Discard a connection that a call has found lost."""
        if isinstance(self.server, HttpServer):
            return
        live.over.set()
        with anyio.move_on_after(_LAST_WORDS):
            await live.ended.wait()
        if self._live is live:  # the first of the concurrent calls
            self._live = None
            self._postpone()

    async def _error_of(self, live: _OpenSession, error: MCPError) -> Exception:
        """Convert an error: to the server's message, or a description of the transport's code."""
        from mcp.types import CONNECTION_CLOSED

        from orchestrator.tools.mcp.http import EXPIRED, LOST, NOT_REACHED

        code, said = error.code, self._safe(error.message)
        if is_marked(error.data):
            return ToolError(f"MCP server {self.server.name!r}: {said}")
        if code == CONNECTION_CLOSED:
            await self._clear(live)
        if code == EXPIRED:
            return _Expired()
        if code in (CONNECTION_CLOSED, LOST):
            return self._lost(live, said if code == LOST else "")
        if code == NOT_REACHED:
            return self._unavailable(said)
        return self.refused(f"gave no result: {said}", said)

    def refused(self, why: str, returned: object) -> ToolError:
        """Return the error of a call whose answer from the server cannot be used."""
        return refused(ToolError(f"MCP server {self.server.name!r} {why}"), self._safe(in_words(returned)))

    # -- words -----------------------------------------------------------------------------------------------------

    def _lost(self, live: _OpenSession, why: str = "") -> ToolDisconnected:
        fault = self._safe(why) or (self._words(live.fault) if live.fault is not None else "")
        told = f" ({fault})" if fault else ""
        return ToolDisconnected(
            f"MCP server {self.server.name!r} was lost during the call{told}, "
            f"so the outcome of the call is unknown{_said(live.tail)}"
        )

    def _unavailable(self, why: str, live: _OpenSession | None = None) -> ToolUnavailable:
        said = _said(live.tail) if live is not None else ""
        return ToolUnavailable(f"MCP server {self.server.name!r} cannot be reached: {why}{said}")

    def _words(self, error: BaseException) -> str:
        """Return the message of an error, or of the first error of a group."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and not is_marked(error.data):
            return "it ended before it answered"
        kind = "" if isinstance(error, MCPError | OrchestratorError) else f"{type(error).__name__}: "
        return f"{kind}{self._safe(message_of(error))}"

    def _safe(self, text: str) -> str:
        """Return a text of the server that is safe to quote in a message."""
        return plain(without(text, self.server.secrets)).strip()[:_TOLD]


class _Late(ToolUnavailable):
    """Raised when the server did not answer within the time limit. It is not retried, because another try could take as
    long."""


class _Expired(Exception):
    """Raised when the server no longer knows the connection, and has done nothing."""


def _refused_part(error: Exception) -> object:
    """Return the outermost invalid part of an answer; the error itself if it names none."""
    if not isinstance(error, ValidationError):
        return str(error)
    return min(error.errors(include_url=False, include_context=False), key=lambda fault: len(fault["loc"]))["input"]


def _said(tail: Tail) -> str:
    text = tail.text
    return f"; its last output: {text}" if text else ""
