"""Records about the run as a whole."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, field_validator

from orchestrator.graph.limits import Limits
from orchestrator.kernel.records.base import Failure, JsonDict, RecordBase
from orchestrator.kernel.rules import rules_of


class Caller(BaseModel):
    """The call that a run was begun by: a run's call of a graph as a tool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    """The calling run."""
    key: str
    """The call, by its idempotency key."""
    depth: int = 1
    """How many runs are around this one."""


class RunStarted(RecordBase):
    """A run began. `values` is the whole start state, validated; `refs` says in text what it was started with."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    graph: str
    structure: str
    content: str
    values: JsonDict
    limits: Limits | None = None
    labels: dict[str, str] = {}
    approve: str | None = None
    """Questions about tools of at most this risk are approved by policy."""
    refs: JsonDict = {}
    tools: dict[str, str] = {}
    """Every tool that the run's nodes may call, with the digest of its schema; `node/name` for a node's own."""
    holder: str = ""
    rules: int = 1
    """The version of the execution rules that the run follows, see `orchestrator.kernel.rules`."""
    caller: Caller | None = None
    """The call that began it, of a graph that was called as a tool."""

    @field_validator("rules")
    @classmethod
    def _known(cls, rules: int) -> int:
        rules_of(rules)
        return rules


class Paused(RecordBase):
    """Somebody asked the run to pause: what runs lands, nothing new starts."""

    type: Literal["paused"] = "paused"
    by: str = ""
    reason: str = ""
    message: int | None = None


class Resumed(RecordBase):
    """An executor took the run up again. `changes` is the content diff, if the graph's content changed."""

    type: Literal["resumed"] = "resumed"
    holder: str = ""
    content: str | None = None
    changes: tuple[str, ...] = ()
    tools: dict[str, str] | None = None
    """As of `RunStarted`, if they are not what they were."""
    approve: str | None = None
    unpause: bool = False


class Cancelled(RecordBase):
    """Somebody cancelled the run."""

    type: Literal["cancelled"] = "cancelled"
    by: str = ""
    reason: str = ""
    message: int | None = None


class LimitsChanged(RecordBase):
    """The run's limits were changed."""

    type: Literal["limits_changed"] = "limits_changed"
    limits: Limits
    by: str = ""


class Forked(RecordBase):
    """This run began as a copy of another one's first `at` records, with `update` on its trunk."""

    type: Literal["forked"] = "forked"
    run_id: str
    parent: str
    at: int
    update: JsonDict = {}
    ops: dict[str, str] = {}
    branch: str | None = None


class Migrated(RecordBase):
    """The run goes on in a changed graph: `nodes` maps old names to new ones."""

    type: Literal["migrated"] = "migrated"
    structure: str
    content: str
    nodes: dict[str, str] = {}
    values: JsonDict | None = None


class Ended(RecordBase):
    """The run is over."""

    type: Literal["ended"] = "ended"
    status: Literal["completed", "failed", "cancelled", "exhausted"]
    output: object = None
    error: Failure | None = None
    reduced: JsonDict | None = None
