"""The form with a separator: `content<|tool_calls|>[calls]`. Whether it is there decides whether there are calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.models.messages import ToolCall
from orchestrator.models.text.forms import Form, OfferedTool, Parsed, Unread, partial, short
from orchestrator.models.text.strict import calls_in, dumped, json_at, said

SEPARATOR = "<|tool_calls|>"
_space = re.compile(r"[ \t\r\n]*")
_stop = re.compile(r"(?:<\|\w{1,40}\|>)?")  # ends a reply, and some servers leave it in


class SeparatorForm(Form):
    """Content first, then the separator, then a JSON list of calls."""

    name = "separator"
    how = (
        f"To call tools, end your reply with {SEPARATOR} and a JSON list of the calls, and write nothing behind it:\n"
        f'{SEPARATOR}[{{"name": "tool", "arguments": {{"parameter": "value"}}}}]'
    )
    several = "Several calls can stand in the list."

    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `Form.parse`. The first separator counts: a further one can be part of an argument.

        Where no calls follow the first one, as in a text that speaks of it, the last one counts.
        """
        begin, last = text.find(SEPARATOR), text.rfind(SEPARATOR)
        if begin < 0:
            return Parsed(text)
        try:
            return self._calls(text, begin, offers)
        except Unread:
            if last == begin:
                raise
        return self._calls(text, last, offers)

    def _calls(self, text: str, begin: int, offers: Sequence[OfferedTool]) -> Parsed:
        space = _space.match(text, begin + len(SEPARATOR))
        value, end = json_at(text, space.end() if space else len(text))
        if not _stop.fullmatch(text[end:].strip()):
            raise Unread(f"more text after the list of calls: {short(text[end:])}")
        return Parsed(text[:begin].rstrip(), calls_in(value, offers, marked=True))

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """See `Form.render`."""
        return content + SEPARATOR + dumped([{"name": call.name, "arguments": said(call)} for call in calls])

    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """See `Form.edge`."""
        found = text.find(SEPARATOR, start)
        return (found, True) if found >= 0 else (partial(text, start, SEPARATOR), False)
