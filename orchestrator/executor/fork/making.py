"""Forks of runs: a new run whose journal starts with the first records of another one.

A fork is drafted from stored records, without a lease on its parent, which may be driven meanwhile. It continues with
its parent's version of the graph, or with one to which it is migrated. Then one write adds it to the store: the copied
records, the record `forked`, and the answers given with it. From then on it is like any run that is interrupted or
paused.

The changes of a fork at its starting point (values, a result, an answer) are checked here, see `changes_of`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec import structs
from pydantic import ValidationError

from orchestrator.errors import (
    GraphChanged,
    InvalidAnswer,
    InvalidMigration,
    InvalidUpdate,
    InvalidValue,
    QuestionUnknown,
    RunConflict,
    RunEnded,
    RunExists,
    StaleAnswer,
    ToolsChanged,
)
from orchestrator.executor.calls.questions import failed_words
from orchestrator.executor.calls.reuse import settled_of
from orchestrator.executor.commands import about, as_answer, check_answer, outcome_answer
from orchestrator.executor.fork import changed_requests
from orchestrator.executor.host import Host
from orchestrator.executor.journal import due_of, row_of
from orchestrator.executor.loader import Fit
from orchestrator.executor.node_result import given_result
from orchestrator.executor.options import ForkOptions, ResumeOptions
from orchestrator.executor.resuming import drive_on, journal_resumed, open_run
from orchestrator.executor.run_tools import compare_offered
from orchestrator.executor.start import check_new_id, join
from orchestrator.executor.tracing import TRACE_LABELS, new_trace
from orchestrator.graph.codec import as_json, explain
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.reducers import Replace, replace
from orchestrator.graph.state import StateSchema
from orchestrator.json import JsonObject, digest
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.fold.lifecycle import edited_tokens
from orchestrator.kernel.queries import in_places
from orchestrator.kernel.question import PAUSE, Answer, Question
from orchestrator.kernel.reopening import is_over, reopen_fork
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.seals import audit, copied, unused_approvals
from orchestrator.kernel.state import Phase
from orchestrator.models.messages import Reply
from orchestrator.stores.base import Archiving, RunInfo, Store
from orchestrator.stores.requests import NewRun
from orchestrator.tasks import away
from orchestrator.tools.result import ToolResult
from orchestrator.tools.validation import faults
from orchestrator.values import MAX_REQUEST_BYTES, check_flag, check_mapping, check_position, check_text, new_labels
from orchestrator.views.run import Run


async def check_same(store: Store, run_id: str, records: Sequence[r.Record], parent: str) -> None:
    """Accept a run with the same id if it is the same fork.

    Args:
        store: the store, which has the run.
        run_id: its id.
        records: those with which the fork starts.
        parent: the run that is forked.

    Raises:
        RunExists: the run is not this fork.
    """
    at = [record for record in records if isinstance(record, r.Forked)][-1].at
    wanted = [_content(record) for record in records if record.seq > at]
    stored = await store.read(run_id, upto=len(records))
    if [_content(record) for record in stored[-len(wanted) :]] != wanted:
        raise RunExists(run_id, f"it is not this fork of run {parent!r}")


def _content(record: r.Record) -> r.Record:
    """Return a record without the parts that differ each time it is written."""
    plain: dict[str, Any] = {"ts": 0.0, "seal": ""}
    if isinstance(record, r.Resumed):
        plain["holder"] = ""
    if isinstance(record, r.Forked):
        plain["held"] = False
        plain["labels"] = {name: text for name, text in record.labels.items() if name not in TRACE_LABELS}
    return structs.replace(record, **plain)


async def version_of(
    host: Host, options: ForkOptions, info: RunInfo, machine: RunState, *, start: bool
) -> tuple[GraphDefinition | None, Fit]:
    """Return the requested version of the graph (None: none was requested), and how the fork continues.

    Args:
        host: the host, which has the code.
        options: the fork.
        info: the parent's row.
        machine: the parent at the last copied record; reopened, if it had ended there.
        start: whether the fork continues at once, so that its code must exist.

    Raises:
        GraphUnknown: its code, a model or a tool is missing.
        GraphChanged: the fork cannot continue with it.
        InvalidValue: it is a version of another graph.
    """
    given, resources = options.graph, host.resources
    moves = given is not None or options.migrate is not None
    if not moves and not start:
        return None, Fit()
    if isinstance(given, GraphDefinition):
        graph = given
    elif moves:
        graph = resources.graph(given or info.graph, info.run_id)
    else:
        known = resources.version(info.graph, machine.structure, machine.content)
        graph = known or resources.graph(info.graph, info.run_id)
    if graph.name != info.graph:
        raise InvalidValue(
            f"run {info.run_id!r} is a run of graph {info.graph!r}: a fork continues in a version of it, "
            f"not in {graph.name!r}",
            where="graph",
        )
    resources.check(graph, models=options.replay is None)
    resources.begun[graph.content] = graph
    fit = await fitting(host, options, info, graph, machine, moves=moves)
    moved = machine if fit.migrated is None else fit.migrated.trial
    try:
        compare_offered(moved, graph, resources.tools, strict=host.strict, accept=not start)
    except ToolsChanged as error:
        raise _tools_changed(options, error) from None
    return (graph if moves else None), fit


async def fitting(
    host: Host, options: ForkOptions, info: RunInfo, graph: GraphDefinition, machine: RunState, *, moves: bool = True
) -> Fit:
    """Return how the fork continues in a version.

    Args:
        moves: whether the version was requested, so that changes ahead of the run are accepted.

    Raises:
        GraphChanged: the fork cannot continue with the version.
    """
    strict = host.strict and not moves
    try:
        return await host.loader.fitting(info, graph, machine, strict=strict, accept=moves, migrate=options.migrate)
    except InvalidMigration:
        raise
    except GraphChanged as error:
        raise _graph_changed(options, graph, error) from None


def _graph_changed(options: ForkOptions, graph: GraphDefinition, error: GraphChanged) -> GraphChanged:
    """Return the error with the call that makes the fork, in place of one that resumes a run."""
    if options.replay is not None:
        hint = "A replay from a record continues in a graph that the run fits there; without at= it starts over."
        return GraphChanged(f"{error.fault}\n{hint}")
    flags = None
    if error.options is not None:
        flags = (*_at(options)[0], *(one for one in error.options if one != "--accept-changes"))
    call = error.call.removesuffix("accept_changes=True").removesuffix(", ")
    return GraphChanged(
        error.fault,
        run_id=options.parent,
        options=flags,
        call=", ".join(filter(None, (_at(options)[1], f"graph={graph.name!r}", call))),
        guesses=error.guesses,
        undecided=error.undecided,
        verb="fork",
    )


def _tools_changed(options: ForkOptions, error: ToolsChanged) -> ToolsChanged:
    """Return the error, with the call that makes the fork without starting it; its tools are then checked when it is
    resumed. For a replay, no call is named.
    """
    if options.replay is not None:
        return ToolsChanged(error.fault)
    flags, call = _at(options)
    return ToolsChanged(
        error.fault,
        run_id=options.parent,
        options=(*flags, "--no-start"),
        call=", ".join(filter(None, (call, "start=False"))),
        verb="fork",
    )


def _at(options: ForkOptions) -> tuple[tuple[str, ...], str]:
    return ((), "") if options.at is None else (("--at", str(options.at)), f"at={options.at}")


@dataclass(slots=True)
class Draft:
    """A fork that is not stored yet."""

    info: RunInfo
    records: list[r.Record]
    machine: RunState
    """The state after these records."""
    graph: GraphDefinition
    """The version of its graph with which it continues, maybe without code."""
    changes: tuple[str, ...] = ()
    """Changes of that version."""


@dataclass(slots=True)
class Moment:
    """A run at one of its records."""

    info: RunInfo
    records: Sequence[r.Record]
    """The records up to this one."""
    machine: RunState
    stored: GraphDefinition
    """The graph with which it started, maybe without code."""
    extra: list[r.Record] = field(default_factory=list)
    """The records that the fork adds."""


async def fork(host: Host, options: ForkOptions, *, start: bool, context: object = None) -> Run:
    """See `Executor.fork`."""
    check_flag(start, "start")
    check_options(options)
    if start:
        host.background()  # raises the error of a closed executor before a fork is made
    name = os.urandom(8).hex() if options.run_id is None else check_new_id(options.run_id)
    await _restored(host, options.parent)
    trace = await new_trace(host.resources.tracing, host.store, "fork", name, options.parent)
    if trace.labels:
        options = structs.replace(options, labels={**trace.labels, **(options.labels or {})})
    draft = await draft_of(host, options, name, start=start, hold=not start)
    if start:
        host.contexts.check(options.parent, draft.records[0], context)
    try:
        await host.store.create(NewRun(draft.info, draft.records))
        trace.created()
    except RunExists:
        await check_same(host.store, name, draft.records, options.parent)
    return (
        await _begin(host, name, ResumeOptions(context=context), once=options.once)
        if start
        else await host.loader.load(name)
    )


async def _restored(host: Host, run_id: str) -> None:
    """Move an archived parent back into the store: its forks read its journal repeatedly.

    A missing archive is reported when the journal is read.
    """
    store = host.store
    if isinstance(store, Archiving) and (await store.info(run_id)).archived is not None:
        await store.restore_run(run_id)


def check_options(options: ForkOptions) -> None:
    """Refuse arguments of other types, before the store is read.

    Raises:
        InvalidValue: an argument has another type.
    """
    check_text(options.parent, "parent")
    check_position(options.at)
    for name, value in (("update", options.update), ("answers", options.answers), ("labels", options.labels)):
        check_mapping(value, name)
    if options.branch is not None:
        check_text(options.branch, "branch")
    check_text(options.by, "by")


async def _begin(host: Host, run_id: str, options: ResumeOptions, *, once: bool) -> Run:
    """Drive a new fork, or wait for it if it is driven already. `once`: it stays paused after its first steps."""
    try:
        live = await open_run(host, run_id, options)
    except RunConflict:
        return await join(host, run_id, options)
    except RunEnded:
        return await host.loader.load(run_id)
    journal_resumed(live, unpause=not once)
    return await drive_on(host, live)


# -- the draft ---------------------------------------------------------------------------------------------------------


async def draft_of(host: Host, options: ForkOptions, name: str, *, start: bool, hold: bool = False) -> Draft:
    """Return the row and the records of a fork.

    Args:
        options: the run to fork, and the changes.
        name: the fork's id.
        start: whether it continues at once, so that its code must exist.
        hold: whether it stays unchanged until a user resumes or answers it.

    Raises:
        RunUnknown, InvalidValue, InvalidUpdate, InvalidAnswer, QuestionUnknown, GraphUnknown, GraphChanged
    """
    info = await host.store.info(options.parent)
    options, reply = await _at_request(host, info, options)
    moment = await moment_of(host, info, options.at)
    going_on = moment.machine.copy()
    over = (
        options.at is not None and options.caller is None and is_over(going_on, (options.replay or {}).get("raised", 0))
    )
    if not over:
        reopen_fork(going_on)
    version, fit = await version_of(host, options, info, going_on, start=start)
    before = None
    if options.answer is not None:
        before = await host.loader.machine_of(info, moment.stored, moment.machine.head - 1)
    values = (options.update, options.result, options.answer, options.answers)
    changed = await away(lambda: changes_of(going_on, moment.records, options, before), *values)
    changed.over = over
    changed.asked = await _asked(moment.records, options, reply)
    _check_seen(options, changed, before)
    forked = _forked(host, options, moment, name, changed, _labels(options, moment.machine))
    if hold and _goes_on_by_itself(options, fit, going_on, forked):
        forked = structs.replace(forked, held=True)
    _push(moment, forked)
    if options.replay is not None and moment.machine.approve is not None:
        why = "a replay does not use the policy of the replayed run"
        seq, now = moment.machine.head + 1, moment.machine.updated
        _push(moment, r.AnswersWithdrawn(seq=seq, ts=now, policy=True, reason=why))
    for ending in changed.settled:
        _push(moment, structs.replace(ending, seq=moment.machine.head + 1))
    for question, given in (options.answers or {}).items():
        asked = going_on.questions.get(question)
        if asked is None or asked.kind != "unknown_outcome":
            _answer(host, moment, options, question, as_answer(given))
    if version is not None and fit.migrated is not None:
        moved = await fitting(host, options, info, version, moment.machine)
        if moved.migrated is not None:
            moment.machine.later.update(moved.migrated.trial.later)
            _push(moment, moved.migrated.record)
    content = None if version is None or fit.changes is None else version.content
    refs = None if version is None else host.refs.new(moment.machine)
    if content is not None or refs is not None:
        _push(
            moment,
            r.Resumed(
                seq=moment.machine.head + 1,
                ts=moment.machine.updated,
                holder=str(host.owner),
                content=content,
                changes=fit.changes or (),
                refs=None if refs is None else dict(refs),
            ),
        )
    machine = moment.machine
    records, chain = copied(host.seal, name, audit(host.seal, info.run_id, moment.records))
    records += [record if chain is None else chain.sealed(record) for record in moment.extra]
    first = records[0]
    assert isinstance(first, r.RunStarted)
    row = row_of(machine, structure=first.structure, content=first.content)
    return Draft(row, records, machine, version or machine.plan.graph or moment.stored, _changes(fit))


async def _at_request(host: Host, info: RunInfo, options: ForkOptions) -> tuple[ForkOptions, object]:
    """Return the options with the record of the call whose request is changed, and the parent's reply to it.

    Raises:
        InvalidValue: there is no such call, or other changes cannot be made with it.
    """
    if options.request is None:
        return options, None
    if options.result is not None or options.answer is not None:
        raise InvalidValue("a request is changed alone: give request=, result= or answer=", where="request")
    at = await changed_requests.intent_at(partial(_records, host, info), options.at)
    later = await host.store.read(info.run_id, after=at)
    (call,) = await host.store.read(info.run_id, after=at - 1, limit=1)
    assert isinstance(call, r.EffectIntended)
    replies = (one for one in later if isinstance(one, r.EffectSettled) and one.key == call.key and one.ok)
    reply = next(replies, None)
    return structs.replace(options, at=at), None if reply is None else reply.result


async def _records(host: Host, info: RunInfo, at: int) -> Sequence[r.Record]:
    if not 1 <= at <= info.head:
        raise InvalidValue(f"run {info.run_id!r} has no record {at}: it has 1 to {info.head}", where="at")
    return await host.store.read(info.run_id, upto=at)


async def _asked(records: Sequence[r.Record], options: ForkOptions, reply: object) -> r.ChangedRequest | None:
    call, given = records[-1], options.request
    if given is None or not isinstance(call, r.EffectIntended):
        return None
    return await away(lambda: changed_requests.changed(records, call, given, options.digests, reply), given, records)


def _labels(options: ForkOptions, parent: RunState) -> Mapping[str, str]:
    labels = new_labels(options.labels or {}, parent.labels)
    if options.caller is not None:
        return {"parent": options.caller.run_id}
    return dict(options.labels or {}) if options.replay is not None else labels


def _check_seen(options: ForkOptions, changed: Changes, before: RunState | None) -> None:
    """Check that the answered questions are those that were shown.

    Raises:
        StaleAnswer: an answered question is not one of those that were shown.
    """
    known = dict(changed.open_digests)
    if changed.question and before is not None:
        known[changed.question] = before.questions[changed.question].digest
    for name in (*(options.answers or {}), *([changed.question] if changed.question else [])):
        if options.digests is not None and name in known and known[name] not in options.digests:
            raise StaleAnswer(f"run {options.parent!r}: question {name!r} is not the one that was shown; read it again")


def _changes(fit: Fit) -> tuple[str, ...]:
    moved = () if fit.migrated is None else fit.migrated.record.changes
    return (*moved, *(fit.changes or ()))


def _push(moment: Moment, record: r.Record) -> None:
    apply(moment.machine, record)
    moment.extra.append(record)


def _forked(
    host: Host, options: ForkOptions, moment: Moment, name: str, changed: Changes, labels: Mapping[str, str]
) -> r.Forked:
    machine = moment.machine
    return r.Forked(
        seq=machine.head + 1,
        ts=host.resources.clock.now(),
        run_id=name,
        parent=options.parent,
        at=machine.head,
        root=machine.root_id,
        relation="replay" if options.replay is not None else "fork" if options.caller is None else "call",
        labels=dict(labels),
        by=options.by,
        caller=options.caller,
        once=options.once,
        digests=changed.digests(name),
        **changed.fields(),
        **(options.replay or {}),
    )


def _goes_on_by_itself(options: ForkOptions, fit: Fit, machine: RunState, forked: r.Forked) -> bool:
    """Return True if a worker would drive the fork: it does not only wait for answers.

    Args:
        machine: the parent at the record of the fork; further records are folded into it.
    """
    if options.answers or fit.migrated is not None:
        return True
    apply(machine, forked)
    return machine.status == "running" or due_of(machine) is not None


def _answer(host: Host, moment: Moment, options: ForkOptions, question: str, given: Answer) -> None:
    """Add the answer to a question that is open at the record of the fork."""
    machine = moment.machine
    now = machine.updated
    offered = host.resources.tools_for_answers(machine.plan.graph)
    try:
        answer = check_answer(machine, question, given, None, offered, now)
    except QuestionUnknown:
        raise QuestionUnknown(options.parent, question) from None  # nothing is added: the fork is not made
    shown = about(machine.questions[question])
    _push(
        moment,
        r.Answered(seq=machine.head + 1, ts=now, question=question, answer=answer, by=options.by, about=shown),
    )


async def moment_of(host: Host, info: RunInfo, at: int | None) -> Moment:
    """Return a run at one of its records.

    Args:
        at: the record; None: the last one before the run's end.

    Raises:
        InvalidValue: there is no such record, or nothing can follow it.
        StoreCorrupt: a record is damaged.
    """
    run_id, head = info.run_id, info.head
    if at is not None and not 1 <= at <= head:
        raise InvalidValue(f"run {run_id!r} has no record {at}: it has 1 to {head}", where="at")
    stored = await host.loader.stored_graph(info)
    records = await host.store.read(run_id, upto=head if at is None else at)
    last = records[-1]
    if isinstance(last, r.Ended) and last.status == "completed" and at is not None:
        raise InvalidValue(
            f"record {at} is the end of run {run_id!r}, and nothing follows it: fork it at record {at - 1} or before",
            where="at",
        )
    if isinstance(last, r.Ended) and last.status == "completed":
        raise InvalidValue(
            f"run {run_id!r} completed: name the record to fork it at, at=1 to at={head - 1}; `history` lists those of "
            "its steps",
            where="at",
        ).on_command_line(
            f"run {run_id!r} completed: name the record to fork it at, --at 1 to --at {head - 1}; "
            f"`orchestrator show {shlex.quote(run_id)}` lists the records of its steps"
        )
    if isinstance(last, r.Ended) and at is None:
        records = records[:-1]
    return Moment(info, records, await host.loader.machine_of(info, stored, len(records)), stored)


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
    settled: list[r.EffectSettled] = field(default_factory=list)
    """Ends of calls whose outcome was unknown; their numbers are not final."""
    open_digests: dict[str, str] = field(default_factory=dict)
    """Open question -> its digest in the parent."""
    over: bool = False
    """True if the result of the parent is kept."""
    asked: r.ChangedRequest | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of the record `forked`."""
        return {
            "update": dict(self.update),
            "ops": self.ops,
            "branch": self.branch,
            "key": self.key,
            "result": self.result,
            "question": self.question,
            "answer": self.answer,
            "withdrawn": self.withdrawn,
            "told": tuple(one.key for one in self.settled),
            "over": self.over,
            "asked": self.asked,
        }

    def digests(self, run_id: str) -> dict[str, str]:
        """Return the digests of open questions in the fork: an answer to the parent's question does not fit them."""
        return {name: digest([run_id, before]) for name, before in self.open_digests.items()}


def changes_of(
    machine: RunState, records: Sequence[r.Record], options: ForkOptions, before: RunState | None
) -> Changes:
    """Return the changes with which a fork starts.

    Args:
        machine: the parent at the last copied record; reopened if the fork reopens it.
        records: the copied records.
        options: the changes.
        before: the parent one record before; needed to replace an answer.

    Raises:
        InvalidUpdate: a field or a value does not fit the state.
        InvalidValue: there is no such branch, or the last record is not a result.
        InvalidAnswer: the last record is not an answer, or the new answer does not fit its question.
    """
    found = Changes()
    update, branch, answer, result = options.update, options.branch, options.answer, options.result
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
        found.settled += _settled(machine, before.questions[found.question], found.answer)
    for name, given in (options.answers or {}).items():
        question = machine.questions.get(name)
        if question is not None and question.kind == "unknown_outcome":
            found.settled += _settled(machine, question, check_answer(machine, name, as_answer(given), None, {}, 0.0))
    found.withdrawn = tuple(name for name in unused_approvals(machine, _questions(records)) if name != found.question)
    found.open_digests = {name: one.digest for name, one in machine.questions.items() if one.digest}
    return found


def _questions(records: Sequence[r.Record]) -> list[r.Asked]:
    return [record for record in records if isinstance(record, r.Asked)]


# -- values -----------------------------------------------------------------------------------------------------------


def _update(machine: RunState, update: Mapping[str, object], branch: str | None) -> tuple[JsonObject, dict[str, str]]:
    """Return an update in the form that is journaled. It sets values directly, without calling reducers."""
    tokens = edited_tokens(machine, branch)
    run_id = machine.run_id
    listed = ", ".join(f"{one.path or '(trunk)'} ({one.node})" for one in in_places(machine.live_tokens())) or "none"
    if not update:
        raise InvalidValue(f"run {run_id!r}: branch={branch!r} needs update=", where="branch").on_command_line(
            f"run {run_id!r}: --branch {branch} needs --set"
        )
    if branch is not None and not tokens:
        raise InvalidValue(f"run {run_id!r} has no branch {branch!r} there; its branches: {listed}", where="branch")
    if not tokens and machine.root is not None and machine.root.result is not None:
        raise InvalidValue(
            f"run {run_id!r} is over at record {machine.head}: fork it at an earlier record to use other values",
            where="at",
        )
    if not tokens:
        fault = f"run {run_id!r} is inside a fork there, where each branch has a state of its own: name one, "
        raise InvalidValue(f"{fault}branch=...; its branches: {listed}", where="branch").on_command_line(
            f"{fault}--branch PATH; its branches: {listed}"
        )
    if all(token.phase is Phase.PENDING for token in tokens):
        raise InvalidValue(
            f"run {run_id!r}: branch {branch!r} has not started: it waits for other items, and will use their values",
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
    """Return how values do not fit a state whose class is not loaded, according to the stored JSON Schemas."""
    data: Any = schema.data()
    found: list[str] = []
    for name, value in update.items():
        field_data = data["fields"].get(name)
        fits = field_data.get("schema") if isinstance(field_data, Mapping) else None
        if isinstance(fits, Mapping):
            found += faults(value, fits, {"$defs": data.get("$defs", {})}, f"field {name!r}")
    return found


# -- a result ---------------------------------------------------------------------------------------------------------


def _result(machine: RunState, records: Sequence[r.Record], given: object) -> tuple[str, object]:
    """Return the call whose result is replaced, and the result in its journaled form."""
    last = records[-1]
    if not isinstance(last, r.EffectSettled):
        fault = (
            f"replaces the result of a settled call: record {last.seq} of run {machine.run_id!r} is {last.type}, "
            "not effect_settled"
        )
        raise InvalidValue(f"result= {fault}", where="result").on_command_line(f"--result {fault}")
    entry = machine.ledger.entry(last.key)
    if entry is None:
        raise InvalidValue(f"record {last.seq} of run {machine.run_id!r}: its step is over", where="result")
    return last.key, _encoded(entry.intended, given)


def _encoded(intended: r.EffectIntended, given: object) -> object:
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
    """Return a model's reply: a `Reply`, its data, or its text."""
    if isinstance(given, Reply):
        return given.data()
    try:
        return Reply.model_validate({"text": given} if isinstance(given, str) else given).data()
    except ValidationError as error:
        raise InvalidValue(f"{where} must be a string or a reply: {explain(error)}", where="result") from None


# -- an answer --------------------------------------------------------------------------------------------------------


def _superseded(before: RunState, records: Sequence[r.Record], given: object) -> tuple[str, Answer]:
    """Return the question whose answer is replaced, and the new answer. `before`: the run before the answer."""
    last = records[-1]
    if not isinstance(last, r.Answered) or last.question == PAUSE:
        fault = f"replaces an answer: record {last.seq} of run {before.run_id!r} is {last.type}; for "
        opened = "questions that are open there use"
        raise InvalidAnswer(f"answer= {fault}{opened} answers={{question: answer}}", where="answer").on_command_line(
            f"--answer {fault}{opened} --answer QUESTION=JSON"
        )
    return last.question, check_answer(before, last.question, as_answer(given), None, {}, last.ts)


def _settled(machine: RunState, question: Question, answer: Answer) -> Iterator[r.EffectSettled]:
    """Yield the record of the end of a call, according to the answer to the question about its outcome.

    `retry` has no effect: the fork makes the call itself, and asks first.
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
        error = r.Failure(type="EffectFailed", message=failed_words(call.name), node=call.node, path=call.path)
        before = settled_of(entry)
        returned = None if before is None else before.returned
    elif call.kind == "effect" and not call.request and call.name == call.node and token is not None:
        result = given_result(token.frame.plan.schema, result)  # call of an irreversible node
    yield r.EffectSettled(
        seq=machine.head,
        ts=machine.updated,
        activation=call.activation,
        path=call.path,
        node=call.node,
        key=call.key,
        ok=error is None,
        error=error,
        result=None if error else _encoded(call, result),
        returned=returned,
        answered=True,
        started=call.ts,
        ended=call.ts,
    )
