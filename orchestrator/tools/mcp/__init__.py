"""Servers of the Model Context Protocol as toolboxes. They require the extra `mcp`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio

from orchestrator.errors import GraphUnknown, ToolError
from orchestrator.models.messages import Message
from orchestrator.tools.mcp.connection import McpConnection
from orchestrator.tools.mcp.remote import McpTool
from orchestrator.tools.mcp.resources import PROMPTS, RESOURCES, GetPrompt, ListPrompts, ListResources, ReadResource
from orchestrator.tools.mcp.servers import HttpServer, Server, StdioServer, servers_in, servers_of
from orchestrator.tools.mcp.untrusted import Listed, names_of
from orchestrator.tools.result import RISKS, Effect, Risk, ToolResult
from orchestrator.tools.tool import Tool, checked
from orchestrator.tools.toolbox import Toolbox

__all__ = ["HttpServer", "McpTool", "McpToolbox", "StdioServer", "toolbox_of"]


log = logging.getLogger("orchestrator")

TIMEOUT = 300.0
"""Seconds that a call may take by default."""


class McpToolbox(Toolbox):
    """The tools of an MCP server, which is connected while the toolbox is open.

        async with McpToolbox.stdio("mcp-server-time", "--local-timezone", "UTC") as clock:
            result = await clock.execute(name="get_current_time", tool_input={"timezone": "Europe/Paris"})

    An executor opens the toolboxes that it is given. If the server is lost, the next call reconnects to it.

    Every tool is `dangerous` and `irreversible` unless the user sets otherwise. The server's own hints only raise that:
    a tool marked as destructive is dangerous whatever `risk` is; one marked as read-only is treated as less dangerous
    only with `trust_hints`. `override(...)` takes precedence over all of these.

    Args:
        server: the server; see `StdioServer` and `HttpServer`.
        prefix: prefix of the name of each tool.
        risk, effect: those of all tools, unless the server's hints about a tool are worse.
        trust_hints: whether to trust the server's hints that a tool only reads, or may be called again.
        resources, prompts: whether to offer the server's resources and prompts as tools as well: `list_resources` and
            `read_resource`, `list_prompts` and `get_prompt`. They are of risk and effect `read`.
        timeout: seconds that a call may take before it is cancelled; None: no limit.
        connect_timeout: seconds that connecting may take.
        backoff: seconds to wait before reconnecting to a server that failed; doubled each time.

    Raises:
        TypeError: the risk, the effect or the timeout is not valid.
    """

    def __init__(
        self,
        server: Server,
        *,
        prefix: str = "",
        risk: Risk = "dangerous",
        effect: Effect = "irreversible",
        trust_hints: bool = False,
        resources: bool = False,
        prompts: bool = False,
        timeout: float | None = TIMEOUT,
        connect_timeout: float = 60.0,
        backoff: float = 0.25,
    ) -> None:
        checked("mcp", risk, effect, timeout)
        self._listed: dict[str, Tool] | None = None
        super().__init__()
        self._prefix, self._risk, self._effect, self._timeout = prefix, risk, effect, timeout
        self._trusting = trust_hints
        resources, prompts = resources or "resources" in server.offers, prompts or "prompts" in server.offers
        self._more = (*(RESOURCES if resources else ()), *(PROMPTS if prompts else ()))
        self._connection = McpConnection(server, patience=connect_timeout, pause=backoff)

    @classmethod
    def stdio(
        cls, command: str, *args: str, env: Mapping[str, str] | None = None, cwd: str | None = None, **options: Any
    ) -> Self:
        """Return the toolbox of a server that is a program; see `StdioServer`, and the class for the options."""
        return cls(StdioServer(command, args, dict(env or {}), cwd), **options)

    @classmethod
    def http(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Self:
        """Return the toolbox of a server at an address; see `HttpServer`, and the class for the options."""
        return cls(HttpServer(url, dict(headers or {})), **options)

    @classmethod
    def from_file(cls, path: str, name: str, **options: Any) -> Self:
        """Return the toolbox of a named server in a `.mcp.json` file, in the form of other clients.

        Raises:
            GraphUnknown: the file or the server does not exist, or the file cannot be read.
        """
        (server,) = servers_in(path, name)
        return cls(server, **options)

    @property
    def server(self) -> Server:
        """The server."""
        return self._connection.server

    # -- tools and connections -------------------------------------------------------------------------------------

    def current(self) -> Mapping[str, Tool]:
        """Return the tools as they were when the toolbox was opened; empty before that."""
        added = super().current()
        return {**(self._listed or {}), **added} if added else (self._listed or {})

    @property
    def ready(self) -> bool:
        """Return True if the tools have been listed."""
        return self._listed is not None

    @property
    def connections(self) -> tuple[Toolbox, ...]:
        """Return a tuple with only this toolbox."""
        return (self,)

    def __repr__(self) -> str:
        return f"McpToolbox({self.server.name!r}, {', '.join(self.current()) if self.ready else 'not connected'})"

    @asynccontextmanager
    async def _hold(self) -> AsyncIterator[None]:
        """Connect to the server if necessary, and list its tools.

        Raises:
            ToolUnavailable: the server cannot be reached; the message contains its last output.
        """
        async with anyio.create_task_group() as host:
            self._connection.add_host(host)
            try:
                self._take(await self._connection.listed())
                yield
            finally:
                self._connection.drop_host(host)
                host.cancel_scope.cancel()

    async def refresh(self) -> Self:
        """Fetch the server's tools again. Until then, calls of a tool that the server has changed are refused.

        Raises:
            ToolUnavailable: the server cannot be reached.
        """
        self._take(await self._connection.listed())
        return self

    def _take(self, listed: Mapping[str, Listed]) -> None:
        found: dict[str, Tool] = {
            name: McpTool(self._connection, listed[remote], name, **self._rules(listed[remote]))
            for remote, name in names_of(listed, self._prefix).items()
        }
        more = {"timeout": self._timeout, "group": self.server.name}
        for name, kind in ((f"{self._prefix}{one.called}", one) for one in self._more):
            if name in found:
                log.warning("MCP server %r has a tool %r: no other one of this name is offered", self.server.name, name)
            else:
                found[name] = kind(self._connection, name, **more)
        self._listed = found

    async def read(self, uri: str) -> ToolResult:
        """Read a resource of the server, such as an input of a run.

        Args:
            uri: its URI.

        Returns:
            Its text as the output; pictures and other data as content.

        Raises:
            ToolUnavailable: the server cannot be reached.
            ToolError: the server refuses, or asks for input, which only calls in a run can get.
        """
        return await ReadResource(self._connection, ReadResource.called).result(uri)

    async def offers(self) -> list[str]:
        """Return what the server has besides tools, one a line: its resources, templates of further ones, its prompts.

        Raises:
            ToolUnavailable: the server cannot be reached.
        """
        found: list[str] = []
        for capability, kind in (("resources", ListResources), ("prompts", ListPrompts)):
            if not await self._connection.declares(capability):
                continue
            try:
                items = await kind(self._connection, kind.called).listed_items()
            except ToolError as error:
                log.warning("%s", error)
                continue
            for what, those in items.items():
                label = {"resources": "resource", "resourceTemplates": "template", "prompts": "prompt"}[what]
                found += [f"{label} {one.get('uri') or one.get('uriTemplate') or one.get('name')}" for one in those]
        return found

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> list[Message]:
        """Return the messages of a prompt of the server.

        Args:
            name: its name.
            arguments: its arguments.

        Raises:
            ToolUnavailable: the server cannot be reached.
            ToolError: the server refuses, or asks for input, which only calls in a run can get.
        """
        tool = GetPrompt(self._connection, GetPrompt.called)
        return await tool.messages({"name": name, "arguments": dict(arguments or {})})

    def _rules(self, listed: Listed) -> dict[str, object]:
        """Return risk and effect of a tool: the user's settings, raised by the server's hints."""
        hints, risk, effect = listed.hints, self._risk, self._effect
        if self._trusting:
            if hints.read_only and not hints.destructive:
                risk, effect = "read", "read"
            elif hints.destructive is False:
                risk = "write"
            if hints.idempotent and effect == "irreversible":
                effect = "idempotent"
        if hints.destructive:
            risk = "dangerous"
        elif hints.read_only is False:
            risk = max(risk, "write", key=RISKS.index)
        changing = bool(hints.destructive) or hints.read_only is False
        if (changing and effect in ("pure", "read")) or (hints.idempotent is False and effect == "idempotent"):
            effect = "irreversible"
        return {"risk": risk, "effect": effect, "timeout": self._timeout, "group": self.server.name}


def toolbox_of(text: str, directory: str | None = None, **options: Any) -> Toolbox:
    """Return the toolbox of a reference such as `mcp:.mcp.json`; with several servers, their names prefix the tools'
    names.

    Args:
        text, directory: see `servers_of`.
        options: options of `McpToolbox`.

    Raises:
        GraphUnknown: the reference cannot be read, or a variable in it is not set.
    """
    servers = servers_of(text, directory)
    if len(servers) == 1:
        return McpToolbox(servers[0], **options)
    if len({server.name for server in servers}) < len(servers):
        raise GraphUnknown(f"tools {text!r}: two servers have the same name")
    return Toolbox(*(McpToolbox(server, prefix=f"{server.name}_", **options) for server in servers))
