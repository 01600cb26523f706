"""Servers of the Model Context Protocol as toolboxes. They require the extra `mcp`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

import anyio
from pydantic import JsonValue, ValidationError

from orchestrator.errors import GraphUnknown, ToolError, message_of
from orchestrator.models.messages import Image
from orchestrator.tools.mcp.connection import McpConnection, Progress
from orchestrator.tools.mcp.servers import HttpServer, Server, StdioServer, hidden, servers_in, servers_of
from orchestrator.tools.mcp.untrusted import Listed, exactly_without, names_of
from orchestrator.tools.result import RISKS, Blob, Effect, Part, Risk, ToolFailure, ToolResult, as_text, placeholder_of
from orchestrator.tools.schema import Wants
from orchestrator.tools.tool import Tool, checked
from orchestrator.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock


__all__ = ["HttpServer", "McpTool", "McpToolbox", "StdioServer", "toolbox_of"]


TIMEOUT = 300.0
"""Seconds that a call may take by default."""
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Media types that models accept as images."""


class McpTool(Tool):
    """A tool of a server. Renaming it, or changing its risk, does not change the tool that is called on the server."""

    _wants_ = Wants(given=())

    def __init__(self, connection: McpConnection, listed: Listed, name: str, **given: Any) -> None:
        self._connection, self.listed = connection, listed
        self.name = name
        self.description = listed.description
        self.parameters = dict(listed.parameters)
        self.output_schema = listed.output
        for attribute, value in given.items():
            setattr(self, attribute, value)
        checked(self.name, self.risk, self.effect, self.timeout)

    def _function(self) -> Callable[..., object]:
        return self._remote

    def check_schema(self) -> None:
        """Do nothing: the schema was checked when the server listed it."""

    def _bind(
        self, args: Mapping[str, object], key: str | None, ctx: object, env: object = None
    ) -> Callable[[], object]:
        # Not a keyword argument: an argument of the server may have any name, such as `ctx`.
        return partial(self._remote, dict(args), key or "", ctx)

    async def _remote(self, args: Mapping[str, object], key: str, ctx: object) -> ToolResult:
        found = await self._connection.call(self.listed, args, _progress(ctx, key))
        try:
            return as_result(found, hidden(self._connection.server), wrapped=self.listed.wrapped)
        except Exception as error:
            raise self._connection.refused(f"gave no result: {message_of(error)}", found) from error

    def failure(self, error: Exception) -> ToolFailure:
        """See `Tool.failure`; a lost connection has its own message."""
        found = super().failure(error)
        if isinstance(error, ConnectionError):
            return found.model_copy(update={"error": str(error)})
        return found


def _progress(ctx: object, key: str) -> Progress | None:
    """Return a function that sends a call's progress to the watchers of its run; None outside runs."""
    told = getattr(ctx, "progress", None)
    if told is None:
        return None

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        await told(message or "", done=progress, total=total, key=key)

    return tell


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
        timeout: float | None = TIMEOUT,
        connect_timeout: float = 60.0,
        backoff: float = 0.25,
    ) -> None:
        checked("mcp", risk, effect, timeout)
        self._listed: dict[str, Tool] | None = None
        super().__init__()
        self._prefix, self._risk, self._effect, self._timeout = prefix, risk, effect, timeout
        self._trusting = trust_hints
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
        self._listed = {
            name: McpTool(self._connection, listed[remote], name, **self._rules(listed[remote]))
            for remote, name in names_of(listed, self._prefix).items()
        }

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


def as_result(found: CallToolResult, secrets: tuple[str, ...] = (), *, wrapped: bool = False) -> ToolResult:
    """Convert the result of a call: structured content becomes the output if there is any, else the texts.

    Texts next to structured content say the same in words: models are shown these. Pictures and other data are stored
    next to the output; if structured content repeats their bytes, a line replaces them there.

    Args:
        found: the server's answer.
        secrets: values that were passed to the server and must not be returned.
        wrapped: whether `{"result": ...}` only wraps the value, because structured content has to be an object.

    Raises:
        ToolError: it contains values that JSON cannot represent.
    """
    texts: list[str] = []
    parts: list[Part] = []
    for block in found.content:
        one = _part(block)
        if isinstance(one, str):
            texts.append(exactly_without(one, secrets))
        else:
            parts.append(one)
    if found.is_error:
        said = "\n".join(texts) or _json(found.structured_content, secrets)
        return ToolFailure(error=str(said or "it failed without an error message"), content=parts)
    output: JsonValue = "\n".join(texts) if texts else None
    shown = ""
    if found.structured_content is not None:
        shown, output = "\n".join(texts), _json(found.structured_content, secrets)
        if wrapped and isinstance(output, dict) and output.keys() == {"result"}:
            output = output["result"]
        output = _without_bytes(output, found.content, parts)
        shown = "" if shown == as_text(output) else shown
    elif not texts and not parts:
        output = ""
    return ToolResult(output=output, content=parts, shown=shown)


def _without_bytes(value: JsonValue, blocks: Sequence[ContentBlock], parts: Sequence[Part]) -> JsonValue:
    """Return a value in which each string that repeats the data of a block is replaced by a line."""
    lines = {
        part.url.partition(",")[2] if isinstance(part, Image) else part.data: placeholder_of(part) for part in parts
    }
    for block in blocks:  # the original data of the server, which may have line breaks
        data = str(getattr(block, "data", ""))
        if data and (line := lines.get("".join(data.split()))):
            lines[data] = line
    lines.pop("", None)

    def walked(one: JsonValue) -> JsonValue:
        if isinstance(one, str):
            return lines.get(one, one)
        if isinstance(one, list):
            return [walked(item) for item in one]
        return {name: walked(item) for name, item in one.items()} if isinstance(one, dict) else one

    try:
        return walked(value) if lines else value
    except RecursionError:
        raise ToolError("its result is nested too deeply") from None


def _part(block: ContentBlock) -> Part | str:
    """Convert a part of the answer: to a text, or to a part for `content`."""
    match block.type:
        case "text":
            return block.text
        case "image":
            return _binary(block.data, block.mime_type)
        case "audio":
            return _binary(block.data, block.mime_type)
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return f"[{block.name} at {block.uri}{about}]"
        case "resource":
            inner = block.resource
            text = getattr(inner, "text", None)
            if isinstance(text, str):
                return text
            name = str(inner.uri).rpartition("/")[2]
            return _binary(str(getattr(inner, "blob", "")), inner.mime_type or "application/octet-stream", name)


def _binary(data: str, media_type: str, name: str = "") -> Part | str:
    kind = media_type.partition(";")[0].strip().lower()
    try:
        blob = Blob(data="".join(data.split()), media_type=kind, name=name[:200])
    except ValidationError:
        return f"[{kind[:100]!a}: data that cannot be read]"
    if kind in _IMAGES:
        return Image(url=f"data:{kind};base64,{blob.data}")
    return blob


def _json(value: object, secrets: tuple[str, ...]) -> JsonValue:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise ToolError("its result contains a value that JSON cannot represent, such as an infinite number") from None
    if not secrets:
        return cast(JsonValue, value)
    return cast(JsonValue, json.loads(exactly_without(text, secrets)))
