"""Executors and workers that share a store, and the runs that no worker takes until they are resumed."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.executor.lease import is_held
from orchestrator.executor.run_status import is_parked, with_status
from orchestrator.stores.base import Holder, RunInfo, Store
from orchestrator.stores.owner import is_dead
from orchestrator.values import MAX_NAME, cut, in_calendar
from orchestrator.views.worker_info import WorkerInfo, WorkerState

_RUNS = 20
"""Maximum number of runs that are named for each worker."""


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
        id=one.holder,
        state=_state(one, worker),
        worker=isinstance(said, Mapping),
        host=cut(str(owner.get("host", "")), MAX_NAME),
        pid=pid if isinstance(pid, int) else None,
        graphs=tuple(cut(str(name), MAX_NAME) for name in graphs) if isinstance(graphs, list) else (),
        slots=slots if isinstance(slots, int) else None,
        started=in_calendar(started) if isinstance(started, int | float) else None,
        version=cut(str(worker.get("version", "")), MAX_NAME),
        heartbeat=max(0.0, one.ttl - one.left),
        ttl=one.ttl,
        held=one.held,
        runs=one.runs,
    )


def _state(one: Holder, worker: Mapping[str, object]) -> WorkerState:
    if is_dead(one.owner):
        return "dead"
    if one.left <= 0:
        return "lapsed"
    return "draining" if worker.get("draining") else "alive"
