"""What a form of writing tool calls as text is, and what reading a text in it gives."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.json import JsonObject
from orchestrator.models.messages import ToolCall
from orchestrator.models.text.defuse import tokens_broken


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the model may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Their JSON Schema."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A reply's text, read."""

    content: str
    """What the model said beside its calls; the whole text, untouched, if there are none."""
    calls: tuple[ToolCall, ...] = ()
    """All of offered tools, or of any where `ANY` is offered. Those that the model gave no id have none yet."""
    unread: str = ""
    """Why something that looks like a call is none, in one line; empty if nothing looks like one."""
    cut: str = ""
    """What was said behind the calls, and is left out."""
    words: str = ""
    """The calls as the model wrote them, with the space before them, in forms whose conversations keep that."""


ANY = OfferedTool(name="")
"""Stands in offers for the tools that are not there: what calls one of them is a call all the same."""


class Unread(Exception):
    """Raised when a text is no call, or none that can be read for certain; says why."""


class Form(ABC):
    """One way to write tool calls. Reading never guesses: it is all calls of a reply, or it is text."""

    name: str
    how: str
    """Tells a model how to call tools."""
    several: str = ""
    """Tells it how to make several calls at once; empty where that cannot be."""
    stop: tuple[str, ...] = ()
    """Where a model is to stop, because what it writes after that is not used."""

    def parse(self, text: str, offers: Sequence[OfferedTool], *, ended: bool = True) -> Parsed:
        """Read a reply. Any text can be read: it raises nothing, and takes time in proportion to the length.

        Args:
            text: the reply as the model said it.
            offers: the tools that may be called.
            ended: whether the model stopped by itself, rather than being cut.
        """
        try:
            return self.read(text, offers, ended)
        except Unread as why:
            return Parsed(text, unread=" ".join(str(why).split()))

    @abstractmethod
    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `parse`.

        Raises:
            Unread: something looks like a call and is none.
        """

    @abstractmethod
    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """What a model says that makes these calls."""

    @abstractmethod
    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """Where in a text that is still coming a call may begin, and whether that is sure.

        Nothing before that place belongs to a call, whatever comes. Sure means: what comes need not be looked at.

        Args:
            start: where to look from; 0 only at the reply's own beginning.
        """

    def defused(self, text: str, offers: Sequence[OfferedTool]) -> str:
        """A text from outside, changed so that a model which repeats it, or part of it, makes no call."""
        return tokens_broken(text)

    def number_in(self, words: str) -> int | None:
        """The number that a model gave to a call of its own, if the form has numbers."""
        return None

    def result(self, name: str, number: int | None, content: str) -> str:
        """What the model is told of a call.

        Args:
            number: which of several calls of one reply it was, from 1 on; None if it was the only one.
        """
        which = f"{name}" if number is None else f"call {number}, {name}"
        return f"Result of {which}:\n{content}"


def offers_of(tools: Iterable[JsonObject]) -> tuple[OfferedTool, ...]:
    """Tools given as OpenAI function parameters."""
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
    """The tool of that name, or the only one whose name differs in the case of ASCII letters alone.

    Where `ANY` is offered one that is not there takes a text, its input.

    Raises:
        Unread: there is none.
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
    """A text as it is quoted in a reason."""
    line = " ".join(text[:400].split())
    return repr(line if len(line) <= 80 else line[:80] + "…")


def partial(text: str, start: int, marker: str) -> int:
    """Where the text's end may be the beginning of a marker; the text's length if it is not."""
    for size in range(min(len(marker) - 1, len(text) - start), 0, -1):
        if text.endswith(marker[:size]):
            return len(text) - size
    return len(text)


def last_line(text: str, start: int) -> int | None:
    """Where the last line begins, None if that is before `start`."""
    begin = text.rfind("\n", max(start - 1, 0)) + 1
    return begin if begin or start == 0 else None


def cut_at_commas(text: str, apart: re.Pattern[str]) -> list[str]:
    """A text cut at its commas, but not within brackets and quotes.

    Args:
        apart: finds what counts, as groups `open`, `close` and `comma`, and passes over quotes.
    """
    parts: list[str] = []
    begin = depth = 0
    for match in apart.finditer(text):
        depth += bool(match["open"]) - bool(match["close"])
        if match["comma"] and depth <= 0:
            parts.append(text[begin : match.start()])
            begin = match.end()
    return [*parts, text[begin:]]
