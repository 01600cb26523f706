"""A line of the tree: parts in styles, in at most so many columns of a terminal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from orchestrator import visible

Part: TypeAlias = tuple[str, str]
"""A text, and the style (of rich) that it is shown in."""

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS, _STILL = frozenset(SPINNER), "▸ "
_ASCII = str.maketrans({
    "▸": ">", "✓": "+", "✗": "x", "–": "-", "↻": "~", "○": "o", "│": "|", "…": "~", "→": ">", "·": "-",
    "“": '"', "”": '"',
    "⠋": "|", "⠙": "/", "⠹": "-", "⠸": "\\", "⠼": "|", "⠴": "/", "⠦": "-", "⠧": "\\", "⠇": "|", "⠏": "/",
})  # fmt: skip
"""For terminals that know nothing else."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: never wider than the terminal, whoever wrote what is in it."""

    parts: tuple[Part, ...]
    going_on: bool = False
    """Whether it is about something that is not over, or that stands around it."""
    more: str = "…"
    """Stands where something was cut off."""
    tail: bool = False
    """Whether its end is what counts, where it is too long."""

    @property
    def text(self) -> str:
        """The line without its styles."""
        return "".join(text for text, _ in self.parts)

    def inside(self) -> Line:
        """The same, one step further in."""
        return replace(self, parts=(("│ ", "dim"), *self.parts))

    def still(self) -> Line:
        """The same where nothing turns any more."""
        return replace(
            self, parts=tuple((_STILL, "") if text[:1] in _TURNS else (text, style) for text, style in self.parts)
        )

    def said_in(self, encoding: str) -> Line:
        """The same in the characters that an encoding has; others are written as escapes, which take more room.

        So is what could command the terminal, wherever it stands: names of nodes and outcomes come from stores, too.
        """
        safe = replace(self, parts=tuple((visible.line(text), style) for text, style in self.parts))
        if encoding.lower().startswith("utf"):
            return safe
        plain = ((text.translate(_ASCII), style) for text, style in safe.parts)
        parts = tuple((text.encode(encoding, "backslashreplace").decode(encoding), style) for text, style in plain)
        return replace(self, parts=parts, more="~")

    def fitted(self, width: int) -> Line:
        """The same in at most so many columns of a terminal."""
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
