"""Answers: whether one fits its question, what it means, what policies and deadlines answer, and what is believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from orchestrator.errors import AgentError, InvalidAnswer, InvalidValue, QuestionUnknown, StaleAnswer
from orchestrator.graph.codec import Codec
from orchestrator.json import digest
from orchestrator.kernel.question import LATE, Answer, Approve, Deny, Question, Value, in_family
from orchestrator.kernel.records import Asked, Record
from orchestrator.kernel.run_state import RunState
from orchestrator.tools.result import ToolResult
from orchestrator.tools.tool import Tool
from orchestrator.tools.validation import faults
from orchestrator.values import Unfit, check_text
from orchestrator.views.call_questions import CHOICES

_anything = Codec(Any)
RISKS = ("none", "read", "write", "dangerous")


def is_answerable(question: Question) -> bool:
    """Whether a person can answer it: neither an event from outside nor time alone does."""
    return question.kind != "timer" and not (question.kind == "event" and question.event)


def about(question: Question) -> str:
    """Digest of the tool call that a question asks to approve, as it is shown; empty if it asks for something else."""
    payload = question.payload
    if question.kind != "approval" or "tool" not in payload:
        return ""
    return digest([payload["tool"], payload.get("args"), payload.get("risk")])


def as_answer(given: object) -> Answer:
    """What `Executor.answer` was given: an answer, or any other value as a `Value`, as plain JSON.

    Raises:
        InvalidAnswer: it has no JSON form.
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
    machine: RunState, name: str, answer: Answer, expected: str | None, tools: Mapping[str, Tool], now: float
) -> Answer:
    """The answer as it is to be journaled, if it fits an open question.

    Args:
        name: the id of the question.
        expected: the digest of the question that was looked at; None: any.
        now: Unix seconds.

    Raises:
        QuestionUnknown: no such question is open.
        StaleAnswer: `expected` is not the question's digest: something else was to be answered; or the deadline passed.
        InvalidAnswer: it does not fit the question.
    """
    question = machine.questions.get(name)
    if question is None:
        raise QuestionUnknown(machine.run_id, name)
    if question.deadline is not None and question.deadline <= now:
        raise StaleAnswer(f"run {machine.run_id!r}: the deadline of question {name!r} has passed; its default applies")
    if expected is not None and expected != question.digest:
        raise StaleAnswer(
            f"run {machine.run_id!r}: question {name!r} has changed since it was answered; look at it again"
        )
    if not is_answerable(question):
        what = f"event {question.event!r}: send it" if question.event else "a time, which nothing but time brings about"
        raise InvalidAnswer(f"run {machine.run_id!r}: {name!r} is no question; it waits for {what}")
    if question.kind == "approval":
        return _approval(question, answer, tools)
    if question.kind == "unknown_outcome":
        return _outcome(machine, question, answer)
    if question.kind == "input" and isinstance(answer, Value):
        _fits(question, answer.value)
    elif question.kind == "input" and isinstance(answer, Approve):
        raise InvalidAnswer(f"question {name!r} asks for a value: answer with a value, or Deny()")
    return answer


def stale_or_unknown(run_id: str, name: str, records: Sequence[Record]) -> QuestionUnknown | StaleAnswer:
    """Why a question is not open: it never was, or it is closed again."""
    if any(isinstance(record, Asked) and record.question.id == name for record in records):
        return StaleAnswer(f"run {run_id!r}: question {name!r} is closed; each question is answered once")
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
    if in_family(question):  # a fork may do what its parent did already: only a person knows whether it should
        return None
    return Approve() if RISKS.index(str(risk)) <= RISKS.index(machine.approve) else None


def policy_answers(
    machine: RunState, now: float, due: Callable[[RunState, Question], float | None]
) -> list[tuple[Question, Answer]]:
    """The open questions that policy and deadlines answer. Arguments as of `by_policy`, `due` by question."""
    found = [(one, by_policy(machine, one, now, due(machine, one))) for one in machine.questions.values()]
    return [(question, answer) for question, answer in found if answer is not None]


class OutcomeAnswer(NamedTuple):
    """What became of an effect, by the answer of a person."""

    choice: str
    result: object


def outcome_answer(answer: Answer) -> OutcomeAnswer:
    """The answer to a question of kind `unknown_outcome`, as one of its choices."""
    value = answer.value if isinstance(answer, Value) else answer.type
    if isinstance(value, Mapping):
        return OutcomeAnswer(str(value.get("choice", "failed")), value.get("result"))
    return OutcomeAnswer({"approve": "retry", "deny": "failed"}.get(str(value), str(value)), None)


def _approval(question: Question, answer: Answer, tools: Mapping[str, Tool]) -> Answer:
    if isinstance(answer, Value) and answer.value in question.choices:
        return answer
    if isinstance(answer, Value) and question.choices:
        choices = ", ".join(question.choices)
        raise InvalidAnswer(f"question {question.id!r} takes Approve(), Deny() or {choices}, not {answer.value!r}")
    if isinstance(answer, Approve) and answer.args is not None and in_family(question):
        raise InvalidAnswer(
            f"question {question.id!r} is about the call as it is shown: its arguments cannot be changed"
        )
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


def _outcome(machine: RunState, question: Question, answer: Answer) -> Answer:
    given = answer.value if isinstance(answer, Value) else None
    value = {"choice": given} if isinstance(given, str) else given if isinstance(given, Mapping) else {}
    place, schema, choice = f"question {question.id!r}", question.schema_, value.get("choice")
    if choice not in CHOICES or value.keys() - ({"choice", "result"} if choice == "happened" else {"choice"}):
        raise InvalidAnswer(f'{place} wants one of {", ".join(CHOICES)}, or {{"choice": "happened", "result": ...}}')
    found: Sequence[str] = ()
    if "result" in value and schema is not None:
        found = faults(value["result"], schema, schema, "the result")
        if found and _is_tool_result(machine, question, value["result"]):
            found = ()
    elif choice == "happened" and "result" not in value and (schema is None or faults(None, schema, schema)):
        whole = '{"choice": "happened", "result": ...}, or --result on the command line'
        nothing = "" if schema is not None else "; null if it returned nothing"
        found = [f"the step needs the result of the call: give {whole}{nothing}"]
    if found:
        raise InvalidAnswer(f"{place}: {'; '.join(found)}")
    return Value(value=dict(value))


def _is_tool_result(machine: RunState, question: Question, value: object) -> bool:
    """Whether a result is that of a tool in the form in which the journal keeps it: with its error, or its output."""
    entry = machine.ledger.entry(str(question.payload.get("key")))
    if entry is not None and entry.intended.kind != "tool":  # None: a call of a run that the asking step began
        return False
    try:
        found = ToolResult.model_validate(value)
    except ValidationError:
        return False
    return found.failed or not faults(found.output, question.schema_, question.schema_ or {})


def _fits(question: Question, value: object) -> None:
    if question.choices and value not in question.choices:
        raise InvalidAnswer(f"question {question.id!r} wants one of {', '.join(question.choices)}, not {value!r}")
    schema = question.schema_
    found = faults(value, schema, schema, "the answer") if schema is not None else []
    if found:
        raise InvalidAnswer(f"question {question.id!r}: {'; '.join(found)}")
