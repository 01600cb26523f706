"""The command `serve`: the HTTP API of the store's runs."""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import webbrowser
from contextlib import suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import anyio
import typer
from anyio import to_thread
from msgspec import structs

from orchestrator._lazy import lazy_modules
from orchestrator.cli import exits, options, signals, storage
from orchestrator.cli.graph_refs import graph_from_ref, shipped
from orchestrator.cli.launch_refs import Given
from orchestrator.cli.output import error_text, warn
from orchestrator.cli.run_session import opened
from orchestrator.cli.trust import seal as sealed
from orchestrator.errors import OrchestratorError, install_command
from orchestrator.graph.limits import Limits
from orchestrator.private import keep_private
from orchestrator.visible import line
from orchestrator.web import configured
from orchestrator.web.settings import LOOPBACK, Risk, Settings

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.cli.launch_refs import Code, Launch
    from orchestrator.executor import Executor
    from orchestrator.web import server as web_server
else:  # it needs an extra; a missing one is reported
    (web_server,) = lazy_modules("orchestrator.web", "server")

_LOCAL = "127.0.0.1"
_ANY = ("0.0.0.0", "::")
_RAISED = "Let requests raise a run's limit of"


def serve(
    graphs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GRAPH]...", help="Graphs, named as for `run`. Default: the shipped ones.", show_default=False
        ),
    ] = None,
    tools: options.Tools = None,
    model: options.Model = None,
    trust: options.Trust = None,
    approve: Annotated[
        str | None,
        typer.Option(
            "--approve",
            metavar="RISK",
            help="The highest risk that a request may have approved without asking. Default: requests cannot.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="HOST", help="The address to listen on. Addresses other than loopback require a token."
        ),
    ] = _LOCAL,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port; 0 takes any free port.")
    ] = 7700,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="T",
            help="The token that every client must send; other users can read it in the list of processes, so prefer "
            "ORCHESTRATOR_TOKEN or --token-file. Default: none on loopback, else a random one that is printed.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="A file with the token on its first line.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Leave out everything that changes a run.")] = False,
    sources: Annotated[
        bool | None,
        typer.Option(
            "--sources/--no-sources",
            help="Show the source of functions behind steps. Default: only on loopback without a token.",
            show_default=False,
        ),
    ] = None,
    save_graphs: Annotated[
        Path | None,
        typer.Option("--save-graphs", metavar="DIR", help="An existing folder for graphs written on the page."),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", metavar="N", min=1, help=f"{_RAISED} steps up to this number.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", metavar="S", min=0, help=f"{_RAISED} seconds up to this number.")
    ] = None,
    max_calls: Annotated[
        int | None, typer.Option("--max-calls", metavar="N", min=1, help=f"{_RAISED} calls up to this number.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=1, help=f"{_RAISED} tokens up to this number.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", metavar="COST", min=0, help=f"{_RAISED} cost up to this number.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the address in a browser.")] = False,
    store: options.Store = None,
) -> int:
    """Serve the runs of a store over HTTP, until SIGTERM or Ctrl-C.

    Lists, shows and streams runs, starts them, and answers their questions. Runs that another process left are
    continued. Clients on this machine need no token.

    Example: orchestrator serve react --model openai:gpt-4o-mini
    """

    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        raise exits.UsageError(f"serve needs other packages: {install_command('web')}")
    risk, url = options.risk(approve), storage.store_url(store)
    if read_only and not storage.exists(url):
        raise exits.UsageError(f"--read-only: there is no store at {storage.shown_url(url)}")
    if save_graphs is not None and not save_graphs.is_dir():
        raise exits.UsageError(f"--save-graphs {save_graphs}: the directory does not exist; create it first")
    token = _token(token, token_file)
    limits = _limits(steps=max_steps, seconds=max_seconds, calls=max_calls, tokens=max_tokens, cost=max_cost)
    codes = _codes(graphs, tools, model, trust)
    with _bound(host, port) as listening:
        settings = _settings(host, listening.getsockname()[1], token, risk, _refs_of(codes, url), read_only=read_only)
        shown = settings.token is None if sources is None else sources
        settings = replace(settings, save_graphs=save_graphs, limits=limits, currency=storage.currency(), sources=shown)
        with suppress(signals.Interrupted):  # the normal way to stop the server
            signals.run_async(
                partial(_serve, url, codes, settings, listening, _address(host, listening, settings), open_)
            )
    return exits.COMPLETED


def _token(given: str | None, file: Path | None) -> str | None:
    """Return the token of the option, the file, or the environment.

    Raises:
        UsageError: the file cannot be read, or both options are given.
    """

    if file is None:
        return given or os.environ.get("ORCHESTRATOR_TOKEN") or None
    if given is not None:
        raise exits.UsageError("--token and --token-file both give the token: use one of them")
    keep_private(file)
    try:
        with file.open(encoding="utf-8-sig") as opened:
            return opened.readline(1000).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise exits.UsageError(f"--token-file {file}: {getattr(error, 'strerror', None) or error}") from None


def _limits(**given: float | None) -> Limits | None:
    """Return the highest limits that requests may set for runs; None if there are none."""

    found = {name: value for name, value in given.items() if value is not None}
    try:
        return Limits.model_validate(found) if found else None
    except ValueError as error:
        raise exits.UsageError(f"--max-...: {error}") from None


def _codes(
    graphs: Sequence[str] | None,
    tools: Sequence[str] | None,
    model: Sequence[str] | None,
    trust: Sequence[str] | None,
) -> list[Code]:
    """Return the code of all graphs; they share tools and models.

    Raises:
        UsageError: two graphs have the same name.
    """

    refs = graphs or shipped()
    launches = [Given.of(ref, tools, model, trust).new() for ref in refs]
    first = launches[0].load()
    codes = [first]
    for launch in launches[1:]:
        graph = graph_from_ref(launch.graph, launch.directory, launch.trust)
        codes.append(structs.replace(first, graph=graph, launch=launch.quiet()))
    names = [code.graph.name for code in codes]
    if len({*names}) < len(names):
        raise exits.UsageError(f"several graphs have the same name: {', '.join(names)}")
    return codes


def _refs_of(codes: Sequence[Code], url: str) -> Callable[[str, str], Mapping[str, object] | None]:
    """Return a function that makes sealed references of a run to its code, for other commands that continue it.

    Runs of graphs that the page saved get none: only the server asks before their calls.
    """

    launches: dict[str, Launch] = {code.graph.name: code.launch for code in codes}

    def refs(run_id: str, graph: str) -> Mapping[str, object] | None:
        if graph not in launches:
            return None
        found = launches[graph].refs()
        seal = sealed(run_id, found, url)
        return {**found, "seal": seal} if seal else found

    return refs


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        UsageError: the address cannot be bound.
    """

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # `localhost` may resolve to several addresses; one is enough
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise exits.UsageError(f"--host {host}: {error.strerror or error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise exits.UsageError(
            f"--host {host} --port {port}: {error.strerror}; choose another port, or 0 for any free port"
        ) from None
    return bound


def _settings(
    host: str,
    port: int,
    token: str | None,
    risk: str | None,
    refs: Callable[[str, str], Mapping[str, object] | None],
    *,
    read_only: bool,
) -> Settings:
    """Return the settings of the server.

    Raises:
        UsageError: the token cannot be used.
    """

    local = is_loopback(host)
    names = {*LOOPBACK, _named(host)} | (set() if local else {socket.gethostname().lower()})
    try:
        return Settings(
            read_only=read_only,
            hosts=frozenset(f"{name}:{port}" for name in names),
            addresses=host in _ANY,
            token=secrets.token_urlsafe(32) if token is None and not local else token,
            cookie=f"orchestrator-{port}",  # browsers do not separate cookies by port
            approve=cast("Risk | None", risk),
            refs=refs,
        )
    except ValueError as error:
        raise exits.UsageError(f"--token: {error}") from None


def is_loopback(host: str) -> bool:
    """Return True if only programs on this machine reach an address."""

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _named(host: str) -> str:
    """Return a host in the form used in URLs."""
    return f"[{host.lower()}]" if ":" in host else host.lower()


def _address(host: str, listening: socket.socket, settings: Settings) -> str:
    """Return the URL to open, with the token."""
    shown = _LOCAL if host in _ANY else host
    query = "" if settings.token is None else f"?token={settings.token}"
    return f"http://{_named(shown)}:{listening.getsockname()[1]}/{query}"


async def _serve(
    url: str, codes: list[Code], settings: Settings, listening: socket.socket, address: str, open_: bool
) -> None:

    writes = not settings.read_only
    async with (
        opened(url, *codes, awake=writes, streams="always", writes=writes) as executor,
        anyio.create_task_group() as tasks,
    ):
        started = anyio.Event()
        tasks.start_soon(_announce, started, address, open_)
        if writes:
            tasks.start_soon(_recover, executor, {code.graph.name: code.launch for code in codes})
        await web_server.serve(configured(executor, settings), listening, started)
        tasks.cancel_scope.cancel()


async def _announce(started: object, address: str, open_: bool) -> None:

    assert isinstance(started, anyio.Event)
    await started.wait()
    warn(f"serving {address} (Ctrl-C ends it)")  # terminals take "; " as part of a URL
    if open_:
        await to_thread.run_sync(webbrowser.open, address)


async def _recover(executor: Executor, launches: Mapping[str, Launch]) -> None:
    """Continue runs that other processes left. If the store cannot be read now, print a line and keep serving.

    Runs of the same graphs with other tools or models are left to `recover`, which resolves their own references.
    """

    try:
        ours: list[str] = []
        others: list[str] = []
        for run_id in await executor.workers.recoverable():
            run = await executor.load(run_id)
            launch = launches.get(run.graph)
            if launch is not None:
                (ours if launch.is_of(run.refs) else others).append(run_id)
            elif run.graph in executor.graphs:  # a graph that the page saved
                ours.append(run_id)
        if others:
            listed = ", ".join(map(line, others[:20]))
            warn(
                f"left as they are, because they have other tools or models: {listed}; "
                "`orchestrator recover` continues them"
            )
        await executor.recover(only=ours)
    except OrchestratorError as error:
        warn(f"runs were not continued: {error_text(error)}")
