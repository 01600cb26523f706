"""Results that are too long: cut for models, and, far later, for the journal."""

from __future__ import annotations

import json
import reprlib
from collections import deque
from typing import TypeVar

from pydantic import JsonValue

from orchestrator.errors import ResultRefused, ToolError, message_of
from orchestrator.models.messages import Image
from orchestrator.redaction import redact, without_known
from orchestrator.tools.result import Blob, Part, ToolResult, as_text, size_of

R = TypeVar("R", bound=ToolResult)

SHOWN = 20_000
"""Characters of a result that a model is shown."""
KEPT = 1_000_000
"""Characters of a result that the journal keeps."""
CONTENT = 20_000_000
"""Characters of pictures and other binary data, as base64, that the journal keeps of a result."""
_SAID = 2_000
"""Characters of a refused result that the journal keeps."""
_LINE = 100
"""Characters, at most, of the line that says how much is missing."""
_TAIL = 3
"""Share of the end, where errors and results are, as a divisor: one third of the kept characters."""


def cut(text: str, most: int, hint: str = "") -> str:
    """The text, or its beginning and its end with a line between them that says how much is missing.

    Args:
        most: characters that are kept; the line comes on top.
        hint: further text of the line, such as where the rest is.
    """
    return text if len(text) <= most else _cut(text, text, len(text), most, hint)


def _cut(begin: str, end: str, length: int, most: int, hint: str) -> str:
    """A text of which beginning and end are there."""
    tail = most // _TAIL
    missing = f"[... {length - most:,} of {length:,} characters are left out here{hint and '; '}{hint} ...]"
    return f"{begin[: most - tail]}\n{missing}\n{end[len(end) - tail :] if tail else ''}"


_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxtuple, _short.maxset, _short.maxdict = 4, 10, 10, 10, 10
_short.maxstring = _short.maxother = _short.maxlong = 400


def in_words(value: object) -> str:
    """Describe any value in short, redacted text, in bounded time, for questions about values that cannot be stored."""
    try:
        if isinstance(value, ToolResult):
            value = value.output
        if isinstance(value, str | bytes | bytearray):
            value = value[: 4 * _SAID]  # redact before the cut: half a secret is not recognized
        text = value if isinstance(value, str) else _short.repr(value)
    except Exception:  # a class that has the name of a built-in one, or a proxy of something that is gone
        text = f"a value of type {type(value).__name__}"
    text = redact(without_known(text[: 4 * _SAID])).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SAID else f"{text[:_SAID]} [...]"


def refused(error: Exception, value: object) -> ResultRefused:
    """Error of a call whose return value does not fit into a result."""
    why = message_of(error)
    known = isinstance(error, ToolError)
    return ResultRefused(why if known else f"the call was made, but its result was refused: {why}", in_words(value))


class Gathered:
    """A text that comes in pieces, and of which no more is held than its result may have."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = self._begun = self._held = 0
        self._begin: list[str] = []
        self._end: deque[str] = deque()
        """Its last pieces, as many as its end can need."""

    def add(self, piece: str) -> None:
        if not piece:
            return
        self._length += len(piece)
        if self._begun < self._most:
            self._begin.append(piece[: self._most - self._begun])
            self._begun += len(self._begin[-1])
        piece = piece[-self._most :]
        self._end.append(piece)
        self._held += len(piece)
        while self._end and self._held - len(self._end[0]) >= self._most:
            self._held -= len(self._end.popleft())

    def whole(self) -> str:
        """The text; its beginning and end, and the line between them, if it is longer."""
        begin = "".join(self._begin)
        if self._length <= self._most:
            return begin
        return _cut(begin, "".join(self._end), self._length, max(0, self._most - _LINE), "not kept")


def truncated(result: R, most: int = KEPT) -> R:
    """The result as the journal keeps it: the same, if no part of it is too large.

    A text is cut. What is no text and too large becomes its JSON, cut. Of content that is too large a word is left.
    """
    changes: dict[str, object] = {}
    if (output := _truncated_value(result.output, most)) is not result.output:
        changes["output"] = output
    if result.error is not None and len(result.error) > most:
        changes["error"] = cut(result.error, most, "not kept")
    if len(result.shown) > most:
        changes["shown"] = cut(result.shown, most, "not kept")
    if result.metadata and len(json.dumps(result.metadata)) > most:
        changes["metadata"] = {"left_out": f"metadata of more than {most:,} characters"}
    if sum(map(size_of, result.content)) > CONTENT:
        changes["content"] = _truncated_parts(result.content)
    return result.model_copy(update=changes) if changes else result


def _truncated_value(value: JsonValue, most: int) -> JsonValue:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = as_text(value)
    return value if len(text) <= most else cut(text, most, "not kept")


def _truncated_parts(parts: list[Part]) -> list[Part]:
    found: list[Part] = []
    room = CONTENT
    for part in parts:
        room -= size_of(part)
        if room >= 0:
            found.append(part)
        else:
            kind = "an image" if isinstance(part, Image) else "data"
            found.append(Blob(data="", name=f"{kind} of {size_of(part):,} characters, too large to be kept"))
    return found
