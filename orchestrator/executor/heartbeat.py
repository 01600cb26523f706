"""Background work for all runs that an executor drives: renewing their leases, reading their inboxes.

The inbox of a run in the store holds commands that other processes left for the process that drives it. An executor
that runs as a worker announces that in the store, at once and with each heartbeat; `worker_list` lists these.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import StoreError
from orchestrator.executor import lease as leases
from orchestrator.executor.concurrency import Signal
from orchestrator.executor.lease import Presence, steady
from orchestrator.json import JsonObject
from orchestrator.stores.base import Store

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive

POLL = 0.25
"""Seconds between polls of the inbox."""

log = logging.getLogger("orchestrator")


_LAST_WORD = 2.0
"""Seconds that a worker which ends has to announce that to the store."""


@dataclass(slots=True)
class WorkerFacts:
    """Facts about one call of `Executor.work`, for the store."""

    graphs: Sequence[str]
    slots: int
    started: float = field(default_factory=SYSTEM_CLOCK.now)
    draining: bool = False
    over: Signal = field(default_factory=Signal)
    """Set when the call no longer needs the store."""


class Heartbeat:
    """Keeps the runs of one executor alive, while there are any."""

    def __init__(self, store: Store, live: Mapping[str, Drive], presence: Presence) -> None:
        self._store, self._live, self._presence = store, live, presence
        self._any = anyio.Event()
        """Set while a run is live, or the executor runs as a worker."""
        self.working: list[WorkerFacts] = []
        """The calls of `Executor.work` in progress."""
        self.last: float | None = None
        """Time of the last heartbeat in the store, by the steady clock."""

    def reset(self) -> None:
        """Start again: an executor may be opened again, also in another event loop."""
        self._any = anyio.Event()
        self.update()

    def update(self) -> None:
        """Called when a run was added, or the executor starts to run as a worker."""
        if (self._live or self._works) and not self._any.is_set():
            self._any.set()

    @property
    def _works(self) -> bool:
        return self._presence.owner.worker is not None

    @contextlib.asynccontextmanager
    async def working_as(self, facts: WorkerFacts) -> AsyncIterator[None]:
        """List this executor as a worker in the store, for as long as the block runs."""
        self.working.append(facts)
        try:
            await self.show()
            yield
        finally:
            self.working.remove(facts)
            with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_WORD):
                await self.show()
            facts.over.set()

    async def show(self) -> None:
        """Announce the current facts of this executor. If the store fails, a later heartbeat does it."""
        presence, working = self._presence, self.working
        with contextlib.suppress(StoreError):
            if working:
                await announce(presence, _together(working))
                self.last = leases.clocks()[1]
            else:
                presence.owner = replace(presence.owner, worker=None)
                if leases.keeps(presence.owner):
                    await announce(presence, None)
                else:
                    await presence.store.beat(presence.owner.executor, 0.0)
        self.update()

    async def _some(self) -> None:
        """Wait until there is a live run. This is checked between beats only: most runs end before the next one.

        A worker must be visible to others even while it has no run, so its heartbeats never stop.
        """
        if not self._live and not self._works and self._any.is_set():
            self._any = anyio.Event()
        await self._any.wait()

    async def renew_leases(self) -> None:
        """Renew the leases every third of their length, for as long as the executor is open."""
        while True:
            await self._some()
            await anyio.sleep(self._presence.ttl / 3)
            with contextlib.suppress(StoreError):  # the next beat may succeed; until then effects check
                if leases.keeps(self._presence.owner):
                    await self.beat()
                else:  # all runs went to sleep meanwhile; a beat is a write, which makes workers check the store
                    await self._presence.release_given_up()
                    await self._announce()

    async def beat(self) -> None:
        """Renew all leases at once. If that does not suffice, take each one again, and give up lost ones.

        Raises:
            StoreError: the store failed, so who holds the leases is unknown.
        """
        if not await self._presence.beat():
            async with anyio.create_task_group() as tasks:  # at the same time: they share a commit
                for drive in list(self._live.values()):
                    tasks.start_soon(self._renew, drive)
            await self._announce()
        self.last = steady()
        await self._presence.release_given_up()

    async def _announce(self) -> None:
        worker = self._presence.owner.worker
        if worker is not None:
            await announce(self._presence, dict(worker))
            self.last = steady()

    async def _renew(self, drive: Drive) -> None:
        log = drive.log
        with contextlib.suppress(StoreError):
            # A run that has ended has released its lease: a failed renewal does not matter then.
            if not await log.lease.renew() and not log.closing and log.machine.ended is None:
                drive.fail(leases.lost(log.run_id))

    async def poll_inboxes(self) -> None:
        """Check for messages from other processes, for as long as the executor is open."""
        while True:
            await self._some()
            await anyio.sleep(POLL)
            with contextlib.suppress(StoreError):
                if self._live:
                    await self._take_messages()

    async def _take_messages(self) -> None:
        messages = await self._store.inbox(list(self._live))
        lives = [(message, self._live.get(message.run_id)) for message in messages]
        dropped = [message.id for message, live in lives if live is not None and not live.take(message)]
        if dropped:
            await self._store.discard(dropped)


async def announce(presence: Presence, worker: JsonObject | None) -> None:
    """Announce an executor, and its facts as a worker, at once and with each lease. Counts as a beat.

    Args:
        presence: the executor's presence.
        worker: its facts; None: it is not a worker.

    Raises:
        StoreError: the store failed.
    """
    presence.owner = replace(presence.owner, worker=worker)
    at = leases.clocks()
    await presence.store.announce(presence.owner, ttl=presence.ttl)
    presence.taken(at)


def _together(working: Sequence[WorkerFacts]) -> JsonObject:
    from orchestrator import __version__

    graphs = sorted({name for one in working for name in one.graphs})
    return {
        "graphs": graphs,
        "slots": sum(one.slots for one in working),
        "started": min(one.started for one in working),
        "draining": all(one.draining for one in working),
        "version": __version__,
    }
