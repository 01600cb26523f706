"""A protocol's application in a real server in a thread, and the agents that the tests talk to."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.applications import Starlette

from orchestrator import Executor, tool
from orchestrator.models import Reply, ToolCall
from orchestrator.models.base import ModelEvent, ModelRequest
from orchestrator.strategies.chat import chat
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.testing import ScriptedModel
from orchestrator.testing.scripted import Said
from orchestrator.web.server import serve
from tests.support.uvicorn_waits import shorten_waits

shorten_waits()


@tool(risk="write", effect="irreversible")
def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent {text!r} to {to}"


mail = chat(tools=[send_mail], name="mail")
"""A chat that sends mails after approval."""


def asks(to: str, text: str, id: str = "call-1") -> Reply:  # noqa: A002
    """A reply that asks for a mail, with a thought and some words."""
    call = ToolCall(id=id, name="send_mail", arguments={"to": to, "text": text})
    return Reply(text="I will send that.", tool_calls=(call,), extras={"reasoning_content": "They want a mail."})


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


faq = function_call_agent(tools=[add], name="faq")
"""An agent whose run ends with its answer: each message of a thread is a run."""


def adds(a: int, b: int) -> Reply:
    """A reply that asks for a sum. The ids of calls repeat in other runs, as those of some services do."""
    return Reply(text="", tool_calls=(ToolCall(id="call-1", name="add", arguments={"a": a, "b": b}),))


@dataclass
class Served:
    """A server that runs, and a client of it."""

    url: str
    executor: Executor
    client: httpx2.Client
    portal: BlockingPortal
    app: Starlette

    def events(self, response: httpx2.Response) -> list[dict[str, Any]]:
        """The data of a whole stream."""
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        found = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
        return [json.loads(one) for one in found if one != "[DONE]"]

    def refused(self, response: httpx2.Response, status: int, name: str) -> str:
        """The words of a refusal."""
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["type"].endswith(f":{name}"), response.text
        detail: str = response.json()["detail"]
        return detail


@contextmanager
def served(
    make: Callable[[Executor], Starlette],
    replies: Sequence[Said] = (),
    *,
    store: str = "memory://",
    port: int = 0,
    send_buffer: int | None = None,
    **options: Any,
) -> Iterator[Served]:
    """Serve an application in an event loop in a thread.

    Args:
        make: makes the application of the open executor.
        replies: what the model says.
        send_buffer: bytes that the kernel keeps of a response: few, so that a reader that reads nothing is noticed.
            None: as many as it keeps by itself.
    """
    bound = socket.create_server(("127.0.0.1", port))
    if send_buffer is not None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    options.setdefault("model", ScriptedModel(replies))
    with start_blocking_portal("asyncio") as portal:
        opened = portal.wrap_async_context_manager(_opened(make, store, bound, options))
        with opened as (executor, url, app), httpx2.Client(base_url=url, timeout=60) as client:
            yield Served(url, executor, client, portal, app)


@asynccontextmanager
async def _opened(
    make: Callable[[Executor], Starlette], store: str, bound: socket.socket, options: dict[str, Any]
) -> AsyncIterator[tuple[Executor, str, Starlette]]:
    async with Executor(store, streams="always", **options) as executor, anyio.create_task_group() as tasks:
        app, listening = make(executor), anyio.Event()
        tasks.start_soon(serve, app, bound, listening)
        await listening.wait()
        yield executor, f"http://127.0.0.1:{bound.getsockname()[1]}", app
        tasks.cancel_scope.cancel()


class Held(ScriptedModel):
    """A scripted model that thinks first, and stops in the middle of replies that say `slowly` until it may go on."""

    def __init__(self, replies: Any) -> None:
        super().__init__(replies)
        self.go = anyio.Event()

    async def respond_in_pieces(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `RequestModel.respond_in_pieces`."""
        events = [event async for event in super().respond_in_pieces(request)]
        reply, said = events[-1].reply, ""
        if reply is not None and (thought := reply.extras.get("reasoning_content")):
            yield ModelEvent(reasoning=str(thought))
        for event in events:
            yield event
            said += event.text
            if said.count(" ") == 3 and "slowly" in said:
                await self.go.wait()
                self.go = anyio.Event()


@contextmanager
def node(script: str, packages: Sequence[str], *args: str) -> Iterator[Iterator[dict[str, Any]]]:
    """Run a script of this folder with Node, and give what it tells, a JSON object a line.

    The environment variable MERMAID names the folder `node_modules` with the packages.
    """
    modules = os.environ.get("MERMAID", "")
    if not (shutil.which("node") and all(Path(modules, one).is_dir() for one in packages)):
        pytest.skip(f"MERMAID names no folder with the npm packages {', '.join(packages)}")
    command = ["node", str(Path(__file__).with_name(script)), modules, *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield (json.loads(line) for line in process.stdout)
        process.wait(60)
        assert process.returncode == 0
