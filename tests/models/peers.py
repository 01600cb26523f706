"""What the tests against servers of others share: a tool, a graph that talks, and the two ways to ask."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Outcome, Run, append, node, tool
from orchestrator.models import Message, Model, Reply, ToolCall, user
from orchestrator.nodes import Execute

KEY = "sk-not-a-real-key-42"
once = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tables of cases that no event loop has a part in."""
each_way = pytest.mark.parametrize("way", ["whole", "pieces"])
"""A reply is asked for in one, or as a stream."""


@tool(risk="read", effect="read")
def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    """The weather in a city.

    Args:
        city: name of the city.
        unit: degrees.
    """
    return f"21 {unit} in {city}"


async def ask(model: Model, way: str, *args: Any, shown: list[str] | None = None, **options: Any) -> Reply:
    """A model's reply. `shown`: gets the pieces of its text."""
    if way == "whole":
        return await model.complete(*args, **options)
    reply: Reply | None = None
    async for event in model.stream(*args, **options):
        assert reply is None, "the reply is the last event"
        if shown is not None:
            shown.append(event.text)
        reply = event.reply
    assert reply is not None
    return reply


class Chat(BaseModel):
    question: str
    messages: Annotated[list[Message], append] = []
    pending: list[ToolCall] = []
    answer: str = ""


@node
async def talk(state: Chat, ctx: Context[None]) -> Outcome[Literal["call", "end"]]:
    """Ask the model, with all that was said and found."""
    reply = await ctx.model.complete([user(state.question), *state.messages], ctx.tools)
    if reply.tool_calls:
        return Outcome("call", messages=reply.message, pending=list(reply.tool_calls))
    return Outcome("end", messages=reply.message, answer=reply.text)


chat = Graph(
    name="chat",
    state=Chat,
    input="question",
    nodes={"talk": talk, "execute": Execute(calls="pending", results="messages")},
    edges="""
        START   -> talk
        talk    -> execute : call
        execute -> talk
        talk    -> END     : end
    """,
    output="answer",
)


async def run_of(
    executor: Executor, way: str, graph: Graph, question: str, run_id: str, approve: str | None = None
) -> tuple[Run, str]:
    """A run, and the text that who watches it sees: nobody does, or somebody."""
    if way == "whole":
        return await executor.start(graph, question, run_id=run_id, approve=approve), ""
    shown = ""
    async with executor.stream(graph, question, run_id=run_id, approve=approve) as live:
        async for event in live:
            if event.type == "token":
                shown += str(event.data["text"])
    return live.run, shown


async def tries_of(executor: Executor, run_id: str) -> list[tuple[bool, int, bool]]:
    """The tries of a run's model calls as they are journaled: whether it went well, its number, if another follows."""
    records = await executor.store.read(run_id)
    models = {record.key for record in records if record.type == "effect_intended" and record.kind == "model"}
    return [
        (record.ok, record.tries, record.next_at is not None)
        for record in records
        if record.type == "effect_settled" and record.key in models
    ]
