"""A line of the tree: styled parts, fitted to the columns of a terminal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from orchestrator import visible

Part: TypeAlias = tuple[str, str]
"""A text and its style (of rich)."""

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS, _STILL = frozenset(SPINNER), "▸ "
_ASCII = str.maketrans({
    "▸": ">", "✓": "+", "✗": "x", "–": "-", "↻": "~", "○": "o", "│": "|", "…": "~", "→": ">", "·": "-",
    "“": '"', "”": '"',
    "⠋": "|", "⠙": "/", "⠹": "-", "⠸": "\\", "⠼": "|", "⠴": "/", "⠦": "-", "⠧": "\\", "⠇": "|", "⠏": "/",
})  # fmt: skip
"""Replacements for encodings without these characters."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the tree."""

    parts: tuple[Part, ...]
    going_on: bool = False
    """Whether it shows something that has not ended, or what encloses that."""
    more: str = "…"
    """Marks where text was cut off."""
    tail: bool = False
    """Whether a line that is too long keeps its end rather than its start."""

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(text for text, _ in self.parts)

    def inside(self) -> Line:
        """The line, indented by one level."""
        return replace(self, parts=(("│ ", "dim"), *self.parts))

    def still(self) -> Line:
        """The line with its spinner replaced by a still mark."""
        return replace(
            self, parts=tuple((_STILL, "") if text[:1] in _TURNS else (text, style) for text, style in self.parts)
        )

    def said_in(self, encoding: str) -> Line:
        """The line in the characters of an encoding; other characters become escapes, which are wider.

        Terminal control sequences become escapes too: stores can contain forged names of nodes and outcomes.
        """
        safe = replace(self, parts=tuple((visible.line(text), style) for text, style in self.parts))
        if encoding.lower().startswith("utf"):
            return safe
        plain = ((text.translate(_ASCII), style) for text, style in safe.parts)
        parts = tuple((text.encode(encoding, "backslashreplace").decode(encoding), style) for text, style in plain)
        return replace(self, parts=parts, more="~")

    def fitted(self, width: int) -> Line:
        """The line cut to at most `width` columns of a terminal."""
        from rich.cells import cell_len, set_cell_size

        over = cell_len(self.text) - width
        if over <= 0:
            return self
        if self.tail:
            (*before, (text, style), last) = self.parts
            room = max(0, cell_len(text) - over - 1)
            while cell_len(text) > room:
                text = text[1:]
            return replace(self, parts=(*before, (f"{self.more}{text}", style), last), tail=False).fitted(width)
        kept: list[Part] = []
        room = max(1, width - 1)
        for text, style in self.parts:
            kept.append((text if cell_len(text) <= room else set_cell_size(text, room), style))
            room -= cell_len(kept[-1][0])
            if room <= 0:
                break
        return replace(self, parts=(*kept, (self.more, "dim")))
