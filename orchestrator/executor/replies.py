"""The replies of models that are under way in one run, as far as they have come.

A watcher that begins in the middle of a reply, or that was too slow, gets them from here: what came so far, then the
rest. They are kept in memory only, and only until their calls are settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from orchestrator.redaction import without_known

MOST = 1_000_000
"""Characters that are kept of one reply: its end, if it is longer."""
_BLOCK = 256
"""Pieces that are kept as one: small texts take much more memory than their characters."""


class PartialReply:
    """One reply that comes in pieces."""

    __slots__ = ("_begun", "_blocks", "_kept", "_recent", "about", "length", "omitted")

    def __init__(self, about: dict[str, object]) -> None:
        self.about = about
        """The fields that all live events of the call have."""
        self.length = self.omitted = 0
        """Characters of its text so far, and how many of them are not kept."""
        self._blocks: deque[tuple[str, str]] = deque()
        self._recent: list[tuple[str, str]] = []
        self._kept = 0
        self._begun = False

    def add(self, text: str, reasoning: str) -> None:
        """Keep the next piece."""
        self._begun = True
        self.length += len(text)
        self._kept += len(text) + len(reasoning)
        self._recent.append((text, reasoning))
        if len(self._recent) == _BLOCK:
            self._blocks.append(_joined(self._recent))
            self._recent.clear()
        while self._kept > MOST and self._blocks:
            dropped, thought = self._blocks.popleft()
            self._kept -= len(dropped) + len(thought)
            self.omitted += len(dropped)

    def texts(self) -> tuple[str, str]:
        """Text and reasoning so far, as far as they are kept."""
        return _joined([*self._blocks, *self._recent])

    def is_text(self, text: str) -> bool:
        """Whether the pieces make up this text."""
        return self.length == len(text) and text[self.omitted :] == self.texts()[0]

    def events(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Types and data of the live events that give the reply so far to one who saw nothing, or other parts of it."""
        yield "reset", dict(self.about)
        if not self._begun:  # but it may have been under way before, and the reader may have seen that
            return
        text, reasoning = map(without_known, self.texts())  # a secret may come in several pieces
        data = {**self.about, "text": text}
        if reasoning:
            data["reasoning"] = reasoning
        if self.omitted:
            data["omitted"] = self.omitted
        yield "token", data


def _joined(pieces: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return "".join(text for text, _ in pieces), "".join(thought for _, thought in pieces)
