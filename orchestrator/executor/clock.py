"""The time of one drive of a run, and when the deadlines of its questions pass."""

from __future__ import annotations

from orchestrator.clock import Clock
from orchestrator.kernel.question import Question
from orchestrator.kernel.run_state import RunState
from orchestrator.stores.base import RunInfo


class DriveClock:
    """The time of one drive of a run: the wall clock's at its beginning, and steady from then on.

    A wall clock can be wrong by any amount and can jump. What was written by another one is never waited for longer
    than was meant (`left`), and the seconds of a run go on as they began.
    """

    __slots__ = ("_ahead", "_asked", "_began", "_steady", "_updated")

    def __init__(self, clock: Clock, updated: float = 0.0, known: float = 0.0) -> None:
        """
        Args:
            clock: the clock of the executor.
            updated: the time of the last record before the drive, by the clock of whatever wrote it.
            known: for how many seconds this process has seen the run stand still at that record.
        """
        now = clock.now()
        self._steady = clock.steady
        self._ahead = now - self._steady()
        self._began, self._updated = now - known, updated
        self._asked: dict[str, float] = {}

    def now(self) -> float:
        """Unix seconds."""
        return self._ahead + self._steady()

    def left(self, until: float, meant: float | None) -> float:
        """Seconds until a time that was written down, maybe by another clock.

        Args:
            meant: how many seconds off it was when it was written down, None: not known.
        """
        left = until - self.now()
        return max(0.0, left if meant is None else min(left, meant))

    def asked(self, question: Question) -> None:
        """A question was asked in this drive."""
        if question.deadline is not None:
            self._asked[question.id] = self.now()

    def due(self, machine: RunState, question: Question) -> float | None:
        """When its deadline passes: no later than was meant, counted from when this process has known the question."""
        deadline = question.deadline
        if deadline is None:
            return None
        asked = machine.asked_at.get(question.id, self._updated)
        return min(deadline, self._asked.get(question.id, self._began) + max(0.0, deadline - asked))

    def first_due(self, machine: RunState) -> float | None:
        """When the first deadline of an open question passes, if the run waits for it; None while steps run."""
        if not machine.questions or machine.status != "paused" or machine.is_held:
            return None
        return min(
            (at for one in machine.questions.values() if (at := self.due(machine, one)) is not None), default=None
        )


class Standstill:
    """Since when this process has seen runs with a deadline unchanged, for executors whose clocks disagree."""

    _MOST = 10_000
    """How many runs are remembered; then all are forgotten, and are watched anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, float], float]] = {}
        """Run -> its head when it was last looked at, when it was created (its id may be that of a deleted run), and
        since when its head is that, by the steady clock."""

    def overdue(self, info: RunInfo) -> bool:
        """Whether a deadline of a run has passed, by the clock or by how long the run was seen to stand still.

        Where clocks disagree the deadline may lie far off: no more seconds are waited for than were left of it when the
        run's last record was written.
        """
        if info.due is None:
            self._seen.pop(info.run_id, None)
            return False
        now_steady = self._clock.steady()
        seen, since = self._seen.get(info.run_id, ((0, 0.0), 0.0))
        if seen != (info.head, info.created):
            if len(self._seen) >= self._MOST:
                self._seen.clear()
            since = now_steady
            self._seen[info.run_id] = (info.head, info.created), since
        return info.due <= self._clock.now() or now_steady - since >= max(0.0, info.due - info.updated)

    def seconds(self, run_id: str, head: int) -> float:
        """For how long the run was seen to stand still at this record. It is forgotten: the run goes on."""
        (seen, _), since = self._seen.pop(run_id, ((0, 0.0), 0.0))
        return self._clock.steady() - since if seen == head else 0.0
