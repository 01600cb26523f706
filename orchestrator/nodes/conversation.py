"""Shared code of the nodes that work on a conversation: adding messages, adding results, and trimming."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

from pydantic import JsonValue

from orchestrator.graph.reducers import Extend, append, extend
from orchestrator.models.messages import Message, ToolCall, is_summary, tool_result
from orchestrator.tools.result import SHOWN, ToolFailure, ToolResult, as_text, cut
from orchestrator.tools.stored_results import OFFLOADED, PART_OF, READ_RESULT, excerpt, id_of
from orchestrator.tools.toolbox import Toolbox


def added(state: object, field: str, messages: Sequence[Message]) -> list[Message] | Extend:
    """Return messages for the field: with the reducer `append` they are added, a plain field holds only these."""
    info = getattr(type(state), "model_fields", {}).get(field)
    return extend(messages) if info is not None and append in info.metadata else list(messages)


def joined(state: object, field: str, messages: Sequence[Message]) -> list[Message] | Extend:
    """Return messages so that none is lost: a plain field keeps its messages, followed by these."""
    update = added(state, field, messages)
    return update if isinstance(update, Extend) else [*getattr(state, field), *update]


ENDED = "ended"
"""Key in the data of a result's message: the call ended the work."""
CHANGED = "changed_by_user"
"""Key in the extras of a call in a list: a person approved it with other arguments than the model's."""
_FEWEST = 200
"""The fewest characters shown of a result that a guard changed."""
BEGAN_ANEW = "[this call started from a clean state: what earlier calls of this tool had set up is gone]"
"""The note to the model when a stateful tool lost its state between two calls."""


def result_message(
    call: ToolCall, result: ToolResult, note: str = "", *, most: int = SHOWN, offload: bool = False, part_of: str = ""
) -> Message:
    """Return the message with the result of a call.

    Args:
        note: a line put before the result.
        most: maximum number of characters of the result to show; the message mentions the rest, which is in the
            journal.
        offload: whether a longer result is replaced by an excerpt of half of that, from which the model can read on.
        part_of: id of the result that this result is a part of.
    """
    text = result.text
    facts: dict[str, JsonValue] = {"output": result.output, "error": result.error, "exit_code": result.exit_code}
    if offload and len(text) > most:
        error = None if result.error is None else cut(result.error, most // 2)
        facts |= {"output": None, "error": error, OFFLOADED: id_of(text)}
        shown = excerpt(text, most // 2)
    else:
        shown = cut(text, most)
        part_of = part_of or (id_of(text) if len(text) > most else "")
        facts |= {PART_OF: part_of} if part_of else {}
    lines = (note, BEGAN_ANEW if result.metadata.get("began_anew") else "", shown)
    if result.ended:
        facts[ENDED] = True
    text = "\n".join((*(line for line in lines[:-1] if line), lines[-1]))
    return tool_result(call, text, images=result.images, data=facts)


def as_shown(given: Any, whole: Any, value: Any) -> Any:
    """Return a checked value as the model is shown it.

    Args:
        given: the value that the guard was given.
        whole: the same with the whole result, if it is a message with a part of one.
        value: that as the rules changed it.
    """
    if value is whole or whole is given:
        return given if value is whole else value
    facts, text = given.data or {}, value.content
    most = max(len(given.content), _FEWEST)
    if len(text) <= most:
        return value
    if OFFLOADED not in facts and given.name != READ_RESULT:
        return value.model_copy(update={"content": cut(text, most)})
    error = None if (value.data or {}).get("error") is None else cut(text, most)
    data = {**(value.data or {}), "output": None, "error": error, OFFLOADED: id_of(text)}
    return value.model_copy(update={"content": excerpt(text, most), "data": data})


def ended_by(talk: Sequence[Message], tools: Toolbox | None = None) -> Message | None:
    """Return the result of a call in the last round that ended the work (`ends=True`); for several, the last.

    Args:
        tools: used for results without that mark, from user nodes and older journals.
    """
    for message in reversed(talk):
        if message.role != "tool":
            return None
        facts = message.data or {}
        tool = None if tools is None else tools.get(message.name or "")
        if facts.get(ENDED) or (tool is not None and tool.ends and facts.get("exit_code") == 0):
            return message
    return None


def answer_of(talk: Sequence[Message], ended: Message) -> str:
    """Return the answer given by a call that ended the work.

    It is the output of the call. If that is empty, it is the text that comes with the call, else the latest other
    result since the question.
    """
    answer = _output(ended)
    for message in reversed(talk):
        if answer.strip() or message.role == "user":
            break
        if message.role == "assistant" and any(call.id == ended.tool_call_id for call in message.tool_calls):
            answer = thought_in(message.content)
    for message in reversed(talk):
        if answer.strip() or message.role == "user":
            break
        answer = _output(message) if message.role == "tool" else ""
    return answer


def _output(message: Message) -> str:
    data = message.data or {}
    output = message.content if OFFLOADED in data else data.get("output")
    return "" if output is None else as_text(output)


label = r"^[ \t]{{0,8}}\*{{0,2}}{}(?:[ \t]{{0,8}}\d{{1,6}})?[ \t]{{0,8}}\*{{0,2}}[ \t]{{0,8}}:[ \t]{{0,8}}(?:\*\*)?"
"""Pattern of a label, such as `Thought 1:`. Every repetition is bounded, so that no text takes long to read."""
thought_label = re.compile(label.format("Thought"), re.IGNORECASE)


def thought_in(text: str) -> str:
    """Return a model's thought without its label; empty if there is only the label."""
    bare = text.strip()
    found = thought_label.match(bare)
    return bare[found.end() :].strip() if found else bare


def failed(call: ToolCall, why: str) -> Message:
    """Return the message about a call that failed."""
    return result_message(call, ToolFailure(error=why))


def distinct(calls: Sequence[ToolCall], talk: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of one reply, each with a distinct id, by which results refer to them.

    A call without an id gets one that no other call of the conversation has.
    """
    taken = {call.id for call in (*calls, *(call for message in talk for call in message.tool_calls))}
    seen: set[str] = set()
    found: list[ToolCall] = []
    numbers = count(1)
    for call in calls:
        if not call.id or call.id in seen:
            free = next(one for n in numbers if (one := f"{call.id or 'call'}-{n}") not in taken)
            call = call.model_copy(update={"id": free})
            taken.add(free)
        seen.add(call.id)
        found.append(call)
    return tuple(found)


def trimmed(messages: Sequence[Message], keep: int | None) -> list[Message]:
    """Return the last `keep` messages of a conversation, and a few more if that keeps related messages together.

    Completed turns are kept or dropped as a whole, so that no question precedes the answer to another one; the current
    turn is cut after its question, with calls and their results together. System messages and summaries are kept, and
    so is the first question with its answer.
    """
    if keep is None or len(messages) <= keep:
        return list(messages)
    start = len(messages) - keep
    users = [place for place, message in enumerate(messages) if message.role == "user" and not is_summary(message)]
    if users and start < users[-1]:
        start = max((place for place in users if place <= start), default=0)
    while start and messages[start].role == "tool":
        start -= 1
    asked = {*users[:1], *users[-1:]}
    if len(users) > 1 and messages[users[1] - 1].role == "assistant":
        asked.add(users[1] - 1)
    return [
        message
        for place, message in enumerate(messages)
        if place >= start or place in asked or message.role == "system" or is_summary(message)
    ]
