"""Previews of forks: what a fork at a record can change, and what it would reuse, repeat and ask about.

The fork is drafted as if it were made, so the preview raises the same errors. `calls.reuse` decides what happens
to the calls of its open steps when a step requests them; the calls that the fork would ask about are those shown by the
question.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.errors import InvalidValue
from orchestrator.executor.calls.irreversible_calls import FamilyCall, irreversible_calls, relatives
from orchestrator.executor.calls.reuse import end_inside, find, kept_in_fork
from orchestrator.executor.commands import is_answerable
from orchestrator.executor.fork.changed_requests import intent_of, request_at
from orchestrator.executor.fork.making import Draft, Moment, check_options, draft_of, moment_of
from orchestrator.executor.host import Host
from orchestrator.executor.options import ForkOptions
from orchestrator.executor.run_tools import irreversible_ahead
from orchestrator.executor.start import check_new_id
from orchestrator.graph.limits import Usage
from orchestrator.graph.state import start_form
from orchestrator.json import JsonObject
from orchestrator.kernel.fold.lifecycle import edited_tokens
from orchestrator.kernel.ledger import EffectEntry, did_irreversible
from orchestrator.kernel.queries import in_places
from orchestrator.kernel.question import PAUSE, Answer, Question
from orchestrator.kernel.records import Answered, EffectIntended, EffectSettled, Record, StepDone
from orchestrator.kernel.reopening import is_over, reopen_fork
from orchestrator.kernel.requests import Requests
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, Phase
from orchestrator.stores.base import RunInfo
from orchestrator.tasks import away


@dataclass(frozen=True, slots=True)
class EditableBranch:
    """A state whose values a fork can set."""

    path: str | None
    """`branch=` of the fork; None: the trunk."""
    node: str
    values: JsonObject
    form: JsonObject
    """JSON Schema of the state."""


@dataclass(frozen=True, slots=True)
class EditableResult:
    """The result of a call, which a fork can replace."""

    kind: str
    name: str
    result: object
    error: str


@dataclass(frozen=True, slots=True)
class EditableRequest:
    """The request of a call of a model, which a fork can make again with another one."""

    name: str
    digest: str
    request: JsonObject
    """`messages` and `options`."""


@dataclass(frozen=True, slots=True)
class EditableAnswer:
    """An answer, which a fork can replace."""

    question: Question
    answer: Answer


@dataclass(frozen=True, slots=True)
class ForkChoices:
    """Possible changes of a fork at a record."""

    at: int
    record: str
    """Its type."""
    head: int
    branches: tuple[EditableBranch, ...]
    result: EditableResult | None
    answer: EditableAnswer | None
    request: EditableRequest | None
    known: bool
    """True if the executor has the graph: without it, the fork can be made, but not run."""
    other_version: bool
    """True if the executor has another version of the graph than the run."""


async def choices(host: Host, info: RunInfo, at: int | None) -> ForkChoices:
    """See `ExecutorForks.choices`."""
    moment = await moment_of(host, info, at)
    machine, newest = moment.machine, host.resources.graphs.get(info.graph)
    answer = await _answer(host, moment)
    result = _result(moment)
    request = await away(lambda: _request(moment))
    content = machine.content
    if at is None or not is_over(machine):
        reopen_fork(machine)
    branches = await away(lambda: tuple(_branches(machine)))
    return ForkChoices(
        at=machine.head,
        record=moment.records[-1].type,
        head=info.head,
        branches=branches,
        result=result,
        answer=answer,
        request=request,
        known=newest is not None,
        other_version=newest is not None and newest.content != content,
    )


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


def _request(moment: Moment) -> EditableRequest | None:
    last = moment.records[-1]
    if not isinstance(last, EffectIntended):
        return None
    try:
        call = intent_of(moment.records, last.seq)
        found = request_at(Requests(moment.records), call)
    except InvalidValue:
        return None
    kept = {name: found[name] for name in ("messages", "options") if found.get(name)}
    return EditableRequest(call.name, call.digest, kept)


async def _answer(host: Host, moment: Moment) -> EditableAnswer | None:
    last = moment.records[-1]
    if not isinstance(last, Answered) or last.question == PAUSE:
        return None
    before = await host.loader.machine_of(moment.info, moment.stored, moment.machine.head - 1)
    question = before.questions.get(last.question)
    if question is None or not is_answerable(question):
        return None
    return EditableAnswer(question, last.answer)


_JOURNALS = 20
"""Maximum number of relatives' journals read for a preview: the nearest ones."""


@dataclass(frozen=True, slots=True)
class ForkedCall:
    """A call in the records with which a fork starts, and how the fork treats it."""

    seq: int
    """Number of the record with its intent."""
    kind: str
    name: str
    node: str
    effect: str
    became: Literal["reused", "repeated"]
    """`reused`: its result counts in the fork. `repeated`: the call counts as not made."""


@dataclass(frozen=True, slots=True)
class ForkPreview:
    """The preview of a fork: what it would reuse, repeat and ask about."""

    at: int
    status: str
    steps: int
    """Number of ended steps: they do not run again."""
    calls: int
    """Number of settled calls."""
    usage: Usage
    """Usage that counts towards the limits of the fork: `fork.inherited`."""
    open_calls: tuple[ForkedCall, ...]
    """Calls of the steps that had not ended."""
    done: tuple[ForkedCall, ...]
    """Irreversible calls of ended steps: they are not made again."""
    relatives: tuple[tuple[str, FamilyCall], ...]
    """Name and call of irreversible calls of relatives after the fork's records: the fork asks before it makes them."""
    gone: tuple[str, ...]
    """Deleted relatives, whose calls are unknown."""
    irreversible: tuple[str, ...]
    """Irreversible tools that the steps ahead may call: the fork asks before each call."""
    withdrawn: int
    """Number of approvals that do not count in the fork."""
    changes: tuple[str, ...]
    """Changes of the version of the graph with which it continues."""


async def preview(host: Host, options: ForkOptions, *, start: bool) -> ForkPreview:
    """See `ExecutorForks.preview`."""
    check_options(options)
    name = os.urandom(8).hex() if options.run_id is None else check_new_id(options.run_id)
    draft = await draft_of(host, options, name, start=start, hold=not start)
    machine = draft.machine
    copied = draft.records[: machine.forked_at - 1]
    family = await relatives(host.store, name, draft.records, _JOURNALS)
    settled = [record for record in copied if isinstance(record, EffectSettled) and record.next_at is None]
    fork = machine.fork
    return ForkPreview(
        at=len(copied),
        status=machine.status,
        steps=sum(isinstance(record, StepDone) for record in copied),
        calls=len({record.key for record in settled}),
        usage=machine.inherited,
        open_calls=tuple(_open_calls(machine, copied)),
        done=tuple(_done(machine, copied)),
        relatives=tuple(irreversible_calls(family, copied)),
        gone=tuple(family.gone),
        irreversible=_ahead(host, draft),
        withdrawn=0 if fork is None else len(fork.withdrawn),
        changes=draft.changes,
    )


def _ahead(host: Host, draft: Draft) -> tuple[str, ...]:
    return irreversible_ahead(draft.machine, draft.graph, host.resources.tools)


def _open_calls(machine: RunState, copied: Sequence[Record]) -> Iterator[ForkedCall]:
    """Yield the calls of the steps that the fork continues."""
    for entry in _calls(copied):
        token = machine.activation(entry.intended.activation)
        if token is None:
            continue
        intended, entries = entry.intended, machine.ledger.of(token.key)
        subject = intended.name, intended.digest, intended.occurrence, token.attempt
        inner = entry.settled is not None and end_inside(entry.settled) != ""  # a called graph
        known = find(entries, *subject, reopened=token.reopened, continues=inner)
        kept = None
        if known is not None and known.intended.key == intended.key:
            kept = kept_in_fork(known, token.attempt, continues=inner, reopened=token.reopened)
        yield _forked(entry, "repeated" if kept is None else "reused")


def _done(machine: RunState, copied: Sequence[Record]) -> Iterator[ForkedCall]:
    """Yield the irreversible calls of ended steps that happened."""
    for entry in _calls(copied):
        settled = entry.settled
        lasts = entry.intended.effect == "irreversible" or (settled is not None and did_irreversible(settled.result))
        if lasts and entry.may_have_happened and machine.activation(entry.intended.activation) is None:
            yield _forked(entry, "reused")


def _calls(records: Sequence[Record]) -> list[EffectEntry]:
    """Return the calls in some records, with the end of each."""
    found: dict[str, EffectEntry] = {}
    for record in records:
        if isinstance(record, EffectIntended):
            found.setdefault(record.key, EffectEntry(record, began=record.seq)).intended = record
        elif isinstance(record, EffectSettled) and record.key in found:
            found[record.key].settled = record
    return [*found.values()]


def _forked(entry: EffectEntry, became: Literal["reused", "repeated"]) -> ForkedCall:
    intended = entry.intended
    return ForkedCall(intended.seq, intended.kind, intended.name, intended.node, intended.effect, became)
