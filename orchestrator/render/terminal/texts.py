"""Values, moments and durations as text for people."""

from __future__ import annotations

import json
import time
import unicodedata

from orchestrator.visible import exact


def compact(value: object) -> str:
    """A value as JSON on one line, see `orchestrator.visible.exact`."""
    return exact(value)


def plain(value: object) -> str:
    """A value for people: text unchanged, anything else as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def short(text: str, most: int = 72) -> str:
    """The text, cut to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def fitting(text: str, columns: int) -> str:
    """The text on at most so many columns of a terminal, cut between words where that leaves most of it."""
    if columns_of(text) <= columns:
        return text
    room, used, end = columns - 1, 0, 0
    for end, char in enumerate(text):  # noqa: B007 - where it ends is what is looked for
        used += columns_of(char)
        if used > room:
            break
    kept = text[:end]
    if text[end : end + 1] != " ":
        words, _, rest = kept.rpartition(" ")
        kept = words if words and columns_of(rest) < room / 3 else kept
    return f"{kept.rstrip(' ,;:')}…"


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: two for each wide character, none for what combines."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def padded(text: str, columns: int) -> str:
    """The text, filled up with spaces."""
    return text + " " * (columns - columns_of(text))


def ago(moment: float, now: float | None = None) -> str:
    """The age of a moment in Unix seconds."""
    seconds = max(0.0, (time.time() if now is None else now) - moment)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago" if seconds >= 1 else "just now"


def duration(seconds: float) -> str:
    """A duration in seconds as text."""
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"
