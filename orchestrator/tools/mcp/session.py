"""Requests to a server in both generations of the protocol, over the streams of a transport.

A server up to version 2025-11-25 is greeted with `initialize`. Since 2026-07-28 servers are stateless: the answer to
`server/discover` tells what a server can do, and every request names the client and its version. Results are returned
as the server wrote them, because the SDK's models refuse a whole result for one malformed part; `results` and
`untrusted` read each part.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import anyio

from orchestrator.errors import DISTRIBUTION, ToolError
from orchestrator.tools.mcp.untrusted import TOOLS, Listed, exactly_without, is_marked, plain, take

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.dispatcher import CallOptions, DispatchContext
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
    from mcp.shared.transport_context import TransportContext

log = logging.getLogger("orchestrator")

PROBE = 5.0
"""Seconds that an unknown server has to answer `server/discover`. Older servers may ignore it."""
Ask: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Returns the answer to the parameters of `elicitation/create`; raises ToolError if the question cannot be asked."""
_LISTEN_AGAIN = 30.0
"""Seconds before changes are listened for again, after the server ended that."""
_PAGES = 100
_LOGGED = 50
"""Maximum number of lines in the log about one listing."""
Heard: TypeAlias = Callable[[str], None]
"""Receives the method of each notification."""
TASKS = "io.modelcontextprotocol/tasks"
"""The name of the extension for tasks of protocol 2026-07-28."""
_CAN: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
"""Capabilities of this client."""
_WITH_TASKS: dict[str, Any] = {**_CAN, "extensions": {TASKS: {}}}
REFUSED = {
    "sampling/createMessage": "asks for a model, and this client gives servers no access to its models",
    "roots/list": "asks for folders, and this client names none: pass them to the server as arguments",
}
"""Requests of servers that are refused, and why."""


class Progress(Protocol):
    """Callback for the progress of a call: amount done, total, and a message."""

    async def __call__(self, progress: float | None, total: float | None, message: str | None) -> None: ...


class Session:
    """A connection on which requests are made, from `opened` until it is closed.

    Args:
        dispatcher: sends requests, and assigns the answers to them.
        name: the server's name in the log.
    """

    def __init__(self, dispatcher: JSONRPCDispatcher[TransportContext], name: str) -> None:
        self._dispatcher, self._name = dispatcher, name
        self.version = ""
        """Protocol version that is spoken; empty until the server was greeted."""
        self.stateless = False
        """True if the server was found by `server/discover`."""
        self.capabilities: Mapping[str, Any] = {}
        self.probed = False
        """True if `server/discover` was sent."""

    async def greet(self, *, probe: bool, patient: bool = False) -> None:
        """Find out which generation the server speaks, and prepare for requests in it.

        Args:
            probe: send `server/discover` first; False for a server that is known to be older.
            patient: wait for its answer for any length of time; True for a server that answered it before.

        Raises:
            MCPError: the server answers neither `server/discover` nor `initialize` with a result.
        """
        from mcp import MCPError
        from mcp.types import REQUEST_TIMEOUT, UNSUPPORTED_PROTOCOL_VERSION

        fault: MCPError | None = None
        if probe:
            try:
                if await self._discover(None if patient else PROBE):
                    return
            except MCPError as error:
                fault = error
        try:
            await self._initialize()
        except MCPError as error:
            if fault is None or not is_marked(error.error.data):
                raise
            if fault.code == UNSUPPORTED_PROTOCOL_VERSION and is_marked(fault.error.data):
                raise fault from None  # it names the versions that it supports
            late = fault.code == REQUEST_TIMEOUT and not is_marked(fault.error.data)
            if not late or not await self._discover(None):  # a newer server that started slowly
                raise

    async def _discover(self, patience: float | None) -> bool:
        """Return True if the server speaks the stateless generation."""
        from mcp.types.version import LATEST_MODERN_VERSION

        self.probed = True
        opts = self._opts(timeout=patience, cancel_on_abandon=False)
        params = self._stamped("server/discover", {}, opts, LATEST_MODERN_VERSION)
        found = await self._dispatcher.send_raw_request("server/discover", params, opts)
        supported = found.get("supportedVersions")
        if not isinstance(supported, list) or LATEST_MODERN_VERSION not in supported:
            return False
        self._adopt(LATEST_MODERN_VERSION, found, stateless=True)
        return True

    async def _initialize(self) -> None:
        from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": _CAN,
            "clientInfo": _us(),
        }
        opts = self._opts(cancel_on_abandon=False)
        found = await self._dispatcher.send_raw_request("initialize", params, opts)
        version = found.get("protocolVersion")
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            log.warning("MCP server %r answers with the protocol version %.100r, which is unknown", self._name, version)
        self._adopt(version if isinstance(version, str) else LATEST_HANDSHAKE_VERSION, found, stateless=False)
        await self._dispatcher.notify("notifications/initialized", None, self._opts())

    def _adopt(self, version: str, found: Mapping[str, Any], *, stateless: bool) -> None:
        can = found.get("capabilities")
        self.version, self.stateless = plain(version)[:100], stateless
        self.capabilities = can if isinstance(can, dict) else {}

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        tasks: bool = False,
    ) -> dict[str, Any]:
        """Make a request and return its result as the server wrote it. Cancelling this asks the server to stop.

        Args:
            method: its method.
            params: its parameters.
            headers: HTTP headers to send with it.
            progress: receives what the server reports about its progress.
            tasks: tell a stateless server that it may answer with a task.

        Raises:
            MCPError: the server answers with an error, or the transport has lost the answer.
        """
        opts = self._opts()
        if progress is not None:
            opts["on_progress"] = progress
        sent = self._stamped(method, params, opts, self.version, tasks=tasks) if self.stateless else params
        opts.setdefault("headers", {}).update(headers or {})
        return await self._dispatcher.send_raw_request(method, sent, opts)

    @property
    def makes_tasks(self) -> bool:
        """True for a server of 2025-11-25 that makes tasks of calls for which the client asks for one."""
        found: Any = self.capabilities
        for name in ("tasks", "requests", "tools", "call"):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found is not None and not self.stateless

    async def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` when a stateless server says that its tools have changed; return if it says no such thing.

        Servers before 2026-07-28 say so by themselves.
        """
        from mcp import MCPError

        can = self.capabilities.get("tools")
        while self.stateless and isinstance(can, dict) and can.get("listChanged") is True:
            try:
                await self.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            except MCPError as error:
                if is_marked(error.data):
                    return
            changed()  # what happened after the end of the stream was missed
            await anyio.sleep(_LISTEN_AGAIN)

    async def tools(self, secrets: tuple[str, ...] = ()) -> dict[str, Listed]:
        """Return the tools of the server, by their names there, in its order. Unusable ones are logged and left out.

        Args:
            secrets: values that are blanked in descriptions and in the log.

        Raises:
            MCPError: the server does not list them.
        """
        from mcp import MCPError

        found: dict[str, Listed] = {}
        faults: list[str] = []
        count = 0
        try:
            async for page in pages(lambda params: self.request("tools/list", params), "tools"):
                count += 1
                faults += take(page, found, stateless=self.stateless, tasks=self.makes_tasks, secrets=secrets)
                if len(found) >= TOOLS:
                    break
        except MCPError as error:
            if not is_marked(error.data) or (not count and "tools" in self.capabilities):
                raise
            if count:
                said = plain(exactly_without(error.message, secrets))[:500]
                faults.append(f"a page of its tools cannot be listed: {said}")
        for fault in faults[:_LOGGED]:
            log.warning("MCP server %r: %s", self._name, fault)
        if len(faults) > _LOGGED:
            log.warning("MCP server %r: %d more of its tools are left out", self._name, len(faults) - _LOGGED)
        return found

    def _opts(self, *, timeout: float | None = None, cancel_on_abandon: bool = True) -> CallOptions:
        from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

        opts: CallOptions = {"cancel_on_abandon": cancel_on_abandon}
        if timeout is not None:
            opts["timeout"] = timeout
        if self.version:
            opts["headers"] = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        return opts

    def _stamped(
        self, method: str, params: Mapping[str, Any], opts: CallOptions, version: str, *, tasks: bool = False
    ) -> dict[str, Any]:
        """Return the parameters of a stateless request, which name the client, and put its headers into `opts`."""
        from mcp.shared import inbound
        from mcp.types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

        meta = {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: _us(),
            CLIENT_CAPABILITIES_META_KEY: _WITH_TASKS if tasks or method.startswith("tasks/") else _CAN,
        }
        headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: version, inbound.MCP_METHOD_HEADER: method}
        named = params.get("taskId" if method.startswith("tasks/") else inbound.NAME_BEARING_METHODS.get(method, ""))
        if isinstance(named, str):
            headers[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(named)
        opts["headers"] = headers
        return {**params, "_meta": {**params.get("_meta", {}), **meta}}


@asynccontextmanager
async def opened(streams: TransportStreams, name: str, heard: Heard, ask: Ask) -> AsyncIterator[Session]:
    """Open a session over the streams of a transport.

    Args:
        streams: what the server sends, and what is sent to it.
        name: the server's name in the log.
        heard: receives the method of each notification.
        ask: answers what the server asks its user during a call.
    """
    from mcp import MCPError
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
    from mcp.types import INVALID_REQUEST, METHOD_NOT_FOUND

    async def on_request(
        ctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        if method == "ping":
            return {}
        if method == "elicitation/create":
            try:
                return await ask(params or {})
            except ToolError as error:
                raise MCPError(INVALID_REQUEST, str(error)) from None
        why = REFUSED.get(method)
        raise MCPError(METHOD_NOT_FOUND if why is None else INVALID_REQUEST, why or "Method not found")

    async def on_notify(ctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None) -> None:
        heard(method)

    dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(*streams)
    async with anyio.create_task_group() as tasks:
        await tasks.start(dispatcher.run, on_request, on_notify)
        try:
            yield Session(dispatcher, name)
        finally:
            tasks.cancel_scope.cancel()


async def pages(ask: Callable[[dict[str, str]], Awaitable[dict[str, Any]]], key: str) -> AsyncIterator[object]:
    """Yield what a server lists, page by page, until it ends or repeats itself.

    Args:
        ask: requests a page.
        key: the key of what is listed.
    """
    cursors: set[str] = set()
    params: dict[str, str] = {}
    empty = 0
    while len(cursors) < _PAGES:
        page = await ask(params)
        yield page.get(key)
        empty = 0 if page.get(key) else empty + 1
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or cursor in cursors or empty > 1:
            return
        cursors.add(cursor)
        params = {"cursor": cursor}


def as_task(said: object) -> dict[str, Any]:
    """Return a task in the form of 2026-07-28."""
    found = dict(said) if isinstance(said, Mapping) else {}
    for older, newer in (("ttl", "ttlMs"), ("pollInterval", "pollIntervalMs")):
        if older in found:
            found[newer] = found.pop(older)
    return found


def _us() -> dict[str, str]:
    from orchestrator import __version__

    return {"name": DISTRIBUTION, "version": __version__}
