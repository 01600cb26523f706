"""Clocks, from which executors read the time.

A clock returns the time; it does not sleep. Delays and time limits are those of the event loop (`anyio.sleep`,
`anyio.move_on_after`), in the executor as in nodes and tools, and `orchestrator.testing.MockClock` sets the event loop
to the same time as the executor.
"""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
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
