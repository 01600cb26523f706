"""What can be said to a run from outside: answer a question, pause, cancel.

`sent_events` has the events, `overdue` what time brings about.

A command is a frozen fact. `apply` journals it in a run that this process holds; `body` is its form in the inbox of a
run that another process drives, which turns it back with `command_of`. `orchestrator.executor.host.delivery` is the one
place that brings a command to a run, whoever drives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from orchestrator.executor.answers import about, check_answer
from orchestrator.executor.overdue import PassTime
from orchestrator.executor.run_log import Command, RunLog, ToolsFor
from orchestrator.executor.sent_events import SendEvent
from orchestrator.kernel.question import Answer
from orchestrator.kernel.records import Answered, Cancelled, Paused
from orchestrator.kernel.run_state import RunState

_answers: TypeAdapter[Answer] = TypeAdapter(Answer)


@dataclass(frozen=True, slots=True)
class AnswerQuestion:
    """Answer a question of the run."""

    question: str
    answer: Answer
    by: str = ""
    digest: str | None = None
    """The digest of the question that was looked at; another one is refused."""

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> AnswerQuestion:
        """See `Command.checked`."""
        offered = tools(machine.plan.graph)
        return replace(self, answer=check_answer(machine, self.question, self.answer, self.digest, offered, now))

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal the answer."""
        shown = about(log.machine.questions[self.question])
        record = Answered(
            **log.now(), question=self.question, answer=self.answer, by=self.by, message=message, about=shown
        )
        log.push(record, message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return {
            "type": "answer", "question": self.question, "answer": self.answer.model_dump(mode="json"), "by": self.by,
            "digest": self.digest,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stop:
    """Pause a run: what runs lands, and nothing more starts. Or cancel it: everything stops, and the run ends."""

    type: Literal["pause", "cancel"]
    by: str = ""
    reason: str = ""

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> Stop:
        """Itself: it fits any run."""
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal it. False: the run was at its end, or is paused already."""
        machine = log.machine
        if machine.result is not None or machine.ended is not None or (self.type == "pause" and machine.paused):
            return False
        if self.type == "pause":
            log.push(Paused(**log.now(), by=self.by, reason=self.reason, message=message), message)
        else:
            log.push(Cancelled(**log.now(), by=self.by, reason=self.reason, message=message), message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return asdict(self)


def command_of(body: Mapping[str, object]) -> Command | None:
    """The command that a message of a run's inbox holds; None if it holds none of these.

    Raises:
        ValidationError: its answer is none.
        InvalidValue: its event is none.
    """
    by, reason = str(body.get("by", "")), str(body.get("reason", ""))
    match body.get("type"):
        case "pause":
            return Stop("pause", by, reason)
        case "cancel":
            return Stop("cancel", by, reason)
        case "event":
            return SendEvent.of(body)
        case "late":
            return PassTime(str(body.get("question")))
        case "answer":
            digest = body.get("digest")
            answer = _answers.validate_python(body.get("answer"))
            return AnswerQuestion(str(body.get("question")), answer, by, digest if isinstance(digest, str) else None)
        case _:
            return None
