"""Output of any length in little memory: its beginning and its end are kept."""

from __future__ import annotations

from collections import deque


class Kept:
    """Takes bytes, and gives back a text in which the middle is left out if there were too many."""

    def __init__(self, limit: int) -> None:
        """
        Args:
            limit: bytes that are kept, half of them from the beginning and half from the end.
        """
        self._limit = limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self.total = 0
        """Bytes that there were."""

    @property
    def cut(self) -> int:
        """Bytes that are left out."""
        return max(0, self.total - self._limit)

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        room = self._limit // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._in_tail += len(data)
        most = self._limit - self._limit // 2
        while self._in_tail - len(self._tail[0]) >= most:
            self._in_tail -= len(self._tail.popleft())

    def text(self) -> str:
        """What is kept, as text, with a note where the middle is missing. What is no UTF-8 becomes U+FFFD."""
        tail = b"".join(self._tail)
        if not self.cut:
            return (self._head + tail).decode(errors="replace")
        tail = tail[-(self._limit - self._limit // 2) :]
        head, end = self._head.decode(errors="ignore"), tail.decode(errors="ignore")
        return f"{head}\n[... {self.cut} bytes left out ...]\n{end}"
