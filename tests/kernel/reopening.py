"""Reopening of simulated runs."""

from __future__ import annotations

from typing import Any

from orchestrator.kernel import records as r
from orchestrator.kernel.question import PAUSE

from .harness import FINAL, Simulation


def reopen(simulation: Simulation, **fields: Any) -> None:
    """Land the record: what has not landed is at liberty to do something else than before."""
    machine = simulation.machine
    assert machine.ended is not None
    simulation.done = set(simulation.trace.landed)
    simulation.acts.clear()
    fields.setdefault("status", machine.ended.status)
    simulation.land(r.Reopened(**simulation.head(), **fields))
    assert machine.ended is None
    assert PAUSE not in machine.questions
    for frame in machine.frames():
        for token in frame.live.values():
            simulation.asked[token.key] = len(token.answers)


def reopened(simulation: Simulation, **fields: Any) -> None:
    """Reopen a run that has ended, and drive it to its end."""
    reopen(simulation, **fields)
    while simulation.machine.status not in FINAL:
        simulation.advance()
