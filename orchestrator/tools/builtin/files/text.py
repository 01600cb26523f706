"""Files as text: encodings, ends of lines, places in it. What an edit does not touch stays as it was, to the byte."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Self

from orchestrator.errors import ToolError

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LINE = 2000
"""Characters of a line that are shown."""
_MANY = 1000
"""Places of a text that are counted."""


@dataclass(frozen=True, slots=True)
class Text:
    """What a file holds."""

    raw: str
    """With the ends of lines that the file has."""
    encoding: str = "utf-8"
    mark: bytes = b""
    """The bytes in front that say the encoding."""

    @classmethod
    def of(cls, data: bytes, encoding: str | None = None) -> Self:
        """
        Args:
            encoding: how files are read that are neither UTF-8 nor say that they are UTF-16; None: not at all.

        Raises:
            ToolError: it is no text.
        """
        mark, name = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
        try:
            raw = data[len(mark) :].decode(name)
        except UnicodeDecodeError:
            if mark or encoding is None or b"\0" in data:
                raise ToolError(_NO_TEXT) from None
            try:
                raw, name = data.decode(encoding), encoding
            except UnicodeDecodeError:
                raise ToolError(_NO_TEXT) from None
        if "\0" in raw:
            raise ToolError(_NO_TEXT)
        return cls(raw, name, mark)

    def with_raw(self, raw: str) -> Self:
        """The same file with other content."""
        return type(self)(raw, self.encoding, self.mark)

    def data(self) -> bytes:
        """As bytes.

        Raises:
            ToolError: the encoding lacks one of its characters, or it would be no text.
        """
        if "\0" in self.raw:
            raise ToolError("the text contains the character NUL, which text files cannot contain: leave it out")
        try:
            return self.mark + self.raw.encode(self.encoding)
        except UnicodeEncodeError as error:
            letter = ascii(self.raw[error.start])
            raise ToolError(f"the character {letter} cannot be written in {self.encoding}: leave it out") from None

    @property
    def newline(self) -> str:
        """How most of its lines end."""
        windows = self.raw.count("\r\n")
        return "\r\n" if windows * 2 > self.raw.count("\n") else "\n"

    def lines(self) -> list[str]:
        """Its lines without their ends; what stands behind the last end is one only if there is something."""
        found = [line.removesuffix("\r") for line in self.raw.split("\n")]
        return found[:-1] if not found[-1] else found

    # -- edits -------------------------------------------------------------------------------------------------------

    def replaced(self, old: str, new: str) -> tuple[Self, int]:
        """With `new` where `old` was, and the number of the line in which that is.

        Raises:
            ToolError: `old` is not there exactly once, or nothing would change.
        """
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        if not old:
            raise ToolError("'old' is empty: give the text to replace, or use insert_in_file")
        if old == new:
            raise ToolError("'old' and 'new' are the same: nothing would change")
        found = _places(self.raw, old)
        if not found:
            raise ToolError(f"the text is not in the file{self._near(old)}")
        numbers = [self.raw.count("\n", 0, start) + 1 for start, _ in found]
        if len(found) > 1:
            where = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
            count = f"{len(found)} times or more" if len(found) == _MANY else f"{len(found)} times"
            raise ToolError(f"the text is in the file {count}, at lines {where}: give more of the text around it")
        start, end = found[0]
        return self.with_raw(self.raw[:start] + new.replace("\n", self.newline) + self.raw[end:]), numbers[0]

    def _near(self, old: str) -> str:
        """Where the text is but for its blanks, as a hint."""
        words = old.split()
        if not words or len(words) > 200:
            return ": view it, and give the text exactly as it is there"
        loose = re.search(r"\s+".join(map(re.escape, words)), self.raw)
        if loose is None:
            return ": view it, and give the text exactly as it is there"
        line = self.raw.count(chr(10), 0, loose.start()) + 1
        return f", but differs only in white space from line {line}: copy it exactly"

    def inserted(self, after: int, text: str) -> Self:
        """With lines put behind line `after`; 0: in front.

        Raises:
            ToolError: there is no such line.
        """
        if not text:
            raise ToolError("'text' is empty: nothing would change")
        last = len(self.lines())
        if not 0 <= after <= last:
            raise ToolError(f"there is no line {after}: the file has {last}; 0 is before the first")
        newline = self.newline
        added = text.replace("\r\n", "\n").removesuffix("\n").replace("\n", newline) + newline
        kept = self.raw.split("\n")
        head = "".join(line + "\n" for line in kept[:after])
        if after == len(kept):  # the last line has no end
            head = self.raw + newline
        return self.with_raw(head + added + self.raw[len(head) :])


def _places(raw: str, old: str) -> list[tuple[int, int]]:
    """Where a text is, also where it overlaps itself; an end of a line is one however it is written."""
    plain = raw.replace("\r\n", "\n")
    ends = [found.start() - before for before, found in enumerate(re.finditer("\r\n", raw))]
    found: list[tuple[int, int]] = []
    at = plain.find(old)
    while at >= 0 and len(found) < _MANY:
        end = at + len(old)
        found.append((at + bisect_left(ends, at), end + bisect_left(ends, end)))
        at = plain.find(old, at + 1)
    return found


def numbered(lines: list[str], first: int, limit: int) -> tuple[str, int]:
    """Lines with their numbers, as many as fit, and how many those are.

    Args:
        lines: what to show.
        first: number of the first one.
        limit: characters to show.
    """
    found: list[str] = []
    size = 0
    for number, line in enumerate(lines, first):
        cut = f"{line[:_LINE]} [{len(line) - _LINE} more characters]" if len(line) > _LINE else line
        row = f"{number:6}\t{cut}"
        size += len(row) + 1
        if size > limit and found:
            break
        found.append(row)
    return "\n".join(found), len(found)


_NO_TEXT = (
    "the file cannot be read as text: it is neither UTF-8 nor UTF-16 with a byte order mark; "
    "for another encoding use Files(..., encoding=)"
)
