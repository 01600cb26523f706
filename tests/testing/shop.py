"""A graph that does all that a ledger has to do with, and programs of it for processes of their own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import anyio
import anyio.lowlevel
from pydantic import BaseModel

from orchestrator import Context, Graph, Outcome, Retry, Update, extend, node, tool
from orchestrator.errors import StepError
from orchestrator.kernel.question import Question
from orchestrator.models import OfflineModel, Reply
from orchestrator.models.base import ModelRequest, RequestModel
from orchestrator.nodes import Ask, Subgraph
from orchestrator.strategies.tool_user import tool_user
from orchestrator.tools import tools_from_ref


class Echo(RequestModel):
    """Says back what it is asked."""

    name = "echo"

    async def respond(self, request: ModelRequest) -> Reply:
        return Reply(text=f"({request.messages[-1].content})", model="echo")


class Shop(BaseModel):
    """What a shop keeps of an order."""

    order: str = ""
    items: list[str] = []
    log: Annotated[list[str], extend] = []
    reply: str = ""


class Till:
    """What is outside: remembers what was done, and under which keys."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.sent: list[str] = []

    def setup(self) -> dict[str, Any]:
        """A new till, and the tools and functions that touch it."""
        till = Till()

        @tool(effect="irreversible", risk="none")
        async def pay(what: str) -> str:
            """Pay."""
            await anyio.lowlevel.checkpoint()
            till.paid.append(what)
            return f"paid {what}"

        @tool(effect="read", risk="none")
        def look(what: str) -> str:
            """Look."""
            return f"{what} is there"

        @tool(effect="idempotent", risk="dangerous")
        async def book(what: str) -> str:
            """Book."""
            return f"booked {what}"

        return {"tools": [pay, look, book, inside], "deps": till}


@node
async def gather(ctx: Context[Any]) -> Update:
    async def one(what: str, into: list[str]) -> None:
        into.append(str((await ctx.tool("look", what=what)).output))

    found: list[str] = []
    async with anyio.create_task_group() as tasks:
        for what in ("a", "b", "c"):
            tasks.start_soon(one, what, found)
    note = await ctx.effect("note", str.upper, "noted", returns=str)
    return {"log": [*sorted(found), note]}


@node
async def pay_each(ctx: Context[Any]) -> Update:
    return {"log": [str((await ctx.tool("pay", what=str(ctx.item))).output)]}


@node(retry=Retry(attempts=3, wait=0, on=("StepError",)))
async def flaky(ctx: Context[Any]) -> Update:
    told = (await ctx.model.complete(f"try {ctx.attempt}")).text
    paid = str((await ctx.tool("pay", what="once for all attempts")).output)
    if ctx.attempt < 3:
        raise StepError("not yet")
    return {"log": [told, paid]}


@node(effect="irreversible")
async def send(state: Shop, ctx: Context[Any]) -> Outcome[Literal["sent"]]:
    ctx.deps.sent.append(state.order)
    return Outcome("sent", log=["sent"])


@node
async def approved(ctx: Context[Any]) -> Update:
    answer = await ctx.ask("approval", payload={"tool": "book", "args": {"what": "room"}, "risk": "dangerous"})
    return {"log": [answer.type, str((await ctx.tool("book", what="room")).output)]}


@node
async def streamed(ctx: Context[Any]) -> Update:
    said = [event.reply.text async for event in ctx.model.stream("tell me") if event.reply is not None]
    return {"log": said}


@node
async def pay_inside(ctx: Context[Any]) -> Update:
    return {"reply": str((await ctx.tool("pay", what="inside")).output)}


def _inside() -> Graph:
    return Graph(
        name="inside", state=Shop, nodes={"pay": pay_inside}, edges="START -> pay -> END", input="order", output="reply"
    )


inside = _inside().as_tool("inside", "Pays inside.")


@node
async def outer(ctx: Context[Any]) -> Update:
    return {"log": [str((await ctx.tool("inside", order="o")).output)]}


def shop() -> Graph:
    """All that a ledger has to do with: effects of every class, in forks, maps, retries, subgraphs, graph tools."""
    nodes = {
        "gather": gather, "pay": pay_each, "flaky": flaky, "send": send, "approve": approved, "stream": streamed,
        "outer": outer, "ask": Ask(prompt="Sure?"), "sub": Subgraph(_inside(), outputs={"reply": "reply"}),
        "join": node(lambda: {"log": ["joined"]}, effect="pure").with_(join="all"),
    }  # fmt: skip
    edges = """
        START -> gather -> pay : each items
        gather -> flaky, approve, ask, stream
        pay, flaky, approve, ask, stream -> join -> sub -> outer -> send -> END
    """
    return Graph(name="shop", state=Shop, nodes=nodes, edges=edges, input=("order", "items"), output="log")


def yes(question: Question) -> object:
    return "yes" if question.kind == "input" else None


def shop_program() -> dict[str, Any]:
    """What a process of the kit runs."""
    given = {"items": ["x", "y"], "order": "o"}
    return {"graph": shop(), "input": given, "answer": yes, "model": Echo(), **Till().setup()}


def tool_user_program() -> dict[str, Any]:
    """The same, for a strategy that ships."""
    return {
        "graph": tool_user(), "input": "What is 3 + 4 * 2?", "model": OfflineModel(),
        "tools": tools_from_ref("arithmetic"),
    }  # fmt: skip


def mute_program() -> dict[str, Any]:
    """One that asks what nobody answers."""
    return {"graph": Graph(name="ask", state=Shop, nodes={"n": Ask(prompt="Sure?")}, edges="START -> n -> END")}
