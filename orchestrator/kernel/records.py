"""The journal's records: everything that happened to a run, as frozen data, and their JSON form.

`seq` counts from 1 without gaps. `ts` is Unix time in seconds; the kernel reads no clock, so records contain the time.
A record's JSON form is `{"type": ..., "seq": ..., "ts": ...}` without fields at their default. `decode` reads it back
and refuses unknown types and fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias, TypedDict, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema, from_json

from orchestrator.errors import EncryptionKeyMissing
from orchestrator.graph.limits import Limits, Reserve, Usage
from orchestrator.kernel.question import Answer, Question
from orchestrator.values import LATEST

RECORD_VERSION = 1
JsonDict: TypeAlias = dict[str, object]
EffectKind: TypeAlias = Literal["model", "tool", "effect"]
EffectClass: TypeAlias = Literal["pure", "read", "idempotent", "irreversible"]


def _is_empty(text: str) -> bool:
    return not text


Moment: TypeAlias = Annotated[float, Field(ge=-LATEST, le=LATEST, allow_inf_nan=False)]
"""Unix seconds, within the range of the calendar."""


class Failure(BaseModel):
    """An error as data, which outlives the process in which it was raised."""

    model_config = ConfigDict(frozen=True)

    type: str
    """The error's class name, such as `AgentError`."""
    message: str
    node: str = ""
    path: str = ""
    retry_after: float | None = None
    """Seconds that a server asked the client to wait."""
    traceback: str = Field(default="", exclude_if=_is_empty)
    """Traceback as text: the user's own code first, without values. Empty if no exception was raised."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class RecordBase(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    ts: Moment
    v: int = RECORD_VERSION
    seal: str = ""
    """Proof that the owner of a key wrote the journal up to this record; see `orchestrator.executor.Seal`."""

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return the record itself when its owner is copied; `model_copy(deep=True)` makes a new one."""
        return self if memo is not None else super().__deepcopy__()


class ActivationRecord(RecordBase):
    """A record about one activation of a node."""

    activation: str
    path: str = ""
    node: str


class Stamp(TypedDict):
    """The position and the time of the next record."""

    seq: int
    ts: float


class StepStamp(Stamp):
    """The position and the time of the next record, and the activation that the record is about."""

    activation: str
    path: str
    node: str


RULES: Final = 2
"""The version of the execution rules in `docs/kernel.md`."""


class _KnownRules:
    """Describes the accepted rules in the JSON schema: a validator in Python would slow down every record."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        hint = "update the library if a newer version wrote the run"
        words = f"this version knows only rules {RULES} ({hint})"
        return core_schema.custom_error_schema(handler(source), "unknown_rules", custom_error_message=words)


class Caller(BaseModel):
    """The call of a graph as a tool, in another run, that started a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    """The calling run."""
    key: str
    """The call's idempotency key."""
    depth: int = 1
    """Number of runs around this one."""
    in_fork: bool = False
    """True if a run around this one is a fork: irreversible calls need an answer here, too."""


class RunStarted(RecordBase):
    """A run started. `values` is the whole start state, validated; `refs` describes its input as text."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    graph: str
    structure: str
    content: str
    values: JsonDict
    limits: Limits | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    approve: str | None = None
    """Calls of tools of at most this risk are approved by policy."""
    refs: JsonDict = Field(default_factory=dict)
    tools: dict[str, str] = Field(default_factory=dict)
    """Every tool that the run's nodes may call, with the digest of its schema; `node/name` for a node's own."""
    holder: str = ""
    rules: Annotated[Literal[2], _KnownRules()]
    """The version of the execution rules that the run follows, `RULES`: a journal of other rules is refused."""
    caller: Caller | None = None
    """The call that started it, if its graph was called as a tool."""
    pause_before: tuple[str, ...] = ()
    """Nodes before which the run pauses; those inside subgraphs by their path."""
    pause_after: tuple[str, ...] = ()
    context: bool = False
    """True if the run was given a context; it then continues only with a context."""
    by: str = ""
    """Name of the person who started it."""


class Paused(RecordBase):
    """A user asked the run to pause: running steps finish, no new ones start."""

    type: Literal["paused"] = "paused"
    by: str = ""
    reason: str = ""
    message: int | None = None


class Resumed(RecordBase):
    """An executor took over the run. `changes` is the content diff, if the graph's content changed."""

    type: Literal["resumed"] = "resumed"
    holder: str = ""
    content: str | None = None
    changes: tuple[str, ...] = ()
    tools: dict[str, str] | None = None
    """As in `RunStarted`, if they have changed."""
    approve: str | None = None
    unpause: bool = False
    pause_before: tuple[str, ...] | None = None
    """The nodes before which the run pauses from now on, if they have changed."""
    pause_after: tuple[str, ...] | None = None
    refs: JsonDict | None = None
    """As in `RunStarted`, if the run continues with other code."""
    by: str = ""
    """Name of the person who asked for it; empty if the executor resumed the run by itself, or if it is not known."""


class Cancelled(RecordBase):
    """A user cancelled the run."""

    type: Literal["cancelled"] = "cancelled"
    by: str = ""
    reason: str = ""
    message: int | None = None


class LimitsChanged(RecordBase):
    """The run's limits were changed."""

    type: Literal["limits_changed"] = "limits_changed"
    limits: Limits
    by: str = ""


class SetAside(BaseModel):
    """Attempts that a replay does not repeat: they had failed when the replayed run was reopened."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempts: int = 0
    """Number of attempts of a step, from its first one."""
    usage: Usage = Usage()
    """Their usage, which counts against limits."""


class Forked(RecordBase):
    """The run started as a copy of the first `at` records of `parent`; everything after them is its own.

    Calls that were not settled count as not made. The other fields hold the changes that the fork makes.
    """

    type: Literal["forked"] = "forked"
    run_id: str
    """The fork's own id, from which the keys of its calls are derived."""
    parent: str
    at: int
    root: str = ""
    """The run that wrote the first record: its id determines the keys of activations in all its forks."""
    relation: Literal["fork", "replay", "call"] = "fork"
    """`call`: a forked run called a graph as a tool, and this is the fork of that call's run."""
    labels: dict[str, str] = Field(default_factory=dict)
    """All labels of the fork."""
    caller: Caller | None = None
    """The call that waits for it, if its relation is `call`."""
    update: JsonDict = Field(default_factory=dict)
    """Field -> the value it is set to."""
    ops: dict[str, str] = Field(default_factory=dict)
    """Field -> `replace`, if the field has a reducer."""
    branch: str | None = None
    """Path of the branch that `update` applies to; None for the trunk."""
    key: str = ""
    """The call whose result `result` replaces."""
    result: object = None
    question: str = ""
    """The question whose answer `answer` replaces."""
    answer: Annotated[Answer, Field(discriminator="type")] | None = None
    live: Literal["", "never", "ask", "always"] = ""
    """In a replay: what happens to calls without a result in the parent's journal. `never` makes none of them, `ask`
    asks first, `always` makes them. Empty outside replays.
    """
    models: dict[str, str] = Field(default_factory=dict)
    """In a replay: name that nodes use (`default` for none) -> the model that replaces the parent's."""
    withdrawn: tuple[str, ...] = ()
    """Questions whose answers allowed calls that were not settled: their steps ask again."""
    told: tuple[str, ...] = ()
    """Keys of calls with an unknown outcome that are settled by answers given with the fork; the records after it hold
    the outcomes.
    """
    digests: dict[str, str] = Field(default_factory=dict)
    """Open question -> its digest in the fork."""
    set_aside: dict[str, SetAside] = Field(default_factory=dict)
    """In a replay of a run that was reopened: activation -> the attempts before it; the empty key stands for the run's
    graph.
    """
    raised: int = 0
    """In such a replay: number of times the run was reopened after a spent limit."""
    limits: Limits | None = None
    """In a replay that starts after a record: limits that the run was given later."""
    held: bool = False
    """True if nothing runs in it until it is resumed, not even a step that was running in the parent."""
    over: bool = False
    """True if it keeps the result that the parent had at `at`, after a spent limit, and so is not reopened."""
    by: str = ""
    """Name of the person who made it, and gave `answer`."""


class Migrated(RecordBase):
    """The run continues in another version of its graph. Names inside a subgraph start with its path.

    A name that is not a key of a mapping stays the same. The graphs themselves are in the store, by content digest.
    """

    type: Literal["migrated"] = "migrated"
    structure: str
    """Digest of the structure with which it continues."""
    content: str
    """Digest of the content with which it continues."""
    structure_before: str = ""
    content_before: str = ""
    """Digest of the content of the graph that was last driven."""
    nodes: dict[str, str] = Field(default_factory=dict)
    """Old path of a node -> its new path: `{"draft/ask": "draft/confirm"}`."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Old path of a state field -> its new path."""
    forks: dict[str, str] = Field(default_factory=dict)
    """Old path of a fork's node -> the new path of the node that takes over the fork, if it is another one."""
    values: JsonDict | None = None
    """State fields that the migration added or mapped, with their values, in the run's own graph."""
    inside: dict[str, JsonDict] = Field(default_factory=dict)
    """Activation of a subgraph's node -> such values for the graph inside."""
    joins: dict[str, str | None] = Field(default_factory=dict)
    """Join of an open fork -> the join that takes its place; None if the fork no longer has such a join."""
    withdrawn: tuple[str, ...] = ()
    """Activations whose questions and answers are withdrawn: they ask again."""
    grade: Literal["compatible", "decision", "migration"] = "compatible"
    changes: tuple[str, ...] = ()
    """The differences of structure, line by line, each with its grade."""


class Ended(RecordBase):
    """The run ended."""

    type: Literal["ended"] = "ended"
    status: Literal["completed", "failed", "cancelled", "exhausted"]
    output: object = None
    error: Failure | None = None
    reduced: JsonDict | None = None


class Reopened(RecordBase):
    """The ended run continues where it was: this is the only record that may follow `ended`.

    Steps that failed start a new attempt, steps that were stopped continue, withdrawn questions are asked again.
    """

    type: Literal["reopened"] = "reopened"
    by: str = ""
    reason: str = ""
    status: Literal["failed", "cancelled", "exhausted"]
    """The status with which the run had ended."""
    limits: Limits | None = None
    """The limits of the run's graph from now on, if they were changed."""


class StepDone(ActivationRecord):
    """An activation ended with an outcome. `error` is set when the outcome stands for a failure."""

    type: Literal["step_done"] = "step_done"
    outcome: str = "done"
    update: JsonDict = Field(default_factory=dict)
    ops: dict[str, str] = Field(default_factory=dict)
    """Field -> `replace` or `extend`, if its update does not pass through the reducer as usual."""
    reduced: JsonDict | None = None
    """Values, after the step, of fields whose reducer is user code, so that folding needs no code."""
    attempt: int = 1
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure | None = None
    failed: int = 0
    """Number of tool calls in this attempt that failed or could not be made."""
    guards: dict[str, bool | str] = Field(default_factory=dict)
    """For a `Route`: outcome -> whether its condition was true, or why that is unknown. No rule depends on it."""
    cached: bool = False
    """True if outcome and update are those of an earlier step, from the cache. No rule depends on it."""


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
    """Make the record of a step that ended at the time of `stamp`, from parts that are already validated.

    Validating them again would take a twentieth of the time of an in-memory step.
    """
    fields = _STEP_DONE.copy()  # copied from a full dictionary, which never grows
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
    """An attempt failed, and the next one starts at `next_at`."""

    type: Literal["step_retried"] = "step_retried"
    attempt: int
    """The attempt that failed."""
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure
    next_at: Moment


class GraphOpened(ActivationRecord):
    """The graph inside a subgraph's activation started, with `values` as its whole start state."""

    type: Literal["graph_opened"] = "graph_opened"
    attempt: int = 1
    values: JsonDict


class TimerSet(RecordBase):
    """An activation waits for a timer, which fires at `at`, Unix seconds."""

    type: Literal["timer_set"] = "timer_set"
    activation: str
    name: str
    """Its id among the things that the run waits for."""
    at: Moment
    path: str = ""
    node: str = ""


class TimerFired(RecordBase):
    """A timer, or the deadline of a question that an event answers, fired: the waiting activation continues.

    The timer named `TIMEOUT` ends the graph inside a subgraph's activation with `error`.
    """

    type: Literal["timer_fired"] = "timer_fired"
    activation: str
    name: str
    path: str = ""
    node: str = ""
    error: Failure | None = None


TIMEOUT = "timeout"
"""Name of the timer of an activation's timeout."""


class LimitSpent(RecordBase):
    """A limit of the graph at `frame` is spent. `activation` is the one that was refused, if any."""

    type: Literal["limit_spent"] = "limit_spent"
    frame: str
    """Path of the graph that has the limit; empty for the run's own graph."""
    limit: str
    activation: str | None = None


class EffectIntended(ActivationRecord):
    """An effect is about to happen. The record is durable before the effect happens."""

    type: Literal["effect_intended"] = "effect_intended"
    key: str
    """The idempotency key: a hash of activation, attempt, name, digest of the request and occurrence."""
    kind: EffectKind
    name: str
    effect: EffectClass
    digest: str
    """Digest of the request."""
    occurrence: int = 0
    attempt: int = 1
    request: JsonDict = Field(default_factory=dict)
    """The arguments or messages. Messages that the journal already contains are `{"ref": digest}`."""
    again: bool = False
    """True if it repeats, under the same key, an earlier effect whose outcome is unknown."""
    inside: str = ""
    """Key of the tool call that makes it; empty if the node makes it."""
    reserve: Reserve | None = None
    """Amount that it reserves until it is settled, if tokens or cost are limited."""
    taken: int | None = None
    """In a replay: the record of the replayed run that its result is taken from, without a call."""


class EffectSettled(ActivationRecord):
    """An effect ended."""

    type: Literal["effect_settled"] = "effect_settled"
    key: str
    ok: bool = True
    result: object = None
    error: Failure | None = None
    usage: Usage | None = None
    started: Moment = 0.0
    ended: Moment = 0.0
    unknown: bool = False
    """True if it may or may not have happened, such as a cancelled or timed-out irreversible call; or if it has
    happened, and its result was refused.
    """
    returned: str | None = None
    """The reply, as bounded, redacted text, if the call returned and its result was refused; `error`, or the error in a
    tool's result, gives the reason.
    """
    answered: bool = False
    """True if a person answered how it ended."""
    tries: int = 1
    """Number of tries."""
    next_at: Moment | None = None
    """Unix seconds of the next try, if it failed and will be tried again."""

    @property
    def given_up(self) -> bool:
        """True if it counts as failed because a person answered so: it may have happened."""
        return self.answered and not self.ok

    @property
    def may_have_happened(self) -> bool:
        """True unless the effect is known not to have happened."""
        return self.ok or self.unknown or self.returned is not None or self.given_up


class Diverged(ActivationRecord):
    """A step of a replay made a request that the replayed run did not: what follows from it is not replayed."""

    type: Literal["diverged"] = "diverged"
    kind: Literal["model", "tool", "effect", "question"]
    name: str
    """The model, the tool or the effect; for a question, its kind."""
    digest: str
    """Digest of the request."""
    occurrence: int = 0
    attempt: int = 1
    request: JsonDict = Field(default_factory=dict)
    """As in `EffectIntended`."""
    why: str = ""
    """The reason why the replayed run has no result for it, in words."""


def failed_result(result: object) -> str | None:
    """Return the error in a tool call's result, in the form of `EffectSettled.result`; None if there is none."""
    if not isinstance(result, Mapping) or not (result.get("error") or result.get("exit_code")):
        return None
    return str(result.get("error") or f"exit code {result['exit_code']}")


class Spent(ActivationRecord):
    """Usage and reserve of a run started by a call of this run, as totals: repeating the record adds nothing.

    Written before and after every call of the inner run. Each run counts its own steps and seconds.
    """

    type: Literal["spent"] = "spent"
    key: str
    """The call that started the inner run."""
    run: str
    """The inner run."""
    call: str = ""
    """Key of the inner run's call that it precedes or follows; empty for the total at its end."""
    usage: Usage = Usage()
    reserve: Reserve = Reserve()
    head: int = 0
    """Number of the inner run's last record; 0 if not known. A fork of this run forks the inner run there."""
    message: int | None = None


class Asked(ActivationRecord):
    """An activation waits for an answer."""

    type: Literal["asked"] = "asked"
    question: Question


class Answered(RecordBase):
    """A question was answered. `policy` marks answers given by a rule."""

    type: Literal["answered"] = "answered"
    question: str
    answer: Answer = Field(discriminator="type")
    by: str = ""
    policy: bool = False
    message: int | None = None
    """The inbox message that contained it."""
    about: str = ""
    """Digest of the tool call that the question showed; the answer is valid for this call only."""


class AnswersWithdrawn(RecordBase):
    """Untrusted approvals are withdrawn: their steps ask again."""

    type: Literal["answers_withdrawn"] = "answers_withdrawn"
    questions: tuple[str, ...] = ()
    policy: bool = False
    """True if the run's policy (`approve`) is withdrawn, too."""
    reason: str = ""


class EventReceived(RecordBase):
    """The run received an event from outside. It is kept for the steps that wait for it, now or later."""

    type: Literal["event_received"] = "event_received"
    name: str
    data: object = None
    """Plain JSON."""
    id: str = ""
    """Identifies the event: a second one with this id is the same event."""
    by: str = ""
    questions: tuple[str, ...] = ()
    """Questions that it answers, although they wait for no event: those of the node that it names."""
    interrupts: str | None = None
    """Path of the graph that it interrupts: running steps end, and then the graph continues at the node that the event
    names.
    """
    message: int | None = None
    """The inbox message that contained it."""


T = TypeVar("T")


class CodedRecord(BaseModel):
    """A record of which only position, time, type and digests of graphs are readable.

    Reading any other field raises `EncryptionKeyMissing`, so code that needs the content cannot continue without it.
    Stores keep it like any other record: `encode` writes it with its type at the end, `decode` reads it back.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    ts: Moment
    v: int = RECORD_VERSION
    key_id: str
    """Identifies the key of `cipher`."""
    cipher: str
    """The encoded record, in base64."""
    structure: str = ""
    """Like `content`, a digest of a graph, if the record names one. A copy of the run includes these graphs."""
    content: str = ""
    type: str = Field(exclude=True)
    """The type of the record inside."""
    run_id: str = Field(default="", exclude=True)
    """The run that it was read from; empty if unknown."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                return super().__getattr__(name)  # attributes that Python and pydantic probe for
            raise self.missing()

    def missing(self) -> EncryptionKeyMissing:
        """Return the error for callers that need the content."""
        return EncryptionKeyMissing(f"run {self.run_id!r}" if self.run_id else f"record {self.seq}", self.key_id)


def coded_record(fields: object) -> Any:
    """Make a coded record from its stored parts.

    Raises:
        ValueError: the parts are not those of a coded record.
    """
    return CodedRecord.model_validate(fields)


def of_run(record: T, run_id: str) -> T:
    """Return the record; a coded one then names this run in its errors."""
    coded = as_coded(record)
    return record if coded is None else cast("T", coded.model_copy(update={"run_id": run_id}))


def check_readable(records: Iterable[object]) -> None:
    """Refuse coded records when the caller searches for certain types of records only.

    Raises:
        EncryptionKeyMissing: one of the records is coded.
    """
    for record in records:
        coded = as_coded(record)
        if coded is not None:
            raise coded.missing()


def as_coded(record: object) -> CodedRecord | None:
    """Return a record as `CodedRecord`; None if it is not coded."""
    return record if isinstance(record, CodedRecord) else None


Record: TypeAlias = (
    RunStarted
    | StepDone | StepFailed | StepRetried | GraphOpened
    | EffectIntended | EffectSettled | Diverged
    | Asked | Answered | AnswersWithdrawn | EventReceived
    | TimerSet | TimerFired
    | Paused | Resumed | Cancelled
    | LimitSpent | Spent | LimitsChanged
    | Forked | Migrated | Ended | Reopened
)  # fmt: skip

RECORD_TYPES: tuple[str, ...] = tuple(member.model_fields["type"].default for member in Record.__args__)
_WITH_RUN_ID = frozenset(
    member.model_fields["type"].default for member in Record.__args__ if "run_id" in member.model_fields
)
_adapter: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="type")])
_validate: Callable[[object], Record] = _adapter.validator.validate_python
_ENDINGS = {name: f',"type":"{name}"}}'.encode() for name in RECORD_TYPES}


def encode(record: Record) -> bytes:
    """Return a record as compact JSON: without fields at their default, except `type`."""
    return record.__pydantic_serializer__.to_json(record, exclude_defaults=True)[:-1] + _ENDINGS[record.type]


def encode_unsealed(record: Record) -> bytes:
    """Return the part of `encode` that a seal signs: all but the seal."""
    written = record.__pydantic_serializer__.to_json(record, exclude_defaults=True, exclude={"seal"})
    return written[:-1] + _ENDINGS[record.type]


def record_from_fields(fields: JsonDict, run_id: str) -> Record:
    """Make a record from its fields; `run_id` fills that field if the record has one and `fields` leave it out.

    Raises:
        ValueError: this version does not know such a record (pydantic's `ValidationError` is one).
    """
    if fields.get("type") in _WITH_RUN_ID:
        fields = {"run_id": run_id, **fields}
    return _validate(fields)


def decode(data: bytes | str, texts: Mapping[str, str] | None = None) -> Record:
    """Read a record from its JSON form. One that was stored coded is a `CodedRecord`.

    Args:
        data: the JSON.
        texts: name -> the string that replaces it in the JSON.

    Raises:
        ValueError: this version does not know such a record (pydantic's `ValidationError` is one).
    """
    # The JSON is parsed first and validated afterwards: this refuses NaN and Infinity without a separate search, which
    # took longer than everything else for long texts. JSON does not have them, `encode` never writes them, and they
    # break folds.
    try:
        fields = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        fields = _deep(data, error)
    if texts:
        fields = _filled(fields, texts)
    record = coded_record(fields) if type(fields) is dict and "cipher" in fields else _validate(fields)
    if record.v > RECORD_VERSION:
        raise ValueError(f"record version {record.v} is newer than {RECORD_VERSION}; update the library")
    return record


def _filled(value: object, texts: Mapping[str, str]) -> object:
    """Replace names by their texts in JSON, including names that are keys. Changes the JSON in place."""
    todo: list[object] = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if not texts.keys().isdisjoint(one):
                items = [(texts.get(key, key), item) for key, item in one.items()]
                one.clear()
                one.update(items)
            places: Iterable[tuple[Any, object]] = one.items()
        elif isinstance(one, list):
            places = enumerate(one)
        else:
            continue
        for place, item in places:
            if isinstance(item, dict | list):
                todo.append(item)
            elif isinstance(item, str) and item in texts:
                one[place] = texts[item]  # an existing key is replaced: the mapping keeps its size
    return value


def _deep(data: bytes | str, error: ValueError) -> object:
    """Parse values nested deeper than pydantic reads, which earlier versions wrote, with the standard library."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not valid JSON")

    if "recursion limit" in str(error):
        with suppress(ValueError, RecursionError):
            return json.loads(data, parse_constant=refuse)
    _adapter.validate_json(data)  # raises the same error as for any other text that is not a record
    raise error  # NaN or an infinity, which the standard library reads
