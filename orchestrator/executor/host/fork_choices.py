"""What a fork at a record of a run can change: values of its branches, the result or the answer in that record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.away import away
from orchestrator.executor.answers import is_answerable
from orchestrator.executor.host.forks import Moment, moment_of
from orchestrator.executor.host.host import Host
from orchestrator.graph.state import start_form
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.handlers.forking import edited_tokens
from orchestrator.kernel.queries import in_places
from orchestrator.kernel.question import PAUSE, Answer, Question
from orchestrator.kernel.records import Answered, EffectSettled
from orchestrator.kernel.reopening import is_over, reopen_fork
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, Phase
from orchestrator.stores.base import RunInfo


@dataclass(frozen=True, slots=True)
class EditableBranch:
    """A state that a fork can set values of."""

    path: str | None
    """`branch=` of the fork; None: the trunk."""
    node: str
    values: JsonObject
    form: JsonObject
    """JSON Schema of the state."""


@dataclass(frozen=True, slots=True)
class EditableResult:
    """The result of the call in the record."""

    kind: str
    name: str
    result: object
    error: str


@dataclass(frozen=True, slots=True)
class EditableAnswer:
    """The answer in the record."""

    question: Question
    answer: Answer


@dataclass(frozen=True, slots=True)
class ForkChoices:
    """What a fork at a record can change."""

    at: int
    record: str
    """Its type."""
    head: int
    branches: tuple[EditableBranch, ...]
    result: EditableResult | None
    answer: EditableAnswer | None
    known: bool
    """Whether the executor has the graph: else it can make the fork, and not run it."""
    other_version: bool
    """Whether it has another version of the graph than the run had."""


async def choices(host: Host, info: RunInfo, at: int | None) -> ForkChoices:
    """See `ExecutorForks.choices`."""
    moment = await moment_of(host, info, at)
    machine, newest = moment.machine, host.resources.graphs.get(info.graph)
    answer = await _answer(host, moment)
    result = _result(moment)
    content = machine.content
    if at is None or not is_over(machine):
        reopen_fork(machine)
    branches = await away(lambda: tuple(_branches(machine)))
    return ForkChoices(
        at=machine.head, record=moment.records[-1].type, head=info.head, branches=branches,
        result=result, answer=answer, known=newest is not None,
        other_version=newest is not None and newest.content != content,
    )  # fmt: skip


def _branches(machine: RunState) -> Iterator[EditableBranch]:
    paths = dict.fromkeys(token.path for token in in_places(machine.live_tokens()) if token.path)
    for path in (None, *paths):
        tokens = edited_tokens(machine, path)
        if tokens and not all(token.phase is Phase.PENDING for token in tokens):
            yield _branch(path, tokens[0])


def _branch(path: str | None, token: Activation) -> EditableBranch:
    schema = token.frame.plan.schema
    return EditableBranch(path, token.node, schema.show(token.values), start_form(schema))


def _result(moment: Moment) -> EditableResult | None:
    last = moment.records[-1]
    entry = moment.machine.ledger.entry(last.key) if isinstance(last, EffectSettled) else None
    if entry is None or entry.settled is None:
        return None
    error = entry.settled.error
    intended = entry.intended
    return EditableResult(intended.kind, intended.name, entry.settled.result, "" if error is None else str(error))


async def _answer(host: Host, moment: Moment) -> EditableAnswer | None:
    last = moment.records[-1]
    if not isinstance(last, Answered) or last.question == PAUSE:
        return None
    before = await host.loader.machine_of(moment.info, moment.stored, moment.machine.head - 1)
    question = before.questions.get(last.question)
    if question is None or not is_answerable(question):
        return None
    return EditableAnswer(question, last.answer)
