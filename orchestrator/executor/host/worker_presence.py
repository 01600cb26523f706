"""What a worker says of itself in the store, so that others see who works."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import StoreError
from orchestrator.executor.concurrency import Signal
from orchestrator.executor.lease import Presence, clocks, keeps
from orchestrator.jsontypes import JsonObject

if TYPE_CHECKING:
    from orchestrator.executor.host.host import Host

_LAST_WORD = 2.0
"""Seconds that a worker which ends tries to tell the store."""


@dataclass(slots=True)
class WorkerFacts:
    """What one call of `Executor.work` says."""

    graphs: Sequence[str]
    slots: int
    started: float = field(default_factory=SYSTEM_CLOCK.now)
    draining: bool = False
    over: Signal = field(default_factory=Signal)
    """Set when the call needs the store no more."""


@contextlib.asynccontextmanager
async def shown(host: Host, facts: WorkerFacts) -> AsyncIterator[None]:
    """Have the store say that this executor is a worker, for as long as the block runs."""
    host.heartbeat.working.append(facts)
    try:
        await show(host)
        yield
    finally:
        host.heartbeat.working.remove(facts)
        with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_WORD):
            await show(host)
        facts.over.set()


async def show(host: Host) -> None:
    """Say what this executor is now. Where the store fails, a later heartbeat says it."""
    presence, working = host.presence, host.heartbeat.working
    with contextlib.suppress(StoreError):
        if working:
            await announce(presence, _together(working))
            host.heartbeat.last = clocks()[1]
        else:
            presence.owner = replace(presence.owner, worker=None)
            if keeps(presence.owner):
                await announce(presence, None)
            else:
                await presence.store.beat(presence.owner.executor, 0.0)
    host.heartbeat.update()


async def announce(presence: Presence, worker: JsonObject | None) -> None:
    """Say that an executor is there, and what it is as a worker, now and with each lease. It counts as a beat.

    Args:
        presence: the executor's.
        worker: what it says of itself; None: it is no worker.

    Raises:
        StoreError: the store failed.
    """
    presence.owner = replace(presence.owner, worker=worker)
    at = clocks()
    await presence.store.announce(presence.owner, ttl=presence.ttl)
    presence.taken(at)


def _together(working: Sequence[WorkerFacts]) -> JsonObject:
    from orchestrator import __version__

    graphs = sorted({name for one in working for name in one.graphs})
    return {
        "graphs": graphs, "slots": sum(one.slots for one in working), "started": min(one.started for one in working),
        "draining": all(one.draining for one in working), "version": __version__,
    }  # fmt: skip
