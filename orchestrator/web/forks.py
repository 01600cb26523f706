"""Forks: the form of possible changes, the preview of a fork, and the forks related to a run.

Text that looks like a secret is redacted. The form marks values that are partly redacted: input in such a field
replaces the whole value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field

from orchestrator.errors import RunUnknown
from orchestrator.executor.calls.irreversible_calls import FamilyCall
from orchestrator.executor.fork.preview import (
    EditableAnswer,
    EditableBranch,
    EditableRequest,
    EditableResult,
    ForkChoices,
    ForkedCall,
    ForkPreview,
)
from orchestrator.executor.run_status import with_status
from orchestrator.graph.limits import Usage
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.node_settings import with_model
from orchestrator.json import digest, is_small
from orchestrator.kernel import records as r
from orchestrator.kernel.question import Answer, Approve, Deny, in_family
from orchestrator.kernel.status import Relation, RunStatus
from orchestrator.stores.base import RunInfo
from orchestrator.tasks import away
from orchestrator.values import shown_labels
from orchestrator.views.safe_text import told
from orchestrator.views.transcript import picture_names
from orchestrator.web import documents, requests
from orchestrator.web.endpoint import Call
from orchestrator.web.graph_parts import NO_PARTS, parts_of

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.kernel.status import RunStatus


JsonText = Annotated[str, Field(description="JSON, as a string: JavaScript rounds large numbers.")]
_LONGEST_MESSAGE = 100_000
"""Characters of a message up to which it can be edited in the form."""
_MOST = 200
"""Calls of each kind that a preview lists."""


class BranchForm(documents.Document):
    """A state that a fork can set values of."""

    path: Annotated[str | None, Field(description="`branch` of the fork; null: none.")]
    node: str
    values: dict[str, JsonText]
    blanked: Annotated[list[str], Field(description="Fields with a part that is not shown.")]
    schema_: Annotated[dict[str, object], Field(serialization_alias="schema")]


class ResultForm(documents.Document):
    """The result of the call in the record, which a fork can replace."""

    kind: str
    name: str
    value: Annotated[JsonText | None, Field(description="What can be replaced; null: it has no result.")]
    output: Annotated[bool, Field(description="Whether it is the `output` of a tool's result: send it as one.")]
    error: str
    blanked: bool


class AnswerForm(documents.Document):
    """The answer in the record, which a fork can replace."""

    question: documents.QuestionDocument
    answer: dict[str, object]
    args: Annotated[
        dict[str, JsonText] | None, Field(description="Of a call: the arguments that were approved, or shown.")
    ]
    value: Annotated[JsonText | None, Field(description="The value, or the result in it: what became of a call.")]
    blanked: bool


class MessageForm(documents.Document):
    """A message of a request, which a fork can replace."""

    ref: Annotated[str, Field(description='Its digest: `{"ref": digest}` keeps it.')]
    role: str
    content: Annotated[str, Field(description="Its text. Too long ones are cut: only whole ones can be edited.")]
    more: Annotated[list[str], Field(description="What it has beside its text: calls, pictures.")]
    whole: Annotated[bool, Field(description="False if a part of the text is not shown, so that it cannot be edited.")]
    message: Annotated[
        dict[str, Any], Field(description="The message without its text, to be sent with an edited one.")
    ]


class RequestForm(documents.Document):
    """The request of a call of a model, which a fork can make with another one."""

    name: str
    digest: str
    messages: list[MessageForm]
    options: JsonText


class ForkForm(documents.Document):
    """Form of what a fork at a record can change."""

    run_id: str
    graph: str
    at: int
    head: Annotated[int, Field(description="The number of the run's last record.")]
    record: Annotated[str, Field(description="The type of record `at`.")]
    branches: list[BranchForm]
    result: ResultForm | None
    answer: AnswerForm | None
    request: RequestForm | None
    known: Annotated[bool, Field(description="Whether the server has the graph; else it cannot run the fork.")]
    other_version: Annotated[bool, Field(description="Whether the server has another version of the graph.")]
    labels: dict[str, str]
    parts: Annotated[documents.GraphParts, Field(description="The models and tools that the fork uses here.")]


class CallInFork(documents.Document):
    """A call in the records that a fork starts with."""

    seq: int
    kind: str
    name: str
    node: str
    effect: str
    became: Annotated[str, Field(description="`reused`, or `repeated`: it has no result that counts.")]


class RelativesCall(documents.Document):
    """A call that another run of the family made, and that cannot be undone."""

    name: str
    run_id: str
    seq: int
    args: JsonText
    status: Annotated[str, Field(description="`returned`, `failed`, or `unknown`: it may have happened.")]
    result: JsonText
    error: str


class ForkPreviewDocument(documents.Document):
    """Preview of a fork, as the store is now."""

    at: int
    status: str
    steps: Annotated[int, Field(description="Steps that do not run again.")]
    calls: Annotated[int, Field(description="Calls that are settled.")]
    inherited: Annotated[Usage, Field(description="What counts against the limits of the fork.")]
    open_calls: Annotated[list[CallInFork], Field(description="Calls of the steps that continue.")]
    done: Annotated[list[CallInFork], Field(description="Irreversible calls of ended steps: they are not made again.")]
    asks: Annotated[
        list[RelativesCall], Field(description="Irreversible calls of related runs that the fork asks about first.")
    ]
    irreversible: Annotated[list[str], Field(description="Tools ahead whose every call is asked about.")]
    deleted: Annotated[list[str], Field(description="Related runs that were deleted, so their calls are not known.")]
    withdrawn: Annotated[int, Field(description="Approvals that do not count in the fork.")]
    changes: Annotated[list[str], Field(description="What the other version of the graph changes.")]
    left_out: Annotated[int, Field(description="Number of calls that are left out of the lists.")]


class FamilyRun(documents.Document):
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
    deleted: Annotated[bool, Field(description="True if the store no longer has it.")]


class Family(documents.Document):
    """The forks and replays around a run: the runs it was forked from, their other forks, and its own."""

    run_id: str
    runs: Annotated[list[FamilyRun], Field(description="Parents before their forks, those in the order of creation.")]
    more: Annotated[list[str], Field(description="Runs of which some forks are left out.")]


# -- conversion of the executor's results
# -------------------------------------------------------------------------------


def form_of(
    run_id: str, graph: str, labels: Mapping[str, str], found: ForkChoices, parts: documents.GraphParts
) -> ForkForm:
    """Return the form of a fork."""
    return ForkForm(
        run_id=run_id,
        graph=graph,
        at=found.at,
        head=found.head,
        record=found.record,
        branches=[_branch(one) for one in found.branches],
        result=None if found.result is None else _result(found.result),
        answer=None if found.answer is None else _answer_form(found.answer),
        request=None if found.request is None else _request_form(found.request),
        known=found.known,
        other_version=found.other_version,
        labels=documents.blank(shown_labels(labels)),
        parts=parts,
    )


def preview_of(found: ForkPreview) -> ForkPreviewDocument:
    """Return the preview of a fork."""
    lists = (found.open_calls, found.done, found.relatives)
    return ForkPreviewDocument(
        at=found.at,
        status=found.status,
        steps=found.steps,
        calls=found.calls,
        inherited=found.usage,
        open_calls=[_call(one) for one in found.open_calls[:_MOST]],
        done=[_call(one) for one in found.done[:_MOST]],
        asks=[_relative(name, call) for name, call in found.relatives[:_MOST]],
        irreversible=list(found.irreversible),
        deleted=list(found.gone),
        withdrawn=found.withdrawn,
        changes=[str(documents.blank(one)) for one in found.changes],
        left_out=sum(max(0, len(one) - _MOST) for one in lists),
    )


def _branch(found: EditableBranch) -> BranchForm:
    return BranchForm(
        path=found.path,
        node=found.node,
        values={name: _text(value) for name, value in found.values.items()},
        blanked=[name for name, value in found.values.items() if _hides(value)],
        schema_=documents.blank(dict(found.form)),
    )


def _result(found: EditableResult) -> ResultForm:
    result: Any = found.result
    failed = r.failed_result(result) if found.kind == "tool" else None
    output = found.kind == "tool" and isinstance(result, Mapping) and not result.get("content")
    if output:
        result = result.get("output")
    elif found.kind == "model" and isinstance(result, Mapping):
        kept = {name: value for name, value in result.items() if name in ("text", "tool_calls", "parsed") and value}
        result = result.get("text") if kept.keys() <= {"text"} else kept
    error = found.error or failed or ""
    there = result is not None and not error
    return ResultForm(
        kind=found.kind,
        name=found.name,
        value=_text(result) if there else None,
        output=output,
        error=str(documents.blank(error)),
        blanked=there and _hides(result),
    )


def _request_form(found: EditableRequest) -> RequestForm:
    messages: Any = found.request.get("messages", ())
    return RequestForm(
        name=found.name,
        digest=found.digest,
        messages=[_message_form(one) for one in messages],
        options=_text(found.request.get("options") or {}),
    )


def _message_form(message: Mapping[str, Any]) -> MessageForm:
    text = str(message.get("content", ""))
    blanked = str(documents.blank(text))
    rest = {name: value for name, value in message.items() if name not in ("content", "data")}
    small = is_small([rest]) and not _hides(rest)
    calls = [f"call of {one.get('name')}" for one in message.get("tool_calls", ())]
    return MessageForm(
        ref=digest(dict(message)),
        role=str(message.get("role", "")),
        content=blanked[:_LONGEST_MESSAGE],
        more=[str(documents.blank(one)) for one in (*calls, *picture_names(message.get("images")))],
        whole=small and blanked == text and len(text) <= _LONGEST_MESSAGE,
        message=rest if small else {},
    )


def _answer_form(found: EditableAnswer) -> AnswerForm:
    question, answer = found.question, found.answer.model_dump(mode="json")
    shown = documents.question_of(question, answerable=False)
    args: Any = None
    if question.kind == "approval" and not in_family(question) and "tool" in question.payload:
        args = answer.get("args") or question.payload.get("args")
        args = args if isinstance(args, Mapping) else None
    hidden = _hides(answer) or _hides(args)
    value = answer.get("value")
    if question.kind == "unknown_outcome" and isinstance(value, Mapping):
        value = value.get("result")
    return AnswerForm(
        question=shown,
        answer=documents.blank(answer),
        blanked=hidden,
        args=None if args is None else {str(name): _text(value) for name, value in args.items()},
        value=None if value is None else _text(value),
    )


def _call(found: ForkedCall) -> CallInFork:
    return CallInFork(
        seq=found.seq, kind=found.kind, name=found.name, node=found.node, effect=found.effect, became=found.became
    )


def _relative(name: str, call: FamilyCall) -> RelativesCall:
    return RelativesCall(
        name=name,
        run_id=call.run,
        seq=call.seq,
        args=_line(call.args),
        status=call.status,
        result=_line(call.result),
        error=str(documents.blank(call.error)),
    )


def _text(value: object) -> str:
    shown = (
        documents.blank(value)
        if is_small(value, requests.LONGEST)
        else f"[not shown: it has more than {requests.LONGEST:,} characters]"
    )
    return json.dumps(shown, ensure_ascii=False, indent=2)


def _line(value: object) -> str:
    return json.dumps(documents.blank(value), ensure_ascii=False)


def _hides(value: object) -> bool:
    return not is_small(value, requests.LONGEST) or bool(documents.blank(value) != value)


_ANCESTORS = 10
"""Generations of parents that are read."""
_FORKS = 20
"""Forks of one run that are listed."""
_LOOKS = 20
"""Pages of a run's forks that are read, if `authorize` leaves forks out."""
_VALUE = 80
"""Characters of a value that a line of a family shows."""
_LINES = 8
"""Fields of an update in a line of a family."""
_RELATIONS: tuple[Relation, ...] = ("fork", "replay")


async def form(call: Call[requests.AtQuery]) -> ForkForm:
    """Return the form of what a fork of a run at a record can change."""
    found = await call.executor.forks.choices(call.run_id, call.query.at)
    run = await call.executor.load(call.run_id)
    parts = parts_of(call.executor, _version(call, run)) if found.known else NO_PARTS
    return await away(lambda: form_of(call.run_id, call.run.graph, call.run.labels, found, parts), found)


def _version(call: Call[Any], run: Run) -> GraphDefinition:
    """Return the version of its graph in which a run goes on: it may be one with another model."""
    known = call.executor.graphs.get(run.graph, run.definition)
    versions = (known, *(with_model(known, name) for name in call.executor.models))
    return next((one for one in versions if one.content == run.machine.content), run.definition)


async def version_of(call: Call[requests.NoQuery, requests.ForkBody]) -> GraphDefinition | None:
    """Return the version of the graph that a fork goes on in; None: that of its run.

    Raises:
        GraphUnknown: the server does not have it.
        HttpProblem: the server has no model with this name.
    """
    body = call.body
    named = body.graph or (call.run.graph if body.model is not None else None)
    return None if named is None else call.with_model(await call.graph(named), body.model)


async def preview(call: Call[requests.NoQuery, requests.ForkBody]) -> ForkPreviewDocument:
    """Return what a fork would reuse, make again and ask about. It is refused if the fork would be."""
    body = call.body
    labels = (await call.labelled(call.run)).labels
    await call.check_new(body.run_id, call.run.graph, {**labels, **body.labels})
    found = await call.executor.forks.preview(call.run_id, **body.changes(await version_of(call)), start=body.start)
    return await away(lambda: preview_of(found), found)


async def family(call: Call[requests.NoQuery]) -> Family:
    """Return the runs that a run was forked from, their other forks, and its own.

    Each run costs one row of the store, found by its id or by the index of parents, and four records.
    """
    line, gone = await _ancestors(call)
    runs: dict[str, FamilyRun] = {}
    more: list[str] = []
    for info in line:
        runs[info.run_id] = await _member(call, info)
    if gone:
        runs = {gone: _deleted(gone), **runs}
    for run_id in [*runs][-2:]:  # the parent and the run
        listed, has_more = await _forks(call, run_id)
        if has_more:
            more.append(run_id)
        for info in listed:
            if info.run_id not in runs:
                runs[info.run_id] = await _member(call, info)
    # Parents are left out if the principal may not see them, or if they are too many generations up.
    listed_runs = [one if one.parent in runs else one.model_copy(update={"parent": ""}) for one in runs.values()]
    return Family(run_id=call.run_id, runs=listed_runs, more=more)


async def _ancestors(call: Call[requests.NoQuery]) -> tuple[list[RunInfo], str]:
    """Return the run and the runs it was forked from, oldest first; and the id of their parent, if it is deleted.

    A run that the principal may not see ends the list.
    """
    line = [call.run]
    while len(line) <= _ANCESTORS:
        parent = line[0].parent
        if parent is None or parent.relation not in _RELATIONS:
            break
        try:
            info = with_status(await call.executor.store.info(parent.run_id))
        except RunUnknown:
            return line, parent.run_id
        if not await call.may_see(info):
            break
        line.insert(0, info)
    return line, ""


async def _forks(call: Call[requests.NoQuery], run_id: str) -> tuple[list[RunInfo], bool]:
    """Return the newest forks and replays of a run, oldest first, and whether there are more."""
    found: list[RunInfo] = []
    more = False
    for relation in _RELATIONS:
        seen, left = await _newest(call, run_id, relation)
        found += seen
        more |= left
    return sorted(found, key=lambda info: info.created), more


async def _newest(call: Call[requests.NoQuery], run_id: str, relation: Relation) -> tuple[list[RunInfo], bool]:
    """Return the newest forks, or replays, that the principal may see, and whether there are more."""
    found: list[RunInfo] = []
    cursor: str | None = None
    for _ in range(_LOOKS):
        page = await call.executor.runs(parent=run_id, relation=relation, after=cursor, limit=_FORKS + 1)
        found += [info for info in page.runs if await call.may_see(info)]
        cursor = page.cursor
        if len(found) > _FORKS or cursor is None:
            break
    return found[:_FORKS], len(found) > _FORKS


def _deleted(run_id: str) -> FamilyRun:
    return FamilyRun(
        run_id=run_id,
        graph="",
        status="completed",
        relation="",
        parent="",
        seq=0,
        where="",
        differs=[],
        created=0.0,
        deleted=True,
    )


async def _member(call: Call[requests.NoQuery], info: RunInfo) -> FamilyRun:
    parent, where, differs = info.parent, "", list[str]()
    if parent is not None and parent.relation in _RELATIONS:
        records = await call.executor.store.read(info.run_id, after=max(0, parent.seq - 1), limit=5)
        where, differs = _where(records), await away(lambda: _differs(info.run_id, records), records)
    else:
        parent = None
    return FamilyRun(
        run_id=info.run_id,
        graph=info.graph,
        status=cast("RunStatus", info.status),
        created=info.created,
        deleted=False,
        where=where,
        relation="" if parent is None else parent.relation,
        parent="" if parent is None else parent.run_id,
        seq=0 if parent is None else parent.seq,
        differs=differs,
    )


# -- in words --------------------------------------------------------------------------------------------------------


def _where(records: list[r.Record]) -> str:
    """Return the last record that a fork contains, in words."""
    last = records[0] if records else None
    if isinstance(last, r.RunStarted | r.Forked) or last is None:
        return "from the start"
    if isinstance(last, r.Answered):
        return "at an answer"
    if not isinstance(last, r.ActivationRecord):
        return ""
    place = told("/".join(part for part in (last.path, last.node) if part), _VALUE)
    if isinstance(last, r.EffectSettled):
        return f"after a call in {place}"
    return f"after {place}" if isinstance(last, r.StepDone | r.StepFailed) else f"in {place}"


def _differs(run_id: str, records: list[r.Record]) -> list[str]:
    """Return the changes that a fork made at its start."""
    begun = next((at for at, one in enumerate(records) if isinstance(one, r.Forked) and one.run_id == run_id), None)
    if begun is None:
        return []
    fork = records[begun]
    assert isinstance(fork, r.Forked)
    said = [f"{told(name, _VALUE)} = {_value(value)}" for name, value in [*fork.update.items()][:_LINES]]
    if len(fork.update) > _LINES:
        said.append(f"{len(fork.update) - _LINES} more fields")
    if fork.branch is not None and said:
        said[0] = f"in {told(fork.branch, _VALUE)}: {said[0]}"
    if fork.key:
        said.append(f"another result: {_value(fork.result)}")
    if fork.asked is not None:
        said.append(f"another request: {_request_words(fork.asked.request)}")
    if fork.answer is not None:
        said.append(f"another answer: {_answer(fork.answer)}")
    said += [f"model {told(name, _VALUE)}: {told(model, _VALUE)}" for name, model in fork.models.items()]
    for later in records[begun + 1 :]:
        if isinstance(later, r.Answered) and later.ts <= fork.ts:
            said.append(f"answered: {_answer(later.answer)}")
        elif isinstance(later, r.EffectSettled) and later.key in fork.told and fork.answer is None:
            said.append(f"what became of a call: {_value(later.result) if later.ok else 'it failed'}")
        elif isinstance(later, r.Migrated) or (isinstance(later, r.Resumed) and later.content is not None):
            said.append("another version of the graph")
    return said


def _request_words(request: Mapping[str, Any]) -> str:
    """Return the new messages of a changed request; its options if there are none."""
    fresh = [one.get("content") for one in request["messages"] if "ref" not in one]
    return _value("\n".join(map(str, fresh)) if fresh else request["options"])


def _value(value: object) -> str:
    return told(value if isinstance(value, str) else json.dumps(documents.blank(value), ensure_ascii=False), _VALUE)


def _answer(answer: Answer) -> str:
    if isinstance(answer, Approve):
        return "approved" if answer.args is None else f"approved with {_value(answer.args)}"
    if isinstance(answer, Deny):
        return f"denied: {_value(answer.reason)}" if answer.reason else "denied"
    return _value(answer.value)
