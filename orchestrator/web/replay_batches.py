"""The batches of replays that a server works on, and what came of replays that are over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from orchestrator.executor.replay.start import ReplayBatch, ReplayProgress
    from orchestrator.views.replay_result import Replay

_GOING = 8
"""Batches that a server works on at the same time."""
_REMEMBERED = 100
"""Batches that are over and remembered, with why runs could not be replayed."""
_KEPT = 500
"""Results of replays that are kept: each takes the reading of two runs."""


@dataclass(slots=True)
class ReplayBatches:
    """Batches by their name."""

    _batches: dict[str, list[ReplayBatch]] = field(default_factory=dict)
    results: dict[str, tuple[object, Replay]] = field(default_factory=dict)
    """Replay -> the versions of both runs, and what came of it."""

    def check(self) -> None:
        """
        Raises:
            HttpProblem: no further batch can be begun.
        """
        going = sum(not one.over for batches in self._batches.values() for one in batches)
        if going >= _GOING:
            detail = f"this server works on {going} batches of replays, its limit: wait for one, or stop one"
            raise HttpProblem(503, "batches-full", detail, headers={"Retry-After": "5"})

    def add(self, name: str, batch: ReplayBatch) -> None:
        """Remember a batch. There may be others of the name, which began other runs of it."""
        self._batches.setdefault(name, []).append(batch)
        over = [one for one, batches in self._batches.items() if all(batch.over for batch in batches)]
        for one in over[:-_REMEMBERED]:
            del self._batches[one]

    def going(self, name: str) -> bool:
        """True if this server works on a batch."""
        return any(not batch.over for batch in self._batches.get(name, ()))

    def stop(self, name: str) -> None:
        """Stop a batch."""
        for batch in self._batches.get(name, ()):
            batch.stop()

    def runs(self, name: str) -> dict[str, ReplayProgress]:
        """Replay -> its progress, as far as this server has it."""
        return {one.replay_id: one for batch in self._batches.get(name, ()) for one in batch.runs}

    def keep(self, replay_id: str, version: object, result: Replay) -> None:
        """Keep what came of a replay."""
        self.results.pop(replay_id, None)
        self.results[replay_id] = version, result
        while len(self.results) > _KEPT:
            self.results.pop(next(iter(self.results)))
