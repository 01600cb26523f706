"""The application of the page, served by uvicorn in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.ports import free_port
from tests.support.programs import Begun

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "web_applications.md"
LOADED = ("uvicorn.main", "uvicorn.lifespan.on", "uvicorn.protocols.http.auto", "starlette.applications", "openai")
"""What each process of the server begins with."""

AGENT = '''
"""A graph that writes, asks, and writes again. Its model is at the address in the environment."""

import os
from typing import Annotated

from pydantic import BaseModel

from orchestrator import Context, Graph, OpenAIModel, append, node
from orchestrator.nodes import Confirm


class Letter(BaseModel):
    topic: str
    parts: Annotated[list[str], append] = []


@node
async def draft(state: Letter, ctx: Context) -> dict[str, str]:
    return {"parts": (await ctx.model.complete(f"draft {state.topic}")).text}


@node
async def finish(state: Letter, ctx: Context) -> dict[str, str]:
    return {"parts": (await ctx.model.complete(f"finish {state.topic}")).text}


graph = Graph(
    name="letter", state=Letter, input="topic", output="parts",
    nodes={"draft": draft, "confirm": Confirm(prompt="Send it?"), "finish": finish},
    edges="""
        START -> draft -> confirm
        confirm -> finish : approved
        confirm -> END    : denied
        finish -> END
    """,
)
model = OpenAIModel("m", os.environ["MODEL_URL"], "sk-test")
'''


def code() -> str:
    """The application, as the page shows it."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    return found[1]


class Server:
    """One process after the other, with the same files and at the same address."""

    def __init__(self, place: Path, model_url: str) -> None:
        (place / "app.py").write_text(code() + FASTAPI)
        (place / "agent.py").write_text(AGENT)
        self._place = place
        self._environment = {**os.environ, "MODEL_URL": model_url, "PYTHONPATH": f"{place}:{ROOT}"}
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: Begun | None = None

    def begin(self, app: str = "app") -> None:
        """Start a process and wait until it answers."""
        words = [f"app:{app}", "--host", "127.0.0.1", "--port", self._port, "--timeout-graceful-shutdown", 1]
        with open(os.devnull) as nothing, (self._place / "log").open("ab") as log:
            self._process = Begun(
                words, module="uvicorn", streams=(nothing.fileno(), log.fileno(), log.fileno()),
                cwd=self._place, env=self._environment, loads=LOADED,
            )  # fmt: skip
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            assert not self._process.ended, (self._place / "log").read_text()
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait until the process has ended; gives its exit code."""
        assert self._process is not None
        self._process.signal(number)
        return self._process.wait()

    def close(self) -> None:
        """End the process, however it stands."""
        if self._process is not None:
            self._process.close()


FASTAPI = """

def with_fastapi():
    from fastapi import FastAPI

    return FastAPI(routes=routes, lifespan=lifespan)


def __getattr__(name):
    if name == "fast":
        return with_fastapi()
    raise AttributeError(name)
"""


@contextmanager
def serving(place: Path, model_url: str, app: str = "app") -> Iterator[Server]:
    """A server that runs."""
    server = Server(place, model_url)
    try:
        server.begin(app)
        yield server
    finally:
        server.close()
