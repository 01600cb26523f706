"""The server of `serve-mcp`: graphs as tools of an MCP client. Each call is a run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from orchestrator import __version__
from orchestrator.cli import mcp_resources
from orchestrator.cli.mcp_runs import LABEL, OUTPUT, RESULT_TOOL, ClientRuns
from orchestrator.cli.mcp_tasks import Tasks, can_task
from orchestrator.cli.output import redacted, warn
from orchestrator.errors import DISTRIBUTION, OrchestratorError, RunUnknown

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.types import (
        CallToolRequestParams,
        CallToolResult,
        InputRequiredResult,
        ListToolsResult,
        PaginatedRequestParams,
    )

    from orchestrator.executor.calls.graph_tool import GraphTool


class GraphServer:
    """Server of the tools: one for each graph, and one that reports on a run.

    Args:
        runs: the runs of the offered graphs.
        wait: seconds after which a call returns the id of its run, which goes on; None: no limit.
    """

    def __init__(self, runs: ClientRuns, wait: float | None = None) -> None:
        self.runs, self._wait, self._tasks = runs, wait, Tasks(runs)
        self._resources = mcp_resources.Resources(
            runs.executor, {name: tool.graph for name, tool in runs.tools.items()}, runs.known, dict([LABEL])
        )

    def server(self) -> Server[Any]:
        """Return the server in the form that the protocol's library expects."""
        from mcp.server.lowlevel import Server
        from mcp.types import ServerCapabilities

        tasks = self._tasks

        class WithTasks(Server[Any]):
            def get_capabilities(
                self, *args: Any, protocol_version: str | None = None, **more: Any
            ) -> ServerCapabilities:
                found = super().get_capabilities(*args, protocol_version=protocol_version, **more)
                return tasks.declared(found, protocol_version)

        server = WithTasks(
            DISTRIBUTION,
            version=__version__,
            instructions="Each tool runs an agent graph. A run may pause until a person approves or answers something. "
            "If the client cannot ask its user, tell them the command that the result names, and ask "
            f"{RESULT_TOOL} for the result when they have. Resources have each run as a page and a drawing.",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._resources.list,
            on_list_resource_templates=self._resources.templates,
            on_read_resource=self._resources.read,
        )
        tasks.add_to(server)
        return server

    async def _list(self, ctx: ServerRequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
        from mcp.types import ListToolsResult, Tool, ToolAnnotations, ToolExecution

        hints = ToolAnnotations(read_only_hint=False, open_world_hint=True)
        offered = [
            Tool(
                name=name,
                description=tool.description,
                input_schema=dict(tool.parameters),
                output_schema=self.runs.outputs[name],
                annotations=hints,
                execution=ToolExecution(task_support="optional"),
            )
            for name, tool in self.runs.tools.items()
        ]
        if RESULT_TOOL not in self.runs.tools:
            about = (
                "Returns the result of a run that paused or continued without you. "
                "If the run waits for the user, and the client can ask, the user is asked."
            )
            run_id = {"type": "string", "description": "The run's id."}
            takes = {
                "type": "object",
                "properties": {"run_id": run_id},
                "required": ["run_id"],
                "additionalProperties": False,
            }
            hints = ToolAnnotations(destructive_hint=False, idempotent_hint=True, open_world_hint=False)
            offered.append(
                Tool(
                    name=RESULT_TOOL,
                    description=about,
                    input_schema=takes,
                    output_schema=dict(OUTPUT),
                    annotations=hints,
                )
            )
        return ListToolsResult(tools=offered)

    async def _call(
        self, ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        tool, args = self.runs.tools.get(params.name), params.arguments or {}
        try:
            if tool is not None:
                args = tool.validate(args)
                if params.request_state is not None:
                    return await self._answered(ctx, params, params.request_state, tool)
                return await self._started(ctx, tool, args)
            if params.name == RESULT_TOOL:
                run = await self.runs.known(args.get("run_id"))
                if params.request_state is not None:
                    return await self._answered(ctx, params, run.run_id)
                if run.status == "running" and self._wait is not None:
                    run = await self.runs.awaited(ctx, run.run_id, self._wait)
                return await self.runs.settled(ctx, run, self._wait)
        except OrchestratorError as error:
            return _failed(str(redacted(str(error))))
        return _failed(f"there is no tool {params.name!r}; there are: {', '.join([*self.runs.tools, RESULT_TOOL])}")

    async def _started(
        self, ctx: ServerRequestContext[Any], tool: GraphTool, args: Mapping[str, object]
    ) -> CallToolResult | InputRequiredResult:
        has_tasks = can_task(ctx)
        if self._wait is None and not has_tasks:
            run_id = secrets.token_hex(8)
            warn(f"{run_id} started: {tool.graph.name}")
            return await self.runs.settled(ctx, await self.runs.streamed(ctx, run_id, tool, args), None)
        run_id = await self.runs.submit(tool, args)
        run = await (self.runs.known(run_id) if self._wait is None else self.runs.awaited(ctx, run_id, self._wait))
        if has_tasks and (self._wait is None or run.status == "running"):
            # The protocol's library passes the results of extensions on as they are.
            return cast("CallToolResult", await self._tasks.created(ctx, run))
        return await self.runs.settled(ctx, run, self._wait)

    async def _answered(
        self, ctx: ServerRequestContext[Any], params: CallToolRequestParams, run_id: str, tool: GraphTool | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Continue the run of an earlier call with the answers of the client's user."""
        run = await self.runs.known(run_id)
        if tool is not None and run.graph != tool.graph.name:
            raise RunUnknown(run_id)
        forms = self.runs.forms(ctx, run)
        answers = dict(params.input_responses or {})
        refused = await self.runs.answer(ctx, forms, run.run_id, answers)
        if any(key in forms and getattr(one, "action", "") == "cancel" for key, one in answers.items()):
            return self.runs.result_of(await self.runs.known(run.run_id))
        if forms.keys() & answers.keys():
            run = await self.runs.continued(ctx, run, self._wait)
        elif run.status == "running":
            run = await self.runs.awaited(ctx, run.run_id, self._wait)
        return await self.runs.settled(ctx, run, self._wait, refused)


def _failed(why: str) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)
