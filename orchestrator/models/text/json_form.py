"""The form without markers: the whole reply, or a fenced block at its end, is the JSON of the calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.models.messages import ToolCall
from orchestrator.models.text.defuse import names_broken
from orchestrator.models.text.forms import Form, OfferedTool, Parsed, Unread, last_line
from orchestrator.models.text.strict import calls_in, dumped, json_of, like_calls, said

_FENCE = "```"
_fences = re.compile(r"^ {0,3}```([^\n]*)$", re.MULTILINE)
_named = re.compile(r'"(?:name|tool|function|tool_calls)"\s*:')
_given = re.compile(r'"(?:arguments|parameters|args)"\s*:')
_word = re.compile(r"[\w-]*[ \t]*\r?")
_opening = re.compile(r"^ {0,3}```json", re.MULTILINE | re.IGNORECASE)
_beginning = re.compile(r" {0,3}(?:`(?:`(?:`(?:j(?:s(?:o)?)?)?)?)?)?", re.IGNORECASE)


class JsonForm(Form):
    """One JSON object, or a list of them."""

    name = "json"
    how = (
        "To call a tool, make your whole reply one JSON object, with no other text:\n"
        '{"name": "tool", "arguments": {"parameter": "value"}}'
    )
    several = "To make several calls at once, reply with a JSON list of such objects."

    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `Form.parse`."""
        begin, written = _block(text)
        if begin is None:
            return Parsed(text)
        try:
            value: object = json_of(written)
        except Unread:
            if _named.search(written):
                raise
            return Parsed(text)
        if not like_calls(value, offers):
            return Parsed(text)
        return Parsed(text[:begin].rstrip(), calls_in(value, offers, marked=False))

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """See `Form.render`."""
        items = [{"name": call.name, "arguments": said(call)} for call in calls]
        written = dumped(items[0] if len(items) == 1 else items)
        return f"{content}\n{_FENCE}json\n{written}\n{_FENCE}" if content.strip() else written

    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """See `Form.edge`."""
        bare = text.lstrip() if start == 0 else ""
        if bare.startswith(("{", "[", _FENCE)):
            return 0, True
        found = _opening.search(text, start)
        if found is not None:
            return found.start(), True
        begin = last_line(text, start)
        if bare in ("`", "``"):
            return 0, False
        whole = begin is not None and _beginning.fullmatch(text, begin) is not None
        return (begin if whole and begin is not None else len(text)), False

    def defused(self, text: str, offers: Sequence[OfferedTool]) -> str:
        """See `Form.defused`. Fences stay: without the name of a tool they hold no call."""
        return names_broken(super().defused(text, offers), (offer.name for offer in offers))


def _block(text: str) -> tuple[int | None, str]:
    """Where the part of the reply begins that may be calls, and that part without its fence; None: nowhere.

    Raises:
        Unread: something that looks like calls does not stand alone.
    """
    bare = text.strip()
    if bare.startswith(("{", "[")):
        return 0, bare
    fences = list(_fences.finditer(text))
    first = fences[0] if fences else None
    why = "JSON with other text around it"
    if first is not None:
        whole, closed = not text[: first.start()].strip(), len(text.rstrip())
        if first[1].strip().lower() == "json" or (whole and _word.fullmatch(first[1])):
            ends = bare.endswith(_FENCE) and first.end() < closed
            inner = [fence for fence in fences[1:] if fence.end() < closed]
            if ends and not inner:
                return (0 if whole else first.start()), text[first.end() : closed - len(_FENCE)]
            why = "more than one fenced block" if ends else "a fenced block that does not end the reply"
    if _named.search(text) and _given.search(text):
        raise Unread(why)
    return None, ""
