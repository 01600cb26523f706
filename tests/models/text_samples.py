"""Texts, calls and models for the tests of tool calls as text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from orchestrator.models import Message, ModelEvent, Reply, RequestModel, ToolCall
from orchestrator.models.base import ModelRequest, Output, ToolLike
from orchestrator.models.text.forms import OfferedTool, offers_of
from orchestrator.models.text.protocol import FORMS, FormName

NAMES: tuple[FormName, ...] = ("json", "bracket", "plugin", "separator")


def param(name: str, description: str = "", required: Sequence[str] = (), **properties: str) -> dict[str, Any]:
    """A tool as a model is offered it."""
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    parameters = {**schema, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    param("add", "Add two numbers.", ["a", "b"], a="number", b="number"),
    param("search", "Search the web.", ["query"], query="string"),
    param("fact", "n!", ["n"], n="integer"),
    param("flag", "Set it.", ["on"], on="boolean"),
    param("Pay", "Pay somebody.", ["to", "sum"], sum="number", to="string"),
    param("now", "The time."),
]
OFFERS: tuple[OfferedTool, ...] = offers_of(TOOLS)


def call(name: str, arguments: dict[str, Any] | None = None, id: str = "c1") -> ToolCall:  # noqa: A002
    """A call."""
    return ToolCall(id=id, name=name, arguments=arguments or {})


def made(calls: Iterable[ToolCall]) -> list[tuple[str, dict[str, Any] | None]]:
    """What calls say, but for their ids."""
    return [(one.name, one.arguments) for one in calls]


# -- what hypothesis draws -------------------------------------------------------------------------------------------

_PARTS = [
    "<|action_start|>", "<|plugin|>", "<|action_end|>", "<|im_end|>", "<|tool_calls|>", "<|", "|>", "<|x|>",
    "Action: ", "Action 2: ", "**Action:** ", "action:", "Act", "Action Input: ", "Observation: 5", "Thought: hm",
    "add", "search", "ADD", "pay", "drop", "add[", "search[a[1]]", "]", "[", "[1, 2]", '["x"]', "{", "}", "\n", "\n\n",
    " ", "```json\n", "```", "`", "\n```\n", "```python\n", '"', "\\", ":", "NaN", "1e999", '"name": ', '"add"', "[]",
    '{"name": "add", "arguments": {"a": 1, "b": 2}}', '{"tool": "search", "args": {"query": "x"}}', '"arguments": ',
    '{"tool_calls": [{"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}', "Hello.",
    '{"name": "n\\u006fw", "parameters": {}}', '{"n\\u0061me": "\\u0061dd", "arguments": "{}"}', "\r\n", "\x0b",
    '{"name": "drop", "arguments": {}}',
]  # fmt: skip
texts = st.lists(st.sampled_from(_PARTS) | st.text(max_size=6), max_size=8).map("".join)
"""Texts that hold much of the forms' syntax."""
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=3,
)
tool_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_./-]{0,12}", fullmatch=True) | st.sampled_from(["größe", "工具", "a𝒳"])
calls = st.builds(call, tool_names, st.dictionaries(texts, values, max_size=3))


def offering(*made: ToolCall) -> tuple[OfferedTool, ...]:
    """Offers of the tools that are called."""
    return tuple(OfferedTool(name) for name in dict.fromkeys(one.name for one in made))


@st.composite
def forged(draw: st.DrawFn, form: FormName) -> str:
    """A text that holds whole calls of offered tools, and other syntax around them."""
    some = [
        call("add", {"a": 1, "b": draw(st.integers(0, 9))}), call("search", {"query": draw(texts)}), call("now"),
    ]  # fmt: skip
    chosen = draw(st.lists(st.sampled_from(some), min_size=1, max_size=2))
    around = draw(st.sampled_from(["", "Look:\n", "Look: ", "\n"]) | texts)
    behind = draw(st.sampled_from(["", "\n", "\nDo it."]) | texts)
    return around + FORMS[form].render("", chosen) + behind


def pieces_of(text: str, cuts: Sequence[int]) -> list[str]:
    """The text, cut at these places."""
    places = sorted({0, len(text), *(cut for cut in cuts if 0 < cut < len(text))})
    return [text[a:b] for a, b in pairwise(places)]


# -- a model that speaks in pieces -----------------------------------------------------------------------------------


@dataclass
class Speaker(RequestModel):
    """Says a text piece by piece, and whether its stream was closed."""

    pieces: Sequence[str]
    finish: str = "stop"
    reply: Reply | None = None
    """The last event's, if not the pieces put together."""
    name: str = "speaker"
    asked: list[ModelRequest] = field(default_factory=list)
    closed: int = 0

    async def respond(self, request: ModelRequest) -> Reply:
        self.asked.append(request)
        return self.reply or Reply(text="".join(self.pieces), finish=self.finish, model=self.name)

    async def stream(
        self,
        messages: str | Sequence[Message],
        tools: Iterable[ToolLike] = (),
        output: Output = None,
        *,
        task: str | None = None,
        **options: Any,
    ) -> AsyncIterator[ModelEvent]:
        try:
            request = ModelRequest.of(messages, tools, output, task=task, options=options)
            for piece in self.pieces:
                yield ModelEvent(text=piece)
            yield ModelEvent(reply=await self.respond(request))
        finally:
            self.closed += 1
