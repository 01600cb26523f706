"""Who makes small reads: the calling task while they are quick, a thread while they are not."""

from __future__ import annotations

import sys

QUICK = 0.003
"""Seconds that a read may hold up an event loop, on the average."""

MOST_DEBT = 10 * QUICK
"""Seconds by which reads may exceed that before threads take over: now and then a page comes from the disk."""

_QUICK_THERE = QUICK + sys.getswitchinterval()
"""As long looks a quick read to a thread: it waits for the interpreter too, if an event loop is busy."""


class Pace:
    """How quick reads have lately been. Threads may note at the same time; a time that is lost then does no harm."""

    __slots__ = ("_debt", "here")

    def __init__(self) -> None:
        self.here = True
        """Whether tasks make small reads themselves."""
        self._debt = 0.0
        """Seconds that reads have lately taken beyond what is quick."""

    def note(self, seconds: float, *, here: bool) -> None:
        """Decide who makes the next read, now that one took so long.

        Args:
            seconds: how long it took.
            here: whether a task made it.
        """
        debt = max(0.0, self._debt + seconds - (QUICK if here else _QUICK_THERE))
        self.here = debt < MOST_DEBT if here else not debt
        self._debt = min(debt, MOST_DEBT)
