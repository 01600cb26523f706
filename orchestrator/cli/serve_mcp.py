"""The command `serve-mcp`: graphs as tools of other programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, INTERRUPTED, UsageError
from orchestrator.errors import install_command

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from orchestrator.cli.launch import Code, Launch
    from orchestrator.cli.mcp_server import GraphServer
    from orchestrator.cli.report import NextCommands
    from orchestrator.executor import Executor

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
    import importlib.util
    from functools import partial

    from orchestrator.cli.interrupts import Interrupted, run_async
    from orchestrator.cli.launch import Given
    from orchestrator.cli.report import NextCommands
    from orchestrator.cli.storage import place, store_file, store_url

    if importlib.util.find_spec("mcp") is None:
        raise UsageError(f"serve-mcp needs another package: {install_command('mcp')}")
    risk, url = options.risk(approve), store_url(store)
    file = store_file(url)
    if place(url) is None:
        raise UsageError(f"--store {url}: runs may pause and continue in another process: name a file")
    launches = [Given.of(graph, tools, model, trust).new() for graph in graphs]
    codes = [launch.load() for launch in launches[:1]] + [launch.quiet().load() for launch in launches[1:]]
    served = {code.graph.name: launch for code, launch in zip(codes, launches, strict=True)}
    if len(served) < len(codes):
        raise UsageError(f"several graphs have the same name: {', '.join(code.graph.name for code in codes)}")
    if file is not None:
        url = f"sqlite:///{file}"  # the commands that go on may be given in another directory
    serve = partial(_http, port) if http else _stdio
    try:
        run_async(partial(_serve, url, codes, served, NextCommands(url), risk, serve))
    except Interrupted:
        return INTERRUPTED
    return COMPLETED


async def _serve(
    url: str, codes: list[Code], served: Mapping[str, Launch], next_commands: NextCommands, risk: str | None, serve: Any
) -> None:
    from orchestrator.cli.mcp_server import GraphServer
    from orchestrator.cli.trust import seal as sealed

    def refs(run_id: str, graph: str) -> Mapping[str, object]:
        found = served[graph].refs()
        seal = sealed(run_id, found, url)
        return {**found, "seal": seal} if seal else found

    def offered(executor: Executor) -> GraphServer:
        graphs = [code.graph for code in codes]
        return GraphServer(executor, graphs, next_commands=next_commands, approve=risk, refs=refs)

    await serve(url, codes, offered)


async def _stdio(url: str, codes: list[Code], offered: Any) -> None:
    """Over stdin and stdout, until the client closes them. Whatever else is printed goes to stderr."""
    import os

    from mcp.server.stdio import stdio_server

    from orchestrator.cli.run_session import opened

    async with stdio_server() as (read, write):
        try:
            async with opened(url, *codes, awake=True) as executor:
                server: Server[Any] = offered(executor).server()
                await server.run(read, write, server.create_initialization_options())
        except BaseException as error:
            # A thread sits in a read of stdin that nothing ends. All runs have been checkpointed and given back.
            os._exit(_end_of(error))


def _end_of(error: BaseException) -> int:
    """Tells why it ends, where that is an error, and gives the exit code."""
    import traceback

    import anyio

    from orchestrator.cli.exits import of_error
    from orchestrator.cli.guard import alone
    from orchestrator.cli.output import warn
    from orchestrator.errors import OrchestratorError

    if isinstance(error, anyio.get_cancelled_exc_class()):
        return INTERRUPTED
    found = alone(error) if isinstance(error, Exception) else error
    known = isinstance(found, OrchestratorError | UsageError | OSError)
    warn(f"error: {found}" if known else "".join(traceback.format_exception(found)).rstrip())
    return of_error(found)


async def _http(port: int, url: str, codes: list[Code], offered: Any) -> None:
    """Over HTTP on this machine. Requests that name another host, or come from a page of one, are refused."""
    import socket

    import anyio
    from mcp.server.transport_security import TransportSecuritySettings

    from orchestrator.cli.output import warn
    from orchestrator.cli.run_session import opened
    from orchestrator.web.server import bounded_logs

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_LOCAL, port))
        except OSError as error:
            raise UsageError(f"--port {port}: {error.strerror}; choose another port, or 0 for any free port") from None
        hosts = [f"{name}:{listening.getsockname()[1]}" for name in (_LOCAL, "localhost")]
        async with opened(url, *codes, awake=True) as executor:
            origins = [f"http://{host}" for host in hosts]
            security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)
            server = _server(offered(executor).server().streamable_http_app(transport_security=security))
            listening.listen()
            warn(f"serving http://{hosts[0]}/mcp (Ctrl-C ends it)")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_cancelled, server)
                with bounded_logs(), anyio.CancelScope(shield=True):  # `_until_cancelled` ends it in good order
                    await server.serve([listening])
                tasks.cancel_scope.cancel()


def _server(app: Any) -> Any:
    import uvicorn

    from orchestrator.web.server import BoundedConfig, most_connections

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the command line has handlers of its own

    most = most_connections()
    return Server(BoundedConfig(app, most, ws="none", log_level="warning", timeout_graceful_shutdown=2, lifespan="on"))


async def _until_cancelled(server: Any) -> None:
    import anyio

    try:
        await anyio.sleep_forever()
    finally:
        server.should_exit = True
