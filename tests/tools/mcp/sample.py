"""A graph that calls a server's tool."""

from __future__ import annotations

from pydantic import BaseModel

from orchestrator import Context, Graph, Update, node


class Remembering(BaseModel):
    """Who is remembered, and what is known then."""

    name: str
    known: str = ""


@node
async def remember(state: Remembering, ctx: Context) -> Update:
    """Writes somebody down, and reads it again."""
    entity = {"name": state.name, "entityType": "person", "observations": []}
    await ctx.tool("create_entities", entities=[entity])
    return {"known": (await ctx.tool("read_graph")).text}


remembering = Graph(
    name="remembering",
    state=Remembering,
    nodes={"remember": remember},
    edges="START -> remember -> END",
    output="known",
)
