"""Records about questions, answers and events from outside."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.kernel.question import Answer, Question
from orchestrator.kernel.records.base import ActivationRecord, RecordBase


class Asked(ActivationRecord):
    """An activation waits for an answer."""

    type: Literal["asked"] = "asked"
    question: Question


class Answered(RecordBase):
    """A question was answered. `policy` marks answers that a rule gave."""

    type: Literal["answered"] = "answered"
    question: str
    answer: Answer = Field(discriminator="type")
    by: str = ""
    policy: bool = False
    message: int | None = None
    """The inbox message that brought it."""
    about: str = ""
    """Digest of the tool call that the question showed; the answer is valid for this call only."""


class AnswersWithdrawn(RecordBase):
    """Untrusted approvals are withdrawn: their steps ask again."""

    type: Literal["answers_withdrawn"] = "answers_withdrawn"
    questions: tuple[str, ...] = ()
    policy: bool = False
    """Whether the run's policy (`approve`) is withdrawn too."""
    reason: str = ""


class EventReceived(RecordBase):
    """The run received an event from outside. It is kept for the steps that wait for it, now or later."""

    type: Literal["event_received"] = "event_received"
    name: str
    data: object = None
    """Plain JSON."""
    id: str = ""
    """Names the event: a second one with this id is the same event."""
    by: str = ""
    questions: tuple[str, ...] = ()
    """Questions that it answers, though they wait for no event: those of the node that it names."""
    interrupts: str | None = None
    """Path of the graph that it interrupts: its steps end, and then it goes on at the node that the event names."""
    message: int | None = None
    """The inbox message that brought it."""
