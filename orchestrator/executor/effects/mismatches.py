"""The error for code that is not the code that the journal was written with."""

from __future__ import annotations

from orchestrator.errors import ReplayMismatch
from orchestrator.kernel.ledger import EffectEntry


def mismatch(run_id: str, entry: EffectEntry, why: str) -> ReplayMismatch:
    """The error for code that no longer makes a call which happened and cannot be undone."""
    intended = entry.intended
    return ReplayMismatch(
        f"run {run_id!r}: {intended.node} did {intended.name} (request {intended.digest}), "
        f"which cannot be undone, and then crashed; {why}. Resume it with the code that it was started with"
    )
