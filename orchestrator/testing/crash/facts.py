"""Facts of a run that must not depend on a crash: its end, and the promises of its journal at each stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.executor.calls.reuse import NOT_MADE, SUSPENDED
from orchestrator.json import canonical
from orchestrator.kernel.records import (
    Asked,
    EffectClass,
    EffectIntended,
    EffectKind,
    EffectSettled,
    Ended,
    Record,
    StepDone,
    StepFailed,
)
from orchestrator.views.run import Run

Journals: TypeAlias = Mapping[str, Sequence["Record"]]
"""The records of a run and of the runs that it started, by run id."""

_LONGEST = 300
"""Maximum characters of a value in a message."""


class CrashUnsafe(AssertionError):
    """Raised by the crash kit if a stopped and resumed run does not end, or differs from an undisturbed one."""


@dataclass
class CrashReport:
    """Totals of the trials."""

    status: str = ""
    """Status of the undisturbed run."""
    writes: int = 0
    """Writes to the journal of the undisturbed run."""
    stops: int = 0
    """Number of times that a run was stopped."""
    effects: int = 0
    """Effects of the undisturbed run."""
    repeated: int = 0
    """Effects that may be repeated, and were, over all trials."""
    asked: int = 0
    """Questions about effects of unknown outcome, over all trials."""

    def __str__(self) -> str:
        return (
            f"{self.status} after {self.writes} writes, {self.effects} effects; stopped {self.stops} times: "
            f"{self.repeated} calls repeated that may be, {self.asked} unknown outcomes asked about"
        )


@dataclass
class ObservedCall:
    """An effect and the number of its calls."""

    key: str
    kind: EffectKind
    name: str
    effect: EffectClass
    wanted: str
    """Digest of the request."""
    begun: int = 0
    finished: int = 0
    result: object = None
    """The result as plain JSON."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.effect}, key {self.key[:12]})"


@dataclass(frozen=True)
class Facts:
    """The facts of an ended run that a crash must not change."""

    status: str
    error: str
    output: str
    values: str
    steps: int
    usage: str
    story: Counter[str]
    """Every step: place, node, attempt, outcome, update."""
    effects: frozenset[str]
    """Keys of effects that were done, and not cancelled."""
    asked: Counter[str]
    """Questions, except those about the outcomes of effects."""

    @classmethod
    def of(cls, run: Run, journals: Journals) -> Facts:
        """Return the facts of a run, with all of its records."""
        records = [record for journal in journals.values() for record in journal]
        return cls(
            status=run.status,
            error="" if run.error is None else f"{run.error.type}: {run.error.message}",
            output=canonical(run.output),
            values=canonical(run.values),
            steps=run.steps,
            usage=canonical(run.usage.model_dump(mode="json", exclude={"seconds"})),
            story=Counter(_line(record) for record in records if isinstance(record, StepDone | StepFailed)),
            effects=frozenset(_settled(journals)),
            asked=_questions(records),
        )

    def differences(self, other: Facts) -> Iterator[str]:
        """Yield the differences between a run that was stopped and this one."""
        for name in ("status", "error", "output", "values", "steps", "usage"):
            mine, found = getattr(self, name), getattr(other, name)
            if mine != found:
                yield f"{name}: {_short(found)} instead of {_short(mine)}"
        for what, wanted, there in (("step", self.story, other.story), ("question", self.asked, other.asked)):
            for line in (wanted - there).elements():
                yield f"a {what} is missing: {_short(line)}"
            for line in (there - wanted).elements():
                yield f"a {what} more: {_short(line)}"
        if self.effects != other.effects:
            lost, new = self.effects - other.effects, other.effects - self.effects
            yield f"effects differ: {len(lost)} are missing, {len(new)} are new"


def _line(record: StepDone | StepFailed) -> str:
    if isinstance(record, StepFailed):
        return f"{record.path} {record.node} attempt {record.attempt} failed: {record.error}"
    update = canonical(record.update)
    return f"{record.path} {record.node} attempt {record.attempt}: {record.outcome} {update}"


def _questions(records: Iterable[Record]) -> Counter[str]:
    asked = {record.question.id: record.question for record in records if isinstance(record, Asked)}
    return Counter(
        f"{one.path} {one.node} {one.kind}: {one.prompt}" for one in asked.values() if one.kind != "unknown_outcome"
    )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


@dataclass(frozen=True)
class Promise:
    """The journal of a stopped run, and the calls made until then, which later lives must respect."""

    heads: Mapping[str, int]
    """Number of records of each run."""
    begun: Mapping[str, int]
    """Number of calls of each effect until then, by key."""
    settled: frozenset[str]
    """Keys of effects whose results are in the journal."""

    @classmethod
    def of(cls, journals: Journals, calls: Mapping[str, ObservedCall]) -> Promise:
        """Return the promise of the journals in their current state."""
        heads = {run_id: len(records) for run_id, records in journals.items()}
        begun = {key: call.begun for key, call in calls.items()}
        return cls(heads, begun, frozenset(_settled(journals)) | _failed(journals))

    def broken(self, journals: Journals, calls: Mapping[str, ObservedCall]) -> Iterator[str]:
        """Yield the violations of the promise by a later life."""
        for run_id, head in self.heads.items():
            found = len(journals.get(run_id, ()))
            if found < head:
                yield f"{head - found} records of run {run_id!r} that were durable are gone"
        for key in self.settled:
            call = calls.get(key)
            if call is not None and call.begun > self.begun.get(key, 0):
                yield f"{call} was called again, and its result had been journaled"


def journal_faults(journals: Journals, calls: Mapping[str, ObservedCall], *, ended: bool) -> Iterator[str]:
    """Yield violations that no journal may contain, and calls that were made without a journaled request."""
    intended: set[str] = set()
    for run_id, records in journals.items():
        if [record.seq for record in records] != list(range(1, len(records) + 1)):
            yield f"the journal of run {run_id!r} has a gap"
        ends = sum(isinstance(record, Ended) for record in records)
        if ends > 1 or (ended and ends != 1):
            yield f"the journal of run {run_id!r} has {ends} ends"
        intended.update(record.key for record in records if isinstance(record, EffectIntended))
    for call in calls.values():
        if call.key not in intended:
            yield f"{call} was called, and the journal does not say that it was intended"
        if call.effect == "irreversible" and call.finished > 1:
            yield f"{call} was done {call.finished} times"
    for key, node in _settled(journals).items():
        known = calls.get(key)
        if known is None or not known.finished:
            yield f"the journal has a result of effect {key[:12]} of {node}, and it was never done"


def _failed(journals: Journals) -> frozenset[str]:
    """Return the keys of irreversible effects whose last record is a certain failure."""
    intended: dict[str, EffectIntended] = {}
    failed: set[str] = set()
    for record in (record for journal in journals.values() for record in journal):
        if isinstance(record, EffectIntended):
            intended[record.key] = record
            failed.discard(record.key)
        elif isinstance(record, EffectSettled) and record.error is not None:
            irreversible = record.key in intended and intended[record.key].effect == "irreversible"
            if irreversible and not record.unknown and record.error.type not in (SUSPENDED, NOT_MADE):
                failed.add(record.key)
    return frozenset(failed)


def _settled(journals: Journals) -> dict[str, str]:
    """Return key -> node of every effect whose result is in a journal."""
    records = (record for journal in journals.values() for record in journal)
    return {record.key: record.node for record in records if isinstance(record, EffectSettled) and record.ok}
