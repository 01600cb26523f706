"""The part of a reply that is surely plain text, found while the reply is still coming.

Models that reason may begin their reply with a block `<think>...</think>`, where a server leaves it in the text. It is
shown as it comes, and no call is read from it.
"""

from __future__ import annotations

import re

from orchestrator.models.text.forms import Form


class CallScreen:
    """Feed it the pieces of a reply; it gives back what cannot belong to a call, whatever comes.

    What it gave is at any time a beginning of the content that `Form.parse` finds in the whole reply. White space is
    held back until something follows it: between content and calls it belongs to neither.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        self._held = ""
        """The last character that was given, if any, and what is held back."""
        self._start = 0
        self._blank: list[str] = []
        self._shut = False

    def feed(self, piece: str) -> str:
        """The next piece, as far as it and what was held back can be shown."""
        if self._shut:
            return ""
        if not piece or piece.isspace():  # joined later: models can go on with blanks for very long
            self._blank.append(piece)
            return ""
        text = "".join([self._held, *self._blank, piece])
        self._blank.clear()
        end, self._shut = self._form.edge(text, self._start)
        given = text[self._start : end].rstrip()
        end = self._start + len(given)
        kept = max(end - 1, 0) if given or self._start else 0
        self._held, self._start = text[kept:], end - kept
        return given


_BEGIN, _END = "<think>", "</think>"
_BLANKS = 99
_block = re.compile(rf"\s{{0,{_BLANKS}}}{_BEGIN}(.*?)(?:{_END}\s*|\Z)", re.DOTALL)


def parted(text: str) -> tuple[str, str]:
    """The block at a reply's beginning with the white space around it, empty if there is none, and all behind it."""
    found = _block.match(text)
    return (found[0], text[found.end() :]) if found else ("", text)


def thoughts_in(block: str) -> str:
    """Return the text of a block."""
    found = _block.match(block)
    return found[1].strip() if found else ""


class Aside:
    """A screen that looks at what comes behind such a block only; the block itself is shown as it comes."""

    def __init__(self, screen: CallScreen) -> None:
        self._screen = screen
        self._begin = ""
        """Text received before it is known whether a block begins."""
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
