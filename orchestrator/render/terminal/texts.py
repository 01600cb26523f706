"""Values, moments and durations as text for people."""

from __future__ import annotations

import json
import time

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
