"""The form of InternLM: `<|action_start|><|plugin|>`, one JSON object, `<|action_end|>`.

https://github.com/InternLM/InternLM/blob/main/chat/chat_format.md
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.models.messages import ToolCall
from orchestrator.models.text.forms import Form, OfferedTool, Parsed, Unread, partial
from orchestrator.models.text.strict import calls_in, dumped, json_at, said

START, PLUGIN, END, STOP = "<|action_start|>", "<|plugin|>", "<|action_end|>", "<|im_end|>"
_NOTHING = ("", STOP)
_opening = re.compile(rf"\s*{re.escape(START)}\s*{re.escape(PLUGIN)}\s*")
_closing = re.compile(rf"\s*{re.escape(END)}")


class PluginForm(Form):
    """Blocks between tokens, one call in each, one block behind the other."""

    name = "plugin"
    how = (
        "To call a tool, end your reply with a block of this form, and write nothing behind it:\n"
        f'{START}{PLUGIN}\n{{"name": "tool", "parameters": {{"parameter": "value"}}}}{END}'
    )
    several = "To make several calls at once, write one block behind the other."

    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `Form.parse`. Text behind the last block, with what it may call, is cut."""
        begin = text.find(START)
        if begin < 0:
            return Parsed(text)
        calls: list[ToolCall] = []
        at = begin
        while opening := _opening.match(text, at):
            value, at = json_at(text, opening.end())
            closing = _closing.match(text, at)
            if closing is None and not (ended and text[at:].strip() in _NOTHING):
                raise Unread(f"a block does not end with {END}" + ("" if ended else ", as the reply was cut"))
            at = at if closing is None else closing.end()
            if not isinstance(value, dict):
                raise Unread("a block that is not a JSON object")
            calls.extend(calls_in(value, offers, marked=True))
        if not calls:
            raise Unread(f"{START} without {PLUGIN}")
        rest = text[at:].strip()
        return Parsed(text[:begin].rstrip(), tuple(calls), cut="" if rest in _NOTHING else rest)

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """See `Form.render`."""
        blocks = (f"{START}{PLUGIN}\n{dumped({'name': c.name, 'parameters': said(c)})}{END}" for c in calls)
        return content + "".join(blocks)

    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """See `Form.edge`."""
        found = text.find(START, start)
        return (found, True) if found >= 0 else (partial(text, start, START), False)
