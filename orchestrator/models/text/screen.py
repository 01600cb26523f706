"""What of a reply that is still coming is surely plain text."""

from __future__ import annotations

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
