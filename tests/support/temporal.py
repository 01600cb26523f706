"""A Temporal development server that tests kill and start again; its database is kept.

TEMPORAL_SERVER names the program. `.ci/temporal` installs one where there is none.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port

_PATIENCE = 120.0
"""Seconds that it may take to start: Wine is slow, and others may use the machine."""


def command() -> str | None:
    """Return the path of the program; None if TEMPORAL_SERVER is not set."""
    named = os.environ.get("TEMPORAL_SERVER")
    assert not named or Path(named).exists(), f"TEMPORAL_SERVER={named} is not there"
    return named or None


class TemporalServer:
    """A server in a folder, on free ports of 127.0.0.1."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._port, *self._others = (free_port() for _ in range(3))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the engine."""
        return f"temporal://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the server, and wait until it accepts runs."""
        http, metrics = self._others
        command = [
            self._program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self._port),
            "--http-port", str(http), "--metrics-port", str(metrics), "--db-filename", "temporal.db",
            "--log-level", "error",
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _PATIENCE
        while not _listens(self._port):
            assert self._process.poll() is None, (self._folder / "log").read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, f"Temporal does not listen on port {self._port}"
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_PATIENCE)
        deadline = time.monotonic() + _PATIENCE
        while _listens(self._port):  # another process may hold its sockets, and notice a little later
            assert time.monotonic() < deadline, f"port {self._port} is still listened on"
            time.sleep(0.02)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def running(program: str, folder: Path) -> Iterator[TemporalServer]:
    """Start a server, and remove it at the end with its data."""
    folder.mkdir(parents=True, exist_ok=True)
    server = TemporalServer(program, folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
