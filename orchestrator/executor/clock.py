"""Time: limits in seconds alive, time-outs of subgraphs, and deadlines of questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.executor.asking import LATE
from orchestrator.kernel.records import TIMEOUT, Answered, Failure, LimitSpent, TimerFired

if TYPE_CHECKING:
    from orchestrator.executor.driving import LiveRun
    from orchestrator.kernel.machine import Machine
    from orchestrator.kernel.token import Activation


def next_due(machine: Machine) -> float | None:
    """When a time limit will be spent, or a deadline pass; Unix seconds. None: nothing waits for time."""
    due = [question.deadline for question in machine.questions.values() if question.deadline is not None]
    if machine.running:
        due += [machine.updated + left for _, left in machine.seconds_left()]
        due += [machine.updated + left for _, left in machine.timeouts()]
    return min(due, default=None)


def ring(live: LiveRun, now: float) -> None:
    """Journal what time has brought about."""
    machine = live.machine
    for question in list(machine.questions.values()):
        if question.deadline is not None and question.deadline <= now and question.id in machine.questions:
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
