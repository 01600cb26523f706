"""A run and its events, side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, Self

import anyio

from orchestrator.executor.host.following import Watcher, watch
from orchestrator.typevars import StateT
from orchestrator.views.events import Event, event_of

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive
    from orchestrator.executor.host.host import Host
    from orchestrator.views.run import Run


class Stream(Generic[StateT]):
    """The events of a run that is driven meanwhile. Iterate it; when it is over, `run` is the run."""

    def __init__(self, host: Host, live: Drive, watcher: Watcher) -> None:
        self._host, self._live, self._watcher = host, live, watcher

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._live.run_id

    @property
    def run(self) -> Run[StateT]:
        """The run, when it has ended or paused.

        Raises:
            RuntimeError: it goes on: read the events to their end first.
        """
        if not self._live.done.is_set():
            raise RuntimeError(f"run {self.run_id!r} goes on: read its events to the end first")
        return self._host.run_of(self._live)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        seen = await anext(self._watcher, None)
        if seen is None:
            await self._live.done.wait()
            if self._live.fault is not None:
                raise self._live.fault
            raise StopAsyncIteration
        return seen if isinstance(seen, Event) else event_of(self.run_id, seen)


@asynccontextmanager
async def streamed(host: Host, live: Drive) -> AsyncIterator[Stream]:
    """Drive a new run while the block runs. Leaving it interrupts the run."""
    watcher = watch(host, live.run_id, 0)
    watcher.catch_up(live.log.journal.stored)
    live.log.watchers.add(watcher)

    async def drive() -> None:
        try:
            await host.drive(live)
        except (Exception, SystemExit) as error:
            live.fault = live.fault or error  # raised where the events are read

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            yield Stream(host, live, watcher)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:  # what the block raised, as it raised it
            raise group.exceptions[0] from group.exceptions[0].__cause__
        raise
