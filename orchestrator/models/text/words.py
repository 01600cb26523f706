"""What a model without tool calls is told about tools."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from orchestrator.json import JsonObject
from orchestrator.models.text.forms import Form, OfferedTool

PROMPT = "You can call tools. They are:\n\n{tools}\n\n{how}"
_place = re.compile(r"\{tools\}|\{how\}")


def told(
    form: Form, offers: Sequence[OfferedTool], prompt: str, choice: object, several: bool, output: JsonObject | None
) -> str:
    """The tools, and how to call them.

    Args:
        prompt: a text in which `{tools}` and `{how}` stand for the two.
        choice: OpenAI's `tool_choice`.
        several: whether several calls at once are welcome.
        output: the JSON Schema of the answer, if one is wanted.
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
    tools = "\n\n".join(_tool(form, offer, offers) for offer in offers)
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


def _tool(form: Form, offer: OfferedTool, offers: Sequence[OfferedTool]) -> str:
    """A tool. Its description may come from others, so it is treated like any text from outside."""
    lines = [f"Tool: {offer.name}"]
    if offer.description:
        lines.append(form.defused(offer.description.strip(), offers))
    schema = json.dumps(dict(offer.parameters), ensure_ascii=False, separators=(",", ":"))
    lines.append(f"Parameters (JSON Schema): {form.defused(schema, offers)}")
    return "\n".join(lines)
