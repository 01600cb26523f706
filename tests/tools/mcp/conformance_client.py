"""The client for the conformance suite of the protocol: it lists the tools of a server and calls each of them.

conformance_client.py URL
"""

from __future__ import annotations

import json
import os
import sys
from threading import Thread
from typing import Any

import anyio
import httpx2

from orchestrator.errors import ToolError
from orchestrator.tools.mcp import HttpServer, McpToolbox
from orchestrator.tools.mcp.oauth import login

ARGUMENTS: dict[str, Any] = {"a": 2, "b": 3}


async def use(url: str) -> None:
    """Call each tool once."""
    async with McpToolbox.http(url) as box:
        for tool in box:
            wanted = tool.parameters.get("properties", {})
            args = {name: value for name, value in ARGUMENTS.items() if name in wanted}
            await box.execute(name=tool.name, tool_input=args)


async def open_page(address: str) -> None:
    """Do what a browser does: follow the redirect of a server that agrees by itself."""

    Thread(target=httpx2.get, args=(address,), kwargs={"follow_redirects": True}, daemon=True).start()


async def main(url: str) -> None:
    """Use the server; if it asks for a login, log in before."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    client = (context["client_id"], context.get("client_secret", "")) if "client_id" in context else None
    try:
        await use(url)
    except ToolError as error:
        if "To log in:" not in str(error):
            raise
        await login(HttpServer(url), open_page, client=client)
        await use(url)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
