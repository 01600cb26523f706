"""The workers of a store: each says in the store what it does, and all of them are listed, with who is alive."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import StoreError
from orchestrator.executor.concurrency import Signal
from orchestrator.executor.lease import Presence, clocks, is_held, keeps
from orchestrator.executor.run_status import is_parked, with_status
from orchestrator.jsontypes import JsonObject
from orchestrator.stores.base import Holder, RunInfo, Store
from orchestrator.stores.owner import is_dead
from orchestrator.values import MAX_NAME, cut, in_calendar
from orchestrator.views.worker_info import WorkerInfo, WorkerState

if TYPE_CHECKING:
    from orchestrator.executor.host import Host

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


_RUNS = 20
"""Runs that are named for each worker at most."""


async def workers(store: Store) -> list[WorkerInfo]:
    """See `ExecutorWorkers.list`."""
    found = [_info(one) for one in await store.holders(runs=_RUNS)]
    shown = [one for one in found if one.worker or one.held]
    return sorted(shown, key=lambda one: (one.state in ("lapsed", "dead"), not one.worker, one.started or 0.0, one.id))


async def parked(store: Store, limit: int) -> list[RunInfo]:
    """See `ExecutorWorkers.parked`."""
    found = await store.parked(limit=limit)
    return [with_status(info) for info in found if is_parked(info) and not is_held(info.lease)]


def _info(one: Holder) -> WorkerInfo:
    owner, said = one.owner, one.owner.get("worker")
    worker = said if isinstance(said, Mapping) else {}
    pid, slots, started, graphs = owner.get("pid"), worker.get("slots"), worker.get("started"), worker.get("graphs")
    return WorkerInfo(
        id=one.holder, state=_state(one, worker), worker=isinstance(said, Mapping),
        host=cut(str(owner.get("host", "")), MAX_NAME), pid=pid if isinstance(pid, int) else None,
        graphs=tuple(cut(str(name), MAX_NAME) for name in graphs) if isinstance(graphs, list) else (),
        slots=slots if isinstance(slots, int) else None,
        started=in_calendar(started) if isinstance(started, int | float) else None,
        version=cut(str(worker.get("version", "")), MAX_NAME), heartbeat=max(0.0, one.ttl - one.left), ttl=one.ttl,
        held=one.held, runs=one.runs,
    )  # fmt: skip


def _state(one: Holder, worker: Mapping[str, object]) -> WorkerState:
    if is_dead(one.owner):
        return "dead"
    if one.left <= 0:
        return "lapsed"
    return "draining" if worker.get("draining") else "alive"
