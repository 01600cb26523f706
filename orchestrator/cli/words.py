"""Values as text for people: safe on a terminal, short where they are long."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence

from orchestrator.visible import exact
from orchestrator.visible import shown as visible

__all__ = [
    "ago", "command", "compact", "lasting", "line", "plain", "program", "quoted", "short", "visible",
]  # fmt: skip


def line(text: str) -> str:
    """A name that a store or a server gave, as a part of one line: ends of lines and tabs are escapes as well."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def compact(value: object) -> str:
    """A plain value as JSON on one line, see `orchestrator.visible.exact`."""
    return exact(value)


def plain(value: object) -> str:
    """A value for people: text as it is, anything else as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def short(text: str, most: int = 72) -> str:
    """The text, cut where it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def ago(moment: float, now: float | None = None) -> str:
    """How long ago a moment (Unix seconds) was."""
    seconds = max(0.0, (time.time() if now is None else now) - moment)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago" if seconds >= 1 else "just now"


def lasting(seconds: float) -> str:
    """How long something took."""
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def program() -> tuple[str, ...]:
    """How this command line was called, as words that find the same one again."""
    called = sys.argv[0] if sys.argv else ""
    if called.endswith("__main__.py"):
        return _found(sys.executable or "python"), "-m", "orchestrator"
    return (_found(called) if os.path.basename(called).startswith("orchestrator") else "orchestrator",)


def _found(path: str) -> str:
    """A program's name, if the shell finds this very one by it, else its path."""
    name = os.path.basename(path)
    found = shutil.which(name)
    same = not os.path.exists(path) or (found is not None and os.path.abspath(found) == os.path.abspath(path))
    return name if same else os.path.abspath(path)


def quoted(words: Sequence[str]) -> str:
    """Words as a shell reads them back."""
    return shlex.join(words)


def command(*words: str) -> str:
    """A command of ours that a shell reads back word for word."""
    return quoted((*program(), *words))
