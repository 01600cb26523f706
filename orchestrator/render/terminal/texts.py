"""Text on a terminal: values, times and durations for people; widths; colours."""

from __future__ import annotations

import json
import os
import time
import unicodedata
from collections.abc import Mapping
from typing import TextIO

from orchestrator.values import in_calendar
from orchestrator.visible import exact


def compact(value: object) -> str:
    """Return a value as JSON on one line, see `orchestrator.visible.exact`."""
    return exact(value)


def plain(value: object) -> str:
    """Return a value for people: text unchanged, other values as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def counted(number: int, noun: str) -> str:
    """Return a number of things, such as `1 step` or `12 steps`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def short(text: str, most: int = 72) -> str:
    """Return the text, cut to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def fitting(text: str, columns: int, more: str = "…") -> str:
    """Cut a text to a number of terminal columns, between words if that keeps most of it.

    Args:
        text: one line.
        columns: available columns, at least one.
        more: mark of cut text.
    """
    if columns_of(text) <= columns:
        return text
    room = max(0, columns - len(more))
    kept = text[: _end(text, room)]
    if text[len(kept) : len(kept) + 1] != " ":
        words, _, rest = kept.rpartition(" ")
        kept = words if words and columns_of(rest) < room / 3 else kept
    return f"{kept.rstrip(' ,;:')}{more}"


def _end(text: str, room: int) -> int:
    """Return the end of the longest prefix of a text that fits. It is never inside a letter or an emoji."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if columns_of(text[:middle]) <= room else (low, middle - 1)
    while 0 < low < len(text) and (_continues(text[low]) or text[low - 1] == _JOINER):
        low -= 1
    return low


_JOINER = "\u200d"
_TONES = range(0x1F3FB, 0x1F400)
"""Skin tones, which modify the preceding emoji."""


def _continues(char: str) -> bool:
    """Return True if a character is combined with the one before it."""
    return char == _JOINER or ord(char) in _TONES or unicodedata.category(char) in ("Mn", "Me", "Mc")


def columns_of(text: str) -> int:
    """Return the terminal columns of a text: two for wide characters and emoji, none for combining marks."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, columns: int) -> str:
    """Return the text, padded with spaces to a number of terminal columns."""
    return text + " " * (columns - columns_of(text))


def ago(moment: float, now: float | None = None) -> str:
    """Return how long ago a time was, as text. `moment`, `now`: Unix seconds."""
    seconds = max(0.0, (time.time() if now is None else now) - in_calendar(moment))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago" if seconds >= 1 else "just now"


def duration(seconds: float) -> str:
    """Return a duration in seconds as text."""
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


_CODES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}

STATUS = {
    "completed": "green",
    "failed": "red",
    "paused": "yellow",
    "interrupted": "yellow",
    "running": "cyan",
    "cancelled": "dim",
    "exhausted": "magenta",
}
"""The colour of each status of a run."""
RISK = {"none": "dim", "read": "green", "write": "yellow", "dangerous": "red"}
"""The colour of each risk of a tool."""


def wants_colours(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Return True if text on a stream may have colours.

    `NO_COLOR` disables them everywhere. Otherwise `FORCE_COLOR` enables them everywhere. Without both, only a terminal
    has them, unless it is a `dumb` one.

    Args:
        stream: the output stream.
        environ: the environment; None: that of this process.
    """
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return environ["FORCE_COLOR"] != "0"
    return stream.isatty() and environ.get("TERM", "") not in ("", "dumb")


def coloured(text: str, colour: str) -> str:
    """Return the text in a colour or weight; unchanged if the colour is empty."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if colour and text else text


def can_draw(stream: TextIO) -> bool:
    """Return True if a stream is a terminal that can redraw lines, without TERM=dumb or NO_COLOR."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb") and not os.environ.get("NO_COLOR")
