"""What models that reason say before their reply, where a server leaves it in the text: `<think>...</think>`."""

from __future__ import annotations

import re

from orchestrator.models.text.screen import CallScreen

_BEGIN, _END = "<think>", "</think>"
_BLANKS = 99
_block = re.compile(rf"\s{{0,{_BLANKS}}}{_BEGIN}(.*?)(?:{_END}\s*|\Z)", re.DOTALL)


def parted(text: str) -> tuple[str, str]:
    """The block at a reply's beginning with the white space around it, empty if there is none, and all behind it."""
    found = _block.match(text)
    return (found[0], text[found.end() :]) if found else ("", text)


def thoughts_in(block: str) -> str:
    """What stands in a block."""
    found = _block.match(block)
    return found[1].strip() if found else ""


class Aside:
    """A screen that looks at what comes behind such a block only; the block itself is shown as it comes."""

    def __init__(self, screen: CallScreen) -> None:
        self._screen = screen
        self._begin = ""
        """What came while it is open whether a block begins."""
        self._tail: str | None = None
        """The last characters of a block that has begun."""
        self._over = False

    def feed(self, piece: str) -> str:
        """See `CallScreen.feed`."""
        if self._over:
            return self._screen.feed(piece)
        if self._tail is None:
            piece, self._begin = self._begin + piece, ""
            bare = piece.lstrip()
            blanks = len(piece) - len(bare)
            if blanks <= _BLANKS and _BEGIN.startswith(bare[: len(_BEGIN)]) and len(bare) < len(_BEGIN):
                self._begin = piece
                return ""
            self._over = blanks > _BLANKS or not bare.startswith(_BEGIN)
            self._tail = ""
            return self.feed(piece)
        known = self._tail + piece
        end = known.find(_END)
        if end < 0:
            self._tail = known[1 - len(_END) :]
            return piece
        end += len(_END) - len(self._tail)
        self._over = True
        return piece[:end] + self._screen.feed(piece[end:])
