"""aimock (`@copilotkit/aimock`), a fake OpenAI server by others: it answers as fixtures say, and keeps a journal.

It runs on Node, so it is there where somebody installed it and named it in the environment variable AIMOCK, put it on
PATH, or has a `node_modules` in or above the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_PATIENCE = 60.0
"""Seconds that it may take to start: others may use the machine."""
_LISTENS = "listening on "


@dataclass(frozen=True)
class Asked:
    """A request in the server's journal, and the status of its answer."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    status: int
    interrupted: bool
    """Whether the server broke its answer off."""


class AIMock:
    """A running server."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self.url = f"{url}/v1"

    def says(self, *fixtures: Mapping[str, Any]) -> None:
        """Answer each request by the first of these fixtures that matches it; see `fixture`."""
        self._control("POST", "/fixtures", {"fixtures": fixtures})

    @property
    def journal(self) -> list[Asked]:
        """All requests, in order."""
        return [
            Asked(
                path=entry["path"],
                headers=entry["headers"],
                body={key: value for key, value in (entry["body"] or {}).items() if not key.startswith("_")},
                status=entry["response"]["status"],
                interrupted=entry["response"].get("interrupted", False),
            )
            for entry in self._control("GET", "/journal")
        ]

    def reset(self) -> None:
        """Forget all fixtures and requests."""
        self._control("POST", "/reset")

    def _control(self, method: str, path: str, body: object = None) -> Any:
        assert self._address.hostname is not None
        connection = HTTPConnection(self._address.hostname, self._address.port, timeout=_PATIENCE)
        try:
            connection.request(method, f"/__aimock{path}", None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        assert answer.status == 200, text
        return json.loads(text)


def fixture(response: Mapping[str, Any], match: Mapping[str, Any] | None = None, **how: Any) -> dict[str, Any]:
    """Return a fixture: the response to requests that match, with options of its sending, as `truncateAfterChunks`."""
    return {"match": dict(match or {}), "response": dict(response), **how}


def command() -> list[str] | None:
    """Return the command that starts the server; None if it or Node is not installed."""
    given = os.environ.get("AIMOCK")
    nearby = (folder / "node_modules/.bin/aimock" for folder in Path(__file__).resolve().parents)
    found = given or next((str(path) for path in nearby if path.exists()), None) or shutil.which("aimock")
    node = shutil.which("node")
    if found is None or node is None:
        return None
    script = Path(found).resolve()
    return [node, str(script)] if script.suffix in (".js", ".cjs", ".mjs") else [found]


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[AIMock]:
    """Start a server on a free port of 127.0.0.1, and stop it at the end."""
    config, words = folder / "aimock.json", folder / "aimock.log"
    config.write_text(json.dumps({"host": "127.0.0.1", "port": 0, "llm": {"logLevel": "silent"}}))
    with words.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--config", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield AIMock(_url(process, words))
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_PATIENCE)


def _url(process: subprocess.Popen[bytes], words: Path) -> str:
    """Return the address that the server prints once it listens."""
    end = time.monotonic() + _PATIENCE
    while True:
        ended = process.poll() is not None
        said = words.read_text()
        _, found, rest = said.partition(_LISTENS)
        if found and "\n" in rest:
            return rest.split()[0]
        if ended or time.monotonic() > end:
            raise RuntimeError(f"aimock did not start: {said}")
        time.sleep(0.02)
