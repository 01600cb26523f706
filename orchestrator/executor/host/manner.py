"""How a run is taken up: `Executor.resume` has the meaning of each part."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.graph.limits import Limits


@dataclass(frozen=True, slots=True)
class Manner:
    """How a run is taken up."""

    approve: str | None = None
    accept: bool = False
    wait: float = 0.0
    trust_answers: bool = True
    retry: bool = False
    """Whether a run that failed, was cancelled or spent a limit is reopened."""
    limits: Limits | None = None
    """The explicitly set fields replace those of the run's limits."""
    by: str = ""
    """Who reopens it, for the journal."""
    reason: str = ""


AS_IT_IS = Manner()
