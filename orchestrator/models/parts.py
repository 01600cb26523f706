"""The parts of a model's message in the interfaces that order them: thoughts, text, calls, and a vendor's own items.

A message keeps its text and its calls as all messages do, and the text of the thoughts as `reasoning_content`. What
these cannot hold (the order, signatures, encrypted thoughts, items of the vendor's own tools) is kept in `extras` under
the name of the interface, and goes back to that interface only: to another one, the message is text and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from orchestrator.graph.limits import Usage
from orchestrator.json import deeper_than
from orchestrator.models.chat.reply import read_arguments
from orchestrator.models.logprobs import token_logprobs
from orchestrator.models.messages import REASONING, Message, Reply, ToolCall
from orchestrator.values import FOREIGN_DEPTH

_BETWEEN = "\n\n"
"""Stands between the thoughts of a message in its `reasoning_content`."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a model's message."""

    kind: Literal["thought", "text", "call", "item"]
    text: str = ""
    """Of a thought or a text."""
    call: ToolCall | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)
    """The vendor's fields that go back unchanged, such as a signature; all of an item."""


def reply_of_parts(
    parts: Iterable[Part],
    wire: str,
    *,
    finish: str,
    usage: Usage | None,
    details: Mapping[str, Any],
    logprobs: Sequence[Any] = (),
    model: str,
) -> Reply:
    """Return the reply with these parts.

    Args:
        wire: the name of the interface, one of `OWN_PARTS`.
        finish: the server's word for why the model stopped.
        logprobs: the log probabilities of the tokens, as in chat completions.
    """
    parts = [part for part in parts if not deeper_than(part.rest, FOREIGN_DEPTH - 4)]
    texts = [part.text for part in parts if part.kind == "text"]
    thoughts = [part.text for part in parts if part.kind == "thought"]
    calls = tuple(_distinct([part.call for part in parts if part.call is not None]))
    extras: dict[str, Any] = {}
    if any(thoughts):
        extras[REASONING[0]] = _BETWEEN.join(thoughts)
    if any(part.rest or part.kind in ("thought", "item") for part in parts):
        places = iter(range(len(calls)))
        extras[wire] = [
            [part.kind, next(places) if part.kind == "call" else len(part.text), dict(part.rest)] for part in parts
        ]
    tokens = token_logprobs({"content": list(logprobs)}) if logprobs else ()
    kept = {key: value for key, value in details.items() if value and not deeper_than(value, FOREIGN_DEPTH - 1)}
    if tokens:
        kept["logprobs"] = [[*token] for token in tokens]
    return Reply(
        text="".join(texts),
        tool_calls=calls,
        usage=usage,
        finish=finish,
        extras=extras,
        details=kept,
        model=model,
    )


def called(identity: object, name: object, arguments: object, rest: Mapping[str, Any] | None = None) -> Part:
    """Return the part of a call."""
    read, raw = read_arguments(arguments)
    given = identity if isinstance(identity, str) and identity else uuid4().hex
    return Part("call", call=ToolCall(id=given, name=str(name or ""), arguments=read, raw=raw), rest=rest or {})


def _distinct(calls: Iterable[ToolCall]) -> Iterator[ToolCall]:
    """Yield the calls, each with an id of its own: every call has one result."""
    known: set[str] = set()
    for call in calls:
        yield call if call.id not in known else call.model_copy(update={"id": uuid4().hex})
        known.add(call.id)


def turns_of(
    messages: Sequence[Message], convert: Callable[[Message], tuple[str, list[dict[str, Any]]]]
) -> tuple[Sequence[Message], list[tuple[str, list[dict[str, Any]]]]]:
    """Return the system messages at the start of a conversation, and its turns: roles that alternate, and their parts.

    Args:
        messages: the conversation. If it has only system messages, the last one is the user's.
        convert: returns the role of a message, and its parts.
    """
    start = next((at for at, message in enumerate(messages) if message.role != "system"), max(0, len(messages) - 1))
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    for message in messages[start:]:
        role, parts = convert(message)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(parts)
        else:
            turns.append((role, list(parts)))
    return messages[:start], turns


def listed(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a list of an answer; none if it is no list."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def some(item: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of an object that have these names, and a value."""
    return {name: item[name] for name in names if item.get(name) is not None}


def parts_of(message: Message, wire: str) -> list[Part]:
    """Return the parts of a model's message for an interface: as it gave them, else the text and the calls.

    They are also text and calls if the message was changed since, for example because a secret in it was redacted.
    """
    return _given(message, wire) or [
        *([Part("text", message.content)] if message.content.strip() else ()),
        *(Part("call", call=call) for call in message.tool_calls),
    ]


def _given(message: Message, wire: str) -> list[Part]:
    kept, text, thoughts = message.extras.get(wire), message.content, message.extras.get(REASONING[0], "")
    calls = list(message.tool_calls)
    found: list[Part] = []
    if not isinstance(kept, list) or not isinstance(thoughts, str):
        return []
    for entry in kept:
        match entry:
            case ["thought", int(size), dict(rest)] if size <= len(thoughts):
                found.append(Part("thought", thoughts[:size], rest=rest))
                thoughts = thoughts[size + len(_BETWEEN) :]
            case ["text", int(size), dict(rest)] if size <= len(text):
                found.append(Part("text", text[:size], rest=rest))
                text = text[size:]
            case ["call", int(), dict(rest)] if calls:
                found.append(Part("call", call=calls.pop(0), rest=rest))
            case ["item", int(), dict(rest)]:
                found.append(Part("item", rest=rest))
            case _:
                return []
    return [] if text or thoughts or calls else found
