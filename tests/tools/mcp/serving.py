"""Graphs that are offered by a server in this process, and clients of both generations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Update, node
from orchestrator.cli.mcp_runs import ClientRuns
from orchestrator.cli.mcp_server import GraphServer
from orchestrator.cli.report import NextCommands
from orchestrator.models import OfflineModel

if TYPE_CHECKING:
    from mcp import Client  # it loads for a second, so only what runs here loads it


class Doing(BaseModel):
    """What a graph here is asked."""

    question: str
    answer: str = ""


class Trip(BaseModel):
    """What a form asks."""

    town: str
    nights: int = 1


ASKED: dict[str, Any] = {"object": Trip.model_json_schema(), "number": {"type": "integer", "minimum": 1}}
ASKED["list"] = {"type": "array", "items": {"type": "integer"}}
ASKED["secret"] = {"type": "string", "format": "password"}
ASKED["inner secret"] = {"type": "object", "properties": {"login": {"anyOf": [ASKED["secret"], {"type": "null"}]}}}
held: dict[str, anyio.Event] = {}
"""Holds the step of the question `hold` until it is set."""


@node
async def work(state: Doing, ctx: Context) -> Update:
    """Does what it is asked."""
    said: object = "did"
    if state.question == "fail":
        raise ValueError("it cannot, with api_key=abcdefgh12345678")
    if state.question == "wait":
        await anyio.sleep(60)
    if state.question == "hold":
        await held["hold"].wait()
    if state.question in ("ask", "twice"):
        said = "did" if isinstance(await ctx.ask("approval", prompt="Really?"), Approve) else "refused"
    if state.question in ASKED or state.question == "twice":
        answer = await ctx.ask("input", prompt="Which?", schema=ASKED.get(state.question, ASKED["number"]))
        said = f"got {getattr(answer, 'value', answer)!r} for"
    return {"answer": f"{said} {state.question}"}


doing = Graph(
    name="doing-now",
    description="Does it.",
    state=Doing,
    input="question",
    nodes={"work": work},
    edges="START -> work -> END",
    output="answer",
)


@asynccontextmanager
async def serving(
    store: str = "memory://", *, wait: float | None = None, asks: bool = True, **options: Any
) -> AsyncIterator[tuple[GraphServer, Executor]]:
    """A server in this process."""

    def refs(run_id: str, graph: str) -> Mapping[str, object]:
        return {"graph": graph}

    async with Executor(store=store, graphs=[doing], model=OfflineModel(), **options) as executor:
        runs = ClientRuns(executor, [doing], next_commands=NextCommands(store), approve=None, refs=refs, asks=asks)
        yield GraphServer(runs, wait), executor


@asynccontextmanager
async def served(store: str = "memory://", **options: Any) -> AsyncIterator[tuple[Client, Executor]]:
    """A client of such a server that cannot ask its user."""
    from mcp import Client

    async with serving(store, **options) as (graphs, executor), Client(graphs.server()) as client:
        yield client, executor


async def called(client: Client, name: str, **args: object) -> tuple[str, Any, bool]:
    from mcp.types import TextContent

    found = await client.call_tool(name, args)
    (block,) = found.content
    assert isinstance(block, TextContent)
    return block.text, found.structured_content, found.is_error
