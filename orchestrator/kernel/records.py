"""The journal's records: everything that ever happened to a run, as frozen data.

`seq` counts from 1 without gaps. `ts` is Unix time in seconds: the kernel reads no clock, so time comes in
here. Fields at their default are not written. A record's JSON form is `{"type": ..., "seq": ..., "ts": ...}`
and is read back by `decode`, which refuses what it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from orchestrator.graph.limits import Limits, Reserve, Usage
from orchestrator.kernel.question import Answer, Question
from orchestrator.kernel.rules import rules_of

RECORD_VERSION = 1

JsonDict: TypeAlias = dict[str, object]
EffectKind: TypeAlias = Literal["model", "tool", "effect"]
EffectClass: TypeAlias = Literal["pure", "read", "idempotent", "irreversible"]
RunStatus: TypeAlias = Literal["running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted"]
FINAL: frozenset[str] = frozenset({"completed", "failed", "cancelled", "exhausted"})


def _is_empty(text: str) -> bool:
    return not text


Moment: TypeAlias = Annotated[float, Field(ge=-253402300799, le=253402300799, allow_inf_nan=False)]
"""Unix seconds, as far as a calendar goes."""


class Failure(BaseModel):
    """What went wrong, as data: it outlives the process in which it happened."""

    model_config = ConfigDict(frozen=True)

    type: str
    """The error's class name, such as `AgentError`."""
    message: str
    node: str = ""
    path: str = ""
    retry_after: float | None = None
    """Seconds that a server asked to wait."""
    traceback: str = Field(default="", exclude_if=_is_empty)
    """Where it was raised, as text: the user's own code first, without values; empty where no exception was."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    ts: Moment
    v: int = RECORD_VERSION
    seal: str = ""
    """Proof that the holder of a key wrote the journal up to here; see `orchestrator.executor.Seal`."""


class Caller(BaseModel):
    """The call that a run was begun by: a run's call of a graph as a tool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    """The calling run."""
    key: str
    """The call, by its idempotency key."""
    depth: int = 1
    """How many runs are around this one."""


class RunStarted(_Record):
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


class StepDone(_Record):
    """An activation ended with an outcome. `error` is set when the outcome stands for a failure."""

    type: Literal["step_done"] = "step_done"
    activation: str
    path: str = ""
    node: str
    outcome: str = "done"
    update: JsonDict = {}
    ops: dict[str, str] = {}
    """How a field's update differs from what its reducer does: `replace` or `extend`."""
    reduced: JsonDict | None = None
    """Values after the step of fields whose reducer is code, so that folding needs none."""
    attempt: int = 1
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure | None = None
    failed: int = 0
    """Calls of tools that failed, or could not be made, in the attempt that ended so."""


def step_done(
    *,
    seq: int,
    ts: float,
    activation: str,
    path: str,
    node: str,
    outcome: str,
    update: JsonDict,
    ops: dict[str, str],
    reduced: JsonDict | None,
    attempt: int,
    started: float,
    error: Failure | None = None,
    failed: int = 0,
) -> StepDone:
    """The record of a step that ended at `ts`, from parts that are checked already.

    Checking them once more would be about a tenth of what a step in memory costs.
    """
    record = StepDone.__new__(StepDone)
    fields = {
        "seq": seq, "ts": ts, "v": RECORD_VERSION, "seal": "", "type": "step_done", "activation": activation,
        "path": path, "node": node, "outcome": outcome, "update": update, "ops": ops, "reduced": reduced,
        "attempt": attempt, "started": started, "ended": ts, "error": error, "failed": failed,
    }  # fmt: skip
    _set(record, "__dict__", fields)
    _set(record, "__pydantic_fields_set__", _STEP_DONE_FIELDS)
    _set(record, "__pydantic_extra__", None)
    _set(record, "__pydantic_private__", None)
    return record


_set = object.__setattr__
_STEP_DONE_FIELDS = set(StepDone.model_fields)


class StepFailed(_Record):
    """An activation failed for good: its graph fails."""

    type: Literal["step_failed"] = "step_failed"
    activation: str
    path: str = ""
    node: str
    attempt: int = 1
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure


class StepRetried(_Record):
    """An attempt failed and another one follows at `next_at`."""

    type: Literal["step_retried"] = "step_retried"
    activation: str
    path: str = ""
    node: str
    attempt: int
    """The attempt that failed."""
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure
    next_at: Moment


class GraphOpened(_Record):
    """The graph inside a subgraph's activation began, with `values` as its whole start state."""

    type: Literal["graph_opened"] = "graph_opened"
    activation: str
    path: str = ""
    node: str
    attempt: int = 1
    values: JsonDict


class EffectIntended(_Record):
    """Something outside is about to be touched. Durable before it is."""

    type: Literal["effect_intended"] = "effect_intended"
    activation: str
    path: str = ""
    node: str
    key: str
    """activation / attempt / name / digest of the request / occurrence, as one hash: the idempotency key."""
    kind: EffectKind
    name: str
    effect: EffectClass
    digest: str
    """Of the request."""
    occurrence: int = 0
    attempt: int = 1
    request: JsonDict = {}
    """What was asked. Messages that the journal holds already are `{"ref": digest}`."""
    again: bool = False
    """An effect intended before, whose end is unknown, is made again under the same key."""
    inside: str = ""
    """Key of the effect that makes it: of a tool that calls another one. Empty: the node does."""
    reserve: Reserve | None = None
    """What it reserves until it is settled, where tokens or cost are limited."""


class EffectSettled(_Record):
    """The end of an effect is known."""

    type: Literal["effect_settled"] = "effect_settled"
    activation: str
    path: str = ""
    node: str
    key: str
    ok: bool = True
    result: object = None
    error: Failure | None = None
    usage: Usage | None = None
    started: Moment = 0.0
    ended: Moment = 0.0
    unknown: bool = False
    """It may or may not have happened (a cancelled or timed-out irreversible call)."""
    tries: int = 1
    """How many times it was tried."""
    next_at: Moment | None = None
    """Unix seconds: it failed, and is tried again then. None: this is its end."""


def failed_result(result: object) -> str | None:
    """What went wrong with a call of a tool that has this result in its `effect_settled`; None if nothing did."""
    if not isinstance(result, Mapping) or not (result.get("error") or result.get("exit_code")):
        return None
    return str(result.get("error") or f"exit code {result['exit_code']}")


class Asked(_Record):
    """An activation waits for an answer."""

    type: Literal["asked"] = "asked"
    activation: str
    path: str = ""
    node: str
    question: Question


class Answered(_Record):
    """A question was answered, once. `policy` marks answers that a rule gave."""

    type: Literal["answered"] = "answered"
    question: str
    answer: Answer = Field(discriminator="type")
    by: str = ""
    policy: bool = False
    message: int | None = None
    """The inbox message that brought it."""
    about: str = ""
    """Digest of the tool call that the question showed: the answer counts for this call only."""


class AnswersWithdrawn(_Record):
    """Approvals that are not believed do not count any more: their steps ask again."""

    type: Literal["answers_withdrawn"] = "answers_withdrawn"
    questions: tuple[str, ...] = ()
    policy: bool = False
    """Whether the run's policy (`approve`) does not count any more either."""
    reason: str = ""


class EventReceived(_Record):
    """Something from outside was handed to the run."""

    type: Literal["event_received"] = "event_received"
    name: str
    data: object = None
    message: int | None = None


class TimerSet(_Record):
    """A timer will fire at `at`, Unix seconds."""

    type: Literal["timer_set"] = "timer_set"
    activation: str
    name: str
    at: Moment


class TimerFired(_Record):
    """A timer fired. The one of the name `TIMEOUT` ends the graph inside a subgraph's activation with `error`."""

    type: Literal["timer_fired"] = "timer_fired"
    activation: str
    name: str
    path: str = ""
    node: str = ""
    error: Failure | None = None


TIMEOUT = "timeout"
"""The timer of an activation's time-out."""


class Paused(_Record):
    """Somebody asked the run to pause: what runs lands, nothing new starts."""

    type: Literal["paused"] = "paused"
    by: str = ""
    reason: str = ""
    message: int | None = None


class Resumed(_Record):
    """An executor took the run up again. `changes` is the content diff, if the graph's content changed."""

    type: Literal["resumed"] = "resumed"
    holder: str = ""
    content: str | None = None
    changes: tuple[str, ...] = ()
    tools: dict[str, str] | None = None
    """As of `RunStarted`, if they are not what they were."""
    approve: str | None = None
    unpause: bool = False


class Cancelled(_Record):
    """Somebody cancelled the run."""

    type: Literal["cancelled"] = "cancelled"
    by: str = ""
    reason: str = ""
    message: int | None = None


class LimitSpent(_Record):
    """A limit of the graph at `frame` was found spent. `activation` is the one that was refused, if any was."""

    type: Literal["limit_spent"] = "limit_spent"
    frame: str
    """Path of the graph whose limit it is; empty for the run's own graph."""
    limit: str
    activation: str | None = None


class Spent(_Record):
    """What the run that a call of this run began has spent and reserved, as totals: the same record twice adds nothing.

    Written before every call that the inner run makes, and after it. Steps and seconds are each run's own.
    """

    type: Literal["spent"] = "spent"
    activation: str
    path: str = ""
    node: str
    key: str
    """The call that began the inner run."""
    run: str
    """The inner run."""
    call: str = ""
    """Key of the inner run's call that this is about; empty for the total at its end."""
    usage: Usage = Usage()
    reserve: Reserve = Reserve()
    message: int | None = None


class LimitsChanged(_Record):
    """The run's limits were changed."""

    type: Literal["limits_changed"] = "limits_changed"
    limits: Limits
    by: str = ""


class Forked(_Record):
    """This run began as a copy of another one's first `at` records, with `update` on its trunk."""

    type: Literal["forked"] = "forked"
    run_id: str
    parent: str
    at: int
    update: JsonDict = {}
    ops: dict[str, str] = {}
    branch: str | None = None


class Migrated(_Record):
    """The run goes on in a changed graph: `nodes` maps old names to new ones."""

    type: Literal["migrated"] = "migrated"
    structure: str
    content: str
    nodes: dict[str, str] = {}
    values: JsonDict | None = None


class Ended(_Record):
    """The run is over."""

    type: Literal["ended"] = "ended"
    status: Literal["completed", "failed", "cancelled", "exhausted"]
    output: object = None
    error: Failure | None = None
    reduced: JsonDict | None = None


Record: TypeAlias = (
    RunStarted
    | StepDone
    | StepFailed
    | StepRetried
    | GraphOpened
    | EffectIntended
    | EffectSettled
    | Asked
    | Answered
    | AnswersWithdrawn
    | EventReceived
    | TimerSet
    | TimerFired
    | Paused
    | Resumed
    | Cancelled
    | LimitSpent
    | Spent
    | LimitsChanged
    | Forked
    | Migrated
    | Ended
)

RECORD_TYPES: tuple[str, ...] = tuple(member.model_fields["type"].default for member in Record.__args__)

_WITH_RUN_ID = frozenset(
    member.model_fields["type"].default for member in Record.__args__ if "run_id" in member.model_fields
)
_adapter: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="type")])

_ENDINGS = {name: f',"type":"{name}"}}'.encode() for name in RECORD_TYPES}


def encode(record: Record) -> bytes:
    """A record as compact JSON; fields at their default are left out, `type` never is."""
    return record.__pydantic_serializer__.to_json(record, exclude_defaults=True)[:-1] + _ENDINGS[record.type]


def encode_unsealed(record: Record) -> bytes:
    """The same without the seal: what a seal is about."""
    return (
        record.__pydantic_serializer__.to_json(record, exclude_defaults=True, exclude={"seal"})[:-1]
        + _ENDINGS[record.type]
    )


def revived(fields: JsonDict, run_id: str) -> Record:
    """A record of its fields; `run_id` stands in where the record has that field and `fields` do not.

    Raises:
        ValueError: it is not a record that this version knows (pydantic's `ValidationError` is one).
    """
    if fields.get("type") in _WITH_RUN_ID:
        fields = {"run_id": run_id, **fields}
    return _adapter.validate_python(fields)


def decode(data: bytes | str) -> Record:
    """Read a record back.

    Raises:
        ValueError: it is not a record that this version knows (pydantic's `ValidationError` is one).
    """
    if (b"NaN" in data or b"Infinity" in data) if isinstance(data, bytes) else ("NaN" in data or "Infinity" in data):
        _refuse_constants(data)
    try:
        record = _adapter.validate_json(data)
    except ValidationError as error:
        if not _is_too_deep(error):
            raise
        # Earlier versions wrote values that are nested deeper than pydantic reads; Python's own reader takes them.
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):
            raise error from None
        record = _adapter.validate_python(fields)
    if record.v > RECORD_VERSION:
        raise ValueError(f"record version {record.v} is newer than {RECORD_VERSION}; update the library")
    return record


def _refuse_constants(data: bytes | str) -> None:
    """Refuse numbers that JSON does not have: nothing here writes them, and what folds over them breaks."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    with suppress(RecursionError):
        json.loads(data, parse_constant=refuse)


def _is_too_deep(error: ValidationError) -> bool:
    first = error.errors(include_url=False, include_input=False)[0]
    return first["type"] == "json_invalid" and "recursion limit" in first["msg"]
