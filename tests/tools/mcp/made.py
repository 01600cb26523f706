"""A server made with the SDK, over stdio when it is run as a program."""

from __future__ import annotations

from typing import Annotated, TypedDict

import anyio
from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
from mcp.server.mcpserver.prompts.base import AssistantMessage, UserMessage
from mcp.types import ToolAnnotations
from pydantic import BaseModel

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
cancelled: list[str] = []
"""Calls that were stopped."""

app = MCPServer("made")


@app.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


@app.tool(annotations=ToolAnnotations(destructive_hint=True))
def drop(table: str) -> str:
    """Drops a table."""
    raise ValueError(f"no table {table}")


@app.tool()
async def slow(ctx: Context, name: str) -> str:
    """Takes its time, and tells how far it is."""
    await ctx.report_progress(1, 2, "half")
    try:
        await anyio.sleep(0.05 if name == "quick" else 60)
    except BaseException:
        cancelled.append(name)
        raise
    return "done"


@app.tool()
def draw() -> Image:
    """Draws a picture."""
    return Image(data=PNG, format="png")


PAGE = 'He said "hi".\n\tAnd left.\n'


@app.tool()
def page() -> str:
    """A file with quotes and line breaks."""
    return PAGE


@app.tool()
def pair() -> list[int]:
    """Two numbers."""
    return [1, 2]


class Town(TypedDict):
    """An object that has a property `result` among others."""

    result: str
    country: str


@app.tool()
def town() -> Town:
    """A town."""
    return {"result": "Bonn", "country": "Germany"}


class Who(BaseModel):
    """A person."""

    name: str


class Sure(BaseModel):
    """Whether it is meant."""

    sure: bool


def who() -> Elicit[Who]:
    return Elicit("Who gets it?", Who)


def sure(who: Annotated[Who, Resolve(who)]) -> Elicit[Sure]:
    return Elicit(f"Sure, {who.name}?", Sure)


@app.tool()
def pay(who: Annotated[Who, Resolve(who)], sure: Annotated[Sure, Resolve(sure)]) -> str:
    """Pays a person, whom it asks for."""
    return f"paid {who.name}: {sure.sure}"


@app.resource("note://today", description="What is due today")
def today() -> str:
    return "Water the plants"


@app.resource("note://picture", mime_type="image/png")
def picture() -> bytes:
    return PNG


@app.resource("note://{day}")
def day(day: str) -> str:
    return f"Nothing on {day}"


@app.prompt()
def review(language: str) -> list[UserMessage | AssistantMessage]:
    """Reviews a text."""
    return [UserMessage(f"Review it in {language}."), AssistantMessage("Which text?")]


if __name__ == "__main__":
    app.run()
