"""The command `serve-mcp`: graphs as tools of an MCP server, over stdin and stdout or HTTP."""

from __future__ import annotations

import importlib.util
import os
import socket
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from orchestrator._lazy import lazy_modules
from orchestrator.cli import exits, options, signals, storage
from orchestrator.cli.launch_refs import Given
from orchestrator.cli.mcp_runs import ClientRuns
from orchestrator.cli.mcp_server import GraphServer
from orchestrator.cli.output import warn
from orchestrator.cli.report import NextCommands
from orchestrator.cli.run_session import opened
from orchestrator.cli.trust import seal as sealed
from orchestrator.errors import OrchestratorError, install_command

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from orchestrator.cli.launch_refs import Code, Launch
    from orchestrator.executor import Executor
    from orchestrator.web import server as web_server
else:  # it needs an extra; a missing one is reported
    (web_server,) = lazy_modules("orchestrator.web", "server")


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
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            help="A call returns after this time, and its run goes on without the client, also after a restart.",
        ),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option(
            "--ask/--no-ask",
            help="Ask questions through the client, if it shows them to its user. Without, only a terminal answers.",
        ),
    ] = True,
    store: options.Store = None,
) -> int:
    """Offer graphs as tools of an MCP server.

    An MCP client starts this command and talks to it over stdin and stdout. Each call of a tool is a run in the store.
    Questions of a run, such as an approval, are shown to the user by the client, if it can. Otherwise the run pauses,
    and the client gets the command with which a person continues it. --approve sets the calls that need no approval.

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
        signals.run_async(partial(_serve, url, codes, served, NextCommands(url), risk, serve, wait=wait, asks=ask))
    except signals.Interrupted:
        return exits.INTERRUPTED
    return exits.COMPLETED


async def _serve(
    url: str,
    codes: list[Code],
    served: Mapping[str, Launch],
    next_commands: NextCommands,
    risk: str | None,
    serve: Any,
    *,
    wait: float | None = None,
    asks: bool = True,
) -> None:

    def refs(run_id: str, graph: str) -> Mapping[str, object]:
        found = served[graph].refs()
        seal = sealed(run_id, found, url)
        return {**found, "seal": seal} if seal else found

    def offered(executor: Executor) -> GraphServer:
        graphs = [code.graph for code in codes]
        runs = ClientRuns(executor, graphs, next_commands=next_commands, approve=risk, refs=refs, asks=asks)
        return GraphServer(runs, wait)

    await serve(url, codes, offered)


async def _stdio(url: str, codes: list[Code], offered: Any) -> None:
    """Serve over stdin and stdout, until the client closes them. All other output goes to stderr."""

    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        try:
            async with opened(url, *codes, awake=True) as executor:
                graphs = offered(executor)
                server: Server[Any] = graphs.server()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(graphs.runs.recover)
                    await server.run(read, write, server.create_initialization_options())
                    tasks.cancel_scope.cancel()
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
            graphs = offered(executor)
            server = _server(graphs.server().streamable_http_app(transport_security=security))
            listening.listen()
            warn(f"serving http://{hosts[0]}/mcp (Ctrl-C ends it)")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_cancelled, server)
                tasks.start_soon(graphs.runs.recover)
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
