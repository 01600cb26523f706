"""Graphs and helpers that the tests of the contract share."""

from __future__ import annotations

import datetime as dt
import enum
from functools import partial
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel, JsonValue

from orchestrator import Context, Executor, Graph, Tool, Update, append, node, tool
from orchestrator.graph import Node


class State(BaseModel):
    """A state that collects what happened."""

    question: str = ""
    items: list[int] = []
    log: Annotated[list[JsonValue], append] = []
    reply: str = ""


def single(
    work: Any, edges: str = "START -> work -> END", name: str = "single", takes: str | None = "question", **nodes: Any
) -> Graph:
    """One node, called `work`, and more if the edges say so."""
    return Graph(name=name, state=State, input=takes, nodes={"work": work, **nodes}, edges=edges, output="log")


def logs(word: JsonValue) -> Node:
    """A node that logs a word."""
    return node(effect="pure")(lambda state: {"log": word})


# -- outside -------------------------------------------------------------------------------------------------------


class World:
    """What is outside: it counts what is done in it, and can be slow once."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.slow = True
        self.hangs = anyio.Event()

    async def do(self, key: str) -> str:
        """Do something, and say the how-manieth it was."""
        self.done.append(key)
        if self.slow:
            self.slow = False
            self.hangs.set()
            await anyio.sleep(30)
        return f"done {len(self.done)}"


def tool_of(world: World, effect: Any, **options: Any) -> Tool:
    """A tool that does something there."""

    @tool(effect=effect, **options)
    async def outside(idempotency_key: str) -> str:
        """Do something outside."""
        return await world.do(idempotency_key)

    return outside


@node
async def use(ctx: Context) -> Update:
    """Calls it."""
    return {"log": (await ctx.tool("outside")).output}


async def interrupted(ex: Executor, graph: Graph, world: World) -> str:
    """Start a run, and stop it where it hangs."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(ex.start, graph, run_id="r"))
        await world.hangs.wait()
        tasks.cancel_scope.cancel()
    assert (await ex.load("r")).status == "interrupted"
    return "r"


# -- tools ---------------------------------------------------------------------------------------------------------


class Out(BaseModel):
    """What a tool gave."""

    out: JsonValue = None


async def called(*tools: Tool, name: str | None = None, deps: Any = None, **args: Any) -> Any:
    """The result of a tool that a node calls."""

    @node
    async def work(ctx: Context) -> Update:
        return {"out": (await ctx.tool(name or tools[0].name, **args)).model_dump()}

    graph = Graph(name="g", state=Out, nodes={"work": work}, edges="START -> work -> END", output="out")
    run = await graph.run(tools=tools, deps=deps)
    if run.status != "completed":
        raise AssertionError(run.error)
    return run.output


@tool
def google(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
    """The weather of some days.

    It may be wrong.

    Args:
        city: name of the city
        days: how many days
        unit: of temperatures
    """
    return f"{city} {days} {unit}"


# -- odd types -----------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    """An enum of texts."""

    RED = "red"
    BLUE = "blue"


class Sub(BaseModel):
    """A model inside of a state."""

    a: int
    days: list[dt.date] = []
