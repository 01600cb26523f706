"""A user's module in the current directory: graphs, tools and models. The tests copy it there."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Annotated

import anyio
from pydantic import BaseModel, JsonValue

from orchestrator import Context, Graph, OfflineModel, Update, append, node, tool
from orchestrator.nodes import Ask, Confirm

SECRET = "sk-abcdefghijklmnopqrstuvwxyz012345"
NASTY = "\x1b]0;owned\x07\x1b[31m\u202e\x9b1mred"
"""Sets a terminal's title, its colour, and the order of what is read."""


class Words(BaseModel):
    topic: str = ""
    said: Annotated[list[str], append] = []
    left: str = ""
    right: str = ""
    count: int = 0
    notes: dict[str, str] = {}
    tool: str = "note"
    args: dict[str, JsonValue] = {"text": "hello"}


@tool(risk="write", effect="idempotent")
def note(text: str) -> str:
    """Write a line to a file.

    Args:
        text: the line.
    """
    with Path("notes.txt").open("a") as file:
        file.write(f"{text}\n")
    return f"{NASTY} password=hunter22 {text}"


@tool(risk="dangerous")
def mute() -> None: ...


@node
def one(state: Words) -> Update:
    return {"said": "one"}


def count(file: str) -> None:
    """One more line, from this process."""
    with Path(file).open("a") as lines:
        lines.write(f"{os.getpid()}\n")


@node
async def slow(state: Words) -> Update:
    """Waits for the file `go`."""
    count("slow.txt")
    while not Path("go").exists():  # noqa: ASYNC110 - another process makes it
        await anyio.sleep(0.01)
    return {"said": "slow"}


@node
async def second(state: Words) -> Update:
    """Waits for the file `go on`."""
    while not Path("go on").exists():  # noqa: ASYNC110 - another process makes it
        await anyio.sleep(0.01)
    return {"said": "second"}


@node
def stuck(state: Words) -> Update:
    """The same, and no cancelling reaches it."""
    count("slow.txt")
    while not Path("go").exists():
        time.sleep(0.01)
    assert threading.current_thread() is not threading.main_thread()
    return {"said": "stuck"}


@node
def last(state: Words) -> Update:
    count("last.txt")
    return {"said": "last"}


@node
def nasty(state: Words) -> Update:
    return {"said": NASTY, "left": SECRET, "notes": {"password": "pa'ss word"}}


@node
async def broken(state: Words, ctx: Context[object]) -> Update:
    await ctx.emit("news", {"token": SECRET})
    raise RuntimeError(f"no luck with {SECRET} {NASTY}")


@node
async def writes(state: Words, ctx: Context[object]) -> Update:
    result = await ctx.tool(state.tool, **state.args)
    return {"said": str(result.output)}


waits = Graph(
    name="waits",
    state=Words,
    input="topic",
    nodes={"one": one, "slow": slow, "last": last},
    edges="START -> one -> slow -> last -> END",
    output="said",
)
blocks = waits.replace(slow=stuck)
halves = waits.replace(last=second)
two = Graph(
    name="two",
    state=Words,
    input="topic",
    nodes={
        "a": Ask(prompt="Left of {topic}?", show=("topic",), answer="left"),
        "b": Ask(prompt="Right?", answer="right", choices=("up", "down")),
        "meet": one.with_(join="all"),
    },
    edges="START -> a, b\n a, b -> meet -> END",
    output="left",
)
number = Graph(
    name="number",
    state=Words,
    nodes={"how": Ask(prompt="How many?", answer="count", accepts={"type": "integer"})},
    edges="START -> how -> END",
    output="count",
)
writer = Graph(
    name="writer",
    description="Writes a note.",
    state=Words,
    input="topic",
    nodes={"nasty": nasty, "confirm": Confirm(tool="tool", args="args"), "writes": writes},
    edges="START -> nasty -> confirm\n confirm -> writes : approved\n confirm -> END : denied\n writes -> END",
    output="said",
)
noted = Graph(
    name="noted",
    state=Words,
    nodes={"confirm": Confirm(tool="tool", args="args"), "writes": writes},
    edges="START -> confirm\n confirm -> writes : approved\n confirm -> END : denied\n writes -> END",
    output="said",
)
noted_twice = Graph(
    name="noted_twice",
    state=Words,
    nodes={**noted.nodes, "again": Confirm(tool="tool", args="args", prompt="And again?"), "more": writes},
    edges="""
        START   -> confirm
        confirm -> writes : approved
        confirm -> END    : denied
        writes  -> again
        again   -> more   : approved
        again   -> END    : denied
        more    -> END
    """,
    output="said",
)
asked_first = Graph(
    name="asked_first",
    state=Words,
    nodes={"how": Ask(prompt="What?", answer="topic"), **noted.nodes},
    edges="START -> how -> confirm\n confirm -> writes : approved\n confirm -> END : denied\n writes -> END",
    output="said",
)
bad = Graph(
    name="bad",
    state=Words,
    input="topic",
    nodes={"nasty": nasty, "broken": broken},
    edges="START -> nasty -> broken -> END",
    output="said",
)


def model() -> OfflineModel:
    return OfflineModel()
