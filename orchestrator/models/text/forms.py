"""The interface of forms of writing tool calls as text, and the neutralizing of untrusted text.

A model that repeats text of a tool or a user must not make a call by it. If such a text contains call syntax, a broken
bar is inserted: `<|plugin|>` becomes `<¦plugin¦>`. The bar is visible on purpose. Readers of the conversation see the
change, and a model repeats the bar, whereas models and tokenizers often drop characters without width, which would
restore the call.

`CallScreen` finds the part of a reply that is certainly plain text while the reply is still arriving. Thoughts in
`<think>...</think>` are parted before (`models/reading`): calls in them are ignored.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from orchestrator.json import JsonObject
from orchestrator.models.messages import ToolCall
from orchestrator.values import FOREIGN_DEPTH


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the model may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of its parameters."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed reply."""

    content: str
    """The text around the calls; the whole text, unchanged, if there are none."""
    calls: tuple[ToolCall, ...] = ()
    """Calls of offered tools, or of any tools if `ANY` is offered. A call without an id from the model has none yet."""
    unread: str = ""
    """Why text that looks like a call is not one, in one line; empty if nothing looks like one."""
    cut: str = ""
    """Text after the calls, which is left out."""
    words: str = ""
    """The calls as the model wrote them, with the space before them, in forms whose conversations keep that."""


ANY = OfferedTool(name="")
"""Offer that stands for all unknown tools: calls of these are calls as well."""


TOO_DEEP = f"JSON of more than {FOREIGN_DEPTH} levels"
"""The depth of calls is limited, because Python's own limit depends on the depth of the caller."""


class Unread(Exception):
    """Raised when a text is not a call, or is ambiguous; the message says why."""


class Form(ABC):
    """A way to write tool calls. Reading never guesses: it returns all calls of a reply, or text."""

    name: str
    how: str
    """Instructions for calling tools."""
    several: str = ""
    """Instructions for several calls at once; empty if that is impossible."""
    stop: tuple[str, ...] = ()
    """Sequences at which the model stops, because text after them is not used."""
    alone: bool = False
    """True if the form is of use even without tools."""

    def parse(self, text: str, offers: Sequence[OfferedTool], *, ended: bool = True) -> Parsed:
        """Parse a reply. Every text can be parsed, in linear time and without an error.

        Args:
            text: the reply as the model wrote it.
            offers: the tools that may be called.
            ended: whether the model ended the reply, rather than being cut off.
        """
        try:
            return self.read(text, offers, ended)
        except Unread as why:
            return Parsed(text, unread=" ".join(str(why).split()))

    @abstractmethod
    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `parse`.

        Raises:
            Unread: something looks like a call but is not one.
        """

    @abstractmethod
    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """Return the text that makes these calls."""

    @abstractmethod
    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """Return the position where a call may start in an unfinished text, and True if that is certain.

        No text before that position belongs to a call, whatever follows. If it is certain, later text need not be
        searched.

        Args:
            start: position to search from; 0 only at the start of the reply.
        """

    def defused(self, text: str, offers: Sequence[OfferedTool]) -> str:
        """Return an untrusted text, changed so that a model that repeats it, or part of it, makes no call."""
        return tokens_broken(text)

    def described(self, offer: OfferedTool, offers: Sequence[OfferedTool]) -> str:
        """Return the description of a tool. Others may have written it, so it is treated like other untrusted text."""
        lines = [f"Tool: {offer.name}"]
        if offer.description:
            lines.append(self.defused(offer.description.strip(), offers))
        schema = json.dumps(dict(offer.parameters), ensure_ascii=False, separators=(",", ":"))
        lines.append(f"Parameters (JSON Schema): {self.defused(schema, offers)}")
        return "\n".join(lines)

    def number_in(self, words: str) -> int | None:
        """Return the number that a model gave to its own call, if the form has numbers."""
        return None

    def result(self, name: str, number: int | None, content: str) -> str:
        """Return the text by which the model receives the result of a call.

        Args:
            number: number of the call in its reply, from 1; None if it was the only one.
        """
        which = f"{name}" if number is None else f"call {number}, {name}"
        return f"Result of {which}:\n{content}"


def offers_of(tools: Iterable[JsonObject]) -> tuple[OfferedTool, ...]:
    """Convert tools from OpenAI function parameters."""
    found: list[OfferedTool] = []
    for tool in tools:
        function = tool.get("function")
        told: Mapping[str, object] = function if isinstance(function, Mapping) else tool
        parameters = told.get("parameters")
        found.append(
            OfferedTool(
                name=str(told.get("name") or ""),
                description=str(told.get("description") or ""),
                parameters=parameters if isinstance(parameters, Mapping) else {},
            )
        )
    return tuple(found)


def offered(name: object, offers: Sequence[OfferedTool]) -> OfferedTool:
    """Return the tool with that name, or the only one whose name differs only in the case of ASCII letters.

    If `ANY` is offered, an unknown tool has one string parameter, its input.

    Raises:
        Unread: there is no such tool.
    """
    if isinstance(name, str) and name:
        for offer in offers:
            if offer.name == name:
                return offer
        alike = [o for o in offers if o.name.isascii() and name.isascii() and o.name.lower() == name.lower()]
        if len(alike) == 1:
            return alike[0]
        if any(offer is ANY for offer in offers):
            return OfferedTool(name, parameters={"properties": {"input": {"type": "string"}}})
        raise Unread(f"tool {short(name)} was not offered")
    raise Unread("a call names no tool")


def short(text: str) -> str:
    """Return the start of a text on one line, quoted, for an error message."""
    line = " ".join(text[:400].split())
    return repr(line if len(line) <= 80 else line[:80] + "…")


def partial(text: str, start: int, marker: str) -> int:
    """Return the position where the end of the text may start a marker; else the text's length."""
    for size in range(min(len(marker) - 1, len(text) - start), 0, -1):
        if text.endswith(marker[:size]):
            return len(text) - size
    return len(text)


def last_line(text: str, start: int) -> int | None:
    """Return the position where the last line starts; None if that is before `start`."""
    begin = text.rfind("\n", max(start - 1, 0)) + 1
    return begin if begin or start == 0 else None


def cut_at_commas(text: str, apart: re.Pattern[str]) -> list[str]:
    """Split a text at its commas, but not within brackets and quotes.

    Args:
        apart: matches brackets and commas, as groups `open`, `close` and `comma`, and skips quotes.
    """
    parts: list[str] = []
    begin = depth = 0
    for match in apart.finditer(text):
        depth += bool(match["open"]) - bool(match["close"])
        if match["comma"] and depth <= 0:
            parts.append(text[begin : match.start()])
            begin = match.end()
    return [*parts, text[begin:]]


MARK = "¦"

_u = r"\\{1,8}u"
"""The JSON escape of a character's number, also in nested JSON text."""
_bar = rf"(?:\||{_u}007c)"
# Includes JSON and HTML escapes: a model that repeats such a page or file may write it without the escapes.
_token = re.compile(rf"(<|{_u}003c|&lt;){_bar}([^|<>\n]{{0,80}}?){_bar}(?=>|{_u}003e|&gt;)", re.IGNORECASE)
_line = re.compile(
    r"^([^\w\n]{0,20}(?:Action(?:[ \t]{1,8}Input)?|Observation)(?:[ \t]{0,8}\d{1,6})?[ \t]{0,8}(?:\*\*)?[ \t]{0,8})"
    r"([:：])",
    re.IGNORECASE | re.MULTILINE,
)
_short = {one: r"\\{1,8}" + way for one, way in zip('"/\b\f\n\r\t', '"/bfnrt', strict=True)} | {"\\": r"\\{1,8}"}


def tokens_broken(text: str) -> str:
    """Neutralize tokens such as `<|plugin|>`, which a server may also interpret."""
    return _token.sub(rf"\1{MARK}\2{MARK}", text)


def names_broken(text: str, names: Iterable[str]) -> str:
    """Neutralize JSON values that are the name of a tool, as every call written in JSON contains one."""
    known = tuple(names)
    return _values(known).sub(rf"\1{MARK}", text) if known else text


def lines_broken(text: str, names: Iterable[str]) -> str:
    """Neutralize `Action:` and `Observation:` at the start of lines, and `action: tool` anywhere."""
    known = tuple(names)
    text = _line.sub(rf"\1{MARK}\2", text)
    return _actions(known).sub(rf"\1{MARK}\2", text) if known else text


def brackets_broken(text: str, names: Iterable[str]) -> str:
    """Neutralize `tool[`, which is an action if it is alone or follows another one."""
    known = tuple(names)
    return _opened(known).sub(rf"\1{MARK}", text) if known else text


@lru_cache(maxsize=64)
def _values(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf'(:\s*\\*"(?:{"|".join(map(_escaped, names))}))(?=\\*")')


@lru_cache(maxsize=64)
def _actions(names: tuple[str, ...]) -> re.Pattern[str]:
    any_of = "|".join(map(re.escape, names))
    colon = r"[ \t]{0,8}(?:\*\*)?[ \t]{0,8})([:：])"
    return re.compile(rf"(action(?:[ \t]{{0,8}}\d{{1,6}})?{colon}(?=[\s*]{{0,20}}(?:{any_of}))", re.IGNORECASE)


@lru_cache(maxsize=64)
def _opened(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"((?:{'|'.join(map(re.escape, names))}))(?=[ \t]{{0,8}}\[)", re.IGNORECASE)


def _escaped(name: str) -> str:
    """Return a pattern of all the ways in which JSON can write a name; ASCII names in upper and lower case."""
    written = "".join(map(_character, name))
    return f"(?ai:{written})" if name.isascii() else written


def _character(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    code = "".join(f"{_u}{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))
    ways = [re.escape(one), f"(?i:{code})", *([_short[one]] if one in _short else [])]
    if one.isascii() and one.isalpha():
        ways.append(f"(?i:{code[:-4]}{ord(one.swapcase()):04x})")
    return f"(?:{'|'.join(ways)})"


class CallScreen:
    """Receives the pieces of a reply, and returns text that cannot belong to a call, whatever follows.

    The returned text is always a prefix of the content that `Form.parse` finds in the whole reply. White space is held
    back until other text follows: between content and calls it belongs to neither.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        self._held = ""
        """The last character that was returned, if any, and the text held back."""
        self._start = 0
        self._blank: list[str] = []
        self._shut = False

    def feed(self, piece: str) -> str:
        """Return the part of the held text and the next piece that can be shown."""
        if self._shut:
            return ""
        if not piece or piece.isspace():  # joined later: some models write blanks for a long time
            self._blank.append(piece)
            return ""
        text = "".join([self._held, *self._blank, piece])
        self._blank.clear()
        end, self._shut = self._form.edge(text, self._start)
        given = text[self._start : end].rstrip()
        end = self._start + len(given)
        kept = max(end - 1, 0) if given or self._start else 0
        self._held, self._start = text[kept:], end - kept
        return given
