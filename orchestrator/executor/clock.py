"""Time: limits in seconds alive, time-outs of subgraphs, and deadlines of questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.executor.effects.questions import LATE
from orchestrator.executor.lease import clocks, steady
from orchestrator.kernel.records import FINAL, TIMEOUT, Answered, Failure, LimitSpent, TimerFired

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import LiveRun
    from orchestrator.kernel.machine import Machine
    from orchestrator.kernel.question import Question
    from orchestrator.kernel.token import Activation


class DriveClock:
    """The time of one drive of a run: the wall clock's at its beginning, and steady from then on.

    A wall clock can be wrong by any amount and can jump. What was written by another one is never waited for longer
    than was meant (`left`), and the seconds of a run go on as they began.
    """

    __slots__ = ("_ahead", "_asked", "_began", "_updated")

    def __init__(self, updated: float = 0.0, known: float = 0.0) -> None:
        """
        Args:
            updated: the time of the last record before the drive, by the clock of whatever wrote it.
            known: for how many seconds this process has seen the run stand still at that record.
        """
        now, now_steady = clocks()
        self._ahead, self._began, self._updated = now - now_steady, now - known, updated
        self._asked: dict[str, float] = {}

    def now(self) -> float:
        """Unix seconds."""
        return self._ahead + steady()

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

    def due(self, machine: Machine, question: Question) -> float | None:
        """When its deadline passes: no later than was meant, counted from when this process has known the question."""
        deadline = question.deadline
        if deadline is None:
            return None
        asked = machine.asked_at.get(question.id, self._updated)
        return min(deadline, self._asked.get(question.id, self._began) + max(0.0, deadline - asked))

    def first_due(self, machine: Machine) -> float | None:
        """When the first deadline of an open question passes."""
        if not machine.questions or machine.status in FINAL:
            return None
        return min(
            (at for one in machine.questions.values() if (at := self.due(machine, one)) is not None), default=None
        )


def next_due(live: LiveRun) -> float | None:
    """When a time limit will be spent, or a deadline pass; Unix seconds. None: nothing waits for time."""
    machine = live.machine
    due = [at for question in machine.questions.values() if (at := live.clock.due(machine, question)) is not None]
    if machine.running:
        due += [machine.updated + left for _, left in machine.seconds_left()]
        due += [machine.updated + left for _, left in machine.timeouts()]
    return min(due, default=None)


def ring(live: LiveRun, now: float) -> None:
    """Journal what time has brought about."""
    machine = live.machine
    for question in list(machine.questions.values()):
        due = live.clock.due(machine, question)
        if due is not None and due <= now and question.id in machine.questions:
            seq = machine.head + 1
            live.push(Answered(seq=seq, ts=now, question=question.id, answer=LATE, policy=True))
    while machine.running:
        spent = next((path for path, left in machine.seconds_left() if machine.updated + left <= now), None)
        late = next((one for one, left in machine.timeouts() if machine.updated + left <= now), None)
        if spent is not None:
            live.push(LimitSpent(seq=machine.head + 1, ts=now, frame=spent, limit="seconds"))
        elif late is not None:
            live.push(_timed_out(live, late, now))
        else:
            return


def _timed_out(live: LiveRun, activation: Activation, now: float) -> TimerFired:
    words = f"{activation.node} took longer than {live.node_of(activation).timeout} s"
    error = Failure(type="StepTimeout", message=words, node=activation.node, path=activation.path)
    return TimerFired(
        seq=live.machine.head + 1,
        ts=now,
        activation=activation.key,
        name=TIMEOUT,
        path=activation.path,
        node=activation.node,
        error=error,
    )
