"""Runs that no process drives: when they continue, and why their last drive stopped."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.values import utc
from orchestrator.views.safe_text import told


@dataclass(frozen=True, slots=True)
class Standby:
    """What the store says about a run that no process drives.

    Attributes:
        due: when it may be taken up at the earliest, in Unix seconds; None: it does not wait to be taken up.
        deaths: how many drives in a row failed or died since a step landed.
        retry_at: before this time, in Unix seconds, no worker takes it up; None: no such time.
        fault: why the last drive stopped.
        parked: whether only `resume` continues it, and no worker takes it up.
    """

    due: float | None = None
    deaths: int = 0
    retry_at: float | None = None
    fault: str = ""
    parked: bool = False

    def line(self, at: str = "") -> str:
        """Why no process drives the run, and when one will, in one line.

        Args:
            at: where the run is.
        """
        place = f" at {at}" if at else ""
        if not self.deaths:
            return f"it waits{place} to be taken up{self._from(self.due)}"
        times = f"{self.deaths} time{'s' if self.deaths != 1 else ''}"
        given_up = f"its drives were given up or died {times} in a row{place}"
        ahead = "only `resume` continues it" if self.parked else f"it is taken up again{self._from(self.retry_at)}"
        why = f": {told(self.fault, 120)}" if self.fault else ""
        return f"{given_up}, and {ahead}{why}"

    @staticmethod
    def _from(seconds: float | None) -> str:
        return f", from {moment(seconds)} on" if seconds is not None else ""


def moment(seconds: float) -> str:
    """A moment in Unix seconds as a date and time in UTC."""
    return f"{utc(seconds):%Y-%m-%d %H:%M:%S} UTC"
