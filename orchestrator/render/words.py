"""Text that strangers wrote, made safe to show: one line, nothing that steers a terminal or turns the direction."""

from __future__ import annotations

import re
import unicodedata

from orchestrator.redacting import redact

_ANSI = re.compile(
    r"""
      (?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]                       # CSI: colours, cursor
    | (?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]).*?(?:\x07|\x1b\\|\x9c|\Z)   # OSC and its kin: titles, links
    | \x1b[ -/]*[0-~]?
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s+")
_JOINERS = "\u200c\u200d"  # invisible, and needed to write Persian, Hindi and many emoji
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MARKS_IN_A_ROW = 4
_LONGEST = 100_000
BEHIND = 2_000
"""Characters behind a cut that are looked at, too: half a secret no longer looks like one."""


def plain(text: str, limit: int | None = None) -> str:
    """One line without control, direction and other invisible characters, cut to `limit` characters."""
    text = _ANSI.sub("", text[:_LONGEST])
    if not (text.isascii() and text.isprintable()):
        text = _visible(_SPACE.sub(" ", text))
    return cut(_SPACE.sub(" ", text).strip(), limit)


def lines(text: str, limit: int | None = None) -> str:
    """Like `plain`, keeping line breaks."""
    kept = (plain(line) for line in _ANSI.sub("", text[:_LONGEST]).splitlines())
    return cut("\n".join(kept).strip(), limit)


def told(text: str, limit: int | None = None) -> str:
    """`plain` for what a run, a model or a tool said: secrets are blanked before the cut can halve them."""
    found = plain(text)
    return cut(redact(found if limit is None else found[: limit + BEHIND]), limit)


def cut(text: str, limit: int | None) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _visible(text: str) -> str:
    kept: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        if (category in _HIDDEN and char not in _JOINERS) or ord(char) & 0xFFFE == 0xFFFE:
            continue
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if marks <= _MARKS_IN_A_ROW:  # towers of accents would cover what stands above
            kept.append(char)
    return "".join(kept)
