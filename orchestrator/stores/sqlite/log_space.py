"""Room in the log of a file, made before SQLite needs it.

A commit that makes the log longer has to make the new length of the file durable as well, which costs a disk as much as
the commit itself. One that overwrites bytes does not. SQLite overwrites its log once it has been emptied into the file
for the first time; until then zeros are written behind its end, more each time, so that a process which commits a
few times writes few of them. SQLite ends a log at the first frame that is not of it, and zeros are none.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MOST_BYTES = 4 << 20
"""A log does not become longer than that, unless somebody reads while it is written."""

_AT_ONCE = 512 << 10
"""Zeros that one commit takes along: more would make it a slow one."""


class LogSpace:
    """The room in the log of one file, for the one who writes to it."""

    __slots__ = ("_name", "_size")

    def __init__(self, path: Path) -> None:
        self._name = f"{path}-wal"
        self._size = 0
        """Of the log when zeros were last written."""

    def make(self) -> None:
        """Make room if there is none. To be called inside a transaction that may write: no other process writes then.

        Room that cannot be made is left to SQLite to make, which says what is wrong if it cannot either.
        """
        with contextlib.suppress(OSError):
            size = os.stat(self._name).st_size
            if size in (0, self._size) or size >= MOST_BYTES:
                return
            count = min(size, _AT_ONCE, MOST_BYTES - size)
            # Always behind the end: if the store was moved away just now, another one's log may have this name, and the
            # process that writes to that one does not wait for this one.
            log = os.open(self._name, os.O_WRONLY | os.O_APPEND)
            try:
                self._size = size + os.write(log, bytes(count))
            finally:
                os.close(log)
