"""What the journals of a run's family say of a call: of the runs that it was forked from, and of their other forks.

A fork goes the way of its parent once more. So before it makes a call that cannot be undone, a person should know
whether a relative has made it. Only stored journals are read, as they are now; what a relative does later is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.errors import RunUnknown, StoreCorrupt
from orchestrator.executor.effects.callers import child_id
from orchestrator.executor.effects.effect import Effect
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.question import Value, in_family
from orchestrator.kernel.records import (
    Answered,
    Asked,
    Caller,
    EffectIntended,
    EffectSettled,
    Forked,
    Record,
    failed_result,
)
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation
from orchestrator.stores.base import Store
from orchestrator.stores.families import forks_of

RECORDED = "recorded"
"""The answer that takes the result which the call had in another run."""
MOST = 100
"""Journals that are read for one question: those of the nearest relatives."""


@dataclass(frozen=True, slots=True)
class FamilyCall:
    """A call that a relative made."""

    run: str
    seq: int
    """Of the record with its intent."""
    same: bool
    """Whether the request is the same."""
    args: object
    status: Literal["returned", "failed", "unknown"]
    result: object = None
    error: str = ""

    def shown(self) -> dict[str, object]:
        """It as plain JSON, for the payload of a question."""
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
    """The journals of a family, the nearest relatives first."""

    journals: dict[str, Sequence[Record]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    """Runs that it was forked from and that are deleted."""
    _forks: dict[str, list[Forked]] = field(default_factory=dict)

    def maker(self, name: str, seq: int) -> str:
        """The run of which a record in a relative's journal is: a fork has copies of records of its parent."""
        if name not in self._forks:
            self._forks[name] = [one for one in self.journals.get(name, ()) if isinstance(one, Forked)]
        fork = next((one for one in self._forks[name] if one.seq > seq), None)
        return name if fork is None or fork.parent == name else self.maker(fork.parent, seq)


async def relatives(store: Store, run_id: str, records: Sequence[Record], most: int = MOST) -> Relatives:
    """The journals of a run's family, without its own.

    Of a run that a fork called, they are those of the runs that the same call began in the fork's family.

    Args:
        store: the store of all of them.
        run_id: the run.
        records: its records.
        most: how many journals are read.
    """
    forks = [record for record in records if isinstance(record, Forked)]
    if not forks:
        caller = getattr(records[0], "caller", None) if records else None
        return await _called_alike(store, caller) if isinstance(caller, Caller) else Relatives()
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
        # A fork at a record before its parent's own beginning does not contain how that one began.
        others = [record.parent for record in journal or () if isinstance(record, Forked)]
        others += [info.run_id for info in await forks_of(store, name)]
        for other in others:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    for fork in forks:
        if fork.parent in found.gone:  # what it did before it was forked is known all the same
            found.journals.setdefault(fork.parent, records[: fork.at])
    return found


async def _called_alike(store: Store, caller: Caller) -> Relatives:
    """The journals of the runs that a call began in the other runs of the caller's family."""
    records = await _journal(store, caller.run_id) or ()
    made = next((one for one in records if isinstance(one, EffectIntended) and one.key == caller.key), None)
    if made is None:
        return Relatives()
    around = await relatives(store, caller.run_id, records)
    found = Relatives(gone=around.gone)
    for name, journal in around.journals.items():
        for record in journal:
            if isinstance(record, EffectIntended) and record.name == made.name and _is_near(record, made):
                inner = child_id(name, record.key)
                theirs = await _journal(store, inner)
                if theirs is not None and len(found.journals) < MOST:
                    found.journals[inner] = theirs
    return found


def _is_near(one: EffectIntended, other: EffectIntended) -> bool:
    return one.activation == other.activation or (one.path, one.node) == (other.path, other.node)


async def _journal(store: Store, run_id: str) -> Sequence[Record] | None:
    """The records of a run; None if it is deleted, or damaged: what it called is not known then."""
    try:
        return await store.read(run_id)
    except (RunUnknown, StoreCorrupt):
        return None


async def known_calls(
    store: Store, machine: RunState, activation: Activation, effect: Effect[object], asked_for: Collection[str]
) -> tuple[list[FamilyCall], list[str]]:
    """What the family knows of a call that a step is about to make.

    Args:
        store: the store of the runs.
        machine: the run.
        activation: the step.
        effect: the call.
        asked_for: keys of the calls that the step has asked for already: they are others.

    Returns:
        The calls of the same effect at the same place, those with the same request first; if there are some with the
        same request, only these. And the relatives that are deleted.
    """
    records = await store.read(machine.run_id)
    family = await relatives(store, machine.run_id, records)
    copied = {record.key for record in records[: machine.forked_at] if isinstance(record, EffectSettled)}
    exact: dict[str, FamilyCall] = {}
    near: dict[str, FamilyCall] = {}
    for name, journal in family.journals.items():
        for entry in _calls(journal, lambda one: (one.kind, one.name) == (effect.kind, effect.name)):
            intended = entry.intended
            made_by = family.maker(name, intended.seq)
            if intended.key in asked_for or (made_by != name and made_by in family.journals):
                continue  # the journal of the run that made it knows best
            if intended.activation == activation.key:
                exact.setdefault(intended.key, known_of(made_by, entry, effect.digest))
            elif (intended.path, intended.node) == (activation.path, activation.node) and intended.key not in copied:
                near.setdefault(intended.key, known_of(made_by, entry, effect.digest))
    calls = [*(exact or near).values()]
    return [call for call in calls if call.same] or calls, family.gone


def irreversible_calls(family: Relatives, records: Sequence[Record]) -> list[tuple[str, FamilyCall]]:
    """The calls that cannot be undone which the relatives of a fork made, and which it does not have: it asks before
    it makes them.

    Args:
        family: the relatives.
        records: those that the fork begins with.

    Returns:
        The name and the call of each, in the order of the journals.
    """
    has = {record.key for record in records if isinstance(record, EffectSettled)}
    found: dict[str, tuple[str, FamilyCall]] = {}
    for name, journal in family.journals.items():
        for entry in _calls(journal, lambda one: one.effect == "irreversible"):
            intended = entry.intended
            made_by = family.maker(name, intended.seq)
            if intended.key not in has and (made_by == name or made_by not in family.journals):
                found.setdefault(intended.key, (intended.name, known_of(made_by, entry, "")))
    return [*found.values()]


def _calls(records: Sequence[Record], wanted: Callable[[EffectIntended], bool]) -> Iterator[EffectEntry]:
    """The calls that are wanted, with how each ended.

    Not those whose result was taken from another run, by a replay or on a person's word.
    """
    found: dict[str, EffectEntry] = {}
    asked: dict[str, tuple[str, object]] = {}
    given: list[tuple[str, object]] = []
    for record in records:
        if isinstance(record, Asked) and in_family(record.question):
            asked[record.question.id] = record.activation, record.question.payload.get("args")
        elif isinstance(record, Answered) and record.question in asked:
            if isinstance(record.answer, Value) and record.answer.value == RECORDED:
                given.append(asked[record.question])
        elif isinstance(record, EffectIntended):
            call = record.activation, record.request.get("args", record.request)
            if call in given and record.key not in found:
                given.remove(call)
            elif record.taken is None and wanted(record):
                found.setdefault(record.key, EffectEntry(record)).intended = record
        elif isinstance(record, EffectSettled) and record.key in found:
            found[record.key].settled = record
    yield from found.values()


def known_of(run: str, entry: EffectEntry, digest: str) -> FamilyCall:
    """A call of a run, by the run's journal. `digest`: of the request that it is compared with."""
    intended, settled = entry.intended, entry.settled
    status: Literal["returned", "failed", "unknown"] = "unknown"
    result: object = None
    error = ""
    if settled is not None and settled.seq > intended.seq:
        told = failed_result(settled.result) if intended.kind == "tool" else None
        failed = told if settled.error is None else str(settled.error)
        error = failed or ""
        if settled.returned is not None:
            error = f"it returned {settled.returned}, which was refused: {error}"
        if not settled.unknown:
            status = "failed" if failed else "returned"
            result = None if failed else settled.result
    args = intended.request.get("args", intended.request)
    return FamilyCall(run, intended.seq, intended.digest == digest, args, status, result, error)
