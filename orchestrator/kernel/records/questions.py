"""Records about questions, answers and events from outside."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.kernel.question import Answer, Question
from orchestrator.kernel.records.base import RecordBase


class Asked(RecordBase):
    """An activation waits for an answer."""

    type: Literal["asked"] = "asked"
    activation: str
    path: str = ""
    node: str
    question: Question


class Answered(RecordBase):
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


class AnswersWithdrawn(RecordBase):
    """Approvals that are not believed do not count any more: their steps ask again."""

    type: Literal["answers_withdrawn"] = "answers_withdrawn"
    questions: tuple[str, ...] = ()
    policy: bool = False
    """Whether the run's policy (`approve`) does not count any more either."""
    reason: str = ""


class EventReceived(RecordBase):
    """Something from outside was handed to the run."""

    type: Literal["event_received"] = "event_received"
    name: str
    data: object = None
    message: int | None = None
