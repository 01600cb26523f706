"""Answers: whether one fits its question, what it means, and what a policy or a deadline answers. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from orchestrator.errors import AgentError, InvalidAnswer, InvalidValue, QuestionUnknown, StaleAnswer
from orchestrator.graph.codec import Codec, Unfit
from orchestrator.jsontypes import digest
from orchestrator.kernel.question import Answer, Approve, Deny, Question, Value
from orchestrator.kernel.records import Answered, Asked
from orchestrator.tools.validation import faults
from orchestrator.values import check_text

if TYPE_CHECKING:
    from orchestrator.executor.clock import DriveClock
    from orchestrator.kernel.records import Record
    from orchestrator.kernel.run_state import RunState
    from orchestrator.tools.tool import Tool

_anything = Codec(Any)
RISKS = ("none", "read", "write", "dangerous")
LATE = Deny(reason="deadline passed")


def about(question: Question) -> str:
    """Digest of the tool call that a question asks to approve, as it is shown; empty if it asks for something else."""
    payload = question.payload
    if question.kind != "approval" or "tool" not in payload:
        return ""
    return digest([payload["tool"], payload.get("args"), payload.get("risk")])


def as_answer(given: object) -> Answer:
    """What `Executor.answer` was given: an answer, or any other value as a `Value`, as plain JSON.

    Raises:
        InvalidAnswer: JSON cannot say it.
        SecretInState: it holds a secret.
    """
    try:
        if isinstance(given, Deny):
            check_text(given.reason, "the reason")
            return given
        if isinstance(given, Approve):
            return (
                given if given.args is None else Approve(args=cast("dict[str, object]", _anything.encode(given.args)))
            )
        return Value(value=_anything.encode(given.value if isinstance(given, Value) else given))
    except (Unfit, InvalidValue) as error:
        raise InvalidAnswer(f"an answer is plain JSON: {error}", where="answer") from None


def check_answer(
    machine: RunState, name: str, answer: Answer, expected: str | None, tools: Mapping[str, Tool]
) -> Answer:
    """The answer as it is to be journaled, if it fits an open question.

    Raises:
        QuestionUnknown: no such question is open.
        StaleAnswer: `expected` is not the question's digest: something else was to be answered; or the deadline passed.
        InvalidAnswer: it does not fit the question.
    """
    question = machine.questions.get(name)
    if question is None:
        raise QuestionUnknown(machine.run_id, name)
    if question.deadline is not None and question.deadline <= time.time():
        raise StaleAnswer(f"run {machine.run_id!r}: the deadline of question {name!r} has passed; its default holds")
    if expected is not None and expected != question.digest:
        raise StaleAnswer(
            f"run {machine.run_id!r}: question {name!r} is not what was answered any more; look at it again"
        )
    if question.kind == "approval":
        return _approval(question, answer, tools)
    if question.kind == "unknown_outcome":
        return _outcome(question, answer)
    if question.kind == "input" and isinstance(answer, Value):
        _fits(question, answer.value)
    elif question.kind == "input" and isinstance(answer, Approve):
        raise InvalidAnswer(f"question {name!r} asks for a value: answer with one, or Deny()")
    return answer


def stale_or_unknown(run_id: str, name: str, records: Sequence[Record]) -> QuestionUnknown | StaleAnswer:
    """Why a question is not open: it never was, or it is closed again."""
    if any(isinstance(record, Asked) and record.question.id == name for record in records):
        return StaleAnswer(f"run {run_id!r}: question {name!r} is closed; an answer counts once")
    return QuestionUnknown(run_id, name)


def by_policy(machine: RunState, question: Question, now: float, due: float | None) -> Answer | None:
    """The answer that the run's policy, or a deadline that has passed, gives; None if a person has to.

    Args:
        due: when its deadline passes, by the same clock as `now`; None: it has none.
    """
    if due is not None and due <= now:
        return LATE
    risk = question.payload.get("risk")
    if question.kind != "approval" or machine.approve is None or risk not in RISKS or "tool" not in question.payload:
        return None
    return Approve() if RISKS.index(str(risk)) <= RISKS.index(machine.approve) else None


def policy_answers(machine: RunState, clock: DriveClock) -> list[Answered]:
    """Records of the answers that policy and deadlines give to the open questions; `seq` counts on from the head."""
    now = clock.now()
    found: list[Answered] = []
    for question in machine.questions.values():
        answer = by_policy(machine, question, now, clock.due(machine, question))
        if answer is not None:
            seq = machine.head + 1 + len(found)
            found.append(
                Answered(seq=seq, ts=now, question=question.id, answer=answer, policy=True, about=about(question))
            )
    return found


class OutcomeAnswer(NamedTuple):
    """What a person who looked says became of an effect."""

    choice: str
    result: object


def outcome_answer(answer: Answer) -> OutcomeAnswer:
    """The answer to a question of kind `unknown_outcome`, as one of its choices."""
    value = answer.value if isinstance(answer, Value) else answer.type
    if isinstance(value, Mapping):
        return OutcomeAnswer(str(value.get("choice", "failed")), value.get("result"))
    return OutcomeAnswer({"approve": "retry", "deny": "failed"}.get(str(value), str(value)), None)


def _approval(question: Question, answer: Answer, tools: Mapping[str, Tool]) -> Answer:
    if isinstance(answer, Value):
        raise InvalidAnswer(f"question {question.id!r} asks for an approval: answer Approve() or Deny(), not a value")
    tool = tools.get(str(question.payload.get("tool")))
    if not isinstance(answer, Approve) or answer.args is None:
        return answer
    if "tool" not in question.payload:
        raise InvalidAnswer(f"question {question.id!r} is not about a tool call: there are no arguments to change")
    if tool is None:
        return answer
    try:
        return Approve(args=dict(tool.validate(answer.args)))
    except AgentError as error:
        raise InvalidAnswer(f"question {question.id!r}: {error}") from None


def _outcome(question: Question, answer: Answer) -> Answer:
    value = answer.value if isinstance(answer, Value) else None
    if isinstance(value, str):
        value = {"choice": value}
    if not isinstance(value, Mapping) or value.get("choice") not in question.choices:
        raise InvalidAnswer(
            f"question {question.id!r} wants one of {', '.join(question.choices)}, "
            'or {"choice": "happened", "result": ...}'
        )
    return Value(value=dict(value))


def _fits(question: Question, value: object) -> None:
    if question.choices and value not in question.choices:
        raise InvalidAnswer(f"question {question.id!r} wants one of {', '.join(question.choices)}, not {value!r}")
    schema = question.schema_
    found = faults(value, schema, schema, "the answer") if schema is not None else []
    if found:
        raise InvalidAnswer(f"question {question.id!r}: {'; '.join(found)}")
