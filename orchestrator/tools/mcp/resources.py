"""Resources and prompts of a server, as tools and as inputs of runs. They are listed when they are asked for."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import JsonValue

from orchestrator.errors import ToolError
from orchestrator.models.messages import Image, Message, Role
from orchestrator.tools.mcp.connection import McpConnection, Request
from orchestrator.tools.mcp.remote import McpTool
from orchestrator.tools.mcp.results import as_result
from orchestrator.tools.mcp.servers import hidden
from orchestrator.tools.mcp.session import pages
from orchestrator.tools.mcp.untrusted import Hints, Listed, exactly_without, plain, seen
from orchestrator.tools.result import Effect, Risk, ToolResult, as_text, placeholder_of

log = logging.getLogger("orchestrator")

_MOST = 1_000
"""Maximum number of resources, templates or prompts that are listed."""
_DESCRIPTION = 1_000
_TEXT = {"type": "string"}
_KEPT = ("uri", "uriTemplate", "name", "title", "description", "mimeType", "size", "arguments")


class ServerTool(McpTool):
    """A tool that is not one of the server's, but uses other features of it."""

    called: ClassVar[str]
    about: ClassVar[str]
    takes: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    needs: ClassVar[tuple[str, ...]] = ()
    risk: Risk = "read"
    effect: Effect = "read"

    def __init__(self, connection: McpConnection, name: str, **given: Any) -> None:
        server = connection.server.name
        parameters = {"type": "object", "properties": dict(self.takes), "required": list(self.needs)}
        listed = Listed(self.called, self.about.format(server=repr(server)), parameters, Hints(), "")
        super().__init__(connection, listed, name, **given)


class _ListingTool(ServerTool):
    """Lists what a server has."""

    lists: ClassVar[Mapping[str, str]]
    """Method -> key of its result."""

    async def _remote(self, args: Mapping[str, object], key: str, ctx: object) -> ToolResult:
        return ToolResult(output=dict(await self.listed_items()))

    async def listed_items(self) -> dict[str, list[Any]]:
        """Return what the server has, by kind.

        Raises:
            ToolError: the server does not list it.
        """
        return {name: await self._pages(method, name) for method, name in self.lists.items()}

    async def _pages(self, method: str, name: str) -> list[Any]:
        found: list[Any] = []
        try:
            async for page in pages(lambda params: self._connection.send(Request(method, params), {}), name):
                found += [self._item(one) for one in page if isinstance(one, dict)] if isinstance(page, list) else []
                if len(found) >= _MOST:
                    break
        except ToolError as error:
            if method != "resources/templates/list" and not found:
                raise
            log.warning("MCP server %r: %s: %s", self._connection.server.name, method, error)
        return found[:_MOST]

    def _item(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return an item as a model sees it."""
        text = json.dumps({name: said[name] for name in _KEPT if said.get(name) is not None}, ensure_ascii=False)
        shown = json.loads(exactly_without(text, hidden(self._connection.server)))
        return {
            name: seen(plain(one)).strip()[:_DESCRIPTION] if isinstance(one, str) else one
            for name, one in shown.items()
        }


class ListResources(_ListingTool):
    """Lists the resources of a server, and the templates of the URIs of others."""

    called = "list_resources"
    about = "List the resources of the server {server}, which read_resource reads, and templates of further URIs."
    lists: ClassVar[Mapping[str, str]] = {
        "resources/list": "resources",
        "resources/templates/list": "resourceTemplates",
    }


class ListPrompts(_ListingTool):
    """Lists the prompts of a server."""

    called = "list_prompts"
    about = "List the prompts of the server {server}, with their arguments."
    lists: ClassVar[Mapping[str, str]] = {"prompts/list": "prompts"}


class ReadResource(ServerTool):
    """Reads a resource of a server."""

    called = "read_resource"
    about = "Read a resource of the server {server}."
    takes: ClassVar[Mapping[str, Any]] = {"uri": {"type": "string", "description": "its URI"}}
    needs = ("uri",)

    def _request(self, args: Mapping[str, object], *, asks: bool) -> Request:
        return Request("resources/read", dict(args))

    def _result(self, found: Mapping[str, Any]) -> ToolResult:
        contents = found.get("contents")
        blocks = [{"type": "resource", "resource": one} for one in contents] if isinstance(contents, list) else []
        server = self._connection.server
        return as_result({"content": blocks}, hidden(server), server=server.name)

    async def result(self, uri: str) -> ToolResult:
        """Return the content of a resource.

        Raises:
            ToolError: the server refuses.
        """
        return await self._remote({"uri": uri}, "", None)


class GetPrompt(ServerTool):
    """Returns the messages of a prompt of a server."""

    called = "get_prompt"
    about = "Get the messages of a prompt of the server {server}."
    takes: ClassVar[Mapping[str, Any]] = {
        "name": {"type": "string", "description": "its name"},
        "arguments": {"type": "object", "additionalProperties": _TEXT, "default": {}},
    }
    needs = ("name",)

    def _request(self, args: Mapping[str, object], *, asks: bool) -> Request:
        return Request("prompts/get", {"arguments": {}, **args})

    def _result(self, found: Mapping[str, Any]) -> ToolResult:
        read = self._messages(found)
        said: list[JsonValue] = [{"role": one.role, "content": one.content} for one in read]
        return ToolResult(output=said, content=[image for one in read for image in one.images])

    async def messages(self, args: Mapping[str, object]) -> list[Message]:
        """Return the messages of a prompt.

        Args:
            args: its name and arguments.

        Raises:
            ToolError: the server refuses.
        """
        return self._messages(await self._answer(args, "", None))

    def _messages(self, found: Mapping[str, Any]) -> list[Message]:
        server, read = self._connection.server, list[Message]()
        listed = found.get("messages")
        for one in listed if isinstance(listed, list) else []:
            said = one if isinstance(one, dict) else {}
            part = as_result({"content": [said.get("content")]}, hidden(server), server=server.name)
            role: Role = "assistant" if said.get("role") == "assistant" else "user"
            images = tuple(one for one in part.content if isinstance(one, Image) and role == "user")
            text = as_text(part.output) if part.output else ""
            others = [placeholder_of(one) for one in part.content if one not in images]
            read.append(Message(role=role, content="\n".join([*([text] if text else []), *others]), images=images))
        return read


RESOURCES: tuple[type[ServerTool], ...] = (ListResources, ReadResource)
PROMPTS: tuple[type[ServerTool], ...] = (ListPrompts, GetPrompt)
