"""The API as clients have it: a real server in a thread, with a store of its own, and requests over a socket."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import BaseModel, JsonValue

from orchestrator import Context, Executor, Graph, append, node, tool
from orchestrator.nodes import Ask, Confirm
from orchestrator.stores import Store
from orchestrator.web import configured
from orchestrator.web.server import serve
from orchestrator.web.settings import Settings
from orchestrator.web.streams import OpenStreams
from tests.support.uvicorn_waits import shorten_waits

shorten_waits()

LITTLE = 1 << 14
"""Bytes that the kernel keeps of an answer, so that a reader that reads nothing is noticed soon.

An answer of megabytes takes seconds then: the kernel acknowledges each part of less than a packet only after 40 ms.
"""


class Note(BaseModel):
    """The state of the graphs of these tests."""

    topic: str = ""
    parts: Annotated[list[str], append] = []
    tool: str = ""
    args: dict[str, JsonValue] = {}


@node(effect="pure")
async def draft(state: Note) -> dict[str, str]:
    """One part."""
    return {"parts": f"draft of {state.topic}"}


@node(effect="pure")
async def finish(state: Note) -> dict[str, str]:
    """The last part."""
    return {"parts": "finished"}


letter = Graph(
    name="letter", state=Note, input="topic", output="parts",
    nodes={"draft": draft, "confirm": Confirm(prompt="Send it?"), "finish": finish},
    edges="START -> draft -> confirm\nconfirm -> finish : approved\nconfirm -> END : denied\nfinish -> END",
)  # fmt: skip
plain = Graph(
    name="plain", state=Note, input="topic", output="parts", nodes={"draft": draft, "finish": finish},
    edges="START -> draft -> finish -> END",
)  # fmt: skip
wide: Graph = plain.model_copy(update={"name": "wide", "input": ("topic", "args")})
chat = Graph(
    name="chat", state=Note, input="topic", output="parts", nodes={"ask": Ask(prompt="What?", answer="tool")},
    edges="START -> ask -> END",
)  # fmt: skip


@node(effect="pure")
async def burst(state: Note, ctx: Context) -> dict[str, str]:
    """Many live events, and one record."""
    for number in range(2000):
        await ctx.emit("number", {"number": number, "text": "x" * 500})
        if number % 50 == 0:
            await anyio.lowlevel.checkpoint()
    return {"parts": "done"}


loud = Graph(
    name="loud", state=Note, input="topic", output="parts", nodes={"burst": burst}, edges="START -> burst -> END"
)


@tool(risk="write", effect="idempotent")
def pay(amount: int, to: str) -> str:
    """Pay.

    Args:
        amount: how much.
        to: whom.
    """
    return f"{to} has {amount}"


@node(effect="pure")
async def plan(state: Note) -> dict[str, object]:
    """The call that is asked about."""
    return {"tool": "pay", "args": {"amount": 5, "to": state.topic}}


payment = Graph(
    name="payment", state=Note, input="topic", output="parts",
    nodes={"plan": plan, "confirm": Confirm(tool="tool", args="args"), "finish": finish},
    edges="START -> plan -> confirm\nconfirm -> finish : approved\nconfirm -> END : denied\nfinish -> END",
)  # fmt: skip


class Gate:
    """Holds up a step until a test opens it."""

    def __init__(self) -> None:
        self.began, self.go = anyio.Event(), anyio.Event()
        gate = self

        @node(effect="pure")
        async def hold(state: Note) -> dict[str, str]:
            gate.began.set()
            await gate.go.wait()
            return {"parts": "held"}

        self.graph = Graph(
            name="held", state=Note, input="topic", output="parts", nodes={"hold": hold}, edges="START -> hold -> END"
        )


@contextmanager
def held(**options: Any) -> Iterator[tuple[Api, Gate]]:
    """A server with a run, `one`, whose step waits for the test."""
    gate = Gate()
    with api(gate.graph, *GRAPHS, **options) as found:
        found.post("runs", 201, graph="held", run_id="one")
        found.portal.call(gate.began.wait)
        yield found, gate


GRAPHS = (letter, plain, chat, loud, payment)


@dataclass
class Api:
    """A server that runs, and a client of it."""

    url: str
    executor: Executor
    client: httpx2.Client
    portal: BlockingPortal
    streams: OpenStreams

    def get(self, path: str, status: int = 200, **options: Any) -> Any:
        """The JSON of an answer."""
        return _said(self.client.get(f"/api/{path}", **options), status)

    def post(self, path: str, status: int = 200, /, **body: Any) -> Any:
        """The JSON of the answer to a body."""
        return _said(self.client.post(f"/api/{path}", json=body), status)

    def start(self, graph: str, **body: Any) -> Any:
        """A run that has ended or waits."""
        return self.post("runs", 201, graph=graph, input="bees", wait=True, **body)

    def settled(self, run_id: str) -> Any:
        """The run, when it has ended or waits."""
        self.portal.call(self.executor.wait, run_id, 60)
        return self.get(f"runs/{run_id}")

    def events(self, run_id: str, after: int | None = None) -> Iterator[dict[str, Any]]:
        """The events of a run, until its stream ends."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        yield from self.stream(f"runs/{run_id}/events", headers)

    def stream(self, path: str, headers: dict[str, str]) -> Generator[dict[str, Any], None, None]:
        """The data of a stream."""
        with self.client.stream("GET", f"/api/{path}", headers=headers) as found:
            assert found.status_code == 200, found.read()
            assert found.headers["content-type"].startswith("text/event-stream")
            for line in found.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])


def _said(answer: httpx2.Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
    return answer.json()


@contextmanager
def api(
    *graphs: Graph,
    store: str | Store = "memory://",
    port: int = 0,
    settings: dict[str, Any] | None = None,
    send_buffer: int | None = None,
    timeout: float = 60,
    **options: Any,
) -> Iterator[Api]:
    """Serve some graphs, in an event loop in a thread.

    Args:
        send_buffer: bytes that the kernel keeps of an answer, such as `LITTLE`; None: as many as it does by itself.
        timeout: seconds that the client waits for an answer.
    """
    bound = socket.create_server(("127.0.0.1", port))
    if send_buffer is not None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    with start_blocking_portal("asyncio") as portal:
        opened = portal.wrap_async_context_manager(_served(graphs or GRAPHS, store, bound, settings or {}, options))
        with opened as (executor, url, streams), httpx2.Client(base_url=url, timeout=timeout) as client:
            yield Api(url, executor, client, portal, streams)


@asynccontextmanager
async def _served(
    graphs: tuple[Graph, ...],
    store: str | Store,
    bound: socket.socket,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> AsyncIterator[tuple[Executor, str, OpenStreams]]:
    async with (
        Executor(store, graphs=graphs, tools=[pay], streams="always", **options) as executor,
        anyio.create_task_group() as tasks,
    ):
        listening = anyio.Event()
        app = configured(executor, Settings(**settings))
        tasks.start_soon(serve, app, bound, listening)
        await listening.wait()
        yield executor, f"http://127.0.0.1:{bound.getsockname()[1]}", app.state.streams
        tasks.cancel_scope.cancel()
