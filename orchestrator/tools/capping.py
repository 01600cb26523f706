"""Texts that are too long, cut where they are."""

from __future__ import annotations

_TAIL = 3
"""One part in so many of what is kept is from the end, where errors and results stand."""


def cut(text: str, most: int, hint: str = "") -> str:
    """The text, or its beginning and its end with a line between them that says how much is missing.

    Args:
        most: characters that are kept; the line comes on top.
        hint: what the line says beside that, such as where the rest is.
    """
    if len(text) <= most:
        return text
    tail = most // _TAIL
    missing = f"[... {len(text) - most:,} of {len(text):,} characters are left out here{hint and '; '}{hint} ...]"
    return f"{text[: most - tail]}\n{missing}\n{text[len(text) - tail :] if tail else ''}"
