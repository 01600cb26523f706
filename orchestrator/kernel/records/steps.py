"""Records about steps, and about the graphs inside subgraphs' steps."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from orchestrator.kernel.records.base import ActivationRecord, Failure, JsonDict, Moment, RecordBase, StepStamp


class StepDone(ActivationRecord):
    """An activation ended with an outcome. `error` is set when the outcome stands for a failure."""

    type: Literal["step_done"] = "step_done"
    outcome: str = "done"
    update: JsonDict = Field(default_factory=dict)
    ops: dict[str, str] = Field(default_factory=dict)
    """Field -> `replace` or `extend`, where its update does not go through the reducer as it is."""
    reduced: JsonDict | None = None
    """Values after the step of fields whose reducer is user code, so that folding needs no code."""
    attempt: int = 1
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure | None = None
    failed: int = 0
    """Number of tool calls in this attempt that failed or could not be made."""
    guards: dict[str, bool | str] = Field(default_factory=dict)
    """Outcome -> whether its condition held, or why that is unknown; of a `Route`. No rule depends on them."""
    cached: bool = False
    """Whether outcome and update are those of an earlier step, from the cache. No rule depends on it."""


def step_done(
    stamp: StepStamp,
    *,
    outcome: str,
    update: JsonDict,
    ops: dict[str, str],
    reduced: JsonDict | None,
    attempt: int,
    started: float,
    error: Failure | None = None,
    failed: int = 0,
    guards: dict[str, bool | str] | None = None,
    cached: bool = False,
) -> StepDone:
    """The record of a step that ended at the time of `stamp`, from parts that are already validated.

    Validating them again would be a twentieth of the cost of a step in memory.
    """
    fields = _STEP_DONE.copy()  # of a dictionary that is full of them, and never becomes larger
    fields.update(stamp)
    fields["outcome"], fields["update"], fields["ops"], fields["reduced"] = outcome, update, ops, reduced
    fields["attempt"], fields["started"], fields["ended"] = attempt, started, stamp["ts"]
    fields["error"], fields["failed"], fields["guards"], fields["cached"] = error, failed, guards or {}, cached
    record = _new(StepDone)
    _set_values(record, fields)
    _set_fields(record, _STEP_DONE_FIELDS)
    _set_extra(record, None)
    _set_private(record, None)
    return record


_new = object.__new__
_set_values, _set_fields, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
_STEP_DONE: dict[str, object] = {name: field.default for name, field in StepDone.model_fields.items()}
"""All fields in their order. Those without a default are always given."""
_STEP_DONE_FIELDS = set(StepDone.model_fields)


class StepFailed(ActivationRecord):
    """An activation failed after all retries: its graph fails."""

    type: Literal["step_failed"] = "step_failed"
    attempt: int = 1
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure


class StepRetried(ActivationRecord):
    """An attempt failed, and the next one begins at `next_at`."""

    type: Literal["step_retried"] = "step_retried"
    attempt: int
    """The attempt that failed."""
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure
    next_at: Moment


class GraphOpened(ActivationRecord):
    """The graph inside a subgraph's activation began, with `values` as its whole start state."""

    type: Literal["graph_opened"] = "graph_opened"
    attempt: int = 1
    values: JsonDict


class TimerSet(RecordBase):
    """An activation waits for a timer, which will fire at `at`, Unix seconds."""

    type: Literal["timer_set"] = "timer_set"
    activation: str
    name: str
    """Its id among what the run waits for."""
    at: Moment
    path: str = ""
    node: str = ""


class TimerFired(RecordBase):
    """A timer, or the deadline of a question that an event answers, fired: the activation that waits goes on.

    The timer named `TIMEOUT` ends the graph inside a subgraph's activation with `error`.
    """

    type: Literal["timer_fired"] = "timer_fired"
    activation: str
    name: str
    path: str = ""
    node: str = ""
    error: Failure | None = None


TIMEOUT = "timeout"
"""Name of the timer of an activation's time-out."""


class LimitSpent(RecordBase):
    """A limit of the graph at `frame` is spent. `activation` is the one that was refused, if any."""

    type: Literal["limit_spent"] = "limit_spent"
    frame: str
    """Path of the graph that has the limit; empty for the run's own graph."""
    limit: str
    activation: str | None = None
