"""Shared code of the nodes in which a model decides: the current question, the call, and reading the reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from orchestrator.context import Context
from orchestrator.errors import AgentError, GraphUnknown
from orchestrator.graph.model import GraphDefinition
from orchestrator.models.messages import Reply, user
from orchestrator.models.messages import system as said
from orchestrator.models.reading import NoReading, json_in
from orchestrator.tools.tool import Tool

_SHOWN = 200
"""Maximum number of characters of a reply that an error message quotes."""


def question_in_hand(state: object, question: str, current: str | None) -> str:
    """Return the follow-up question, if there is a field for it and it is not empty, else the main question."""
    follow_up = getattr(state, current) if current is not None else ""
    return str(follow_up or getattr(state, question))


async def decide(ctx: Context, *, task: str, system: str, prompt: str, data: Mapping[str, Any]) -> str:
    """Ask the model for one decision and return the text of its reply, without surrounding space.

    The prompt contains in words what `data` contains as facts, so a model may use either.

    Raises:
        AgentError: the model refused to answer, or its reply was truncated.
    """
    return whole(await ctx.model.complete([said(system), user(prompt, data=data)], task=task), task)


def whole(reply: Reply, task: str) -> str:
    """Return the text of a complete reply, without surrounding space.

    Raises:
        AgentError: the model refused to answer, or its reply was truncated.
    """
    if reply.refused:
        raise AgentError(f"{task}: the model refused to answer ({reply.finish}): {quoted(reply.text)}")
    if reply.cut:
        raise AgentError(f"{task}: the reply {quoted(reply.text)} was cut off; give the model more max_tokens")
    return reply.text.strip()


def tools_of(ctx: Context, node: str) -> Sequence[Tool]:
    """Return the tools that the node may use, in the order given.

    Raises:
        GraphUnknown: there are none.
    """
    tools = tuple(ctx.tools)
    if not tools:
        raise GraphUnknown(
            f"{node}: there is no tool to use; add tools to Executor(tools=[...]), or tools=[...] to the node"
        )
    return tools


def tool_named(ctx: Context, name: str, node: str) -> Tool:
    """Return the tool with a name.

    Raises:
        AgentError: there is none; the message names the existing tools.
    """
    for tool in tools_of(ctx, node):
        if tool.name == name:
            return tool
    return unknown_tool(ctx, name, node)


def unknown_tool(ctx: Context, name: str, node: str) -> NoReturn:
    """Raise the error for a name that no tool has."""
    known = ", ".join(tool.name for tool in ctx.tools)
    raise AgentError(f"{node}: {quoted(name)} is not an available tool; choose one of: {known}")


def json_object(reply: str, node: str) -> dict[str, Any]:
    """Return the one JSON object in a reply, see `json_in`.

    Raises:
        AgentError: the reply is not JSON, or not an object.
    """
    try:
        found = json_in(reply)
    except NoReading as error:
        raise AgentError(f"{node}: the reply {quoted(reply)} {error}; reply with one JSON object only") from None
    if not isinstance(found, dict):
        raise AgentError(
            f"{node}: the reply {quoted(reply)} is JSON but not an object; reply with one JSON object only"
        )
    return found


def quoted(text: str) -> str:
    """Return a reply as an error message quotes it, shortened."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def unwritten(graph: GraphDefinition, name: str, field: str, writer: str) -> Iterator[str]:
    """Yield a problem if no other node of a graph can write a field that a node reads.

    Args:
        graph: the graph.
        name: the node that reads the field.
        field: the field.
        writer: the node that should write it, as the message shows it.
    """
    others = (node for other, node in graph.nodes.items() if other != name)
    if not any(node.updates is None or field in node.updates for node in others):
        yield f"{name} reads {field!r}, which no other node writes: place a {writer} before it"
