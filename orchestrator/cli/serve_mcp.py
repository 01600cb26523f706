"""The command `serve-mcp`: graphs as tools of an MCP server. Each call is a run."""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args

import anyio
import typer

from orchestrator import __version__
from orchestrator._lazy import lazy_modules
from orchestrator.cli import exits, options, report, signals, storage
from orchestrator.cli.launch_refs import Given
from orchestrator.cli.output import redacted, warn
from orchestrator.cli.report import NextCommands
from orchestrator.cli.run_session import opened
from orchestrator.cli.trust import seal as sealed
from orchestrator.errors import DISTRIBUTION, ModelError, OrchestratorError, RunUnknown, install_command
from orchestrator.executor.calls.graph_tool import GraphTool
from orchestrator.kernel.status import RunStatus
from orchestrator.render.terminal import texts
from orchestrator.tools.mcp.untrusted import names_of

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

    from orchestrator.cli.launch_refs import Code, Launch
    from orchestrator.executor import Executor, Run
    from orchestrator.graph_class import Graph
    from orchestrator.web import server as web_server
else:  # it needs an extra; a missing one is reported
    (web_server,) = lazy_modules("orchestrator.web", "server")


LABEL = ("via", "mcp")
"""The label of runs that clients started. Other runs of the store are hidden from them."""
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
"""The schema of the structured content of all results except errors."""

Refs: TypeAlias = Callable[[str, str], Mapping[str, object]]
"""Returns references, as text for the command line, to continue the run with this id and graph name."""


class GraphServer:
    """Server of the tools: one for each graph, and one that reports on a run.

    A paused run is reported with its id and the command with which a person continues it. Clients cannot approve calls,
    because a model controls them.

    Args:
        executor: runs the graphs; already open.
        graphs: the offered graphs.
        next_commands: writes the commands that continue a run.
        approve: highest risk of tool calls that are approved without asking, like `--approve`.
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
        self._executor, self._continue, self._approve = executor, next_commands, approve
        self._refs = refs
        called = names_of([graph.name for graph in graphs])
        self._tools: dict[str, GraphTool] = {
            called[graph.name]: GraphTool(graph, called[graph.name], _description(graph)) for graph in graphs
        }

    def server(self) -> Server[Any]:
        """Return the server in the form that the protocol's library expects."""
        from mcp.server.lowlevel import Server

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
        ended = "was interrupted: " + self._continue.resume(run_id)
        try:
            async with self._executor.stream(
                graph,
                dict(args) or None,
                run_id=run_id,
                labels=dict([LABEL]),
                approve=self._approve,
                refs=self._refs(run_id, graph.name),
            ) as live:
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
        """Return the description of a run for a client and its model; `why`: the reason why it was interrupted."""
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
            text += f"\nA person can continue it:\n  {self._continue.resume(run.run_id)}"
        elif output:
            text += f"\nIts output so far:\n{output}"
        return CallToolResult(
            content=[TextContent(type="text", text=text)],
            structured_content=document,
            is_error=run.status in ("failed", "cancelled", "interrupted"),
        )

    def _waiting(self, run: Run) -> list[dict[str, object]]:
        return [
            {"kind": one.kind, "prompt": one.prompt, "command": "\n".join(self._continue.answers(run.run_id, one))}
            for one in run.waiting
        ]

    def _paused(self, run: Run) -> str:
        asked = report.waiting_text(run.run_id, run.waiting, self._continue)
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


_LOCAL = "127.0.0.1"


def serve_mcp(
    graphs: Annotated[
        list[str], typer.Argument(metavar="GRAPH...", help="The graphs, named as for `run`.", show_default=False)
    ],
    tools: options.Tools = None,
    model: options.Model = None,
    trust: options.Trust = None,
    approve: options.Approve = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve http://127.0.0.1:PORT/mcp instead of stdin and stdout.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port for --http; 0 takes any free port.")
    ] = 8000,
    store: options.Store = None,
) -> int:
    """Offer graphs as tools of an MCP server.

    An MCP client starts this command and talks to it over stdin and stdout. Each call of a tool is a run in the store.
    A run that asks for an approval pauses, and the client gets the command with which a person continues it. Clients
    cannot approve anything; --approve sets the calls that need no approval.

    Example: orchestrator serve-mcp react rewoo --model openai:gpt-4o-mini
    """

    if importlib.util.find_spec("mcp") is None:
        raise exits.UsageError(f"serve-mcp needs another package: {install_command('mcp')}")
    risk, url = options.risk(approve), storage.store_url(store)
    file = storage.store_file(url)
    if storage.place(url) is None:
        raise exits.UsageError(f"--store {url}: runs may pause and continue in another process: name a file")
    launches = [Given.of(graph, tools, model, trust).new() for graph in graphs]
    codes = [launch.load() for launch in launches[:1]] + [launch.quiet().load() for launch in launches[1:]]
    served = {code.graph.name: launch for code, launch in zip(codes, launches, strict=True)}
    if len(served) < len(codes):
        raise exits.UsageError(f"several graphs have the same name: {', '.join(code.graph.name for code in codes)}")
    if file is not None:
        url = f"sqlite:///{file}"  # the commands that continue a run may be typed in another directory
    serve = partial(_http, port) if http else _stdio
    try:
        signals.run_async(partial(_serve, url, codes, served, NextCommands(url), risk, serve))
    except signals.Interrupted:
        return exits.INTERRUPTED
    return exits.COMPLETED


async def _serve(
    url: str, codes: list[Code], served: Mapping[str, Launch], next_commands: NextCommands, risk: str | None, serve: Any
) -> None:

    def refs(run_id: str, graph: str) -> Mapping[str, object]:
        found = served[graph].refs()
        seal = sealed(run_id, found, url)
        return {**found, "seal": seal} if seal else found

    def offered(executor: Executor) -> GraphServer:
        graphs = [code.graph for code in codes]
        return GraphServer(executor, graphs, next_commands=next_commands, approve=risk, refs=refs)

    await serve(url, codes, offered)


async def _stdio(url: str, codes: list[Code], offered: Any) -> None:
    """Serve over stdin and stdout, until the client closes them. All other output goes to stderr."""

    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        try:
            async with opened(url, *codes, awake=True) as executor:
                server: Server[Any] = offered(executor).server()
                await server.run(read, write, server.create_initialization_options())
        except BaseException as error:
            # A thread may block in a read of stdin that never returns. All runs have been checkpointed and released.
            os._exit(_end_of(error))


def _end_of(error: BaseException) -> int:
    """Print why the server ends, if that is an error, and return the exit code."""

    if isinstance(error, anyio.get_cancelled_exc_class()):
        return exits.INTERRUPTED
    found = exits.alone(error) if isinstance(error, Exception) else error
    known = isinstance(found, OrchestratorError | exits.UsageError | OSError)
    warn(f"error: {found}" if known else "".join(traceback.format_exception(found)).rstrip())
    return exits.of_error(found)


async def _http(port: int, url: str, codes: list[Code], offered: Any) -> None:
    """Serve over HTTP on this machine. Requests that name another host, or come from one of its pages, are refused."""

    from mcp.server.transport_security import TransportSecuritySettings

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_LOCAL, port))
        except OSError as error:
            raise exits.UsageError(
                f"--port {port}: {error.strerror}; choose another port, or 0 for any free port"
            ) from None
        hosts = [f"{name}:{listening.getsockname()[1]}" for name in (_LOCAL, "localhost")]
        async with opened(url, *codes, awake=True) as executor:
            origins = [f"http://{host}" for host in hosts]
            security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)
            server = _server(offered(executor).server().streamable_http_app(transport_security=security))
            listening.listen()
            warn(f"serving http://{hosts[0]}/mcp (Ctrl-C ends it)")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_cancelled, server)
                with (
                    web_server.bounded_logs(),
                    anyio.CancelScope(shield=True),
                ):  # `_until_cancelled` stops the server gracefully
                    await server.serve([listening])
                tasks.cancel_scope.cancel()


def _server(app: Any) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the command line has its own handlers

    most = web_server.most_connections()
    return Server(
        web_server.BoundedConfig(app, most, ws="none", log_level="warning", timeout_graceful_shutdown=2, lifespan="on")
    )


async def _until_cancelled(server: Any) -> None:

    try:
        await anyio.sleep_forever()
    finally:
        server.should_exit = True
