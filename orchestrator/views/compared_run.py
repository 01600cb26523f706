"""One run, read to be compared with another: its steps by their place, without what does not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.kernel import records as r
from orchestrator.kernel.records import Record
from orchestrator.views.call_text import messages_of
from orchestrator.views.calls import JournaledCall
from orchestrator.views.causes import Causes
from orchestrator.views.discards import Discards
from orchestrator.views.moved_names import MovedNames
from orchestrator.views.reader import read
from orchestrator.views.run import Run
from orchestrator.views.timeline import Timeline, TimelineRow

Place: TypeAlias = tuple[str, str, int]
"""A step: the path of its branch, its node, and which of the node's steps in that branch it is."""
NumberedCall: TypeAlias = tuple[JournaledCall, int]
"""A call, and the number of its attempt among those that count."""
_CUT_OFF = ("Cancelled", "NotMade", "Suspended")
"""Errors of calls that the run itself stopped, or that had to ask something first."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run, read for a comparison."""

    run: Run
    records: Sequence[Record]
    steps: dict[Place, TimelineRow]
    """In the order in which they began."""
    messages: Mapping[str, Mapping[str, object]]
    cut: bool
    """Whether it is a replay that ended where it diverged: what did not come is no difference."""
    discards: Discards
    """What of it does not count, because it was reopened or asked again."""
    counted: bool
    """Whether only what counts is compared, attempts that were set aside not: one of the runs is a replay."""
    names: MovedNames | None = None
    """Of a run that moved to other versions: the names in which it is compared."""

    @classmethod
    def of(
        cls,
        run: Run,
        records: Sequence[Record],
        beside: ComparedRun | None = None,
        *,
        counted: bool = False,
        structure: str = "",
    ) -> ComparedRun:
        """Read a run.

        Args:
            run: the run.
            records: its records.
            beside: a run of the same family, whose steps have the same keys where they are the same.
            counted: see the attribute.
            structure: of the version in whose names the steps are compared; empty: each in those that it had.
        """
        known = {} if beside is None else {row.activation: place for place, row in beside.steps.items()}
        counts: Counter[tuple[str, str]] = Counter()
        steps: dict[Place, TimelineRow] = {}
        causes, discards = Causes(), Discards()
        rows = Timeline(causes)
        read(run.plan, records, causes, rows, discards)
        if counted:
            _discard(rows, discards)
        names = MovedNames(records, structure) if structure and _has_moved(records) else None
        if names is not None:
            _rename(rows, names)
        taken = {known[row.activation] for row in rows.rows if row.activation in known}
        for row in rows.rows:
            place = known.get(row.activation)
            while place is None or (place in taken and row.activation not in known):
                counts[row.path, row.node] += 1
                place = (row.path, row.node, counts[row.path, row.node])
            steps[place] = row
        for fork in (record for record in records if isinstance(record, r.Forked)):
            _unmake(rows.rows, fork)
        for call in _calls_not_made(records):
            if call.intended.activation in rows.by_activation:
                rows.by_activation[call.intended.activation].calls.append(call)
        return cls(run, records, steps, messages_of(records), ended_diverged(records), discards, counted, names)

    def number_of(self, call: JournaledCall) -> int:
        """The number of a call's attempt among those of its step that count, from 1."""
        before = self.discards.first.get(call.intended.activation, 1) - 1 if self.counted else 0
        return max(1, call.intended.attempt - before)

    def keeps(self, call: JournaledCall) -> bool:
        """Whether it is of an attempt that was set aside, and holds for the later ones."""
        return self.counted and self.discards.is_kept(call.intended.key)

    @property
    def start(self) -> Mapping[str, object] | None:
        """The values that it began with."""
        first = self.records[0] if self.records else None
        if not isinstance(first, r.RunStarted):
            return None
        return first.values if self.names is None else self.names.start(first.values)

    def set_from_outside(self) -> Iterator[tuple[int, Mapping[str, object]]]:
        """The values that forks and migrations set, with their records.

        Not those of migrations where one run is a replay of the other: it may run in one version from its beginning.
        """
        for record in self.records:
            if isinstance(record, r.Forked) and record.update:
                yield record.seq, record.update
            elif isinstance(record, r.Migrated) and record.values and not self.counted:
                yield record.seq, record.values


def _has_moved(records: Sequence[Record]) -> bool:
    return any(isinstance(record, r.Migrated) for record in records)


def _rename(rows: Timeline, names: MovedNames) -> None:
    """Name what the steps were by the version in which they are compared."""
    for row in rows.rows:
        if row.seq is not None:
            row.update = names.fields(row.seq, row.place, row.update)
            row.ops = names.fields(row.seq, row.place, row.ops)
        row.path, row.node = names.place(max(row.began, row.named), row.path, row.node)


def _discard(rows: Timeline, discards: Discards) -> None:
    """Leave out what a run set aside when it was reopened."""
    rows.rows = [row for row in rows.rows if not discards.is_undone(row.activation)]
    for row in rows.rows:
        first = discards.first.get(row.activation, 1)
        begun = discards.begun.get(row.activation, first)
        row.failures = [failed for failed in row.failures if failed.attempt >= begun]
        row.calls = [
            call
            for call in row.calls
            if call.intended.attempt >= first or (discards.is_kept(call.intended.key) and not call.running)
        ]
        for call in row.calls:
            if discards.is_asked_about(call.intended.key):
                call.settled = None


def ended_diverged(records: Sequence[Record]) -> bool:
    """Whether records are those of a replay that ended where it would have been live."""
    cancelled = next((record for record in reversed(records) if isinstance(record, r.Cancelled)), None)
    own = next((record.seq for record in reversed(records) if isinstance(record, r.Forked)), None)
    if cancelled is None or own is None or cancelled.seq < own or cancelled.by != "replay":
        return False
    return cancelled.reason.startswith("diverged: ")


def _unmake(rows: Sequence[TimelineRow], fork: r.Forked) -> None:
    """Leave out what counts as not made in a fork: calls without a result, and answers that it asks for again.

    A call that was cut off, and that the fork makes, has another key there.
    """
    for row in rows:
        if row.began < fork.seq:
            made = {request_of((call, call.intended.attempt)) for call in row.calls if call.intended.seq > fork.seq}
            row.calls = [
                call
                for call in row.calls
                if call.intended.seq > fork.seq
                or not (call.running or (was_cut_off(call) and request_of((call, call.intended.attempt)) in made))
            ]
            row.asked = [one for one in row.asked if one.question.id not in fork.withdrawn or one.seq > fork.seq]


def _calls_not_made(records: Sequence[Record]) -> Iterator[JournaledCall]:
    """What a replay asked, and did not call because the replayed run had not asked it."""
    made = {(one.activation, one.digest, one.occurrence) for one in records if isinstance(one, r.EffectIntended)}
    for one in records:
        if isinstance(one, r.Diverged) and one.kind != "question":
            if (one.activation, one.digest, one.occurrence) in made:
                continue
            intended = r.EffectIntended(
                seq=one.seq, ts=one.ts, activation=one.activation, path=one.path, node=one.node, key=one.digest,
                kind=one.kind, name=one.name, effect="read", digest=one.digest, occurrence=one.occurrence,
                attempt=one.attempt, request=one.request,
            )  # fmt: skip
            yield JournaledCall(intended, one.ts)


def request_of(call: NumberedCall) -> tuple[str, str, str, int]:
    intended = call[0].intended
    return intended.kind, intended.name, intended.digest, call[1]


def was_cut_off(call: JournaledCall) -> bool:
    error = None if call.settled is None else call.settled.error
    return error is not None and error.type in _CUT_OFF
