"""The options of runs, resumes, forks and replays.

Users give them as keyword arguments of `Executor`, which documents them; internally, one object holds them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from orchestrator.executor.resources import Resources
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.versions import Migration
from orchestrator.kernel.records import Caller
from orchestrator.models.base import Model
from orchestrator.values import check_kind, check_seconds, check_text

if TYPE_CHECKING:
    from orchestrator.executor.replay.running import Live


class RunOptions(Struct, frozen=True, kw_only=True):
    """Options of a run that is started; see `Executor.start`."""

    run_id: str | None = None
    labels: Mapping[str, str] | None = None
    approve: str | None = None
    limits: Limits | None = None
    refs: Mapping[str, object] | None = None
    pause_before: Collection[str] | None = None
    pause_after: Collection[str] | None = None
    context: object = None
    by: str = ""

    def __post_init__(self) -> None:
        check_text(self.by, "by")

    def for_existing(self) -> ResumeOptions:
        """Return the options that also apply if a run with this id exists and is continued."""
        return ResumeOptions(
            pause_before=self.pause_before, pause_after=self.pause_after, context=self.context, by=self.by
        )


class ResumeOptions(Struct, frozen=True, kw_only=True):
    """Options of a run that is resumed; see `Executor.resume`."""

    retry: bool = False
    limits: Limits | None = None
    approve: str | None = None
    accept_changes: bool = False
    wait: float = 0.0
    trust_answers: bool = True
    migrate: Migration | None = None
    pause_before: Collection[str] | None = None
    pause_after: Collection[str] | None = None
    context: object = None
    by: str = ""
    resources: Resources | None = None
    """Resources with which the run is driven in place of the executor's: a replay may have other models."""

    def __post_init__(self) -> None:
        check_kind(self.limits, Limits, "limits")
        check_kind(self.migrate, Migration, "migrate")
        check_text(self.by, "by")
        check_seconds(self.wait, "wait")

    @property
    def changes_nothing(self) -> bool:
        """Return True if the run stays unchanged in the journal."""
        changes = (self.approve, self.limits, self.pause_before, self.pause_after)
        return not self.retry and all(one is None for one in changes)


NO_OPTIONS = ResumeOptions()
"""The run is resumed unchanged."""


class ForkOptions(Struct, frozen=True):
    """The run to fork, and the changes of the fork; see `Executor.fork`."""

    parent: str
    at: int | None = None
    update: Mapping[str, object] | None = None
    branch: str | None = None
    answer: object = None
    answers: Mapping[str, object] | None = None
    result: object = None
    request: object = None
    pause: bool | None = None
    graph: GraphDefinition | str | None = None
    migrate: Migration | None = None
    run_id: str | None = None
    labels: Mapping[str, str] | None = None
    by: str = ""
    digests: Collection[str] | None = None
    caller: Caller | None = None
    """The call of a graph as a tool that waits for the fork; the same call of another run started the fork's parent."""
    replay: Mapping[str, Any] | None = None
    """Fields that only the record `forked` of a replay has. A replay inherits no labels, and needs no models."""

    @property
    def once(self) -> bool:
        """Return True if the fork pauses after the steps that it starts with."""
        return self.request is not None if self.pause is None else self.pause


class ReplayOptions(Struct, frozen=True):
    """The run to replay, and the changes; see `Executor.replay`."""

    parent: str = ""
    graph: GraphDefinition | str | None = None
    models: Mapping[str, Model] | None = None
    update: Mapping[str, object] | None = None
    answer: object = None
    result: object = None
    at: int | None = None
    approve: str | None = None
    context: object = None
    live: Live = "never"
    run_id: str | None = None
    by: str = ""
    digests: Collection[str] | None = None
