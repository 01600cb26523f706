"""Conversations with tools and their calls, rewritten as plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from orchestrator.json import JsonObject
from orchestrator.models.messages import Image, Message, system
from orchestrator.models.text.forms import Form, OfferedTool


def retold(messages: Sequence[Message], form: Form, offers: Sequence[OfferedTool]) -> tuple[Message, ...]:
    """Return the messages with calls as text of the assistant, and results as text of the user.

    Adjacent results become one message, followed by the user's own text if there is any: the templates of many models
    require users and assistants to take turns.
    """
    found: list[Message] = []
    results: list[str] = []
    images: list[Image] = []
    made: dict[str, tuple[str, int | None]] = {}

    def close() -> None:
        if results:
            found.append(Message(role="user", content="\n\n".join(results), images=tuple(images)))
            results.clear()
            images.clear()

    for message in messages:
        content = message.content
        if message.role == "tool":
            name, number = made.get(message.tool_call_id or "", (message.name or "a tool", None))
            results.append(form.result(name, number, form.defused(content, offers)))
            images.extend(message.images)
            continue
        if message.role == "user":
            content = "\n\n".join([*results, form.defused(content, offers)])
            message = message.model_copy(update={"images": (*images, *message.images)})
            results.clear()
            images.clear()
        close()
        if message.tool_calls:
            many = len(message.tool_calls) > 1
            own = in_own_words(message, form)
            number = None if own is None else form.number_in(own[len(content) :])
            made = {
                c.id: (c.name, n if many and number is None else number) for n, c in enumerate(message.tool_calls, 1)
            }
            content = form.render(content, message.tool_calls) if own is None else own
        found.append(message.model_copy(update={"content": content, "tool_calls": ()}))
    close()
    return tuple(found)


WORDS = "text_protocol"
"""Key in the data of an assistant's message: the form of its calls, and their original text."""


def said_in(message: Message, form: str, words: object) -> Message:
    """Return a message with calls that also contains their original text.

    Args:
        words: the text after the message's content; anything but a string: unknown.
    """
    if not isinstance(words, str):
        return message
    return message.model_copy(update={"data": {**(message.data or {}), WORDS: {"form": form, "words": words}}})


def in_own_words(message: Message, form: Form) -> str | None:
    """Return a message with calls as the model wrote it; None if that is unknown or in another form."""
    facts = (message.data or {}).get(WORDS)
    words = facts.get("words") if isinstance(facts, dict) and facts.get("form") == form.name else None
    if not isinstance(words, str):
        return None
    between = "\n" if message.content and words and not words[0].isspace() else ""
    return f"{message.content}{between}{words}"


def instructed(
    messages: Sequence[Message], words: str, facts: Mapping[str, JsonValue] | None = None
) -> tuple[Message, ...]:
    """Return the messages with this text added to the first system message, which is created if missing.

    Args:
        facts: the same as data, for models that read that.
    """
    place = next((n for n, message in enumerate(messages) if message.role == "system"), None)
    first = system("") if place is None else messages[place]
    joined = first.model_copy(update={"content": f"{first.content}\n\n{words}" if first.content else words})
    if facts is not None:
        joined = joined.model_copy(update={"data": dict(facts)})
    if place is None:
        return (joined, *messages)
    return (*messages[:place], joined, *messages[place + 1 :])


PROMPT = "You can call tools. They are:\n\n{tools}\n\n{how}"
_place = re.compile(r"\{tools\}|\{how\}")


def told(
    form: Form, offers: Sequence[OfferedTool], prompt: str, choice: object, several: bool, output: JsonObject | None
) -> str:
    """Return the description of the tools, and how to call them.

    Args:
        prompt: a template, in which `{tools}` and `{how}` are replaced by the two.
        choice: OpenAI's `tool_choice`.
        several: whether several calls at once are allowed.
        output: JSON Schema of the requested answer, if any.
    """
    how = [form.how]
    if several and form.several:
        how.append(form.several)
    else:
        how.append("Make one call at a time.")
    must = _must(choice)
    if must:
        how.append(must)
    elif output is None:
        how.append("When you need no tool, just reply in plain text.")
    tools = "\n\n".join(form.described(offer, offers) for offer in offers)
    parts = {"{tools}": tools, "{how}": "\n".join(how)}
    words = _place.sub(lambda place: parts[place[0]], prompt)
    if output is None:
        return words
    schema = json.dumps(output, ensure_ascii=False, separators=(",", ":"))
    return f"{words}\n\nWhen you need no tool, your whole reply is one JSON value of this JSON Schema:\n{schema}"


def _must(choice: object) -> str:
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
        return f"In this reply you must call the tool {name}." if name else ""
    if choice in ("required", "any"):
        return "In this reply you must call a tool."
    return ""
