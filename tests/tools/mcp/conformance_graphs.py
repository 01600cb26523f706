"""Graphs for the conformance suite of the protocol, which calls tools by these names."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from orchestrator import Context, Graph, Update, node

USER = {
    "type": "object",
    "properties": {"username": {"type": "string"}, "email": {"type": "string"}},
    "required": ["username"],
}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
TITLED = [{"const": f"value{n}", "title": f"Title {n}"} for n in (1, 2, 3)]
OPTIONS = ["option1", "option2", "option3"]
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}


class Said(BaseModel):
    """What is said."""

    message: str = ""
    said: str = "This is a simple text response for testing."


@node
async def first(state: Said) -> Update:
    """A step."""
    return {}


@node
async def second(state: Said) -> Update:
    """A step."""
    return {}


@node
async def third(state: Said) -> Update:
    """A step."""
    return {}


@node
async def fail(state: Said) -> Update:
    """A step that fails."""
    raise ValueError("This tool intentionally returns an error for testing")


def asks(schema: dict[str, Any]) -> Any:
    """A step that asks by a schema."""

    async def ask(state: Said, ctx: Context) -> Update:
        answer = await ctx.ask("input", prompt=state.message or "Please answer", schema=schema)
        return {"said": str(answer)}

    return ask


def graph(name: str, *takes: str, **nodes: Any) -> Graph:
    """A graph of these steps."""
    return Graph(
        name=name,
        description="For tests.",
        state=Said,
        input=takes,
        nodes=nodes,
        edges=f"START -> {' -> '.join(nodes)} -> END",
        output="said",
    )


simple = graph("test_simple_text", first=first)
failing = graph("test_error_handling", fail=fail)
progress = graph("test_tool_with_progress", first=first, second=second, third=third)
elicitation = graph("test_elicitation", "message", ask=asks(USER))
defaults = graph("test_elicitation_sep1034_defaults", ask=asks(DEFAULTS))
enums = graph("test_elicitation_sep1330_enums", ask=asks(ENUMS))
NAMES = ("simple", "failing", "progress", "elicitation", "defaults", "enums")
