"""Tokens, cost and calls that calls under way reserve in the graphs around them (R14)."""

from __future__ import annotations

from orchestrator.graph.limits import Reserve
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameState

_NOTHING = Reserve()


def reserve(run: RunState, key: str, line: tuple[FrameState, ...], amount: Reserve | None) -> None:
    """Reserve for a call under way, in place of its last reservation.

    Args:
        run: the run.
        key: of the call.
        line: the graphs around it. Empty if its step is gone: then nothing is reserved, so that its graphs do not wait
            for the run that the call began.
        amount: None ends the reservation.
    """
    before = run.reserves.pop(key, None) or _NOTHING
    now = amount if amount is not None and line else _NOTHING
    if now != _NOTHING:
        run.reserves[key] = now
    for frame in line:
        frame.reserved_calls += now.calls - before.calls
        frame.reserved_tokens += now.tokens - before.tokens
        frame.reserved_cost += now.cost - before.cost


def release(run: RunState, activation: Activation) -> None:
    """End the reservations of an activation's calls."""
    for entry in run.ledger.of(activation.key):
        if entry.intended.key in run.reserves:
            reserve(run, entry.intended.key, activation.frame.line, None)


def release_all(run: RunState) -> None:
    """End all reservations: when a new drive begins, no call of the last one is under way."""
    run.reserves.clear()
    for frame in run.frames():
        frame.reserved_calls = frame.reserved_tokens = 0
        frame.reserved_cost = 0.0
