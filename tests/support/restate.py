"""A Restate server (`@restatedev/restate-server` from npm) that tests kill and start again; its files are kept.

It is there where somebody installed it and named it in the environment variable RESTATE_SERVER, put it on PATH, or has
a `node_modules` in or above the checkout.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port

_PACKAGE = Path("node_modules", "@restatedev", "restate-server-linux-x64", "bin", "restate-server")
_PATIENCE = 60.0
"""Seconds that it may take to start: others may use the machine."""


def command() -> str | None:
    """Return the path of the program; None if it is not installed."""
    named = os.environ.get("RESTATE_SERVER")
    if named:
        assert Path(named).exists(), f"RESTATE_SERVER={named} is not there"
        return named
    above = [folder / _PACKAGE for folder in Path(__file__).resolve().parents]
    return next((str(one) for one in above if one.exists()), shutil.which("restate-server"))


class RestateServer:
    """A server in a folder, on free ports of 127.0.0.1. Its workers listen on one of these."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._ingress, self._admin, self._fabric, self._workers = (free_port() for _ in range(4))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the engine."""
        return f"restate://127.0.0.1:{self._ingress}?admin={self._admin}&listen={self._workers}"

    def start(self) -> None:
        """Start the server, and wait until it accepts runs."""
        settings = {
            "BASE_DIR": self._folder / "data", "BIND_IP": "127.0.0.1", "ADVERTISED_HOST": "127.0.0.1",
            "LISTEN_MODE": "tcp", "DISABLE_TELEMETRY": "true", "NODE_NAME": "one", "BIND_PORT": self._fabric,
            "INGRESS__BIND_PORT": self._ingress, "ADMIN__BIND_PORT": self._admin, "ADMIN__DISABLE_WEB_UI": "true",
            "DEFAULT_NUM_PARTITIONS": 2, "ROCKSDB_TOTAL_MEMORY_SIZE": "128MB", "LOG_FILTER": "warn",
        }  # fmt: skip
        env = {**os.environ, **{f"RESTATE_{name}": str(value) for name, value in settings.items()}}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self._program, "--no-logo"], env=env, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE
        for address in (f"127.0.0.1:{self._ingress}/restate/health", f"127.0.0.1:{self._admin}/health"):
            while not _answers(f"http://{address}"):
                assert self._process.poll() is None, (self._folder / "log").read_text(errors="replace")[-2000:]
                assert time.monotonic() < deadline, f"Restate does not answer at {address}"
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_PATIENCE)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def running(program: str, folder: Path) -> Iterator[RestateServer]:
    """Start a server, and remove it at the end with its data."""
    server = RestateServer(program, folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder / "data", ignore_errors=True)
