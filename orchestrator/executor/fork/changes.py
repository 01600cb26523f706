"""What a fork changes at the moment that it begins from: values, a result, an answer. All is checked here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from orchestrator.errors import InvalidAnswer, InvalidUpdate, InvalidValue
from orchestrator.executor.commands import as_answer, check_answer, outcome_answer
from orchestrator.executor.effects.decide import settled_of
from orchestrator.executor.effects.questions import failed_words
from orchestrator.executor.node_call import given_result
from orchestrator.graph.codec import as_json, explain
from orchestrator.graph.reducers import Replace, replace
from orchestrator.graph.state import StateSchema
from orchestrator.json import JsonObject, digest
from orchestrator.kernel.handlers.forking import edited_tokens
from orchestrator.kernel.queries import in_places
from orchestrator.kernel.question import PAUSE, Answer, Question
from orchestrator.kernel.records import Answered, Asked, EffectIntended, EffectSettled, Failure, Record
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.seals import unused_approvals
from orchestrator.kernel.state import Phase
from orchestrator.models.messages import Reply
from orchestrator.tools.result import ToolResult
from orchestrator.tools.validation import faults
from orchestrator.values import MAX_REQUEST_BYTES


@dataclass(slots=True)
class Changes:
    """The checked changes of a fork."""

    update: JsonObject = field(default_factory=dict)
    ops: dict[str, str] = field(default_factory=dict)
    branch: str | None = None
    key: str = ""
    result: object = None
    question: str = ""
    answer: Answer | None = None
    withdrawn: tuple[str, ...] = ()
    told: list[EffectSettled] = field(default_factory=list)
    """How calls ended whose outcome was unknown; their numbers are not those that they get."""
    open_digests: dict[str, str] = field(default_factory=dict)
    """Open question -> its digest in the parent."""
    over: bool = False
    """Whether the result of the parent is kept."""

    def fields(self) -> dict[str, Any]:
        """The fields of the record `forked`."""
        return {
            "update": dict(self.update), "ops": self.ops, "branch": self.branch, "key": self.key, "result": self.result,
            "question": self.question, "answer": self.answer, "withdrawn": self.withdrawn,
            "told": tuple(one.key for one in self.told), "over": self.over,
        }  # fmt: skip

    def digests(self, run_id: str) -> dict[str, str]:
        """The digests that open questions have in the fork: an answer to the parent's does not fit them."""
        return {name: digest([run_id, before]) for name, before in self.open_digests.items()}


class Wanted(Protocol):
    """What is to be changed, as it was given; see `Executor.fork`."""

    @property
    def update(self) -> Mapping[str, object] | None: ...
    @property
    def branch(self) -> str | None: ...
    @property
    def answer(self) -> object: ...
    @property
    def answers(self) -> Mapping[str, object] | None: ...
    @property
    def result(self) -> object: ...


def changes_of(machine: RunState, records: Sequence[Record], wanted: Wanted, before: RunState | None) -> Changes:
    """The changes that a fork begins with.

    Args:
        machine: the parent at the last record that is copied; reopened if the fork reopens it.
        records: the records that are copied.
        wanted: the changes.
        before: the parent one record before; needed to replace an answer.

    Raises:
        InvalidUpdate: a field or a value does not fit the state.
        InvalidValue: there is no such branch, or the last record is no result.
        InvalidAnswer: the last record is no answer, or the new answer does not fit its question.
    """
    found = Changes()
    update, branch, answer, result = wanted.update, wanted.branch, wanted.answer, wanted.result
    if answer is not None and result is not None:
        raise InvalidAnswer(
            "the record is a result or an answer: give result= or answer=, not both", where="answer"
        ).on_command_line("the record is a result or an answer: give --result or --answer, not both")
    if update or branch is not None:
        found.branch = branch
        found.update, found.ops = _update(machine, update or {}, branch)
    if result is not None:
        found.key, found.result = _result(machine, records, result)
    if answer is not None and before is not None:
        found.question, found.answer = _superseded(before, records, answer)
        found.told += _told(machine, before.questions[found.question], found.answer)
    for name, given in (wanted.answers or {}).items():
        question = machine.questions.get(name)
        if question is not None and question.kind == "unknown_outcome":
            found.told += _told(machine, question, check_answer(machine, name, as_answer(given), None, {}, 0.0))
    found.withdrawn = tuple(name for name in unused_approvals(machine, _questions(records)) if name != found.question)
    found.open_digests = {name: one.digest for name, one in machine.questions.items() if one.digest}
    return found


def _questions(records: Sequence[Record]) -> list[Asked]:
    return [record for record in records if isinstance(record, Asked)]


# -- values -----------------------------------------------------------------------------------------------------------


def _update(machine: RunState, update: Mapping[str, object], branch: str | None) -> tuple[JsonObject, dict[str, str]]:
    """An update as its record holds it: it sets values, past their reducers."""
    tokens = edited_tokens(machine, branch)
    run_id = machine.run_id
    listed = ", ".join(f"{one.path or '(trunk)'} ({one.node})" for one in in_places(machine.live_tokens())) or "none"
    if not update:
        raise InvalidValue(
            f"run {run_id!r}: branch={branch!r} says where update= goes: give one", where="branch"
        ).on_command_line(f"run {run_id!r}: --branch {branch} says where --set goes: give one")
    if branch is not None and not tokens:
        raise InvalidValue(f"run {run_id!r} has no branch {branch!r} there; its branches: {listed}", where="branch")
    if not tokens and machine.root is not None and machine.root.result is not None:
        raise InvalidValue(
            f"run {run_id!r} is over at record {machine.head}: no step sees other values; fork it at a record before",
            where="at",
        )
    if not tokens:
        fault = f"run {run_id!r} is inside a fork there, where each branch has a state of its own: name one, "
        raise InvalidValue(f"{fault}branch=...; its branches: {listed}", where="branch").on_command_line(
            f"{fault}--branch PATH; its branches: {listed}"
        )
    if all(token.phase is Phase.PENDING for token in tokens):
        raise InvalidValue(
            f"run {run_id!r}: branch {branch!r} has not begun: it waits for other items, and will see their values",
            where="branch",
        )
    schema = tokens[0].frame.plan.schema
    wanted = {name: value if isinstance(value, Replace) else replace(value) for name, value in update.items()}
    try:
        found, ops = schema.encode_update(wanted)
    except InvalidUpdate as error:
        raise InvalidUpdate(f"run {run_id!r}: {error}") from None
    wrong = _misfits(schema, found) if schema.cls is None else []
    if wrong:
        raise InvalidUpdate(f"run {run_id!r}: update of {schema.name}: {'; '.join(wrong)}")
    return found, ops


def _misfits(schema: StateSchema, update: JsonObject) -> list[str]:
    """What does not fit the fields of a state whose class is not loaded, by the JSON Schemas that are stored."""
    data: Any = schema.data()
    found: list[str] = []
    for name, value in update.items():
        field_data = data["fields"].get(name)
        fits = field_data.get("schema") if isinstance(field_data, Mapping) else None
        if isinstance(fits, Mapping):
            found += faults(value, fits, {"$defs": data.get("$defs", {})}, f"field {name!r}")
    return found


# -- a result ---------------------------------------------------------------------------------------------------------


def _result(machine: RunState, records: Sequence[Record], given: object) -> tuple[str, object]:
    """The call whose result is replaced, and the result as the journal keeps it."""
    last = records[-1]
    if not isinstance(last, EffectSettled):
        fault = (
            f"takes the place of a settled call's result: record {last.seq} of run {machine.run_id!r} is {last.type}, "
            "not effect_settled"
        )
        raise InvalidValue(f"result= {fault}", where="result").on_command_line(f"--result {fault}")
    entry = machine.ledger.entry(last.key)
    if entry is None:
        raise InvalidValue(f"record {last.seq} of run {machine.run_id!r}: its step is over", where="result")
    return last.key, _encoded(entry.intended, given)


def _encoded(intended: EffectIntended, given: object) -> object:
    where = f"the result of {intended.name!r}"
    if intended.kind == "model":
        return _reply(given, where)
    if isinstance(given, ToolResult):
        given = given.model_dump(mode="json", exclude_defaults=True)
    found = as_json(given, where, inside=1, size=MAX_REQUEST_BYTES)
    if intended.kind == "tool" and not (isinstance(found, Mapping) and found.keys() <= ToolResult.model_fields.keys()):
        return {"output": found}
    if intended.kind == "tool":
        try:
            ToolResult.model_validate(found)
        except ValidationError as error:
            raise InvalidValue(f"{where}: {explain(error)}", where="result") from None
    return found


def _reply(given: object, where: str) -> object:
    """A model's reply: a `Reply`, its data, or its text."""
    if isinstance(given, Reply):
        return given.data()
    try:
        return Reply.model_validate({"text": given} if isinstance(given, str) else given).data()
    except ValidationError as error:
        raise InvalidValue(f"{where} is a text, or a reply: {explain(error)}", where="result") from None


# -- an answer --------------------------------------------------------------------------------------------------------


def _superseded(before: RunState, records: Sequence[Record], given: object) -> tuple[str, Answer]:
    """The question of which the answer is replaced, and the new answer. `before`: the run before it was answered."""
    last = records[-1]
    if not isinstance(last, Answered) or last.question == PAUSE:
        fault = f"takes the place of an answer: record {last.seq} of run {before.run_id!r} is {last.type}; for "
        opened = "questions that are open there use"
        raise InvalidAnswer(f"answer= {fault}{opened} answers={{question: answer}}", where="answer").on_command_line(
            f"--answer {fault}{opened} --answer QUESTION=JSON"
        )
    return last.question, check_answer(before, last.question, as_answer(given), None, {}, last.ts)


def _told(machine: RunState, question: Question, answer: Answer) -> Iterator[EffectSettled]:
    """How a call ended, by the answer to the question what became of it.

    Nothing follows from `retry`: the fork makes the call itself, and asks before it does.
    """
    choice, result = outcome_answer(answer)
    if question.kind != "unknown_outcome" or choice == "retry":
        return
    entry = machine.ledger.entry(str(question.payload.get("key")))
    if entry is None:
        raise InvalidAnswer(f"question {question.id!r} is about a call of an inner run: answer it in that run")
    call = entry.intended
    token, error, returned = machine.activation(call.activation), None, None
    if choice == "failed":
        error = Failure(type="EffectFailed", message=failed_words(call.name), node=call.node, path=call.path)
        before = settled_of(entry)
        returned = None if before is None else before.returned
    elif call.kind == "effect" and not call.request and call.name == call.node and token is not None:
        result = given_result(token.frame.plan.schema, result)  # of an irreversible node
    yield EffectSettled(
        seq=machine.head, ts=machine.updated, activation=call.activation, path=call.path, node=call.node, key=call.key,
        ok=error is None, error=error, result=None if error else _encoded(call, result), returned=returned,
        answered=True, started=call.ts, ended=call.ts,
    )  # fmt: skip
