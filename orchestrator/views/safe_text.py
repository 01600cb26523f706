"""Untrusted text made safe to show: no terminal control sequences, no hidden or direction-changing characters."""

from __future__ import annotations

import re

from orchestrator.redaction import redact
from orchestrator.visible import shown

_ANSI = re.compile(
    r"""
      (?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]                       # CSI: colours, cursor
    | (?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]).*?(?:\x07|\x1b\\|\x9c|\Z)   # OSC and its kin: titles, links
    | \x1b[ -/]*[0-~]?
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s+")
_LONGEST = 100_000
BEHIND = 2_000
"""Characters after a cut that are redacted too: the patterns do not match half a secret."""


def plain(text: str, limit: int | None = None) -> str:
    """Return the text on one line, with control, direction and other invisible characters as escapes.

    Args:
        text: any text.
        limit: maximum of characters; None: no limit.
    """
    text = _ANSI.sub("", text[:_LONGEST])
    if not (text.isascii() and text.isprintable()):
        text = shown(_SPACE.sub(" ", text))
    return cut(_SPACE.sub(" ", text).strip(), limit)


def bare(text: str) -> str:
    """Return the text without terminal control sequences."""
    return _ANSI.sub("", text)


def lines(text: str, limit: int | None = None) -> str:
    """Escape characters like `plain`, but keep line breaks."""
    kept = (plain(line) for line in _ANSI.sub("", text[:_LONGEST]).splitlines())
    return cut("\n".join(kept).strip(), limit)


def told(text: str, limit: int | None = None) -> str:
    """Escape like `plain`, after redacting secrets that a cut could split: for texts of models, tools or runs."""
    found = plain(text)
    return cut(redact(found if limit is None else found[: limit + BEHIND]), limit)


def cut(text: str, limit: int | None) -> str:
    """Return the text, or its start with an ellipsis if it is longer than `limit`."""
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
