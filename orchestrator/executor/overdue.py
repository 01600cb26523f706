"""What is journaled when the time of something that a run waits for has come."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from orchestrator.executor.answers import is_answerable
from orchestrator.executor.run_log import RunLog, ToolsFor
from orchestrator.kernel.question import LATE, Answer, Question
from orchestrator.kernel.records import Answered, TimerFired
from orchestrator.kernel.run_state import RunState


def answered_by_rule(log: RunLog, question: Question, answer: Answer, shown: str = "") -> Answered | TimerFired:
    """The record of what policy, or a time that has come, says to an open question.

    Args:
        shown: see `Answered.about`.
    """
    if is_answerable(question):
        return Answered(**log.now(), question=question.id, answer=answer, policy=True, about=shown)
    asker = log.machine.askers[question.id]
    return TimerFired(**log.now(), name=question.id, activation=asker.key, path=asker.path, node=asker.node)


@dataclass(frozen=True, slots=True)
class PassTime:
    """Have a run go on that waits for a time, or for an event until then.

    Only the run that called its graph as a tool says so: it asked the same by its own clock.
    """

    question: str
    type: Literal["late"] = "late"

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> PassTime:
        """Itself: what is not open any more is left alone."""
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal it. False: the run does not wait for this any more."""
        question = log.machine.questions.get(self.question)
        if question is None or question.deadline is None or is_answerable(question):
            return False
        log.push(answered_by_rule(log, question, LATE), message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return asdict(self)
