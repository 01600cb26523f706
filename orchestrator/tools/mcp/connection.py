"""A connection to a server: opened on demand, shared by concurrent calls, and reopened when it is lost.

A separate task holds each connection, since the client's cancel scopes must be left by the task that entered them.
Calls may use it from any task.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from orchestrator.errors import (
    OrchestratorError,
    ToolDisconnected,
    ToolError,
    ToolUnavailable,
    install_command,
    message_of,
)
from orchestrator.tools.mcp.elicitation import HELD
from orchestrator.tools.mcp.held import HeldCalls
from orchestrator.tools.mcp.servers import HttpServer, Server, StdioServer, hidden
from orchestrator.tools.mcp.session import Progress, Session, as_task, opened
from orchestrator.tools.mcp.untrusted import Listed, Tail, is_marked, plain, without
from orchestrator.tools.result import in_words, refused
from orchestrator.user_code import pass_fence

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp import MCPError
    from mcp.client._transport import TransportStreams

log = logging.getLogger("orchestrator")


_TRIES = 3
_LONGEST_PAUSE = 30.0
_FIRST = 0.75
"""Part of the time for connecting that a program has to answer before it is started again in the older generation."""
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
    session: Session | None = None
    greeted: bool = False
    """True if the server has answered the greeting."""
    listed: Mapping[str, Listed] = field(default_factory=dict)
    stale: bool = False
    """True if the server reported that its tools have changed."""
    fault: BaseException | None = None
    late: bool = False
    """True if it could not be used in time."""

    @property
    def stateless(self) -> bool:
        return self.session is not None and self.session.stateless

    @property
    def usable(self) -> bool:
        return self.greeted and self.ready.is_set() and not self.over.is_set() and not self.ended.is_set()


@dataclass(frozen=True)
class Request:
    """A request to a server that may need input, or become a task."""

    method: str
    params: Mapping[str, Any]
    tool: Listed | None = None
    """The tool, for a call of one."""
    progress: Progress | None = None
    """Receives what the server reports about its progress."""
    tasks: bool = False
    """True if a stateless server may answer with a task."""


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
        self._held = HeldCalls(server.name, hidden(server))
        self._stateless: bool | None = None
        """Generation of the server, once it is known: True since 2026-07-28."""

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

    async def make(self, request: Request, more: Mapping[str, Any], key: str = "") -> dict[str, Any]:
        """Make a request, during which older servers may ask a person, and return the result as the server wrote it.

        Args:
            request: the request.
            more: parameters of a further round, see `rounds`.
            key: idempotency key of a call during which the server may ask; empty: it may not.

        Raises:
            ToolDisconnected: see `send`; or an older server waited for an answer, and the process has ended.
            ToolError: see `send`.
        """
        waits = HELD in more.get("inputResponses", ())
        if key and (waits or not (more or (await self._ready()).stateless)):
            return await self.hold(key, request, more)
        return await self.send(request, more)

    async def hold(self, key: str, request: Request, more: Mapping[str, Any]) -> dict[str, Any]:
        """Make a request that goes on while a person is asked, see `held`."""
        return await self._held.call(key, partial(self.send, request, {}), more, self._hosts[0])

    def holds(self, key: str) -> bool:
        """Return True if a request of this process goes on while a person is asked."""
        return key in self._held

    async def is_stateless(self) -> bool:
        """Return True if the server speaks 2026-07-28.

        Raises:
            ToolUnavailable: the server cannot be reached.
        """
        return (await self._ready()).stateless

    async def declares(self, capability: str) -> bool:
        """Return True if the server declares a capability, such as `prompts`.

        Raises:
            ToolUnavailable: the server cannot be reached.
        """
        session = (await self._ready()).session
        return session is not None and capability in session.capabilities

    async def send(self, request: Request, more: Mapping[str, Any]) -> dict[str, Any]:
        """Make a request, and return the result as the server wrote it. Cancelling this asks the server to stop.

        Args:
            request: the request.
            more: parameters of a further round, see `rounds`.

        Raises:
            ToolUnavailable: the server cannot be reached; nothing was called.
            ToolDisconnected: the connection was lost during the call.
            ToolError: the server refuses the call, or has changed the tool since it was listed.
            ResultRefused: the answer cannot be read.
        """
        for last in (False, True):
            live = await self._ready()
            if request.tool is not None:
                self._check(live, request.tool)
            await pass_fence()
            try:
                result = await self._ask(live, request, more)
            except _Expired:
                live.over.set()
                if last:
                    raise self._unavailable("it closes every connection immediately") from None
            else:
                self._failures = 0
                return result
        raise AssertionError

    def drop(self, key: str) -> None:
        """End a request that goes on while a person is asked, see `held`."""
        self._held.drop(key)

    # -- connecting ------------------------------------------------------------------------------------------------

    async def _ready(self) -> _OpenSession:
        """Return a connection whose tools are known."""
        async with self._lock:
            live = await self._usable(tries=_TRIES)
            if live.stale:
                await self._list(live)
        return live

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
        fresh = self._stateless is None and isinstance(self.server, StdioServer)
        live = await self._open(self._patience * (_FIRST if fresh else 1))
        if fresh and self._may_be_older(live):
            live = await self._open(self._patience * (1 - _FIRST), probe=False)
        if live.usable:
            return live
        if isinstance(live.fault, ToolUnavailable):
            raise live.fault
        if live.fault is None and live.late:
            raise _Late(str(self._unavailable(f"it did not answer within {self._patience:g} s", live)))
        raise self._unavailable(self._words(live.fault) if live.fault is not None else "it ended at once", live)

    def _may_be_older(self, live: _OpenSession) -> bool:
        """Return True if the probe can have ended a server: older ones end, or answer nothing more, when the first
        request is not `initialize`."""
        from mcp import MCPError
        from mcp.types import UNSUPPORTED_PROTOCOL_VERSION

        if live.greeted or live.session is None or not live.session.probed:
            return False
        return not (isinstance(live.fault, MCPError) and live.fault.code == UNSUPPORTED_PROTOCOL_VERSION)

    async def _open(self, patience: float, *, probe: bool = True) -> _OpenSession:
        """Open a connection, which is usable or has failed when this returns."""
        live = _OpenSession(Tail(self.server.secrets))
        self._hosts[0].start_soon(self._hold, live, probe and self._stateless is not False)
        try:
            with anyio.move_on_after(patience) as waiting:
                await live.ready.wait()
            live.late = waiting.cancelled_caught
        finally:
            if not live.usable:
                live.scope.cancel()
        if live.usable:
            self._stateless = live.stateless
        else:
            with anyio.move_on_after(_LAST_WORDS):
                await live.ended.wait()
        return live

    async def _hold(self, live: _OpenSession, probe: bool) -> None:
        """Hold a connection from opening to closing."""

        def changed() -> None:
            live.stale = True

        def heard(method: str) -> None:
            if method == "notifications/tools/list_changed":
                changed()

        try:
            with live.scope:
                async with (
                    self._streams(live) as streams,
                    opened(streams, self.server.name, heard, self._held.ask) as live.session,
                ):
                    await live.session.greet(probe=probe, patient=bool(self._stateless))
                    live.greeted = True
                    live.listed = await live.session.tools(hidden(self.server))
                    live.ready.set()
                    async with anyio.create_task_group() as listening:
                        listening.start_soon(live.session.listen, changed)
                        await live.over.wait()
                        listening.cancel_scope.cancel()
        except Exception as error:  # raised in the tasks that call or connect
            live.fault = _first(error)
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

        assert live.session is not None
        live.stale = False  # later changes are reported again
        try:
            with anyio.fail_after(self._patience):
                live.listed = await live.session.tools(hidden(self.server))
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

    async def _ask(self, live: _OpenSession, request: Request, more: Mapping[str, Any]) -> dict[str, Any]:
        from mcp import MCPError
        from mcp.shared.inbound import mcp_param_headers
        from mcp.types import MISSING_REQUIRED_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED

        assert live.session is not None
        tool, params = request.tool, {**more, **request.params}
        headers = None if tool is None or not tool.headers else mcp_param_headers(tool.headers, params["arguments"])
        try:
            found = await live.session.request(
                request.method, params, headers=headers, progress=request.progress, tasks=request.tasks
            )
        except MCPError as error:
            if error.code == URL_ELICITATION_REQUIRED and is_marked(error.data):
                asked = error.data.get("elicitations")
                if isinstance(asked, list) and asked:  # the call did not happen: it is made again without answers
                    requests = {str(n): {"method": "elicitation/create", "params": one} for n, one in enumerate(asked)}
                    return {"resultType": "input_required", "inputRequests": requests, "again": True}
            if error.code == MISSING_REQUIRED_CLIENT_CAPABILITY and is_marked(error.data) and not request.tasks:
                return await self._ask(live, replace(request, tasks=True), more)  # it did nothing yet
            fault = await self._error_of(live, error)
            if more and is_marked(error.data):
                said = self.safe(error.message)
                raise self.refused(f"does not take the answers of the last round: {said}", said) from None
            raise fault from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._clear(live)
            raise self._lost(live) from None
        except (ValueError, RecursionError) as error:
            raise self.refused(f"gave no result: {self._words(error)}", str(error)) from None
        kind = found.get("resultType", "complete") if live.session.stateless else "complete"
        if kind not in ("complete", "input_required") and (kind != "task" or request.tool is None):
            raise self.refused(f"gave a result of the unknown kind {plain(str(kind))[:100]!r}", found)
        if not live.session.stateless:
            made = found.get("task") if "task" in params else None
            found = {**found, "resultType": "complete"} if made is None else {"resultType": "task", **as_task(made)}
        return found

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

        code, said = error.code, self.safe(error.message)
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
        return refused(ToolError(f"MCP server {self.server.name!r} {why}"), self.safe(in_words(returned)))

    # -- words -----------------------------------------------------------------------------------------------------

    def _lost(self, live: _OpenSession, why: str = "") -> ToolDisconnected:
        fault = self.safe(why) or (self._words(live.fault) if live.fault is not None else "")
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

        error = _first(error)
        if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and not is_marked(error.data):
            return "it ended before it answered"
        kind = "" if isinstance(error, MCPError | OrchestratorError) else f"{type(error).__name__}: "
        return f"{kind}{self.safe(message_of(error))}"

    def safe(self, text: str) -> str:
        """Return a text of the server that is safe to quote in a message."""
        return plain(without(text, self.server.secrets)).strip()[:_TOLD]


class _Late(ToolUnavailable):
    """Raised when the server did not answer within the time limit. It is not retried, because another try could take as
    long."""


class _Expired(Exception):
    """Raised when the server no longer knows the connection, and has done nothing."""


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group; of any other error, the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _said(tail: Tail) -> str:
    text = tail.text
    return f"; its last output: {text}" if text else ""
