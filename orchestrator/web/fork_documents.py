"""What answers say about forks: what one can change, what it would reuse and ask, and the family around a run.

What looks like a secret is blanked. A form says of which values a part is blanked: what is written into it takes their
place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from orchestrator.executor.effects.earlier_calls import FamilyCall
from orchestrator.executor.fork.preview import (
    EditableAnswer,
    EditableBranch,
    EditableResult,
    ForkChoices,
    ForkedCall,
    ForkPreview,
)
from orchestrator.graph.limits import Usage
from orchestrator.json import is_small
from orchestrator.kernel.question import in_family
from orchestrator.kernel.records import failed_result
from orchestrator.kernel.status import RunStatus
from orchestrator.values import shown_labels
from orchestrator.web.bodies import LONGEST
from orchestrator.web.documents import Document, QuestionDocument, blank, question_of

JsonText = Annotated[str, Field(description="JSON, as text: JavaScript rounds large numbers.")]
_MOST = 200
"""Calls of each kind that a preview lists."""


class BranchForm(Document):
    """A state that a fork can set values of."""

    path: Annotated[str | None, Field(description="`branch` of the fork; null: none.")]
    node: str
    values: dict[str, JsonText]
    blanked: Annotated[list[str], Field(description="Fields of which a part is not shown.")]
    schema_: Annotated[dict[str, object], Field(serialization_alias="schema")]


class ResultForm(Document):
    """The result of the call in the record."""

    kind: str
    name: str
    value: Annotated[JsonText | None, Field(description="What can be replaced; null: it has no result.")]
    output: Annotated[bool, Field(description="Whether it is the `output` of a tool's result: send it as one.")]
    error: str
    blanked: bool


class AnswerForm(Document):
    """The answer in the record."""

    question: QuestionDocument
    answer: dict[str, object]
    args: Annotated[
        dict[str, JsonText] | None, Field(description="Of a call: the arguments that were approved, or shown.")
    ]
    value: Annotated[JsonText | None, Field(description="The value, or the result in it: what became of a call.")]
    blanked: bool


class ForkForm(Document):
    """What a fork at a record can change."""

    run_id: str
    graph: str
    at: int
    head: Annotated[int, Field(description="The number of the run's last record.")]
    record: Annotated[str, Field(description="The type of record `at`.")]
    branches: list[BranchForm]
    result: ResultForm | None
    answer: AnswerForm | None
    known: Annotated[bool, Field(description="Whether the server has the graph; else it cannot run the fork.")]
    other_version: Annotated[bool, Field(description="Whether the server has another version of the graph.")]
    labels: dict[str, str]


class CallInFork(Document):
    """A call in the records that a fork begins with."""

    seq: int
    kind: str
    name: str
    node: str
    effect: str
    became: Annotated[str, Field(description="`reused`, or `repeated`: it has no result that counts.")]


class RelativesCall(Document):
    """A call that another run of the family made, and that cannot be undone."""

    name: str
    run_id: str
    seq: int
    args: JsonText
    status: Annotated[str, Field(description="`returned`, `failed`, or `unknown`: it may have happened.")]
    result: JsonText
    error: str


class ForkPreviewDocument(Document):
    """What a fork would be, as the store is now."""

    at: int
    status: str
    steps: Annotated[int, Field(description="Steps that do not run again.")]
    calls: Annotated[int, Field(description="Calls that are settled.")]
    inherited: Annotated[Usage, Field(description="What counts against the limits of the fork.")]
    open_calls: Annotated[list[CallInFork], Field(description="Calls of the steps that go on.")]
    done: Annotated[list[CallInFork], Field(description="Irreversible calls of ended steps: they are not made again.")]
    asks: Annotated[
        list[RelativesCall], Field(description="Irreversible calls of relatives that the fork asks about first.")
    ]
    irreversible: Annotated[list[str], Field(description="Tools ahead whose every call is asked about.")]
    deleted: Annotated[list[str], Field(description="Relatives of which nothing is known.")]
    withdrawn: Annotated[int, Field(description="Approvals that do not count in the fork.")]
    changes: Annotated[list[str], Field(description="What the version of the graph changes.")]
    left_out: Annotated[int, Field(description="How many calls are left out of the lists.")]


class FamilyRun(Document):
    """A run of a family."""

    run_id: str
    graph: str
    status: RunStatus
    relation: Annotated[str, Field(description="`fork` or `replay`; empty: the root.")]
    parent: Annotated[str, Field(description="Empty: it is not listed; it may be one that `authorize` refuses.")]
    seq: Annotated[int, Field(description="The record of the parent that it contains last.")]
    where: Annotated[str, Field(description="What that record is about: a node, a tool, an answer.")]
    differs: Annotated[list[str], Field(description="What it changed there, line by line.")]
    created: float
    deleted: Annotated[bool, Field(description="Whether the store has it no more.")]


class Family(Document):
    """The forks and replays around a run: the runs it was forked from, their other forks, and its own."""

    run_id: str
    runs: Annotated[list[FamilyRun], Field(description="Parents before their forks, those in the order of creation.")]
    more: Annotated[list[str], Field(description="Runs of which some forks are left out.")]


# -- made of what the executor says ----------------------------------------------------------------------------------


def form_of(run_id: str, graph: str, labels: Mapping[str, str], found: ForkChoices) -> ForkForm:
    """The form of a fork."""
    return ForkForm(
        run_id=run_id, graph=graph, at=found.at, head=found.head, record=found.record,
        branches=[_branch(one) for one in found.branches],
        result=None if found.result is None else _result(found.result),
        answer=None if found.answer is None else _answer(found.answer),
        known=found.known, other_version=found.other_version, labels=blank(shown_labels(labels)),
    )  # fmt: skip


def preview_of(found: ForkPreview) -> ForkPreviewDocument:
    """What a fork would be."""
    lists = (found.open_calls, found.done, found.relatives)
    return ForkPreviewDocument(
        at=found.at, status=found.status, steps=found.steps, calls=found.calls, inherited=found.usage,
        open_calls=[_call(one) for one in found.open_calls[:_MOST]], done=[_call(one) for one in found.done[:_MOST]],
        asks=[_relative(name, call) for name, call in found.relatives[:_MOST]],
        irreversible=list(found.irreversible), deleted=list(found.gone), withdrawn=found.withdrawn,
        changes=[str(blank(one)) for one in found.changes],
        left_out=sum(max(0, len(one) - _MOST) for one in lists),
    )  # fmt: skip


def _branch(found: EditableBranch) -> BranchForm:
    return BranchForm(
        path=found.path, node=found.node, values={name: _text(value) for name, value in found.values.items()},
        blanked=[name for name, value in found.values.items() if _hides(value)], schema_=blank(dict(found.form)),
    )  # fmt: skip


def _result(found: EditableResult) -> ResultForm:
    result: Any = found.result
    failed = failed_result(result) if found.kind == "tool" else None
    output = found.kind == "tool" and isinstance(result, Mapping) and not result.get("content")
    if output:
        result = result.get("output")
    elif found.kind == "model" and isinstance(result, Mapping):
        kept = {name: value for name, value in result.items() if name in ("text", "tool_calls", "parsed") and value}
        result = result.get("text") if kept.keys() <= {"text"} else kept
    error = found.error or failed or ""
    there = result is not None and not error
    return ResultForm(
        kind=found.kind, name=found.name, value=_text(result) if there else None, output=output,
        error=str(blank(error)), blanked=there and _hides(result),
    )  # fmt: skip


def _answer(found: EditableAnswer) -> AnswerForm:
    question, answer = found.question, found.answer.model_dump(mode="json")
    shown = question_of(question, answerable=False)
    args: Any = None
    if question.kind == "approval" and not in_family(question) and "tool" in question.payload:
        args = answer.get("args") or question.payload.get("args")
        args = args if isinstance(args, Mapping) else None
    hidden = _hides(answer) or _hides(args)
    value = answer.get("value")
    if question.kind == "unknown_outcome" and isinstance(value, Mapping):
        value = value.get("result")
    return AnswerForm(
        question=shown, answer=blank(answer), blanked=hidden,
        args=None if args is None else {str(name): _text(value) for name, value in args.items()},
        value=None if value is None else _text(value),
    )  # fmt: skip


def _call(found: ForkedCall) -> CallInFork:
    return CallInFork(
        seq=found.seq, kind=found.kind, name=found.name, node=found.node, effect=found.effect, became=found.became
    )


def _relative(name: str, call: FamilyCall) -> RelativesCall:
    return RelativesCall(
        name=name, run_id=call.run, seq=call.seq, args=_line(call.args), status=call.status, result=_line(call.result),
        error=str(blank(call.error)),
    )  # fmt: skip


def _text(value: object) -> str:
    shown = blank(value) if is_small(value, LONGEST) else f"[not shown: it has more than {LONGEST:,} characters]"
    return json.dumps(shown, ensure_ascii=False, indent=2)


def _line(value: object) -> str:
    return json.dumps(blank(value), ensure_ascii=False)


def _hides(value: object) -> bool:
    return not is_small(value, LONGEST) or bool(blank(value) != value)
