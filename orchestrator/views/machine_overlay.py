"""The overlay of a run whose journal is gone, from its state in memory. It has less than the one of `trace`."""

from __future__ import annotations

from orchestrator.kernel.queries import busy_seconds, edges_taken, node_visits
from orchestrator.kernel.records import Failure
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Phase
from orchestrator.views.overlay import NodeKey, Overlay


def machine_overlay(machine: RunState, status: str, error: Failure | None) -> Overlay:
    """Where a run has been and where it is.

    Args:
        machine: the run's state.
        status: the run's status.
        error: why it failed.
    """
    visits = node_visits(machine)
    waiting: set[NodeKey] = set()
    for token in machine.live_tokens():
        place = (token.frame.place, token.node)
        if token.counted:
            visits[place] -= 1
        if token.phase is Phase.ASKING:
            waiting.add(place)
    return Overlay(
        visits={place: count for place, count in visits.items() if count > 0},
        taken=edges_taken(machine),
        waiting=frozenset(waiting),
        running=frozenset((token.frame.place, token.node) for token in machine.running.values()),
        failed=frozenset()
        if status != "failed" or error is None or not error.node
        else frozenset({(error.path, error.node)}),
        status=status,
        seconds=busy_seconds(machine),
    )
