"""How long an open executor waits before it tries a run again that made no progress, or whose drive stopped."""

from __future__ import annotations

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.stores.base import RunInfo
from orchestrator.stores.shared import retry_delay

_AGAIN = 0.5
"""Seconds before a run that made no progress when it was due is taken up again; they double each time."""
_LONGEST = 60.0
"""Seconds between two such attempts at most."""


class Backoff:
    """What the executor remembers of runs that it took up without progress."""

    def __init__(self) -> None:
        self._stuck: dict[str, tuple[int, float]] = {}
        """Run that did not move when it was due -> its head, and the seconds until the next attempt."""
        self._given_up: dict[str, int] = {}
        """Run whose drive stopped because of an error -> how often in a row."""

    def clear(self) -> None:
        """Forget all runs."""
        self._stuck, self._given_up = {}, {}

    def taken_up(self, run_id: str, head: int) -> None:
        """Note that a run that is due is taken up."""
        _, before = self._stuck.get(run_id, (0, _AGAIN / 2))
        self._stuck[run_id] = head, min(_LONGEST, before * 2)

    def until_due(self, run_id: str, head: int, seconds: float) -> float:
        """Seconds until a run that is due in so many seconds is taken up."""
        stuck = self._stuck.get(run_id)
        if stuck is not None and stuck[0] == head:
            return max(seconds, stuck[1])
        self._stuck.pop(run_id, None)
        return seconds

    def given_up(self, run_id: str) -> float:
        """Note that the drive of a run failed; returns the least seconds until it is tried again."""
        count = self._given_up[run_id] = self._given_up.get(run_id, 0) + 1
        return min(_LONGEST, retry_delay(count))

    def succeeded(self, run_id: str) -> None:
        """A drive of the run ended as it should."""
        self._given_up.pop(run_id, None)


def seconds_to_retry(info: RunInfo) -> float:
    """Seconds until the store lets a run be tried again."""
    return 0.0 if info.retry_at is None else max(0.0, info.retry_at - SYSTEM_CLOCK.now())
