"""Runs as tasks of MCP clients, which ask for their state while they go on. The id of a task is the id of its run.

Tasks are part of protocol 2025-11-25, where the client asks for one with its call, and an extension of 2026-07-28,
where the server makes one if the client knows the extension.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from orchestrator.cli.mcp_runs import TASK, ClientRuns
from orchestrator.cli.terminal_questions import ASKABLE
from orchestrator.errors import OrchestratorError, RunEnded, RunUnknown
from orchestrator.values import utc

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.types import GetTaskRequestParams, PaginatedRequestParams, ServerCapabilities

    from orchestrator.executor import Run

EXTENSION = "io.modelcontextprotocol/tasks"
"""The name of the extension of protocol 2026-07-28."""
_OLDER = "2025-11-25"
"""The protocol that has tasks of its own."""
_RELATED = "io.modelcontextprotocol/related-task"
_POLL = 1000
"""Milliseconds that a client is asked to wait between two requests."""
_STATUS = {"completed": "completed", "failed": "failed", "exhausted": "failed", "cancelled": "cancelled"}


def can_task(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Return whether the client knows the extension."""
    capabilities = ctx.session.client_capabilities
    found = capabilities.extensions if capabilities is not None else None
    return _is_modern(ctx) and found is not None and EXTENSION in found


def _is_modern(ctx: ServerRequestContext[Any, Any]) -> bool:
    from mcp.types.version import MODERN_PROTOCOL_VERSIONS

    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


class Tasks:
    """The methods of tasks.

    Args:
        runs: starts and knows the runs.
    """

    def __init__(self, runs: ClientRuns) -> None:
        self._runs = runs

    def declared(self, capabilities: ServerCapabilities, protocol_version: str | None) -> ServerCapabilities:
        """Return the capabilities of the server with tasks. `protocol_version`: None for one with a handshake."""
        from mcp.types import (
            ServerTasksCapability,
            ServerTasksRequestsCapability,
            TasksCallCapability,
            TasksCancelCapability,
            TasksListCapability,
            TasksToolsCapability,
        )
        from mcp.types.version import MODERN_PROTOCOL_VERSIONS

        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            return capabilities.model_copy(update={"extensions": {**(capabilities.extensions or {}), EXTENSION: {}}})
        calls = ServerTasksRequestsCapability(tools=TasksToolsCapability(call=TasksCallCapability()))
        found = ServerTasksCapability(list=TasksListCapability(), cancel=TasksCancelCapability(), requests=calls)
        return capabilities.model_copy(update={"tasks": found})

    def add_to(self, server: Server[Any]) -> None:
        """Add the methods to a server."""
        from mcp.types import GetTaskRequestParams, PaginatedRequestParams

        class UpdateTaskRequestParams(GetTaskRequestParams):
            input_responses: dict[str, Any]

        for method, handler in (("get", self._get), ("cancel", self._cancel), ("result", self._result)):
            server.add_request_handler(f"tasks/{method}", GetTaskRequestParams, _explained(handler))
        server.add_request_handler("tasks/update", UpdateTaskRequestParams, _explained(self._update))
        server.add_request_handler("tasks/list", PaginatedRequestParams, _explained(self._list))
        server.middleware.append(self._called)

    async def _called(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Start a call that a client of the older protocol makes as a task."""
        if ctx.method != "tools/call" or ctx.protocol_version != _OLDER or not (ctx.params or {}).get("task"):
            return await call_next(ctx)
        from mcp.types import CallToolRequestParams

        params = CallToolRequestParams.model_validate(ctx.params, by_name=False)
        tool = self._runs.tools.get(params.name)
        if tool is None:
            return await call_next(ctx)  # no task: its answer comes at once
        started = _explained(lambda ctx, params: self._runs.submit(tool, tool.validate(params.arguments or {})))
        return {"task": await self._document(ctx, await self._runs.known(await started(ctx, params)))}

    async def created(self, ctx: ServerRequestContext[Any, Any], run: Run) -> dict[str, Any]:
        """Return a run as a new task, for a client that knows the extension."""
        return {"resultType": "task", **await self._document(ctx, run)}

    async def _document(self, ctx: ServerRequestContext[Any, Any], run: Run) -> dict[str, Any]:
        info = await self._runs.executor.store.info(run.run_id)
        modern = _is_modern(ctx)
        status = _STATUS.get(run.status, "working")
        if run.status == "paused" and (
            self._runs.forms(ctx, run) if modern else any(one.kind in ASKABLE for one in run.waiting)
        ):
            status = "input_required"
        if modern and status == "failed":
            status = "completed"  # its result has the error
        times = {"createdAt": utc(info.created).isoformat(), "lastUpdatedAt": utc(info.updated).isoformat()}
        bounds = {"ttlMs": None, "pollIntervalMs": _POLL} if modern else {"ttl": None, "pollInterval": _POLL}
        about = {} if run.status in ("running", "completed") else {"statusMessage": self._runs.text_of(run)}
        return {"taskId": run.run_id, "status": status, **about, **times, **bounds}

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: GetTaskRequestParams) -> dict[str, Any]:
        run = await self._runs.known(params.task_id)
        found = await self._document(ctx, run)
        if not _is_modern(ctx):
            return found
        if found["status"] == "completed":
            found["result"] = _dumped(self._runs.result_of(run))
        elif found["status"] == "input_required":
            found["inputRequests"] = {key: _dumped(form.request()) for key, form in self._runs.forms(ctx, run).items()}
        return found

    async def _update(self, ctx: ServerRequestContext[Any, Any], params: Any) -> dict[str, Any]:
        from mcp.types import ElicitResult

        run = await self._runs.known(params.task_id)
        forms = self._runs.forms(ctx, run)
        answers = {
            key: ElicitResult.model_validate(one, by_name=False)
            for key, one in params.input_responses.items()
            if key in forms
        }
        refused = await self._runs.answer(ctx, forms, run.run_id, answers)
        if refused:
            raise _invalid("; ".join(f"{key}: {why}" for key, why in refused.items()))
        if answers:
            await self._runs.continued(ctx, run, 0)
        return {}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: GetTaskRequestParams) -> dict[str, Any]:
        run = await self._runs.known(params.task_id)
        run = await self._runs.executor.cancel(run.run_id, by="MCP client", reason="cancelled by the client")
        return {} if _is_modern(ctx) else await self._document(ctx, run)

    async def _result(self, ctx: ServerRequestContext[Any, Any], params: GetTaskRequestParams) -> dict[str, Any]:
        run = await self._runs.known(params.task_id)
        if run.status == "running":
            run = await self._runs.awaited(ctx, run.run_id, None)
        found = _dumped(await self._runs.settled(ctx, run, None))
        return {**found, "_meta": {_RELATED: {"taskId": run.run_id}}}

    async def _list(self, ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams) -> dict[str, Any]:
        page = await self._runs.executor.runs(labels=dict([TASK]), after=params.cursor)
        found = [await self._document(ctx, await self._runs.known(info.run_id)) for info in page.runs]
        return {"tasks": found, **({"nextCursor": page.cursor} if page.cursor else {})}


def _explained(handler: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a handler whose errors about the request reach the client with their messages."""

    async def explained(ctx: Any, params: Any) -> Any:
        try:
            return await handler(ctx, params)
        except RunUnknown as error:
            raise _invalid(f"there is no task {error.run_id!r}") from None
        except RunEnded as error:
            raise _invalid(str(error)) from None
        except OrchestratorError as error:
            raise _invalid(str(error)) from None

    return explained


def _invalid(why: str) -> Exception:
    from mcp.shared.exceptions import MCPError
    from mcp.types import INVALID_PARAMS

    return MCPError(code=INVALID_PARAMS, message=why)


def _dumped(made: Any) -> Any:
    return made.model_dump(by_alias=True, mode="json", exclude_none=True)
