"""What goes on beside all runs that an executor drives: their leases are renewed, and their inboxes looked into."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import StoreError
from orchestrator.executor import lease as leases
from orchestrator.executor.host.inbox import POLL, handle
from orchestrator.executor.host.worker_presence import announce
from orchestrator.executor.lease import Presence, steady
from orchestrator.stores.base import Store

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive
    from orchestrator.executor.host.worker_presence import WorkerFacts


class Heartbeat:
    """Keeps the runs of one executor alive, while there are any."""

    def __init__(self, store: Store, live: Mapping[str, Drive], presence: Presence) -> None:
        self._store, self._live, self._presence = store, live, presence
        self._any = anyio.Event()
        """Set while a run is live, or the executor works as a worker."""
        self.working: list[WorkerFacts] = []
        """The calls of `Executor.work` under way."""
        self.last: float | None = None
        """When the store last took a heartbeat, by the steady clock."""

    def reset(self) -> None:
        """Begin anew: an executor may be opened again, and in another event loop."""
        self._any = anyio.Event()
        self.update()

    def update(self) -> None:
        """A run was added, or the executor works as a worker from now on."""
        if (self._live or self._works) and not self._any.is_set():
            self._any.set()

    @property
    def _works(self) -> bool:
        return self._presence.owner.worker is not None

    async def _some(self) -> None:
        """Wait until a run is live. Looked at after each beat only: most runs are over before the next one.

        A worker is to be seen by others even while it has no run, so its heart beats always.
        """
        if not self._live and not self._works and self._any.is_set():
            self._any = anyio.Event()
        await self._any.wait()

    async def renew_leases(self) -> None:
        """Renew the leases every third of their length, for as long as the executor is open."""
        while True:
            await self._some()
            await anyio.sleep(self._presence.ttl / 3)
            with contextlib.suppress(StoreError):  # the next beat may succeed; till then effects ask for themselves
                if leases.keeps(self._presence.owner):
                    await self.beat()
                else:  # all runs went to sleep meanwhile; a beat is a write, at which workers look at the store
                    await self._presence.release_given_up()
                    await self._announce()

    async def beat(self) -> None:
        """Renew all leases at once. Where that is not enough, take each one again, and give up what is lost.

        Raises:
            StoreError: the store failed, so who holds the leases is unknown.
        """
        if not await self._presence.beat():
            async with anyio.create_task_group() as tasks:  # all at once: they share a commit
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
            # A run that has ended gave its lease back with its last records, or learns so from the store.
            if not await log.lease.renew() and not log.closing and log.machine.ended is None:
                drive.fail(leases.lost(log.run_id))

    async def poll_inboxes(self) -> None:
        """Look for messages from other processes, for as long as the executor is open."""
        while True:
            await self._some()
            await anyio.sleep(POLL)
            with contextlib.suppress(StoreError):
                if self._live:
                    await handle(self._store, self._live, await self._store.inbox(list(self._live)))
