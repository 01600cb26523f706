"""Messages of a stdio server, a line each, with a bound on what is kept of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST = 16 * 1024 * 1024
"""Bytes of one message that are read. More than a result that is of use to a model, or to a run, has."""

_ENDS = 400
_FIRST = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(-?\d{1,15}|"[^"\\]{1,100}")\s*,')
_LAST = re.compile(rb'"id"\s*:\s*(-?\d{1,15}|"[^"\\]{1,100}")\s*\}\s*\Z')


class Cut(NamedTuple):
    """A line that was longer than is read: how it began, how it ended, and its length."""

    first: bytes
    last: bytes
    size: int


class Lines:
    """Cuts what comes in into lines. Time and space are linear in what comes, and bounded by the longest line."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self._last = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | Cut]:
        """The lines that end in this chunk."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._keep(part)
            yield self._taken()
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        if self._size <= self._longest < self._size + len(part):
            self._parts = [b"".join([*self._parts, part])[:_ENDS]]
        elif self._size <= self._longest:
            self._parts.append(part)
        self._size += len(part)
        self._last = (self._last + part)[-_ENDS:]

    def _taken(self) -> bytes | Cut:
        whole, size, last = b"".join(self._parts), self._size, self._last
        self._parts, self._size, self._last = [], 0, b""
        return whole if size <= self._longest else Cut(whole[:_ENDS], last, size)


def id_of(first: bytes, last: bytes) -> int | str | None:
    """The id of an answer of which only the ends are known, or that cannot be read; None if they do not tell.

    Servers write it first or last. One that lies about it ends a call of its own only.
    """
    found = _FIRST.match(first) or _LAST.search(last)
    if found is None:
        return None
    text = found[1].decode("utf-8", "replace")
    return text[1:-1] if text.startswith('"') else int(text)
