"""Timers of a driven run: limits in seconds, time-outs of subgraphs, timers, and deadlines of questions.

A node's own `timeout` is a cancel scope around its attempt: see `step_tasks.run_step`.
"""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup

from orchestrator.executor.commands import answered_by_rule
from orchestrator.executor.concurrency import Signal
from orchestrator.executor.run_log import RunLog
from orchestrator.kernel import records as r
from orchestrator.kernel.limits import seconds_left, timeouts
from orchestrator.kernel.question import LATE
from orchestrator.kernel.state import Activation


class Timers:
    """Waits for the next time-out while a run is driven, in a task that exists only while there is one."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._tasks: TaskGroup | None = None
        self._changed = Signal()
        self.waits = False
        """True while the task exists."""
        self._due = 0.0
        """The time for which it waits, Unix seconds."""

    def open(self, tasks: TaskGroup) -> None:
        """Start waiting for time-outs, in a task of a group."""
        self._tasks = tasks
        self.look()

    def look(self) -> None:
        """Check again: limits or deadlines may have changed."""
        if self.waits:
            self._changed.set()
        elif self._tasks is not None and next_due(self._log) is not None:
            self.waits = True
            self._tasks.start_soon(self._wait)

    def look_before(self, due: float) -> None:
        """Check again, unless the time for which it waits is before `due`, Unix seconds."""
        if not self.waits or due < self._due:
            self.look()

    async def _wait(self) -> None:
        log = self._log
        while (due := next_due(log)) is not None:
            self._due = due
            self._changed = Signal()
            with anyio.move_on_after(max(0.0, due - log.clock.now())):
                await self._changed.wait()
            fire_due(log, log.clock.now())
        self.waits = False


def next_due(log: RunLog) -> float | None:
    """Return the next time at which a limit is spent or a deadline passes, Unix seconds; None if there is none."""
    machine = log.machine
    due = [at for question in machine.questions.values() if (at := log.clock.due(machine, question)) is not None]
    if machine.running:
        due += [machine.updated + left for _, left in seconds_left(machine)]
        due += [machine.updated + left for _, left in timeouts(machine)]
    return min(due, default=None)


def fire_due(log: RunLog, now: float) -> None:
    """Journal the time-outs that are due."""
    machine = log.machine
    for question in list(machine.questions.values()):
        due = log.clock.due(machine, question)
        if due is not None and due <= now and question.id in machine.questions:
            log.push(answered_by_rule(log, question, LATE))
    while machine.running:
        spent = next((path for path, left in seconds_left(machine) if machine.updated + left <= now), None)
        late = next((one for one, left in timeouts(machine) if machine.updated + left <= now), None)
        if spent is not None:
            log.push(r.LimitSpent(**log.now(), frame=spent, limit="seconds"))
        elif late is not None:
            log.push(_timed_out(log, late))
        else:
            return


def _timed_out(log: RunLog, activation: Activation) -> r.TimerFired:
    words = f"{activation.node} took longer than {log.node_of(activation).timeout} s"
    error = r.Failure(type="StepTimeout", message=words, node=activation.node, path=activation.path)
    return r.TimerFired(**log.at(activation), name=r.TIMEOUT, error=error)
