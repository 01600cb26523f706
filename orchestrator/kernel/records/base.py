"""The parts that all records share."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.values import LATEST

RECORD_VERSION = 1
JsonDict: TypeAlias = dict[str, object]
EffectKind: TypeAlias = Literal["model", "tool", "effect"]
EffectClass: TypeAlias = Literal["pure", "read", "idempotent", "irreversible"]


def _is_empty(text: str) -> bool:
    return not text


Moment: TypeAlias = Annotated[float, Field(ge=-LATEST, le=LATEST, allow_inf_nan=False)]
"""Unix seconds, within the range of a calendar."""


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
    """Where it was raised, as text: the user's own code first, without values. Empty if no exception was raised."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class RecordBase(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    ts: Moment
    v: int = RECORD_VERSION
    seal: str = ""
    """Proof that the owner of a key wrote the journal up to here; see `orchestrator.executor.Seal`."""

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """The record itself, within a copy of what points to it; `model_copy(deep=True)` makes another one."""
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
    """The same, with the activation that the record is about."""

    activation: str
    path: str
    node: str
