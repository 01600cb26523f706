"""Graphs as the tools of an MCP server: each call is a run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from orchestrator.cli import report
from orchestrator.cli.output import warn
from orchestrator.cli.redaction import redacted
from orchestrator.errors import DISTRIBUTION, ModelError, OrchestratorError, RunUnknown
from orchestrator.executor.effects.graphs import GraphTool
from orchestrator.kernel.status import RunStatus
from orchestrator.render.terminal import texts
from orchestrator.tools.mcp.listing import names_of

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

    from orchestrator.executor import Executor, Run
    from orchestrator.graph_class import Graph

LABEL = ("via", "mcp")
"""The label of runs that clients began. Of other runs in the store they are told nothing."""
RESULT_TOOL = "run_result"
OUTPUT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string", "description": "The run's id."},
        "status": {"enum": [*get_args(RunStatus)], "description": "A paused run waits for a person."},
        "output": {"description": "The graph's output; null while there is none."},
        "waiting": {
            "type": "array",
            "description": "The questions of a paused run, each with the command by which a person answers it.",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("kind", "prompt", "command")},
                "required": ["kind", "prompt", "command"],
            },
        },
    },
    "required": ["run_id", "status", "output"],
}
"""The schema of the structured content of all results but errors."""

Refs: TypeAlias = Callable[[str, str], Mapping[str, object]]
"""For a run of an id and a graph of a name: what it is made of, as text that the command line follows to go on."""


class GraphServer:
    """What clients are offered: a tool for each graph, and one that tells what became of a run.

    A run that pauses is told as such, with its id and the command by which a person goes on with it. Nothing that a
    client sends approves anything: whoever drives it is a model.

    Args:
        executor: runs the graphs. It is open.
        graphs: what is offered.
        next_commands: what the commands that go on need to be told.
        approve: of which risk calls of tools are approved at once, as by `--approve`.
        refs: see `Refs`.
    """

    def __init__(
        self,
        executor: Executor,
        graphs: Sequence[Graph],
        *,
        next_commands: report.NextCommands,
        approve: str | None,
        refs: Refs,
    ) -> None:
        self._executor, self._go_on, self._approve = executor, next_commands, approve
        self._refs = refs
        called = names_of([graph.name for graph in graphs])
        self._tools: dict[str, GraphTool] = {
            called[graph.name]: GraphTool(graph, called[graph.name], _description(graph)) for graph in graphs
        }

    def server(self) -> Server[Any]:
        """It, as the protocol's library wants it."""
        from mcp.server.lowlevel import Server

        from orchestrator import __version__

        return Server(
            DISTRIBUTION,
            version=__version__,
            instructions="Each tool runs an agent graph. A run may pause until a person approves something: "
            f"then tell them the command that the result names, and ask {RESULT_TOOL} for the result when they have.",
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(self, ctx: ServerRequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
        from mcp.types import ListToolsResult, Tool, ToolAnnotations

        hints = ToolAnnotations(read_only_hint=False, open_world_hint=True)
        gives = dict(OUTPUT)
        offered = [
            Tool(
                name=name,
                description=tool.description,
                input_schema=dict(tool.parameters),
                output_schema=gives,
                annotations=hints,
            )
            for name, tool in self._tools.items()
        ]
        if RESULT_TOOL not in self._tools:
            about = "Returns the result of a run that paused or continued without you. It changes nothing."
            run_id = {"type": "string", "description": "The run's id."}
            takes = {
                "type": "object",
                "properties": {"run_id": run_id},
                "required": ["run_id"],
                "additionalProperties": False,
            }
            hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
            offered.append(
                Tool(name=RESULT_TOOL, description=about, input_schema=takes, output_schema=gives, annotations=hints)
            )
        return ListToolsResult(tools=offered)

    async def _call(self, ctx: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
        tool, args = self._tools.get(params.name), params.arguments or {}
        try:
            if tool is not None:
                return await self._run(ctx, tool, tool.validate(args))
            if params.name == RESULT_TOOL:
                return self._told(await self._known(args.get("run_id")))
        except OrchestratorError as error:
            return _failed(str(redacted(str(error))))
        return _failed(f"there is no tool {params.name!r}; there are: {', '.join([*self._tools, RESULT_TOOL])}")

    async def _run(self, ctx: ServerRequestContext, tool: GraphTool, args: Mapping[str, object]) -> CallToolResult:
        """Run a graph. A client that cancels its call, or goes away, interrupts the run, which can be resumed."""
        graph, run_id = tool.graph, secrets.token_hex(8)
        warn(f"{run_id} started: {graph.name}")
        ended = "was interrupted: " + self._go_on.resume(run_id)
        try:
            async with self._executor.stream(
                graph, dict(args) or None, run_id=run_id, labels=dict([LABEL]), approve=self._approve,
                refs=self._refs(run_id, graph.name),
            ) as live:  # fmt: skip
                done = 0
                async for event in live:
                    if event.type == "step_done":
                        done += 1
                        await ctx.session.report_progress(done, message=str(event.data.get("node", "")))
            run = live.run
            assert run is not None
            ended = run.status
            return self._told(run)
        except ModelError as error:
            return self._told(await self._executor.load(run_id), str(error))
        finally:
            warn(f"{run_id} {ended}")

    async def _known(self, run_id: object) -> Run:
        if not isinstance(run_id, str):
            raise RunUnknown(str(run_id))
        run = await self._executor.load(run_id)
        if run.labels.get(LABEL[0]) != LABEL[1]:
            raise RunUnknown(run_id)
        return run

    def _told(self, run: Run, why: str = "") -> CallToolResult:
        """A run as a client, and the model behind it, is told of it; `why` it was interrupted."""
        from mcp.types import CallToolResult, TextContent

        why = str(redacted(why or str(run.error or "")))
        output = texts.plain(run.output) if run.output is not None else ""
        document: dict[str, object] = {"run_id": run.run_id, "status": run.status, "output": run.output}
        text = f"Run {run.run_id} is {run.status}{': ' if why else ''}{why}"
        if run.status == "completed":
            text = output
        elif run.status == "paused":
            text, document["waiting"] = self._paused(run), self._waiting(run)
        elif run.status == "interrupted":
            text += f"\nA person can continue it:\n  {self._go_on.resume(run.run_id)}"
        elif output:
            text += f"\nIts output so far:\n{output}"
        return CallToolResult(
            content=[TextContent(type="text", text=text)],
            structured_content=document,
            is_error=run.status in ("failed", "cancelled", "interrupted"),
        )

    def _waiting(self, run: Run) -> list[dict[str, object]]:
        return [
            {"kind": one.kind, "prompt": one.prompt, "command": "\n".join(self._go_on.answers(run.run_id, one))}
            for one in run.waiting
        ]

    def _paused(self, run: Run) -> str:
        asked = report.waiting_text(run.run_id, run.waiting, self._go_on)
        return (
            f"Not done: {asked}\n"
            "Only a person may decide this. Show them the question and the command to run in a terminal; do "
            f"not run it yourself. When they have, call {RESULT_TOOL} with run_id {run.run_id!r}."
        )


def _description(graph: Graph) -> str:
    return graph.description or f"Runs the agent graph {graph.name!r} and returns its answer."


def _failed(why: str) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)
