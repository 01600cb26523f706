"""Clocks: an executor reads the time from one.

A clock tells the time; it does not sleep. Pauses and time limits are those of the event loop (`anyio.sleep`,
`anyio.move_on_after`), in the executor as in nodes and tools, and `orchestrator.testing.MockClock` gives the event loop
the same time that it tells the executor.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Tells the time. All methods may be called from any thread."""

    def now(self) -> float:
        """Unix time in seconds. It can be wrong by any amount, and it can jump."""
        ...

    def steady(self) -> float:
        """Seconds since some moment in the past, by a clock that never jumps."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Unix time in seconds, `time.time`."""
        return time.time()

    steady = staticmethod(
        partial(time.clock_gettime, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic
    )
    """Seconds since the machine was started, including suspended time where the system counts it."""


SYSTEM_CLOCK = SystemClock()
"""The clock of an executor that is given none."""
