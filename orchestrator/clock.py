"""Clocks, from which executors read the time.

A clock returns the time; it does not sleep. Delays and time limits are those of the event loop (`anyio.sleep`,
`anyio.move_on_after`), in the executor as in nodes and tools, and `orchestrator.testing.MockClock` sets the event loop
to the same time as the executor.
"""

from __future__ import annotations

import re
import sys
import time
from abc import abstractmethod
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Returns the time. All methods are thread-safe."""

    @abstractmethod
    def now(self) -> float:
        """Return Unix time in seconds. It can be wrong by any amount, and it can jump."""
        ...

    @abstractmethod
    def steady(self) -> float:
        """Return the seconds since some moment in the past, by a clock that never jumps."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Return Unix time in seconds, `time.time`."""
        return time.time()

    steady = staticmethod(
        partial(time.clock_gettime, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic
    )
    """Seconds since the machine was started, including suspended time where the system counts it."""


SYSTEM_CLOCK = SystemClock()
"""The default clock of an executor."""


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])")


def age_of(text: str) -> timedelta:
    """Parse an age as people type it, such as `30d`.

    Raises:
        ValueError: the text is not an age; the message says what to use.
    """
    found = _AGE.fullmatch(text.strip())
    with suppress(OverflowError):
        if found is not None:
            return timedelta(**{_UNITS[found[2]]: float(found[1])})
    raise ValueError("use an age (30d, 12h, 45m, 20s, 2w)")


def moment_of(text: str) -> datetime:
    """Parse a time as people type it: an age before now, or a date, local if it has no time zone.

    Raises:
        ValueError: the text is neither; the message says what to use.
    """
    try:
        if _AGE.fullmatch(text.strip()):
            return datetime.now(UTC) - age_of(text)
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        raise ValueError("use an age (30d, 12h, 45m, 20s, 2w) or a date (2026-01-31, 2026-01-31T08:00)") from None
