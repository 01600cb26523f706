"""What a list of workers says of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

WorkerState = Literal["alive", "draining", "lapsed", "dead"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """An executor that works as a worker, or holds runs.

    Attributes:
        id: the executor's id, which is the `holder` of its leases.
        state: `alive`; `draining`: it takes no more runs; `lapsed`: its heartbeat is overdue, and others take its runs
            over; `dead`: its process is known to have ended.
        worker: whether it takes up runs by itself (`Executor.work`).
        host: the machine's name, for people.
        pid: the process id on that machine.
        graphs: the graphs whose runs it takes up.
        slots: how many runs it drives at the same time; None if it is no worker.
        started: when it began to work, in Unix seconds; None if it is no worker.
        version: the version of this library that it runs.
        heartbeat: seconds since it was last heard from, by the store's clock.
        ttl: seconds without a heartbeat after which it lapses.
        held: the number of runs that it holds.
        runs: the ids of these runs, 20 at most.
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
        """The fields as plain JSON."""
        found: dict[str, object] = asdict(self)
        return found | {"graphs": [*self.graphs], "runs": [*self.runs]}
