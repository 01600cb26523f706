"""Commands about logins to MCP servers: mcp login, logout, list."""

from __future__ import annotations

import importlib.util
import logging
import os
import time
import webbrowser
from threading import Thread
from typing import Annotated, Any

import typer

from orchestrator.cli import exits, options, signals
from orchestrator.cli.output import out, out_json, out_table, warn
from orchestrator.errors import install_command
from orchestrator.render.terminal.tables import Column

Server = Annotated[
    str,
    typer.Argument(
        metavar="SERVER", help="An address, or FILE#NAME of a server in a file such as .mcp.json.", show_default=False
    ),
]
_SECRET = "ORCHESTRATOR_MCP_CLIENT_SECRET"


def mcp_login(
    server: Server,
    client_id: Annotated[
        str | None,
        typer.Option(
            "--client-id",
            metavar="ID",
            help=f"The id of a client that is registered with the server, with its secret in {_SECRET}. "
            "Default: this program registers itself.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            help="The port of http://127.0.0.1:N/callback, to which the browser comes back; 0 takes any free port.",
        ),
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the address in a browser, or only print it.")
    ] = True,
) -> int:
    """Log in to an MCP server with OAuth. The tokens are kept for later runs of this user.

    Example: orchestrator mcp login https://mcp.example.com/mcp
    """
    found = _server(server)
    from orchestrator.tools.mcp import oauth

    async def show(address: str) -> None:
        warn(f"open this address to log in to {found.name}:\n  {address}")
        if browser:
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()  # some wait until they are closed

    logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)  # its errors are raised, too

    async def work() -> None:
        client = None if client_id is None else (client_id, os.environ.get(_SECRET, ""))
        await oauth.login(found, show, client=client, port=port)

    try:
        signals.run_async(work)
    except signals.Interrupted:
        return exits.INTERRUPTED
    out(f"logged in to {oauth.key_of(found.url)}")
    return exits.COMPLETED


def mcp_logout(server: Server) -> int:
    """Forget the tokens of an MCP server, and ask it to end them if it can.

    Exit code 4 if there are none.

    Example: orchestrator mcp logout https://mcp.example.com/mcp
    """
    found = _server(server)
    from orchestrator.tools.mcp import oauth

    async def work() -> bool:
        return await oauth.logout(found.url)

    if signals.run_async(work):
        out(f"logged out of {oauth.key_of(found.url)}")
        return exits.COMPLETED
    warn(f"error: not logged in to {oauth.key_of(found.url)}")
    return exits.UNKNOWN


def mcp_list(
    server: Annotated[
        str | None, typer.Argument(metavar="SERVER", help="Only this server.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> int:
    """List the MCP servers with a login. Tokens are never shown.

    Example: orchestrator mcp list
    """
    wanted = None if server is None else _server(server)
    if wanted is None:
        _needs_extra()
    from orchestrator.tools.mcp import oauth

    rows = [
        {
            "server": url,
            "scope": kept.get("token", {}).get("scope", ""),
            "expires_at": kept.get("expires_at"),
            "refreshes": "refresh_token" in kept.get("token", {}),
        }
        for url, kept in sorted(oauth.Tokens().read().items())
        if wanted is None or url == oauth.key_of(wanted.url)
    ]
    if json:
        out_json(rows)
    elif rows:
        out_table([Column("SERVER"), Column("SCOPE"), Column("TOKEN")], [_row(one) for one in rows])
    return exits.COMPLETED if rows or server is None else exits.UNKNOWN


def _row(one: dict[str, Any]) -> list[str]:
    ends = one["expires_at"]
    left = "does not end" if ends is None else f"{ends - time.time():.0f} s" if ends > time.time() else "ended"
    return [one["server"], one["scope"], f"{left}{', is refreshed' if one['refreshes'] and ends is not None else ''}"]


def _server(text: str) -> Any:
    _needs_extra()
    from orchestrator.tools.mcp.servers import HttpServer, servers_of

    found = servers_of(text)
    if len(found) != 1 or not isinstance(found[0], HttpServer):
        raise exits.UsageError(f"{text}: name one server with an address, such as https://... or .mcp.json#NAME")
    return found[0]


def _needs_extra() -> None:
    if importlib.util.find_spec("mcp") is None:
        raise exits.UsageError(f"mcp needs another package: {install_command('mcp')}")
