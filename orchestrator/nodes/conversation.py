"""What the nodes that work on a conversation have in common: adding to it, telling results in it, cutting it short."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.graph.reducers import Extend, append, extend
from orchestrator.models.messages import Message, ToolCall, tool_result
from orchestrator.tools.result import ToolFailure, ToolResult


def added(state: object, field: str, messages: Sequence[Message]) -> list[Message] | Extend:
    """Messages as the field takes them: one with the reducer `append` collects them, a plain one holds only these."""
    info = getattr(type(state), "model_fields", {}).get(field)
    return extend(messages) if info is not None and append in info.metadata else list(messages)


def joined(state: object, field: str, messages: Sequence[Message]) -> list[Message] | Extend:
    """The same where nothing may be lost: a plain field holds what it held, and these behind it."""
    update = added(state, field, messages)
    return update if isinstance(update, Extend) else [*getattr(state, field), *update]


def told(call: ToolCall, result: ToolResult, note: str = "") -> Message:
    """What came of a call, as a message; `note` is a line that stands before it."""
    facts = {"output": result.output, "error": result.error, "exit_code": result.exit_code}
    return tool_result(call, f"{note}\n{result.text}" if note else result.text, data=facts)


def failed(call: ToolCall, why: str) -> Message:
    """That nothing came of a call."""
    return told(call, ToolFailure(error=why))


def trimmed(messages: Sequence[Message], keep: int | None) -> list[Message]:
    """A conversation with its last `keep` messages, and a little more where that would tear it.

    What the system said stays, so does the first question, and so does the question that is being worked on. Calls
    and their results stay, or go, together.
    """
    if keep is None or len(messages) <= keep:
        return list(messages)
    start = len(messages) - keep
    while start and messages[start].role == "tool":
        start -= 1
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    asked = {*users[:1], *users[-1:]}
    return [
        message
        for place, message in enumerate(messages)
        if place >= start or place in asked or message.role == "system"
    ]
