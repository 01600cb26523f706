"""Workers for display in a list, and the state of runs that no process drives."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from orchestrator.values import utc
from orchestrator.views.safe_text import told

WorkerState = Literal["alive", "draining", "lapsed", "dead"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """An executor that is a worker, or holds runs.

    Attributes:
        id: the executor's id, which is the `holder` of its leases.
        state: `alive`; `draining`: it takes no more runs; `lapsed`: its heartbeat is overdue, and others take over its
            runs; `dead`: its process is known to have ended.
        worker: whether it acquires runs (`Executor.work`).
        host: the machine's name, for people.
        pid: the process id on that machine.
        graphs: the graphs whose runs it acquires.
        slots: maximum of runs that it drives at the same time; None if it is not a worker.
        started: when it started to work, in Unix seconds; None if it is not a worker.
        version: its version of this library.
        heartbeat: seconds since its last heartbeat, by the store's clock.
        ttl: seconds without a heartbeat after which it lapses.
        held: the number of runs that it holds.
        runs: the ids of these runs, at most 20.
    """

    id: str
    state: WorkerState
    worker: bool
    host: str
    pid: int | None
    graphs: tuple[str, ...]
    slots: int | None
    started: float | None
    version: str
    heartbeat: float
    ttl: float
    held: int
    runs: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the fields as plain JSON."""
        found: dict[str, object] = asdict(self)
        return found | {"graphs": [*self.graphs], "runs": [*self.runs]}


@dataclass(frozen=True, slots=True)
class Standby:
    """State of a run that no process drives, from the store.

    Attributes:
        due: when a worker may acquire it at the earliest, in Unix seconds; None if it does not wait for a worker.
        deaths: number of consecutive failed or dead drives since a step landed.
        retry_at: before this time, in Unix seconds, no worker acquires it; None: unrestricted.
        fault: why the last drive stopped.
        parked: whether only `resume` continues it, and no worker acquires it.
    """

    due: float | None = None
    deaths: int = 0
    retry_at: float | None = None
    fault: str = ""
    parked: bool = False

    def line(self, at: str = "") -> str:
        """Explain in one line why no process drives the run, and when one will.

        Args:
            at: the run's place.
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
    """Return a time in Unix seconds as a date and time in UTC."""
    return f"{utc(seconds):%Y-%m-%d %H:%M:%S} UTC"
