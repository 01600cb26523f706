"""The tasks that run a run's steps: as many as wait for something at the same time, and one more.

A worker runs an activation, lands it (the kernel folds the record, the journal buffers it) and goes on itself with
the first activation that this started. The others queue up for whoever is free. While anything is queued one more
worker is on its way, which begins as soon as those before it wait for something: a thousand steps that wait for a
model run in a thousand tasks, a thousand that wait for nothing in one. There is no barrier between steps, and no
task in the middle that everything goes through.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from orchestrator.executor.journal import MOST
from orchestrator.executor.signals import settle_in
from orchestrator.executor.stepping import run_step

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from orchestrator.executor.driving import LiveRun
    from orchestrator.kernel.token import Activation

YIELD_AFTER = 0.005
"""Seconds after which steps that never wait give the event loop to others. One step in a crowd does it for all."""


class Pace:
    """When the steps of an executor last gave the event loop its turn."""

    __slots__ = ("yielded",)

    def __init__(self) -> None:
        self.yielded = time.monotonic()


class Workers:
    """The workers of one run that this process drives."""

    def __init__(self, live: LiveRun, pace: Pace) -> None:
        self.active = 0
        """How many there are, with the one that is on its way."""
        self._live, self._pace = live, pace
        self._tasks: TaskGroup | None = None
        self._queue: deque[Activation] = deque()
        self._scopes: dict[str, anyio.CancelScope] = {}
        """Activation that is run -> the scope of its worker."""
        self._coming = False
        self._quiet: anyio.Event | None = None

    def open(self, tasks: TaskGroup) -> None:
        """Begin, as tasks of a group, with all that runs."""
        self._tasks = tasks
        for activation in list(self._live.machine.running.values()):
            self.add(activation)

    def add(self, activation: Activation) -> None:
        """Have an activation run."""
        if self._tasks is None or self._live.closing:
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
        if self.active:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    def _call(self) -> None:
        """Have one more worker come, if something waits for it and none is on its way.

        Asked before anything waits, so that at any moment at which a task waits, or is stopped, somebody comes for
        what is queued.
        """
        if self._queue and not self._coming and self._tasks is not None and not self._live.closing:
            self._coming = True
            self.active += 1
            self._tasks.start_soon(self._work)

    async def _work(self) -> None:
        self._coming = False
        settle_in()
        try:
            scope = anyio.CancelScope()
            with scope:
                await self._run(scope)
        except (Exception, SystemExit) as error:  # let out here, SystemExit would stop asyncio's loop where it stands
            self._live.fail(error)
        finally:
            self.active -= 1
            if not self.active and self._quiet is not None:
                self._quiet.set()

    async def _run(self, scope: anyio.CancelScope) -> None:
        live, queue, scopes, pace = self._live, self._queue, self._scopes, self._pace
        running, journal = live.machine.running, live.journal
        activation: Activation | None = None
        while True:
            if activation is None:
                if not queue or scope.cancel_called:
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
                record = await run_step(live, activation)
            finally:
                scopes.pop(key, None)
            if record is None:
                activation = None
                continue
            started = live.land(record)
            if started:
                own = 0 if scope.cancel_called else 1
                activation = started[0] if own else None
                if len(started) > own:
                    for other in started[own:]:
                        self.add(other)
            elif record.type == "step_retried":
                continue
            else:
                activation = None
            if len(journal.buffer) >= MOST:
                await live.durable()
            now = time.monotonic()
            if not 0 <= now - pace.yielded < YIELD_AFTER:
                pace.yielded = now
                await checkpoint()
