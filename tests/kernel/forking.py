"""Forks of simulated runs."""

from __future__ import annotations

from typing import Any

from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply

from .harness import Simulation, Trace


def forked(parent: Trace, at: int, simulation: Simulation, run_id: str = "fork", **changes: Any) -> Trace:
    """The fork of a run at a record, driven to its end by a new simulation, which knows the journal only."""
    begin(parent, at, simulation, run_id, **changes)
    while simulation.machine.ended is None:
        simulation.advance()
    return simulation.trace


def begin(parent: Trace, at: int, simulation: Simulation, run_id: str = "fork", **changes: Any) -> None:
    """Land the copied records and the one of the fork."""
    machine = simulation.machine
    for record in parent.records[:at]:
        apply(machine, r.decode(r.encode(record)))
        simulation.trace.records.append(record)
        if isinstance(record, r.Asked):
            simulation.asked[record.activation] += 1
    changed = bool(changes.get("update"))
    simulation.lean = simulation.lean or changed  # an edit is an update without an activation
    parent_id, root = machine.run_id, machine.root_id
    simulation.land(r.Forked(**simulation.head(), run_id=run_id, parent=parent_id, at=at, root=root, **changes))
    assert (machine.run_id, machine.root_id) == (run_id, root)
    for activation in () if changed else machine.running.values():
        simulation._see(activation)
