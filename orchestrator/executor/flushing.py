"""Writing what nobody waits for: records of pure steps, a while after they landed, in one task for all runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from orchestrator.executor.run_log import RunLog

FLUSH_AFTER = 0.05
"""Seconds that a record which nobody waits for may stay in the buffer."""


class Flusher:
    """Flushes runs whose buffered records are overdue."""

    def __init__(self) -> None:
        self._late: dict[RunLog, None] = {}
        self._some = anyio.Event()

    def anew(self) -> None:
        """Forget what was noted before, and the event loop in which it was."""
        self._late, self._some = {}, anyio.Event()

    def note(self, log: RunLog) -> None:
        """A run has something in its buffer from now on."""
        if not self._late:
            self._some.set()
        self._late[log] = None

    async def run(self) -> None:
        """Go on, for as long as the executor is open."""
        while True:
            await self._some.wait()
            await anyio.sleep(FLUSH_AFTER)
            self._some = anyio.Event()
            late, self._late = self._late, {}
            for log in late:
                log.flush()
