"""Servers to talk to."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.tools.mcp import McpToolbox

ROUGH = Path(__file__).with_name("rough.py")
TOKEN = "tok-5a1d99c0ffee"
"""What the servers are told in confidence."""


@pytest.fixture
def rough(tmp_path: Path) -> Callable[..., McpToolbox]:
    """A toolbox of the server by hand, see `rough.py`; it keeps its notes in `tmp_path`."""

    def make(mode: str = "", **options: Any) -> McpToolbox:
        words = ("-S", str(ROUGH), str(tmp_path), *([mode] if mode else []))
        return McpToolbox.stdio(sys.executable, *words, env={"ROUGH_TOKEN": TOKEN}, **{"backoff": 0.01, **options})

    return make


class Serving:
    """A server over HTTP in a thread of this process."""

    def __init__(self, app: Any, sock: socket.socket) -> None:
        import uvicorn

        from tests.support.uvicorn_waits import shorten_waits

        shorten_waits()
        self.port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        config = uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=1, ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([sock],))
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where a server made with the SDK is served over streamable HTTP."""
    from tests.tools.mcp.made import app

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()  # from now on who comes waits until it answers
        serving = Serving(app.streamable_http_app(), sock)
        try:
            yield serving.url
        finally:
            serving.stop()
