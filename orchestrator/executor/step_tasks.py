"""The tasks that run a run's steps: as many as wait for something at the same time, and one more.

A worker runs an activation, lands it (the kernel folds the record, the journal buffers it) and goes on itself with
the first activation that this started. The others queue up for whoever is free. While anything is queued, as many
workers are on their way as steps wait for something, and one more, which begin when those before them wait: a
thousand steps that wait for a model run in a thousand tasks after ten turns of the event loop, which others may make
long; a thousand that wait for nothing run in one. There is no barrier between steps, and no task in the middle that
everything goes through.

Steps that share a task share nothing else: each finds the context variables as they were when the drive began.
"""

from __future__ import annotations

from collections import deque
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio.abc import TaskGroup

from orchestrator._lazy import lazy_modules
from orchestrator.containment import as_error, is_cancelled, native_task, outside, take_back_cancels
from orchestrator.executor.attempt import run_step
from orchestrator.executor.concurrency import YieldBudget
from orchestrator.executor.interrupts import enter_step_task
from orchestrator.executor.journal import MOST
from orchestrator.executor.resources import Resources
from orchestrator.executor.run_log import RunLog
from orchestrator.kernel.records import Record
from orchestrator.kernel.state import Activation

if TYPE_CHECKING:
    from orchestrator.executor.replay import steps as replayed_steps
else:
    (replayed_steps,) = lazy_modules("orchestrator.executor.replay", "steps")


class Steps(Protocol):
    """Where the records of steps land: the drive."""

    def land(self, record: Record) -> list[Activation]:
        """Journal how a step ended; gives what it started."""
        ...

    def fail(self, error: BaseException) -> None:
        """Give the drive up."""


class StepTasks:
    """The workers of one run that this process drives."""

    def __init__(self, log: RunLog, resources: Resources, pace: YieldBudget) -> None:
        self.active = 0
        """How many there are, with those that are on their way."""
        self._log, self._resources, self._pace = log, resources, pace
        self._tasks: TaskGroup | None = None
        self._steps: Steps | None = None
        self._queue: deque[Activation] = deque()
        self._held: list[Activation] = []
        self._scopes: dict[str, anyio.CancelScope] = {}
        """Activation that is run -> the scope of its worker."""
        self._coming = 0
        """How many are on their way."""
        self._context = Context()
        self._quiet: anyio.Event | None = None

    def open(self, tasks: TaskGroup, steps: Steps) -> None:
        """Begin, as tasks of a group, with all that runs."""
        self._tasks, self._steps, self._context = tasks, steps, copy_context()
        self._begin(list(self._log.machine.running.values()))

    def close(self) -> None:
        """The group has ended, and all workers with it."""
        self._tasks = self._steps = None

    def _begin(self, stopped: list[Activation]) -> None:
        """Have run what was under way when the run was last driven; in a fork that is not started, when it is."""
        self._held = stopped if self._log.machine.is_held else []
        for activation in () if self._held else stopped:
            self.add(activation)

    def add(self, activation: Activation) -> None:
        """Have an activation run."""
        if self._tasks is None or self._log.closing:
            return  # whoever drives the run next starts what the journal says is running
        self._queue.append(activation)
        self._call()

    def cancel(self, activation: Activation) -> None:
        """Stop an activation that is no longer part of the run."""
        scope = self._scopes.get(activation.key)
        if scope is not None:
            scope.cancel()

    async def quiet(self) -> None:
        """Wait until nothing runs any more."""
        self._begin(self._held)
        while self.active:  # something may have been added since it was quiet
            self._quiet = anyio.Event()
            await self._quiet.wait()

    def _call(self) -> None:
        """Have more workers come, if something waits for them.

        Asked before anything waits, so that at any moment at which a task waits, or is stopped, somebody comes for
        what is queued.
        """
        if self._coming > len(self._scopes) or self._tasks is None or self._steps is None or self._log.closing:
            return  # as many are on their way as may be, for the most part
        for _ in range(min(len(self._queue), 1 + len(self._scopes)) - self._coming):
            self._coming += 1
            self.active += 1
            self._context.copy().run(self._tasks.start_soon, self._work, self._steps)

    async def _work(self, steps: Steps) -> None:
        self._coming -= 1
        enter_step_task()
        try:
            scope = anyio.CancelScope()
            with scope:
                await self._run(scope, steps)
        except BaseException as error:
            stop = outside(error, self._log.task, self._log.cancels)
            if stop is not None and not isinstance(stop, SystemExit):
                raise
            steps.fail(stop or as_error(error))  # let out here, SystemExit would stop asyncio's loop where it stands
        finally:
            self.active -= 1
            if not self.active and self._quiet is not None:
                self._quiet.set()

    async def _run(self, scope: anyio.CancelScope, steps: Steps) -> None:
        log, queue, scopes, pace = self._log, self._queue, self._scopes, self._pace
        running, journal = log.machine.running, log.journal
        task = None if log.task is None else native_task()
        context = copy_context()
        activation: Activation | None = None
        last = False
        while True:
            if activation is None:
                if not queue or last or log.closing:
                    return
                activation = queue.popleft()
            key = activation.key
            if key not in running:
                activation = None
                continue
            if queue:
                self._call()
            scopes[key] = scope
            try:
                record = await run_step(log, self._resources, activation)
                if task is not None and task.cancelling() and not is_cancelled(log.task, log.cancels):
                    await take_back_cancels(task)
                if log.replay is not None and record is not None:
                    record = await replayed_steps.wait_to_land(log, log.replay, activation, record)
            finally:
                scopes.pop(key, None)
            # What a node left in the context is none of the next step's business, which then begins in another task.
            last = scope.cancel_called or not _same(context)
            if record is None:
                started = []
            else:
                started = steps.land(record)
                if record.type == "step_retried":
                    started.insert(0, activation)
            activation = started.pop(0) if started and not last and not log.closing else None
            for other in started:
                self.add(other)
            if len(journal.buffer) >= MOST:
                await log.durable()
            if pace.due and (activation is not None or (queue and not last)):
                await pace.give_way()


def _same(context: Context) -> bool:
    """Whether the context variables of this task are as they were."""
    try:
        return copy_context() == context
    except Exception:  # of two values that cannot be compared
        return False
