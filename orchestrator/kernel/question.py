"""Questions of runs, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import TypeVar

from orchestrator.graph.faults import Spelled
from orchestrator.graph.typevars import Erased
from orchestrator.values import utc

QuestionKind: TypeAlias = Literal["approval", "input", "unknown_outcome", "pause", "event", "timer", "limit"]
_Effect: TypeAlias = Literal["pure", "read", "idempotent", "irreversible"]
Shown: TypeAlias = Mapping[str, object]
"""Fields of the state that a node shows with its question, by name, as plain JSON."""


PAUSE = "pause"
"""The id of the question that a pause asks."""
NOT_STARTED = "the fork is not started"
"""The prompt of that question in a fork in which nothing runs before it is resumed."""
AFTER_STEP = "it pauses after the step that the fork ran again"
"""The prompt of that question in a fork that runs one step; see `Forked.once`."""
FAMILY = "family"
"""Key in the payload of questions about calls that were made by related runs."""
OWN_PARTS = frozenset({"key", "began", "call_id", "model_review"})
"""Keys in the payload of questions whose values differ between runs."""


class FamilyCallPayload(TypedDict):
    """A call that a relative of a fork made, according to the relative's journal."""

    run: str
    """The relative."""
    seq: int
    """The record with the call's intent."""
    same: bool
    """True if the arguments are those of the call that is asked about."""
    status: Literal["returned", "failed", "unknown"]
    args: NotRequired[object]
    """The arguments, if they differ."""
    result: NotRequired[object]
    error: NotRequired[str]


class ApprovalPayload(TypedDict, total=False):
    """The payload of an approval. For a tool call it has the first five keys, otherwise none of them.

    User nodes, and journals of earlier versions, may put the shown fields next to these keys; `parts_of` reads both.
    """

    tool: str
    args: dict[str, object]
    risk: Literal["none", "read", "write", "dangerous"]
    effect: _Effect
    call_id: str
    """The call's id in the conversation with the model."""
    model_review: str
    """The decision of a model that reviewed the call first, and why it is not taken."""
    family: list[FamilyCallPayload]
    """In a fork that asks before an irreversible call: the records of the call in the journals of its relatives."""
    deleted: list[str]
    """In such a fork: relatives whose journals were deleted."""
    shown: dict[str, object]
    """Fields of the state that the node shows, by name."""


class QuestionParts(NamedTuple):
    """Content of a question, in two parts."""

    call: Mapping[str, object]
    """Keys of the payload that describe a call; empty if the question is not about one."""
    shown: Mapping[str, object]
    """All other keys: fields of the state, kept apart so that none can be mistaken for part of the call."""


_OF_CALL = ApprovalPayload.__annotations__.keys() - {"shown"}


def parts_of(kind: str, payload: Mapping[str, object]) -> QuestionParts:
    """Split a payload into the call and the fields shown next to it.

    Args:
        kind: the kind of the question.
        payload: its payload. Earlier versions wrote the shown fields next to those of the call.
    """
    if kind == "unknown_outcome":
        return QuestionParts(payload, {})
    keys = _OF_CALL if kind == "approval" and "tool" in payload else frozenset[str]()
    call = {name: value for name, value in payload.items() if name in keys}
    others = {name: value for name, value in payload.items() if name not in keys}
    shown = others.get("shown")
    return QuestionParts(call, shown if kind == "approval" and len(others) == 1 and isinstance(shown, dict) else others)


class UnknownOutcomePayload(TypedDict):
    """The effect whose outcome is not known."""

    tool: str
    """Its name."""
    args: object
    effect: _Effect
    key: str
    """Its idempotency key."""
    attempt: int
    """Number of times it started, from 1."""
    began: str
    """When the last attempt started: ISO 8601, UTC, to the second."""
    why: Literal["interrupted", "timeout", "connection", "cancelled", "refused", "failed", "returned"]
    """`refused`: the call returned, but its result was refused; `failed`: an earlier answer counted it as failed;
    `returned`: the call returned, and after a crash the step makes it with other arguments.
    """
    error: NotRequired[str]
    """Error of the last attempt, or the reason why the result was refused."""
    returned: NotRequired[str]
    """The result of a call that returned, as text, shortened and redacted."""
    reconcile: NotRequired[str]
    """The reason why `reconcile` could not determine the outcome of the call."""
    result: NotRequired[str]
    """The reason why the result in the previous answer was refused."""
    arguments: NotRequired[str]
    """A note that the step now makes the call with other arguments, and which ones `retry` uses."""


class PausePayload(TypedDict):
    """Empty: a pause that a user asked for has no payload."""


def _is_empty(value: object) -> bool:
    return not value


KindT = TypeVar("KindT", bound=str, covariant=True, default=QuestionKind)
PayloadT = TypeVar("PayloadT", bound=Shown, covariant=True, default=Shown)
_AS_DICT = GetPydanticSchema(lambda _, handler: handler(dict[str, object]))
_EMPTY: Any = Field(default_factory=dict, json_schema_extra={"default": {}})


class Question(Erased, BaseModel, Generic[KindT, PayloadT]):
    """Something that a run waits for."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, serialize_by_alias=True)

    id: str
    kind: KindT
    node: str
    path: str = ""
    prompt: str = ""
    payload: Annotated[PayloadT, _AS_DICT] = _EMPTY
    """Plain JSON, by kind: `ApprovalPayload`, `UnknownOutcomePayload`, else the fields that the node shows."""
    choices: tuple[str, ...] = ()
    schema_: dict[str, object] | None = Field(default=None, alias="schema")
    digest: str = ""
    """Identifies the content of the question: an approval is valid only for this digest."""
    deadline: float | None = None
    """Unix time, seconds, after which the declared default applies."""
    event: str = Field(default="", exclude_if=_is_empty)
    """Name of the event that answers it; empty: none does. `Executor.send` sends events."""
    match: dict[str, object] = Field(default_factory=dict, json_schema_extra={"default": {}}, exclude_if=_is_empty)
    """Values that the event's data must contain: key -> value, as plain JSON."""

    @property
    def schema(self) -> dict[str, object] | None:  # type: ignore[override]  # pydantic's deprecated method
        """JSON Schema of the answer, unless it is a choice; for `unknown_outcome`, of the call's result."""
        return self.schema_


def in_family(question: Question) -> bool:
    """Return True if a question is about a call that relatives of the run, or earlier attempts, may have made."""
    return question.kind == "approval" and FAMILY in question.payload


AnyQuestion: TypeAlias = (
    Question[Literal["approval"], ApprovalPayload]
    | Question[Literal["unknown_outcome"], UnknownOutcomePayload]
    | Question[Literal["pause"], PausePayload]
    | Question[Literal["input", "event", "timer", "limit"], Shown]
)
"""A question of a run. `if question.kind == "approval":` lets type checkers infer the type of its payload."""


class _Answer(BaseModel, metaclass=Spelled):
    model_config = ConfigDict(frozen=True)

    @model_serializer(mode="wrap")
    def _with_type(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        # The tag has a default, and records leave defaults out: without it, the kind of answer would be lost.
        return {**handler(self), "type": type(self).model_fields["type"].default}


class Approve(_Answer):
    """An answer that approves the request; with `args`, with these arguments instead."""

    type: Literal["approve"] = "approve"
    args: dict[str, object] | None = None


class Deny(_Answer):
    """An answer that denies the request, with a reason."""

    type: Literal["deny"] = "deny"
    reason: str = ""


class Value(_Answer):
    """An answer that is neither an approval nor a denial: any plain JSON value."""

    type: Literal["value"] = "value"
    value: object = None
    """Plain JSON."""


Answer: TypeAlias = Approve | Deny | Value
if TYPE_CHECKING:
    AnyAnswer: TypeAlias = Answer
else:
    AnyAnswer = _Answer  # as the type of a record's field: such a field has one class
_ANSWERS: Mapping[object, type[Answer]] = {"approve": Approve, "deny": Deny, "value": Value}


def answer_of(data: object) -> Answer:
    """Return the answer in a record.

    Raises:
        ValueError: there is none.
    """
    if isinstance(data, Approve | Deny | Value):
        return data
    kind = _ANSWERS.get(str(data.get("type"))) if isinstance(data, dict) else None
    if kind is None:
        raise ValueError("an object with the type 'approve', 'deny' or 'value' is expected")
    return kind.model_validate(data)


LATE = Deny(reason="deadline passed")
"""The answer to a question whose deadline passed, and to a timer that fired."""


def until(at: float) -> str:
    """Return the prompt of a step that waits for a timer.

    Args:
        at: Unix seconds.
    """
    return f"until {utc(at).isoformat(timespec='seconds')}"
