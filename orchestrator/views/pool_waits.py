"""Steps that wait for a place in a pool of their graph (R18), and the steps that hold the places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation
from orchestrator.views.safe_text import plain
from orchestrator.views.timeline import Timeline, TimelineRow

_MOST = 3
"""Holders that a line names; further ones are counted."""


@dataclass(frozen=True, slots=True)
class PoolWait:
    """One step that waits for a place.

    Attributes:
        activation: The step.
        step: Its path and node.
        pool: The pool.
        places: How many places it has.
        holders: Number of the steps that hold one.
        held_by: The path and node of each of them, in the order in which they began, as far as the journal says it.
        ahead: How many steps wait before this one.
    """

    activation: str
    step: str
    pool: str
    places: int
    holders: int
    held_by: tuple[str, ...]
    ahead: int

    @property
    def what(self) -> str:
        """What it waits for, without its own name."""
        more = len(self.held_by) - _MOST
        names = ", ".join(self.held_by[:_MOST]) + (f" and {more} more" if more > 0 else "")
        taken = f"{self.holders} of {self.places} taken" + (f" by {names}" if names else "")
        line = f"; {self.ahead} before it" if self.ahead else ""
        return f"waits for a place in pool {plain(self.pool, 60)} ({taken}{line})"


def pool_waits(run: RunState, rows: Timeline) -> Iterator[PoolWait]:
    """The steps of a run that wait for places, pool by pool, the next one first.

    Args:
        run: the run, as far as the timeline goes.
        rows: its timeline, which names the steps.
    """
    for pool, line in run.lines.items():
        held = run.places.get(pool, set())
        found = sorted((rows.by_activation[key] for key in held if key in rows.by_activation), key=_number)
        names = tuple(map(_holder, found))
        size = run.plan.pools.get(pool)
        for ahead, token in enumerate(line.values()):
            yield PoolWait(token.key, _step(token), pool, size or len(held), len(held), names, ahead)


def executor_pool(run: RunState, row: TimelineRow) -> str:
    """The pool of the executor in which a step that has called nothing so far needs a place; empty: it needs none.

    The graph leaves the number of places to the executor (`pools={"api": None}`), so no record says who holds them.
    """
    token = run.running.get(row.activation)
    pool = None if token is None else token.frame.plan.pooled.get(token.node)
    if pool is None or run.plan.pools.get(pool) is not None or row.calls or row.graph:
        return ""
    return f"needs a place in pool {plain(pool, 60)} of the executor that drives it"


def _number(row: TimelineRow) -> int:
    return row.number


def _holder(row: TimelineRow) -> str:
    where = plain(f"{row.path}/{row.node}" if row.path else row.node, 120)
    return f"{where} since record {row.began}"


def _step(token: Activation) -> str:
    return plain(f"{token.path}/{token.node}" if token.path else token.node, 120)
