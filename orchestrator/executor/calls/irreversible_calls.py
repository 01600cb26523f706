"""Irreversible calls that may have been made before: the question whether to make them again.

Made by another run     A fork repeats the steps of its parent. So before it makes a call that cannot be undone, a
                        person should know whether a run of its family has made it: one that it was forked from, or
                        another fork of that. Only stored journals are read, as they are now; what a relative does
                        later is not known.
Made by the same step   In an earlier attempt, or before a crash. Repaired code may call with other arguments, and so
                        may code whose arguments differ each time, such as those of a model: then the journal cannot
                        give the old result back, and only a person knows whether both calls are meant.

It is imported only where such a question may arise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import anyio

from orchestrator.errors import EffectFailed, RunConflict, RunUnknown, StoreCorrupt, StoreError
from orchestrator.executor.calls.effect import Attempt, Call, Effect
from orchestrator.executor.calls.limits import child_id
from orchestrator.executor.calls.questions import answer_to, asking_again, identified, unused_id
from orchestrator.executor.calls.reuse import certainly_failed, is_suspended, settled_of
from orchestrator.executor.calls.under_way import UnderWay, patience
from orchestrator.executor.failures import Lost
from orchestrator.executor.trusted_approvals import CallDenied
from orchestrator.json import canonical
from orchestrator.kernel import records as r
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.question import FAMILY, Approve, Deny, Question, Value, in_family
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, hash_id
from orchestrator.stores.base import Store
from orchestrator.stores.shared import forks_of
from orchestrator.tools.result import cut

RECORDED = "recorded"
"""The answer that reuses the result of the call in another run."""
MOST_JOURNALS = 100
"""Maximum number of journals read for one question: those of the nearest relatives."""


@dataclass(frozen=True, slots=True)
class FamilyCall:
    """A call made by a related run."""

    run: str
    seq: int
    """Number of the record with its intent."""
    same: bool
    """True if the request is the same."""
    args: object
    status: Literal["returned", "failed", "unknown"]
    result: object = None
    error: str = ""

    def shown(self) -> dict[str, object]:
        """Return the call as plain JSON, for the payload of a question."""
        found: dict[str, object] = {"run": self.run, "seq": self.seq, "same": self.same, "status": self.status}
        if not self.same:
            found["args"] = self.args
        if self.status == "returned":
            found["result"] = self.result
        if self.error:
            found["error"] = self.error
        return found


@dataclass(slots=True)
class Relatives:
    """The journals of related runs, nearest first."""

    journals: dict[str, Sequence[r.Record]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    """Deleted runs from which it was forked."""
    _forks: dict[str, list[r.Forked]] = field(default_factory=dict)

    def maker(self, name: str, seq: int) -> str:
        """Return the id of the run that wrote a record of a relative's journal: a fork copies records of its parent."""
        if name not in self._forks:
            self._forks[name] = [one for one in self.journals.get(name, ()) if isinstance(one, r.Forked)]
        fork = next((one for one in self._forks[name] if one.seq > seq), None)
        return name if fork is None or fork.parent == name else self.maker(fork.parent, seq)


async def relatives(store: Store, run_id: str, records: Sequence[r.Record], most: int = MOST_JOURNALS) -> Relatives:
    """Return the journals of a run's family, except its own.

    For a run that a fork called, these are the journals of the runs that the same call started in the fork's family.

    Args:
        store: the store of all of them.
        run_id: the run.
        records: its records.
        most: maximum number of journals to read.
    """
    forks = [record for record in records if isinstance(record, r.Forked)]
    if not forks:
        caller = getattr(records[0], "caller", None) if records else None
        return await _called_alike(store, caller) if isinstance(caller, r.Caller) else Relatives()
    found = Relatives()
    todo = [fork.parent for fork in reversed(forks)]
    seen = {run_id, *todo}
    for name in todo:  # grows
        if len(found.journals) >= most:
            break
        journal = await _journal(store, name)
        if journal is None:
            found.gone.append(name)
        else:
            found.journals[name] = journal
        # A fork at a record before its parent's own start does not contain how the parent started.
        others = [record.parent for record in journal or () if isinstance(record, r.Forked)]
        others += [info.run_id for info in await forks_of(store, name)]
        for other in others:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    for fork in forks:
        if fork.parent in found.gone:  # its calls before it was forked are known all the same
            found.journals.setdefault(fork.parent, records[: fork.at])
    return found


async def _called_alike(store: Store, caller: r.Caller) -> Relatives:
    """Return the journals of the runs that a call started in the other runs of the caller's family."""
    records = await _journal(store, caller.run_id) or ()
    made = next((one for one in records if isinstance(one, r.EffectIntended) and one.key == caller.key), None)
    if made is None:
        return Relatives()
    around = await relatives(store, caller.run_id, records)
    found = Relatives(gone=around.gone)
    for name, journal in around.journals.items():
        for record in journal:
            if isinstance(record, r.EffectIntended) and record.name == made.name and _is_near(record, made):
                inner = child_id(name, record.key)
                theirs = await _journal(store, inner)
                if theirs is not None and len(found.journals) < MOST_JOURNALS:
                    found.journals[inner] = theirs
    return found


def _is_near(one: r.EffectIntended, other: r.EffectIntended) -> bool:
    return one.activation == other.activation or (one.path, one.node) == (other.path, other.node)


async def _journal(store: Store, run_id: str) -> Sequence[r.Record] | None:
    """Return the records of a run; None if it is deleted or damaged, so that its calls are unknown."""
    try:
        return await store.read(run_id)
    except (RunUnknown, StoreCorrupt):
        return None


async def known_calls(
    store: Store, machine: RunState, activation: Activation, effect: Effect[object], asked_for: Collection[str]
) -> tuple[list[FamilyCall], list[str]]:
    """Return calls of the family that are like one that a step is about to make.

    Args:
        store: the store of the runs.
        machine: the run.
        activation: the step.
        effect: the call.
        asked_for: keys of the calls that the step has requested already: these are different calls.

    Returns:
        The calls of the same effect at the same place, those with the same request first; if there are some with the
        same request, only these. And the relatives that are deleted.
    """
    records = await store.read(machine.run_id)
    family = await relatives(store, machine.run_id, records)
    copied = {record.key for record in records[: machine.forked_at] if isinstance(record, r.EffectSettled)}
    exact: dict[str, FamilyCall] = {}
    near: dict[str, FamilyCall] = {}
    for name, journal in family.journals.items():
        for entry in _calls(journal, lambda one: (one.kind, one.name) == (effect.kind, effect.name)):
            intended = entry.intended
            made_by = family.maker(name, intended.seq)
            if intended.key in asked_for or (made_by != name and made_by in family.journals):
                continue  # the journal of the run that made it has the most accurate entry
            if intended.activation == activation.key:
                exact.setdefault(intended.key, known_of(made_by, entry, effect.digest))
            elif (intended.path, intended.node) == (activation.path, activation.node) and intended.key not in copied:
                near.setdefault(intended.key, known_of(made_by, entry, effect.digest))
    calls = [*(exact or near).values()]
    return [call for call in calls if call.same] or calls, family.gone


def irreversible_calls(family: Relatives, records: Sequence[r.Record]) -> list[tuple[str, FamilyCall]]:
    """Return the irreversible calls that the relatives of a fork made and that the fork does not have: it asks before
    it makes them.

    Args:
        family: the relatives.
        records: the records with which the fork starts.

    Returns:
        The name and the call of each, in the order of the journals.
    """
    has = {record.key for record in records if isinstance(record, r.EffectSettled)}
    found: dict[str, tuple[str, FamilyCall]] = {}
    for name, journal in family.journals.items():
        for entry in _calls(journal, lambda one: one.effect == "irreversible"):
            intended = entry.intended
            made_by = family.maker(name, intended.seq)
            if intended.key not in has and (made_by == name or made_by not in family.journals):
                found.setdefault(intended.key, (intended.name, known_of(made_by, entry, "")))
    return [*found.values()]


def _calls(records: Sequence[r.Record], wanted: Callable[[r.EffectIntended], bool]) -> Iterator[EffectEntry]:
    """Yield the requested calls, with the end of each.

    Calls whose result a replay or a person took from another run are left out.
    """
    found: dict[str, EffectEntry] = {}
    asked: dict[str, tuple[str, object]] = {}
    given: list[tuple[str, object]] = []
    for record in records:
        if isinstance(record, r.Asked) and in_family(record.question):
            asked[record.question.id] = record.activation, record.question.payload.get("args")
        elif isinstance(record, r.Answered) and record.question in asked:
            if isinstance(record.answer, Value) and record.answer.value == RECORDED:
                given.append(asked[record.question])
        elif isinstance(record, r.EffectIntended):
            call = record.activation, record.request.get("args", record.request)
            if call in given and record.key not in found:
                given.remove(call)
            elif record.taken is None and wanted(record):
                found.setdefault(record.key, EffectEntry(record)).intended = record
        elif isinstance(record, r.EffectSettled) and record.key in found:
            found[record.key].settled = record
    yield from found.values()


def known_of(run: str, entry: EffectEntry, digest: str) -> FamilyCall:
    """Return a call of a run, from the run's journal. `digest`: digest of the request to compare it with."""
    intended, settled = entry.intended, entry.settled
    status: Literal["returned", "failed", "unknown"] = "unknown"
    result: object = None
    error = ""
    if settled is not None and settled.seq > intended.seq:
        refused = r.failed_result(settled.result) if intended.kind == "tool" else None
        failed = refused if settled.error is None else str(settled.error)
        error = failed or ""
        if settled.returned is not None:
            error = f"it returned {settled.returned}, which was refused: {error}"
        if not settled.unknown:
            status = "failed" if failed else "returned"
            result = None if failed else settled.result
    args = intended.request.get("args", intended.request)
    return FamilyCall(run, intended.seq, intended.digest == digest, args, status, result, error)


# -- in a fork ---------------------------------------------------------------------------------------------------------


_SHOWN = 500
"""Characters of arguments or of a result in a prompt; the payload contains all of them."""
_MOST_CALLS = 3
"""Maximum number of calls described in a prompt."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result of a call in another run, reused without a call."""

    result: object


async def call_in_fork(under_way: UnderWay, call: Call, asked_for: Collection[str]) -> Adopted | None:
    """Return None if a fork may make an irreversible call, or the result that it reuses instead.

    A person is asked, unless they approved this very call since the run was forked, and no relative has made it.

    Args:
        under_way: the effects of the step.
        call: the call, with its key.
        asked_for: keys of the calls that the step has requested already.

    Raises:
        Suspend: there is no answer yet.
        CallDenied: the person denied the call.
    """
    attempt, effect = under_way.attempt, call.effect
    log, activation = attempt.log, attempt.activation
    name = question_id(activation, call.key)
    calls: Sequence[FamilyCall] = ()
    gone: Sequence[str] = ()
    if name not in activation.answers:
        try:
            calls, gone = await known_calls(log.journal.store, log.machine, activation, effect, asked_for)
        except StoreError as error:
            raise attempt.signalled(Lost(error)) from error
        approved = log.approvals is not None and log.approvals.approved_by_person(effect.name, _args(effect))
        if approved and not calls and not gone:
            return None
        await under_way.settle_down()
    answer = answer_to(attempt, fork_question(attempt, effect, name, calls, gone))
    if isinstance(answer, Approve):
        return None
    if isinstance(answer, Deny):
        raise CallDenied(effect.name, answer.reason)
    return Adopted(await _recorded(attempt, name))


def question_id(activation: Activation, key: str) -> str:
    """Return the id of the question before the call with this key."""
    return hash_id(activation.key, "in a fork", key, *asking_again(activation))


def fork_question(
    attempt: Attempt, effect: Effect[Any], name: str, calls: Sequence[FamilyCall], gone: Sequence[str]
) -> Question:
    """Return the question before a call.

    Args:
        attempt: the step's attempt.
        effect: the call.
        name: the question's id.
        calls: the same call in other runs of the family.
        gone: relatives that are deleted.
    """
    activation, args = attempt.activation, _args(effect)
    payload: dict[str, object] = {
        "tool": effect.name,
        "args": args,
        "risk": effect.risk,
        "effect": effect.effect,
        FAMILY: [call.shown() for call in calls],
    }
    if gone:
        payload["deleted"] = list(gone)
    choices = (RECORDED,) if any(call.same and call.status == "returned" for call in calls) else ()
    question = Question(
        id=name,
        kind="approval",
        node=activation.node,
        path=activation.path,
        prompt=_prompt(effect.name, calls, gone, recorded=bool(choices)),
        payload=payload,
        choices=choices,
    )
    return identified(attempt, question, effect.digest)


def _args(effect: Effect[Any]) -> object:
    return effect.request.get("args", effect.request)


def _prompt(name: str, calls: Sequence[FamilyCall], gone: Sequence[str], *, recorded: bool) -> str:
    """Return the question as text."""
    lines = [said_of(call) for call in calls[:_MOST_CALLS]]
    if len(calls) > _MOST_CALLS:
        lines.append(f"{len(calls) - _MOST_CALLS} more calls are in the payload.")
    lines += [f"Run {run}, which it comes from, is deleted or damaged: what it did since is not known." for run in gone]
    if not lines:
        lines.append("No run that it is related to has made this call.")
    how = f' Answer "{RECORDED}" to take the result of that call without making it again.' if recorded else ""
    return f"Call {name}? This run is a fork. {' '.join(lines)}{how}"


def said_of(call: FamilyCall) -> str:
    """Return a text that describes an earlier call."""
    args = "the same arguments" if call.same else f"other arguments, {_cut(call.args)},"
    became = {
        "returned": f"returned {_cut(call.result)}",
        "failed": f"failed: {cut(call.error, _SHOWN)}",
        "unknown": f"may have happened{f' ({cut(call.error, _SHOWN)})' if call.error else ''}",
    }[call.status]
    return f"In run {call.run} it was called with {args} and {became} (record {call.seq})."


def _cut(value: object) -> str:
    return cut(canonical(cast("Any", value)), _SHOWN)


async def _recorded(attempt: Attempt, name: str) -> object:
    """Return the result of the call in the other run, as shown in the question."""
    log = attempt.log
    try:
        await log.durable()
        records = await log.journal.store.read(log.run_id)
    except (StoreError, RunConflict) as error:
        raise attempt.signalled(Lost(error)) from error
    asked = [one.question for one in records if isinstance(one, r.Asked) and one.question.id == name]
    shown: Any = asked[-1].payload.get(FAMILY) if asked else None
    for call in shown if isinstance(shown, list) else ():
        if isinstance(call, Mapping) and call.get("same") and call.get("status") == "returned":
            return call.get("result")
    raise EffectFailed(f"run {log.run_id!r}: question {name!r} showed no result of another run", type="UserDenied")


# -- in another attempt, or after a crash ------------------------------------------------------------------------------


async def ask_before_another(under_way: UnderWay, call: Call, asked_for: Collection[str]) -> None:
    """Ask before a call if the step may have made another call of the same kind, in this attempt or before.

    Args:
        under_way: the effects of the step.
        call: the call, with its key.
        asked_for: keys of the calls that the step has requested already.

    Raises:
        Suspend: there is no answer yet.
        CallDenied: the person denied the call.
    """
    attempt, effect, key = under_way.attempt, call.effect, call.key
    activation = attempt.activation
    waits = patience()
    while left := _left(under_way, effect, asked_for):
        pause = next(waits, None)
        if pause is None:
            break
        await anyio.sleep(pause)  # concurrent calls may arrive in another order than before
        attempt.check_running()
    if not left:
        return
    name = unused_id(activation, hash_id(activation.key, "another", key, *asking_again(activation)))
    if name not in activation.answers:
        await under_way.settle_down()
    answer = answer_to(attempt, _question(attempt, effect, name, left))
    if isinstance(answer, Deny):
        raise CallDenied(effect.name, answer.reason)


def _left(under_way: UnderWay, effect: Effect[Any], asked_for: Collection[str]) -> list[EffectEntry]:
    """Return calls of the same kind that happened, or may have, and that the step has not requested: those of failed
    attempts, and those of this attempt without a known end.

    Calls inside one whose result was reused are not requested again.
    """
    attempt, left, over = under_way.attempt.activation.attempt, list[EffectEntry](), set[str]()
    for entry in under_way.before:
        intended, settled = entry.intended, settled_of(entry)
        if intended.inside in over or (intended.key in asked_for and settled is not None):
            over.add(intended.key)
        elif (
            intended.effect == "irreversible"
            and intended.name == effect.name
            and (intended.attempt < attempt or settled is None or settled.unknown)
            and intended.key not in asked_for
            and not is_suspended(entry)
            and not certainly_failed(intended, settled)
        ):
            left.append(entry)
    return left


def _question(attempt: Attempt, effect: Effect[Any], name: str, left: list[EffectEntry]) -> Question:
    activation = attempt.activation
    calls = [known_of(attempt.log.run_id, entry, effect.digest) for entry in left]
    failed = any(entry.intended.attempt < activation.attempt for entry in left)
    why = "An attempt of this step that failed made" if failed else "When this step was stopped, it was making"
    payload: dict[str, object] = {
        "tool": effect.name,
        "args": effect.request.get("args", effect.request),
        "risk": effect.risk,
        "effect": effect.effect,
        FAMILY: [call.shown() for call in calls],
    }
    said = " ".join(map(said_of, calls[:3]))
    question = Question(
        id=name,
        kind="approval",
        node=activation.node,
        path=activation.path,
        prompt=f"Call {effect.name}? {why} another call. {said}",
        payload=payload,
    )
    return identified(attempt, question, effect.digest)
