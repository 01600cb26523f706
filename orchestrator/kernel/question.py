"""What a run can ask, and what can be answered."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

QuestionKind: TypeAlias = Literal["approval", "input", "unknown_outcome", "pause", "event", "limit"]


class Question(BaseModel):
    """Something that a run waits for."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, serialize_by_alias=True)

    id: str
    kind: QuestionKind
    node: str
    path: str = ""
    prompt: str = ""
    payload: dict[str, object] = {}
    """For an approval `{tool, args, risk, effect, call_id}`; for others what the node shows. Plain JSON."""
    choices: tuple[str, ...] = ()
    schema_: dict[str, object] | None = Field(default=None, alias="schema")
    digest: str = ""
    """What an approval is bound to: it changes with whatever is to be approved."""
    deadline: float | None = None
    """Unix time, seconds, after which the declared default holds."""

    @property
    def schema(self) -> dict[str, object] | None:  # type: ignore[override]
        """JSON Schema of the answer, where it is not a choice."""
        return self.schema_


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    @model_serializer(mode="wrap")
    def _with_type(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        # The tag has a default, and records leave defaults out: without it an answer could not be told.
        return {**handler(self), "type": type(self).model_fields["type"].default}


class Approve(_Answer):
    """Yes; with `args`, yes to these arguments instead."""

    type: Literal["approve"] = "approve"
    args: dict[str, object] | None = None


class Deny(_Answer):
    """No, and why."""

    type: Literal["deny"] = "deny"
    reason: str = ""


class Value(_Answer):
    """An answer that is neither yes nor no: any plain JSON value."""

    type: Literal["value"] = "value"
    value: object = None
    """Plain JSON."""


Answer: TypeAlias = Approve | Deny | Value
