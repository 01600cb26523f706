"""What an open executor knows of one run that it is awake for."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from orchestrator.kernel.run_state import RunState


@dataclass(slots=True, eq=False)
class Watched:
    """One run that waits."""

    head: int
    """The last record that this executor has seen."""
    since: float
    """Since when it has seen the run unchanged, by the steady clock."""
    due: float | None = None
    """When it is to be taken up, by the steady clock; None: when another process moves it."""
    driven: bool = False
    """Whether another executor drives it, or may do so: looked at with each poll."""
    moved: anyio.Event = field(default_factory=anyio.Event)
    """Set when the run is no longer watched in this way."""
    awaited: bool = False
    """Whether a caller waits to drive it."""
    context: object = None
    """The value of `ctx.context` in its nodes, where this executor drove it."""
    observed: int = 0
    """The last record that was written here, so that the observers of this executor know of it."""
    retries: float | None = None
    """If its drive failed here: the earliest time, by the steady clock, at which it is tried again."""


def moved_by_others(machine: RunState) -> bool:
    """Whether the run is gone on with by what began it: a call of a graph as a tool, or a replay."""
    return machine.caller is not None or (machine.fork is not None and machine.fork.relation == "replay")
