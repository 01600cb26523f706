"""The journal's records: everything that happened to a run, as frozen data, and their JSON form.

`seq` counts from 1 without gaps. `ts` is Unix time in seconds; the kernel reads no clock, so records contain the time.
A record's JSON form is `{"type": ..., "seq": ..., "ts": ...}` without fields at their default. `decode` reads it back
and refuses unknown types and fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    get_args,
)

import msgspec
from msgspec import Meta, Struct, structs
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json, to_jsonable_python

from orchestrator.errors import EncryptionKeyMissing
from orchestrator.graph.codec import explain, shown
from orchestrator.graph.limits import NO_RESERVE, Limits, Reserve, Usage
from orchestrator.kernel.question import AnyAnswer, Question, answer_of
from orchestrator.values import LATEST

RECORD_VERSION = 1
if TYPE_CHECKING:
    Plain: TypeAlias = object
else:
    Plain = Any  # the word for values that are not converted
JsonDict: TypeAlias = dict[str, Plain]
EndStatus: TypeAlias = Literal["completed", "failed", "cancelled", "exhausted"]
"""How a run, or a graph inside one, ended."""
EffectKind: TypeAlias = Literal["model", "tool", "effect"]
EffectClass: TypeAlias = Literal["pure", "read", "idempotent", "irreversible"]


def _is_empty(text: str) -> bool:
    return not text


Moment: TypeAlias = Annotated[float, Meta(ge=-LATEST, le=LATEST)]
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


class RecordBase(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A record: frozen data. Its constructor validates nothing; `decode` and `record_from_fields` do."""

    type: ClassVar[str]
    seq: int
    ts: Moment
    v: int = RECORD_VERSION
    seal: str = ""
    """Proof that the owner of a key wrote the journal up to this record; see `orchestrator.executor.Seal`."""

    def __deepcopy__(self, memo: object) -> Self:
        return self


class ActivationRecord(RecordBase, frozen=True, kw_only=True):
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


class Caller(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The call of a graph as a tool, in another run, that started a run."""

    run_id: str
    """The calling run."""
    key: str
    """The call's idempotency key."""
    depth: int = 1
    """Number of runs around this one."""
    in_fork: bool = False
    """True if a run around this one is a fork: irreversible calls need an answer here, too."""


class RunStarted(RecordBase, frozen=True, kw_only=True):
    """A run started. `values` is the whole start state, validated; `refs` describes its input as text."""

    type: ClassVar[Literal["run_started"]] = "run_started"
    run_id: str
    graph: str
    structure: str
    content: str
    values: JsonDict
    limits: Limits | None = None
    labels: dict[str, str] = {}
    approve: str | None = None
    """Calls of tools of at most this risk are approved by policy."""
    refs: JsonDict = {}
    tools: dict[str, str] = {}
    """Every tool that the run's nodes may call, with the digest of its schema; `node/name` for a node's own."""
    holder: str = ""
    rules: Literal[2]
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


class Paused(RecordBase, frozen=True, kw_only=True):
    """A user asked the run to pause: running steps finish, no new ones start."""

    type: ClassVar[Literal["paused"]] = "paused"
    by: str = ""
    reason: str = ""
    message: int | None = None


class Resumed(RecordBase, frozen=True, kw_only=True):
    """An executor took over the run. `changes` is the content diff, if the graph's content changed."""

    type: ClassVar[Literal["resumed"]] = "resumed"
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


class Cancelled(RecordBase, frozen=True, kw_only=True):
    """A user cancelled the run."""

    type: ClassVar[Literal["cancelled"]] = "cancelled"
    by: str = ""
    reason: str = ""
    message: int | None = None

    @property
    def at_divergence(self) -> bool:
        """True if a replay ended itself where live calls would follow."""
        return self.by == "replay" and self.reason.startswith("diverged: ")


class LimitsChanged(RecordBase, frozen=True, kw_only=True):
    """The run's limits were changed."""

    type: ClassVar[Literal["limits_changed"]] = "limits_changed"
    limits: Limits
    by: str = ""


class SetAside(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attempts that a replay does not repeat: they had failed when the replayed run was reopened."""

    attempts: int = 0
    """Number of attempts of a step, from its first one."""
    usage: Usage = Usage()
    """Their usage, which counts against limits."""


class ChangedRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The request of one call of a model, which a fork makes with another one."""

    activation: str
    """The step that makes the call."""
    digest: str
    """Digest of the request that the step makes, without the model's name."""
    occurrence: int = 0
    """Number of earlier calls of the step with this request."""
    seq: int
    """The parent's record of the call."""
    request: JsonDict
    """What is sent instead. A message `{"ref": digest}` is one of the request that the step makes."""
    reply: Plain = None
    """The parent's reply, to be shown beside the new one; None: it had none."""


class Forked(RecordBase, frozen=True, kw_only=True):
    """The run started as a copy of the first `at` records of `parent`; everything after them is its own.

    Calls that were not settled count as not made. The other fields hold the changes that the fork makes.
    """

    type: ClassVar[Literal["forked"]] = "forked"
    run_id: str
    """The fork's own id, from which the keys of its calls are derived."""
    parent: str
    at: int
    root: str = ""
    """The run that wrote the first record: its id determines the keys of activations in all its forks."""
    relation: Literal["fork", "replay", "call"] = "fork"
    """`call`: a forked run called a graph as a tool, and this is the fork of that call's run."""
    labels: dict[str, str] = {}
    """All labels of the fork."""
    caller: Caller | None = None
    """The call that waits for it, if its relation is `call`."""
    update: JsonDict = {}
    """Field -> the value it is set to."""
    ops: dict[str, str] = {}
    """Field -> `replace`, if the field has a reducer."""
    branch: str | None = None
    """Path of the branch that `update` applies to; None for the trunk."""
    key: str = ""
    """The call whose result `result` replaces."""
    result: Plain = None
    question: str = ""
    """The question whose answer `answer` replaces."""
    answer: AnyAnswer | None = None
    live: Literal["", "never", "ask", "always"] = ""
    """In a replay: what happens to calls without a result in the parent's journal. `never` makes none of them, `ask`
    asks first, `always` makes them. Empty outside replays.
    """
    models: dict[str, str] = {}
    """In a replay: name that nodes use (`default` for none) -> the model that replaces the parent's."""
    withdrawn: tuple[str, ...] = ()
    """Questions whose answers allowed calls that were not settled: their steps ask again."""
    told: tuple[str, ...] = ()
    """Keys of calls with an unknown outcome that are settled by answers given with the fork; the records after it hold
    the outcomes.
    """
    digests: dict[str, str] = {}
    """Open question -> its digest in the fork."""
    set_aside: dict[str, SetAside] = {}
    """In a replay of a run that was reopened: activation -> the attempts before it; the empty key stands for the run's
    graph.
    """
    raised: int = 0
    """In such a replay: number of times the run was reopened after a spent limit."""
    limits: Limits | None = None
    """In a replay that starts after a record: limits that the run was given later."""
    held: bool = False
    """True if nothing runs in it until it is resumed, not even a step that was running in the parent."""
    asked: ChangedRequest | None = None
    """The request that it changes."""
    once: bool = False
    """True if it pauses when the steps that it starts with have ended."""
    over: bool = False
    """True if it keeps the result that the parent had at `at`, after a spent limit, and so is not reopened."""
    by: str = ""
    """Name of the person who made it, and gave `answer`."""


class Migrated(RecordBase, frozen=True, kw_only=True):
    """The run continues in another version of its graph. Names inside a subgraph start with its path.

    A name that is not a key of a mapping stays the same. The graphs themselves are in the store, by content digest.
    """

    type: ClassVar[Literal["migrated"]] = "migrated"
    structure: str
    """Digest of the structure with which it continues."""
    content: str
    """Digest of the content with which it continues."""
    structure_before: str = ""
    content_before: str = ""
    """Digest of the content of the graph that was last driven."""
    nodes: dict[str, str] = {}
    """Old path of a node -> its new path: `{"draft/ask": "draft/confirm"}`."""
    fields: dict[str, str] = {}
    """Old path of a state field -> its new path."""
    forks: dict[str, str] = {}
    """Old path of a fork's node -> the new path of the node that takes over the fork, if it is another one."""
    values: JsonDict | None = None
    """State fields that the migration added or mapped, with their values, in the run's own graph."""
    inside: dict[str, JsonDict] = {}
    """Activation of a subgraph's node -> such values for the graph inside."""
    joins: dict[str, str | None] = {}
    """Join of an open fork -> the join that takes its place; None if the fork no longer has such a join."""
    withdrawn: tuple[str, ...] = ()
    """Activations whose questions and answers are withdrawn: they ask again."""
    grade: Literal["compatible", "decision", "migration"] = "compatible"
    changes: tuple[str, ...] = ()
    """The differences of structure, line by line, each with its grade."""


class Ended(RecordBase, frozen=True, kw_only=True):
    """The run ended."""

    type: ClassVar[Literal["ended"]] = "ended"
    status: EndStatus
    output: Plain = None
    error: Failure | None = None
    reduced: JsonDict | None = None


class Reopened(RecordBase, frozen=True, kw_only=True):
    """The ended run continues where it was: this is the only record that may follow `ended`.

    Steps that failed start a new attempt, steps that were stopped continue, withdrawn questions are asked again.
    """

    type: ClassVar[Literal["reopened"]] = "reopened"
    by: str = ""
    reason: str = ""
    status: Literal["failed", "cancelled", "exhausted"]
    """The status with which the run had ended."""
    limits: Limits | None = None
    """The limits of the run's graph from now on, if they were changed."""


class StepDone(ActivationRecord, frozen=True, kw_only=True):
    """An activation ended with an outcome. `error` is set when the outcome stands for a failure."""

    type: ClassVar[Literal["step_done"]] = "step_done"
    outcome: str = "done"
    update: JsonDict = {}
    ops: dict[str, str] = {}
    """Field -> `replace` or `extend`, if its update does not pass through the reducer as usual."""
    reduced: JsonDict | None = None
    """Values, after the step, of fields whose reducer is user code, so that folding needs no code."""
    attempt: int = 1
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure | None = None
    failed: int = 0
    """Number of tool calls in this attempt that failed or could not be made."""
    guards: dict[str, bool | str] = {}
    """For a `Route`: outcome -> whether its condition was true, or why that is unknown. No rule depends on it."""
    cached: bool = False
    """True if outcome and update are those of an earlier step, from the cache. No rule depends on it."""
    uncounted: bool = False
    """True if it is no visit of its node for `Limits.visits`: its request was too long, and is made again."""


class StepFailed(ActivationRecord, frozen=True, kw_only=True):
    """An activation failed after all retries: its graph fails."""

    type: ClassVar[Literal["step_failed"]] = "step_failed"
    attempt: int = 1
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure


class StepRetried(ActivationRecord, frozen=True, kw_only=True):
    """An attempt failed, and the next one starts at `next_at`."""

    type: ClassVar[Literal["step_retried"]] = "step_retried"
    attempt: int
    """The attempt that failed."""
    started: Moment = 0.0
    ended: Moment = 0.0
    error: Failure
    next_at: Moment


class GraphOpened(ActivationRecord, frozen=True, kw_only=True):
    """The graph inside a subgraph's activation started, with `values` as its whole start state."""

    type: ClassVar[Literal["graph_opened"]] = "graph_opened"
    attempt: int = 1
    values: JsonDict


class TimerSet(RecordBase, frozen=True, kw_only=True):
    """An activation waits for a timer, which fires at `at`, Unix seconds."""

    type: ClassVar[Literal["timer_set"]] = "timer_set"
    activation: str
    name: str
    """Its id among the things that the run waits for."""
    at: Moment
    path: str = ""
    node: str = ""


class TimerFired(RecordBase, frozen=True, kw_only=True):
    """A timer, or the deadline of a question that an event answers, fired: the waiting activation continues.

    The timer named `TIMEOUT` ends the graph inside a subgraph's activation with `error`.
    """

    type: ClassVar[Literal["timer_fired"]] = "timer_fired"
    activation: str
    name: str
    path: str = ""
    node: str = ""
    error: Failure | None = None


TIMEOUT = "timeout"
"""Name of the timer of an activation's timeout."""


class LimitSpent(RecordBase, frozen=True, kw_only=True):
    """A limit of the graph at `frame` is spent. `activation` is the one that was refused, if any."""

    type: ClassVar[Literal["limit_spent"]] = "limit_spent"
    frame: str
    """Path of the graph that has the limit; empty for the run's own graph."""
    limit: str
    activation: str | None = None


class EffectIntended(ActivationRecord, frozen=True, kw_only=True):
    """An effect is about to happen. The record is durable before the effect happens."""

    type: ClassVar[Literal["effect_intended"]] = "effect_intended"
    key: str
    """The idempotency key: a hash of activation, attempt, name, digest of the request and occurrence."""
    kind: EffectKind
    name: str
    effect: EffectClass
    digest: str
    """Digest of the request."""
    occurrence: int = 0
    attempt: int = 1
    request: JsonDict = {}
    """The arguments, or what a model is asked: `kernel.requests` describes its form."""
    again: bool = False
    """True if it repeats, under the same key, an earlier effect whose outcome is unknown."""
    inside: str = ""
    """Key of the tool call that makes it; empty if the node makes it."""
    reserve: Reserve | None = None
    """Amount that it reserves until it is settled, if tokens or cost are limited."""
    taken: int | None = None
    """In a replay: the record of the replayed run that its result is taken from, without a call."""


class EffectSettled(ActivationRecord, frozen=True, kw_only=True):
    """An effect ended."""

    type: ClassVar[Literal["effect_settled"]] = "effect_settled"
    key: str
    ok: bool = True
    result: Plain = None
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
    secret: str = ""
    """For a call that is suspended: what it needs to continue, such as the state or the task of a server. It is never
    shown. `unknown` is True if something was begun elsewhere that goes on meanwhile.
    """

    @property
    def given_up(self) -> bool:
        """True if it counts as failed because a person answered so: it may have happened."""
        return self.answered and not self.ok

    @property
    def may_have_happened(self) -> bool:
        """True unless the effect is known not to have happened."""
        return self.ok or self.unknown or self.returned is not None or self.given_up


class Diverged(ActivationRecord, frozen=True, kw_only=True):
    """A step of a replay made a request that the replayed run did not: what follows from it is not replayed."""

    type: ClassVar[Literal["diverged"]] = "diverged"
    kind: Literal["model", "tool", "effect", "question"]
    name: str
    """The model, the tool or the effect; for a question, its kind."""
    digest: str
    """Digest of the request."""
    occurrence: int = 0
    attempt: int = 1
    request: JsonDict = {}
    """As in `EffectIntended`."""
    why: str = ""
    """The reason why the replayed run has no result for it, in words."""


def failed_result(result: object) -> str | None:
    """Return the error in a tool call's result, in the form of `EffectSettled.result`; None if there is none."""
    if not isinstance(result, Mapping) or not (result.get("error") or result.get("exit_code")):
        return None
    return str(result.get("error") or f"exit code {result['exit_code']}")


class Spent(ActivationRecord, frozen=True, kw_only=True):
    """Usage and reserve of a run started by a call of this run, as totals: repeating the record adds nothing.

    Written before and after every call of the inner run. Each run counts its own steps and seconds.
    """

    type: ClassVar[Literal["spent"]] = "spent"
    key: str
    """The call that started the inner run."""
    run: str
    """The inner run."""
    call: str = ""
    """Key of the inner run's call that it precedes or follows; empty for the total at its end."""
    usage: Usage = Usage()
    reserve: Reserve = NO_RESERVE
    head: int = 0
    """Number of the inner run's last record; 0 if not known. A fork of this run forks the inner run there."""
    message: int | None = None


class Asked(ActivationRecord, frozen=True, kw_only=True):
    """An activation waits for an answer."""

    type: ClassVar[Literal["asked"]] = "asked"
    question: Question
    secret: str = ""
    """In journals of earlier versions: the key of the call that asked, and in the next lines `EffectSettled.secret`."""


class Answered(RecordBase, frozen=True, kw_only=True):
    """A question was answered. `policy` marks answers given by a rule."""

    type: ClassVar[Literal["answered"]] = "answered"
    question: str
    answer: AnyAnswer
    by: str = ""
    policy: bool = False
    message: int | None = None
    """The inbox message that contained it."""
    about: str = ""
    """Digest of the tool call that the question showed; the answer is valid for this call only."""


class AnswersWithdrawn(RecordBase, frozen=True, kw_only=True):
    """Untrusted approvals are withdrawn: their steps ask again."""

    type: ClassVar[Literal["answers_withdrawn"]] = "answers_withdrawn"
    questions: tuple[str, ...] = ()
    policy: bool = False
    """True if the run's policy (`approve`) is withdrawn, too."""
    reason: str = ""


class EventReceived(RecordBase, frozen=True, kw_only=True):
    """The run received an event from outside. It is kept for the steps that wait for it, now or later."""

    type: ClassVar[Literal["event_received"]] = "event_received"
    name: str
    data: Plain = None
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


class CodedRecord(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A record of which only position, time, type and digests of graphs are readable.

    Reading any other field raises `EncryptionKeyMissing`, so code that needs the content cannot continue without it.
    Stores keep it like any other record: `encode` writes it with its type at the end, `decode` reads it back.
    """

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
    run_id: str = ""
    """The run that it was read from; empty if unknown. It is not stored."""
    type: str
    """The type of the record inside."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(name)  # attributes that Python probes for
            raise self.missing()

    def missing(self) -> EncryptionKeyMissing:
        """Return the error for callers that need the content."""
        return EncryptionKeyMissing(f"run {self.run_id!r}" if self.run_id else f"record {self.seq}", self.key_id)


def of_run(record: T, run_id: str) -> T:
    """Return the record; a coded one then names this run in its errors."""
    return structs.replace(record, run_id=run_id) if isinstance(record, CodedRecord) else record


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

_CLASSES: Mapping[str, type[Record]] = {kind.type: kind for kind in get_args(Record)}
RECORD_TYPES: tuple[str, ...] = tuple(_CLASSES)
_WITH_RUN_ID = frozenset(name for name, kind in _CLASSES.items() if "run_id" in kind.__struct_fields__)
_ENDINGS = {name: f',"type":"{name}"}}'.encode() for name in RECORD_TYPES}


def _plain(value: object) -> msgspec.Raw:
    """Return a value of a record that is no record as JSON; models are written without fields at their default."""
    if isinstance(value, BaseModel):
        return msgspec.Raw(value.__pydantic_serializer__.to_json(value, exclude_defaults=True))
    return msgspec.Raw(to_json(value))


def _model(kind: Any, value: object) -> object:
    """Read a value of a record that is a model."""
    return answer_of(value) if kind is AnyAnswer else kind.__pydantic_validator__.validate_python(value)


_write = msgspec.json.Encoder(enc_hook=_plain).encode


def encode(record: Record) -> bytes:
    """Return a record as compact JSON: without fields at their default, except `type`."""
    if isinstance(record, CodedRecord):
        return _write(structs.replace(record, run_id=""))
    return _write(record)[:-1] + _ENDINGS[record.type]


def encode_unsealed(record: Record) -> bytes:
    """Return the JSON of a record that a seal signs: all but the seal.

    It is pydantic's, as in earlier versions, whose seals hold: numbers such as `1e+16` have a `+`.
    """
    return to_json({name: value for name, value in as_json(record).items() if name != "seal"})


def as_json(record: Record) -> dict[str, object]:
    """Return a record as a JSON object, in the form of `encode`."""
    if isinstance(record, CodedRecord):
        record = structs.replace(record, run_id="")
    return {**msgspec.to_builtins(record, enc_hook=_data), "type": record.type}


def _data(value: object) -> object:
    """Return a model in a record as a JSON object, without fields at their default."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    return to_jsonable_python(value)


def record_from_fields(fields: JsonDict, run_id: str) -> Record:
    """Make a record from its fields; `run_id` fills that field if the record has one and `fields` leave it out.

    Raises:
        ValueError: this version does not know such a record.
    """
    return _record({"run_id": run_id, **fields} if fields.get("type") in _WITH_RUN_ID else {**fields})


def decode(data: bytes | str, texts: Mapping[str, str] | None = None) -> Record:
    """Read a record from its JSON form. One that was stored coded is a `CodedRecord`.

    Args:
        data: the JSON.
        texts: name -> the string that replaces it in the JSON.

    Raises:
        ValueError: this version does not know such a record; names every field that does not fit.
    """
    fields = _parsed(data)
    if texts:
        fields = _filled(fields, texts)
    record = _record(fields)
    if record.v > RECORD_VERSION:
        raise ValueError(f"record version {record.v} is newer than {RECORD_VERSION}; update the library")
    return record


def _record(fields: object) -> Record:
    """Make a record from its fields, which become its own."""
    if type(fields) is not dict:
        raise ValueError("it is not a JSON object, and a record is expected here")
    if "cipher" in fields:
        kind: Any = CodedRecord
    else:
        name = fields.pop("type", None)
        kind = _CLASSES.get(name) if isinstance(name, str) else None
        if kind is None:
            raise ValueError(f"this version has no record of type {shown(name)}")
    try:
        found: Record = msgspec.convert(fields, kind, dec_hook=_model)
    except msgspec.ValidationError as error:
        raise InvalidRecord(tuple(_faults(kind, fields))) from error
    return found


class InvalidRecord(ValueError):
    """Raised when fields do not fit their record."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


_RULES = f"this version knows only rules {RULES} (update the library if a newer version wrote the run)"


@cache
def _fields(kind: type[Struct]) -> dict[str, structs.FieldInfo]:
    """Return the fields of a record, by name. Evaluating their types takes milliseconds."""
    return {one.name: one for one in structs.fields(kind)}


def _faults(kind: type[Struct], fields: JsonDict) -> Iterator[str]:
    """Yield the faults of the fields of a record, each with its place."""
    known = _fields(kind)
    yield from (f"this version has no field {name!r}" for name in fields if name not in known)
    for name, one in known.items():
        if name not in fields:
            if one.required:
                yield f"field {name!r} is missing"
            continue
        value = fields[name]
        try:
            msgspec.convert(value, one.type, dec_hook=_model)
        except msgspec.ValidationError as error:
            words, _, place = str(error).partition(" - at `$")
            words = _RULES if name == "rules" else words[:1].lower() + words[1:]
            if isinstance(error.__cause__, ValidationError):
                yield f"field {name!r}: {explain(error.__cause__)}"
            else:
                yield f"field '{name}{place.rstrip('`')}': {words}, and it is {shown(value)}"


def _parsed(data: bytes | str) -> object:
    """Parse JSON. NaN and infinities, which JSON does not have and which break folds, are refused."""
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        return _deep(data, error)


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
    raise error
