"""Adding runs to the store: begun by this executor, or enqueued for any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from orchestrator.executor import lease as leases
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.trust import drop_unsealed, guard_run
from orchestrator.executor.resources import Resources
from orchestrator.executor.run_row import row_of
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.machine import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Forked, Record, RunStarted
from orchestrator.kernel.run_state import RunState
from orchestrator.seals import Chain
from orchestrator.stores.base import RunInfo
from orchestrator.stores.requests import NewRun

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive


async def create(
    host: Host, graph: GraphDefinition, *first: RunStarted | Forked, own: Resources | None = None
) -> Drive:
    """Add a run with its first record, of a replay its first two, to the store and take its lease.

    Raises:
        RunExists: the id is taken.
        RuntimeError: the executor is not open, or was closed meanwhile; then the run is in the store.
    """
    tasks = host.background()
    records, chain = _sealed(host, *first)
    machine, info = _row(host, graph, records)
    await host.enter(info.run_id)
    try:
        hold = await leases.create(host.presence, info, records, graph=graph.data(), stopping=lambda: host.stopping)
        try:
            host.check_open(tasks)
        except RuntimeError:
            with anyio.CancelScope(shield=True):
                await leases.give_back(host.store, info.run_id, hold.token)
            raise
        live = host.new_drive(machine, hold, own=own)
        live.log.journal.note_row(info)
        live.log.journal.chain = chain
        await guard_run(host.store, live.log, None, host.resources.asked.get(graph.content))
        if host.seal is not None:
            await drop_unsealed(host.store, host.seal, info.run_id, None)
        return host.add(live)
    finally:
        host.leave(info.run_id)


async def enqueue(host: Host, graph: GraphDefinition, started: RunStarted, due: float) -> None:
    """Add a run to the store that no executor drives yet.

    Args:
        due: from when on it may be taken up, Unix seconds.

    Raises:
        RunExists: the id is taken.
    """
    records, _ = _sealed(host, started)
    _, info = _row(host, graph, records)
    await host.store.create(NewRun(replace(info, due=due), records, graph=graph.data()))


def _sealed(host: Host, *first: RunStarted | Forked) -> tuple[list[Record], Chain | None]:
    chain = None if host.seal is None else host.seal.chain(first[-1].run_id)
    return [record if chain is None else chain.sealed(record) for record in first], chain


def _row(host: Host, graph: GraphDefinition, records: Sequence[Record]) -> tuple[RunState, RunInfo]:
    """The state of a run at its first records, and its row."""
    machine = RunState(Plan.of(graph))
    for record in records:
        apply(machine, record)
    caller = None if machine.caller is None else host.live.get(machine.caller.run_id)
    calling = None if caller is None else caller.machine
    return machine, row_of(machine, structure=graph.structure, content=graph.content, calling=calling)
