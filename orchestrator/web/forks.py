"""What a fork can change and would do, and the forks around a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from orchestrator.errors import RunUnknown
from orchestrator.executor.run_status import with_status
from orchestrator.kernel.question import Answer, Approve, Deny
from orchestrator.kernel.records import (
    ActivationRecord,
    Answered,
    EffectSettled,
    Forked,
    Migrated,
    Record,
    Resumed,
    RunStarted,
    StepDone,
    StepFailed,
)
from orchestrator.kernel.status import Relation
from orchestrator.stores.base import RunInfo
from orchestrator.tasks import away
from orchestrator.views.safe_text import told
from orchestrator.web.documents import blank
from orchestrator.web.endpoint import Call
from orchestrator.web.fork_documents import (
    Family,
    FamilyRun,
    ForkForm,
    ForkPreviewDocument,
    form_of,
    preview_of,
)
from orchestrator.web.requests import AtQuery, ForkBody, NoQuery

if TYPE_CHECKING:
    from orchestrator.kernel.status import RunStatus

_ANCESTORS = 10
"""Generations that are followed up."""
_FORKS = 20
"""Forks of one run that are listed."""
_LOOKS = 20
"""Parts of the forks of one run that are looked at, if `authorize` leaves them out."""
_VALUE = 80
"""Characters of a value that a line of a family shows."""
_LINES = 8
"""Fields of an update that it shows."""
_RELATIONS: tuple[Relation, ...] = ("fork", "replay")


async def form(call: Call[AtQuery]) -> ForkForm:
    """What a fork of a run at a record can change."""
    found = await call.executor.forks.choices(call.run_id, call.query.at)
    return await away(lambda: form_of(call.run_id, call.run.graph, call.run.labels, found), found)


async def preview(call: Call[NoQuery, ForkBody]) -> ForkPreviewDocument:
    """What a fork would reuse, make again and ask about. What refuses the fork refuses this, too."""
    body = call.body
    labels = (await call.labelled(call.run)).labels
    await call.check_new(body.run_id, call.run.graph, {**labels, **body.labels})
    graph = None if body.graph is None else await call.graph(body.graph)
    found = await call.executor.forks.preview(call.run_id, **body.changes(graph), start=body.start)
    return await away(lambda: preview_of(found), found)


async def family(call: Call[NoQuery]) -> Family:
    """The runs that a run was forked from, their other forks, and its own.

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
    # Parents that are not listed are those that the principal may not see, or that are too far up.
    listed_runs = [one if one.parent in runs else one.model_copy(update={"parent": ""}) for one in runs.values()]
    return Family(run_id=call.run_id, runs=listed_runs, more=more)


async def _ancestors(call: Call[NoQuery]) -> tuple[list[RunInfo], str]:
    """The run and those that it was forked from, the first one first; and the id of the one before, if it is deleted.

    A run that the principal may not see ends the line.
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


async def _forks(call: Call[NoQuery], run_id: str) -> tuple[list[RunInfo], bool]:
    """The newest forks and replays of a run, the oldest of these first, and whether there are more."""
    found: list[RunInfo] = []
    more = False
    for relation in _RELATIONS:
        seen, left = await _newest(call, run_id, relation)
        found += seen
        more |= left
    return sorted(found, key=lambda info: info.created), more


async def _newest(call: Call[NoQuery], run_id: str, relation: Relation) -> tuple[list[RunInfo], bool]:
    """The newest forks, or replays, that the principal may see, and whether there are more of those."""
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
        run_id=run_id, graph="", status="completed", relation="", parent="", seq=0, where="", differs=[], created=0.0,
        deleted=True,
    )  # fmt: skip


async def _member(call: Call[NoQuery], info: RunInfo) -> FamilyRun:
    parent, where, differs = info.parent, "", list[str]()
    if parent is not None and parent.relation in _RELATIONS:
        records = await call.executor.store.read(info.run_id, after=max(0, parent.seq - 1), limit=5)
        where, differs = _where(records), await away(lambda: _differs(info.run_id, records), records)
    else:
        parent = None
    return FamilyRun(
        run_id=info.run_id, graph=info.graph, status=cast("RunStatus", info.status), created=info.created,
        deleted=False, where=where,
        relation="" if parent is None else parent.relation, parent="" if parent is None else parent.run_id,
        seq=0 if parent is None else parent.seq, differs=differs,
    )  # fmt: skip


# -- in words --------------------------------------------------------------------------------------------------------


def _where(records: list[Record]) -> str:
    """The record that a fork contains last."""
    last = records[0] if records else None
    if isinstance(last, RunStarted | Forked) or last is None:
        return "from the start"
    if isinstance(last, Answered):
        return "at an answer"
    if not isinstance(last, ActivationRecord):
        return ""
    place = told("/".join(part for part in (last.path, last.node) if part), _VALUE)
    if isinstance(last, EffectSettled):
        return f"after a call in {place}"
    return f"after {place}" if isinstance(last, StepDone | StepFailed) else f"in {place}"


def _differs(run_id: str, records: list[Record]) -> list[str]:
    """What a fork changed in the moment at which it began."""
    begun = next((at for at, one in enumerate(records) if isinstance(one, Forked) and one.run_id == run_id), None)
    if begun is None:
        return []
    fork = records[begun]
    assert isinstance(fork, Forked)
    said = [f"{told(name, _VALUE)} = {_value(value)}" for name, value in [*fork.update.items()][:_LINES]]
    if len(fork.update) > _LINES:
        said.append(f"{len(fork.update) - _LINES} more fields")
    if fork.branch is not None and said:
        said[0] = f"in {told(fork.branch, _VALUE)}: {said[0]}"
    if fork.key:
        said.append(f"another result: {_value(fork.result)}")
    if fork.answer is not None:
        said.append(f"another answer: {_answer(fork.answer)}")
    said += [f"model {told(name, _VALUE)}: {told(model, _VALUE)}" for name, model in fork.models.items()]
    for later in records[begun + 1 :]:
        if isinstance(later, Answered) and later.ts <= fork.ts:
            said.append(f"answered: {_answer(later.answer)}")
        elif isinstance(later, EffectSettled) and later.key in fork.told and fork.answer is None:
            said.append(f"what became of a call: {_value(later.result) if later.ok else 'it failed'}")
        elif isinstance(later, Migrated) or (isinstance(later, Resumed) and later.content is not None):
            said.append("another version of the graph")
    return said


def _value(value: object) -> str:
    return told(value if isinstance(value, str) else json.dumps(blank(value), ensure_ascii=False), _VALUE)


def _answer(answer: Answer) -> str:
    if isinstance(answer, Approve):
        return "approved" if answer.args is None else f"approved with {_value(answer.args)}"
    if isinstance(answer, Deny):
        return f"denied: {_value(answer.reason)}" if answer.reason else "denied"
    return _value(answer.value)
