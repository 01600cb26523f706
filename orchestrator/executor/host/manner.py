"""How a run is taken up: `Executor.resume` has the meaning of each part."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.executor.resources import Resources
from orchestrator.graph.limits import Limits
from orchestrator.graph.versions import Migration
from orchestrator.values import check_kind, check_seconds, check_text


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
    migrate: Migration | None = None
    """How it moves to a version of its graph that it does not fit."""
    by: str = ""
    """Who takes it up, for the journal."""
    reason: str = ""
    pause_before: Collection[str] | None = None
    """The nodes before which it pauses from now on; None: those that it has."""
    pause_after: Collection[str] | None = None
    context: object = None
    """What its nodes get as `ctx.context`; None: not given."""

    @property
    def is_plain(self) -> bool:
        """Whether it changes nothing in the run."""
        changes = (self.approve, self.limits, self.pause_before, self.pause_after)
        return not self.retry and all(one is None for one in changes)

    own: Resources | None = None
    """What it is driven with, if that is not what the executor was given: a replay may have other models."""

    def __post_init__(self) -> None:
        check_kind(self.limits, Limits, "limits")
        check_kind(self.migrate, Migration, "migrate")
        check_text(self.by, "by")
        check_seconds(self.wait, "wait")


AS_IT_IS = Manner()
