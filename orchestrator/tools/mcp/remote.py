"""Tools of a server, whose calls may take several rounds, ask a person, or become tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from orchestrator.errors import message_of
from orchestrator.json import digest
from orchestrator.tools.mcp.connection import McpConnection, Request
from orchestrator.tools.mcp.results import as_result
from orchestrator.tools.mcp.rounds import Asker, Rounds
from orchestrator.tools.mcp.servers import hidden
from orchestrator.tools.mcp.session import Progress
from orchestrator.tools.mcp.tasks import KEPT, Tasks
from orchestrator.tools.mcp.untrusted import Listed
from orchestrator.tools.result import ToolFailure, ToolResult
from orchestrator.tools.schema import Wants
from orchestrator.tools.tool import Tool, checked


class McpTool(Tool):
    """A tool of a server. Renaming it, or changing its risk, does not change the tool that is called on the server."""

    untrusted = True
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

    @property
    def approval_digest(self) -> str:
        """See `Tool.approval_digest`; it also covers the server's name and description of the tool."""
        return digest([self.schema_digest, self.listed.digest])

    def check_schema(self) -> None:
        """Do nothing: the schema was checked when the server listed it."""

    def _bind(
        self, args: Mapping[str, object], key: str | None, ctx: object, env: object = None
    ) -> Callable[[], object]:
        # Not a keyword argument: an argument of the server may have any name, such as `ctx`.
        return partial(self._remote, dict(args), key or "", ctx)

    async def _remote(self, args: Mapping[str, object], key: str, ctx: object) -> ToolResult:
        found = await self._answer(args, key, ctx)
        try:
            return self._result(found)
        except Exception as error:
            raise self._connection.refused(f"gave no result: {message_of(error)}", found) from error

    async def _answer(self, args: Mapping[str, object], key: str, ctx: object) -> dict[str, Any]:
        """Make the call, and return the result as the server wrote it."""
        server, asks = self._connection.server, hasattr(ctx, "ask_inside")
        rounds = Rounds(server.name, hidden(server), self.name, key, cast("Asker", ctx) if asks else None)
        request = replace(self._request(args, asks=asks), progress=_progress(ctx, key), tasks=asks)
        key = key if asks else ""
        return await rounds.call(
            lambda more: self._connection.make(request, more, key), Tasks(self._connection, key, request.progress)
        )

    def _request(self, args: Mapping[str, object], *, asks: bool) -> Request:
        """Return the request of a call; `asks`: it is made in a run, which can wait for a task."""
        listed, params = self.listed, {"name": self.listed.name, "arguments": dict(args)}
        if listed.task == "required" or (listed.task and asks):
            params["task"] = {"ttl": KEPT}
        return Request("tools/call", params, listed)

    def _result(self, found: Mapping[str, Any]) -> ToolResult:
        server = self._connection.server
        return as_result(found, hidden(server), wrapped=self.listed.wrapped, server=server.name)

    async def abandon(self, key: str, secret: str) -> None:
        """End what a call has begun at the server, because the run has ended.

        Args:
            key: idempotency key of the call.
            secret: what it kept to continue.

        Raises:
            ToolError: the server cannot be reached, or refuses.
        """
        self._connection.drop(key)
        task = json.loads(secret).get("task")
        if task:
            await Tasks(self._connection, "").cancel(task)

    def failure(self, error: Exception) -> ToolFailure:
        """See `Tool.failure`; a lost connection has its own message."""
        found = super().failure(error)
        if isinstance(error, ConnectionError):
            return found.model_copy(update={"error": str(error)})
        return found


def _progress(ctx: object, key: str) -> Progress | None:
    """Return a function that sends a call's progress to the watchers of its run; None outside runs."""
    report = getattr(ctx, "progress", None)
    if report is None:
        return None

    async def tell(progress: float | None, total: float | None, message: str | None) -> None:
        await report(message or "", done=progress, total=total, key=key)

    return tell
