"""Compares two runs, step by step: a pure function of their records.

A step is compared with the step of the other run that has the same branch, the same node and the same number among the
node's steps in that branch. So the order in which branches ran makes no difference, and runs of different versions of a
graph, or of different graphs, can be compared.

A `ComparedRun` is one run, without superseded parts; a `StepPair` the same step of both, which one of them may lack;
`PairedRuns` are both runs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, TypeAlias

from orchestrator.kernel import records as r
from orchestrator.kernel.question import OWN_PARTS, in_family, parts_of
from orchestrator.kernel.records import Failure, Record
from orchestrator.kernel.requests import Requests
from orchestrator.views.causes import Causes
from orchestrator.views.reader import read
from orchestrator.views.run import Run
from orchestrator.views.run_diff import (
    Difference,
    DifferenceKind,
    RunDiff,
    figures_of,
    line_diff,
    request_lines,
    short,
    value_lines,
)
from orchestrator.views.safe_text import told
from orchestrator.views.step_work import JournaledCall
from orchestrator.views.superseded import Superseded, VersionNames
from orchestrator.views.timeline import AskedQuestion, Timeline, TimelineRow


def diff(run_a: Run, run_b: Run) -> RunDiff:
    """Compare two runs. Reads their records from their stores and blocks meanwhile.

    Args:
        run_a: a run.
        run_b: another run, of the same graph, another version of it, or another graph.

    Returns:
        The differences: prompts, results, answers, outcomes, updates, the end, and usage.
    """
    return diff_of(run_a, run_a.records(), run_b, run_b.records())


def diff_of(run_a: Run, records_a: Sequence[Record], run_b: Run, records_b: Sequence[Record]) -> RunDiff:
    """Compare two runs whose records were read."""
    found = PairedRuns.of(run_a, records_a, run_b, records_b).differences()
    kept = tuple(islice(found, MOST))
    more = next(found, None) is not None
    return RunDiff((figures_of(run_a), figures_of(run_b)), kept, more, (run_a, run_b))


MOST = 100
"""Maximum number of differences and of lines that are kept."""


def failure_text(error: Failure | None) -> str:
    return "" if error is None else told(str(error), 400)


def changed_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the fields whose values differ, or that only one side has."""
    names = dict.fromkeys((*one, *other))
    return [name for name in names if one.get(name) != other.get(name) or (name in one) != (name in other)]


def fields_diff(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return field -> the lines in which its values differ."""
    found: dict[str, tuple[str, ...]] = {}
    for name in changed_fields(one, other):
        a, b = ({name: side[name]} if name in side else {} for side in (one, other))
        found[name] = line_diff(value_lines(a), value_lines(b))
    return found


def names_of(fields: Iterable[str]) -> str:
    return ", ".join(told(name, 80) for name in fields) or "how they are merged"


def flat(fields: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    found = [line for name, lines in fields.items() for line in (f"{told(name, 80)}:", *lines)]
    return tuple(found[:MOST]) if len(found) <= MOST else (*found[:MOST], f"… {len(found) - MOST} more lines")


Place: TypeAlias = tuple[str, str, int]
"""A step: the path of its branch, its node, and its number among the steps of that node in the branch."""
NumberedCall: TypeAlias = tuple[JournaledCall, int]
"""A call, and the number of its attempt, without superseded ones."""
_CUT_OFF = ("Cancelled", "NotMade", "Suspended")
"""Errors of calls that the run itself stopped, or that first needed an answer."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run, prepared for a comparison."""

    run: Run
    records: Sequence[Record]
    steps: dict[Place, TimelineRow]
    """In the order in which they started."""
    requests: Requests
    cut: bool
    """True if it is a replay that ended where it diverged: its missing rest is not a difference."""
    superseded: Superseded
    """Its parts that do not count, because it was reopened or its questions were repeated."""
    counted: bool
    """True if superseded attempts are left out of the comparison: one of the runs is a replay."""
    names: VersionNames | None = None
    """Names for the comparison of a run that moved to other versions."""

    @property
    def changed(self) -> frozenset[str]:
        """The steps that a fork sent other requests for."""
        return frozenset(fork.asked.activation for fork in self.run.machine.forks if fork.asked is not None)

    @classmethod
    def of(
        cls,
        run: Run,
        records: Sequence[Record],
        beside: ComparedRun | None = None,
        *,
        counted: bool = False,
        shared: int = 0,
        structure: str = "",
    ) -> ComparedRun:
        """Read a run.

        Args:
            run: the run.
            records: its records.
            beside: a run of the same family, whose equal steps have the same keys.
            counted: see the attribute.
            shared: number of the records that a replay copied from the other run.
            structure: structure digest of the version whose names are used for the comparison; empty: names are not
                changed.
        """
        known = {} if beside is None else {row.activation: place for place, row in beside.steps.items()}
        counts: Counter[tuple[str, str]] = Counter()
        steps: dict[Place, TimelineRow] = {}
        causes, superseded = Causes(), Superseded()
        rows = Timeline(causes)
        read(run.plan, records, causes, rows, superseded)
        if counted:
            _drop_superseded(rows, superseded, shared)
        names = VersionNames(records, structure) if structure and _has_moved(records) else None
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
        return cls(run, records, steps, Requests(records), ended_diverged(records), superseded, counted, names)

    def number_of(self, call: JournaledCall) -> int:
        """Return the number of a call's attempt among the counted attempts of its step, from 1."""
        before = self.superseded.first.get(call.intended.activation, 1) - 1 if self.counted else 0
        return max(1, call.intended.attempt - before)

    def keeps(self, call: JournaledCall) -> bool:
        """Return True if the call is of a superseded attempt, and its result holds for later attempts."""
        return self.counted and self.superseded.is_kept(call.intended.key)

    @property
    def start(self) -> Mapping[str, object] | None:
        """Return the initial values."""
        first = self.records[0] if self.records else None
        if not isinstance(first, r.RunStarted):
            return None
        return first.values if self.names is None else self.names.start(first.values)

    def set_from_outside(self) -> Iterator[tuple[int, Mapping[str, object]]]:
        """Yield the values that forks and migrations set, with their records.

        Migrations are left out if one run is a replay of the other, which may use one version from the start.
        """
        for record in self.records:
            if isinstance(record, r.Forked) and record.update:
                yield record.seq, record.update
            elif isinstance(record, r.Migrated) and record.values and not self.counted:
                yield record.seq, record.values


def _has_moved(records: Sequence[Record]) -> bool:
    return any(isinstance(record, r.Migrated) for record in records)


def _rename(rows: Timeline, names: VersionNames) -> None:
    """Rename steps as in the version used for the comparison."""
    for row in rows.rows:
        if row.seq is not None:
            row.update = names.fields(row.seq, row.place, row.update)
            row.ops = names.fields(row.seq, row.place, row.ops)
        row.path, row.node = names.place(max(row.began, row.named), row.path, row.node)


def _drop_superseded(rows: Timeline, superseded: Superseded, shared: int) -> None:
    """Leave out the parts that became superseded when the run was reopened.

    Failures among the `shared` records are equal in both runs, and only the replayed run may have superseded them.
    """
    rows.rows = [row for row in rows.rows if not superseded.is_undone(row.activation)]
    for row in rows.rows:
        first = superseded.first.get(row.activation, 1)
        begun = superseded.begun.get(row.activation, first)
        row.failures = [failed for failed in row.failures if failed.attempt >= begun and failed.seq > shared]
        row.calls = [
            call
            for call in row.calls
            if call.intended.attempt >= first or (superseded.is_kept(call.intended.key) and not call.running)
        ]
        for call in row.calls:
            if superseded.is_asked_about(call.intended.key):
                call.settled = None


def ended_diverged(records: Sequence[Record]) -> bool:
    """Return True if the records are those of a replay that ended where live calls would follow."""
    cancelled = next((record for record in reversed(records) if isinstance(record, r.Cancelled)), None)
    own = next((record.seq for record in reversed(records) if isinstance(record, r.Forked)), None)
    return cancelled is not None and own is not None and cancelled.seq >= own and cancelled.at_divergence


def _unmake(rows: Sequence[TimelineRow], fork: r.Forked) -> None:
    """Leave out parts that a fork repeats: calls without a result, and questions that it asks again.

    A call that was cut off has another key in the fork.
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
    """Yield calls that a replay asked for and did not make, because the replayed run had not asked for them."""
    made = {(one.activation, one.digest, one.occurrence) for one in records if isinstance(one, r.EffectIntended)}
    for one in records:
        if isinstance(one, r.Diverged) and one.kind != "question":
            if (one.activation, one.digest, one.occurrence) in made:
                continue
            intended = r.EffectIntended(
                seq=one.seq,
                ts=one.ts,
                activation=one.activation,
                path=one.path,
                node=one.node,
                key=one.digest,
                kind=one.kind,
                name=one.name,
                effect="read",
                digest=one.digest,
                occurrence=one.occurrence,
                attempt=one.attempt,
                request=one.request,
            )
            yield JournaledCall(intended, one.ts)


def request_of(call: NumberedCall) -> tuple[str, str, str, int]:
    intended = call[0].intended
    return intended.kind, intended.name, intended.digest, call[1]


def was_cut_off(call: JournaledCall) -> bool:
    error = None if call.settled is None else call.settled.error
    return error is not None and error.type in _CUT_OFF


class StepPair:
    """A step of both runs: the differences of its calls, questions, attempts and end.

    Args:
        place: the step.
        one: a run.
        other: another run.
        texts: whether differences include lines of texts.
    """

    def __init__(self, place: Place, one: ComparedRun, other: ComparedRun, *, texts: bool = True) -> None:
        self.place, self.reads, self._texts = place, (one, other), texts
        self.rows = one.steps.get(place), other.steps.get(place)

    def differences(self) -> Iterator[Difference]:
        """Yield the differences of the runs in this step."""
        one, other = self.rows
        if (other is None and self.reads[1].cut) or (one is None and self.reads[0].cut):
            return
        if one is None or other is None:
            there = one or other
            assert there is not None
            which = "second" if one is None else "first"
            seqs = (None, there.began) if one is None else (there.began, None)
            yield self._of("step", seqs, f"only the {which} run reached this step")
            return
        if one.status == other.status == "dropped":
            return  # its progress before it was stopped depends on timing
        yield from self._calls(one, other)
        yield from self._questions(one, other)
        cut = any(read.cut and row.status == "dropped" for read, row in zip(self.reads, (one, other), strict=True))
        if not cut:
            yield from self._attempts(one, other)
            yield from self._end(one, other)

    def _of(
        self, kind: DifferenceKind, seqs: tuple[int | None, int | None], what: str, lines: tuple[str, ...] = ()
    ) -> Difference:
        path, node, visit = self.place
        return Difference(kind, told(path, 200), told(node, 80), visit, seqs, what, lines)

    def _calls(self, one: TimelineRow, other: TimelineRow) -> Iterator[Difference]:
        for mine, theirs in _paired(self._made(one, other, 0), self._made(other, one, 1)):
            if (theirs is None and self.reads[1].cut) or (mine is None and self.reads[0].cut):
                continue
            if mine is None or theirs is None or request_of(mine) != request_of(theirs):
                yield self._request(mine[0] if mine else None, theirs[0] if theirs else None)
                continue
            if self._sends_other(mine[0], theirs[0]):
                yield self._request(mine[0], theirs[0])
            yield from self._result(mine[0], theirs[0])

    def _sends_other(self, mine: JournaledCall, theirs: JournaledCall) -> bool:
        """Return True if a fork sent another request than its step made, which was the same in both runs."""
        calls = tuple(zip((mine, theirs), self.reads, strict=True))
        if not any(call.intended.activation in read.changed for call, read in calls):
            return False
        one, other = (request_lines(call.intended, read.requests) for call, read in calls)
        return one != other

    def _made(self, row: TimelineRow, beside: TimelineRow, which: int) -> list[NumberedCall]:
        """Return the calls of a step, each with the number of its attempt among those that count.

        Calls of a superseded attempt that hold for later ones are included if the other run has them, too: the journal
        does not record whether a later attempt asked for them.
        """
        read, other = self.reads[which], self.reads[1 - which]
        made = [(call, read.number_of(call)) for call in row.calls]
        there = {request_of((call, other.number_of(call))) for call in beside.calls}
        return [one for one in made if not read.keeps(one[0]) or request_of(one) in there]

    def _request(self, mine: JournaledCall | None, theirs: JournaledCall | None) -> Difference:
        both = mine, theirs
        names = [None if call is None else f"{call.intended.kind} {told(call.intended.name, 80)}" for call in both]
        if names[0] is None or names[1] is None:
            what = f"only the {'second' if mine is None else 'first'} run called {names[0] or names[1]}"
        elif names[0] == names[1]:
            what = f"the request to {names[0]} differs"
        else:
            what = f"the first run called {names[0]}, the second one {names[1]}"
        seqs = tuple(None if call is None else call.intended.seq for call in both)
        return self._of("request", (seqs[0], seqs[1]), what, self._request_diff(both))

    def _request_diff(self, both: tuple[JournaledCall | None, JournaledCall | None]) -> tuple[str, ...]:
        if not self._texts:
            return ()
        lines = [
            [] if call is None else request_lines(call.intended, read.requests)
            for call, read in zip(both, self.reads, strict=True)
        ]
        return line_diff(*lines)

    def _value_diff(self, one: object, other: object) -> tuple[str, ...]:
        return line_diff(value_lines(one), value_lines(other)) if self._texts else ()

    def _result(self, mine: JournaledCall, theirs: JournaledCall) -> Iterator[Difference]:
        results = [_result_of(call) for call in (mine, theirs)]
        if results[0] == results[1] or any(was_cut_off(call) for call in (mine, theirs)):
            return
        name = f"{mine.intended.kind} {told(mine.intended.name, 80)}"
        seqs = [call.intended.seq if call.settled is None else call.settled.seq for call in (mine, theirs)]
        lines = self._value_diff(*results)
        yield self._of("result", (seqs[0], seqs[1]), f"{name} gave another result", lines)

    def _questions(self, one: TimelineRow, other: TimelineRow) -> Iterator[Difference]:
        for mine, theirs in zip_longest(self._own_questions(0), self._own_questions(1)):
            seqs = (None if mine is None else mine.seq, None if theirs is None else theirs.seq)
            if mine is None or theirs is None:
                if self.reads[0].cut or self.reads[1].cut:
                    continue
                which = "second" if mine is None else "first"
                asked = mine or theirs
                assert asked is not None
                yield self._of("question", seqs, f"only the {which} run asked: {told(asked.question.prompt, 200)}")
                continue
            shown, beside = _question(mine), _question(theirs)
            if shown != beside:
                yield self._of("question", seqs, "it asked something else", self._value_diff(shown, beside))
            given, taken = _answer(mine), _answer(theirs)
            if given != taken:
                words = f"the answers are {_said(given)} and {_said(taken)}"
                yield self._of("answer", (mine.answered or mine.seq, theirs.answered or theirs.seq), words)

    def _own_questions(self, which: int) -> list[AskedQuestion]:
        """Return the questions that the graph of the step asks.

        Left out are repeated questions, those about calls of unknown outcome, and those inside a call whose result a
        replay takes over. A replay is not asked about calls of its family, but a fork is.
        """
        row, beside = self.rows[which], self.rows[1 - which]
        assert row is not None
        assert beside is not None
        read, other = self.reads[which], self.reads[1 - which]
        taken = {request_of((call, other.number_of(call))) for call in beside.calls if call.intended.taken is not None}
        spans = [
            (call.intended.seq, call.settled.seq)
            for call in row.calls
            if call.settled is not None
            and call.intended.taken is None
            and request_of((call, read.number_of(call))) in taken
        ]
        return [
            one
            for one in row.asked
            if one.question.kind != "unknown_outcome"
            and one.question.id not in read.superseded.withdrawn
            and not (read.counted and in_family(one.question))
            and not any(begun < one.seq < ended for begun, ended in spans)
        ]

    def _attempts(self, one: TimelineRow, other: TimelineRow) -> Iterator[Difference]:
        for mine, theirs in zip_longest(one.failures, other.failures):
            if mine is not None and theirs is not None and failure_text(mine.error) == failure_text(theirs.error):
                continue
            words = [
                "went well" if failed is None else f"failed ({failure_text(failed.error)}) and was tried again"
                for failed in (mine, theirs)
            ]
            seqs = (None if mine is None else mine.seq, None if theirs is None else theirs.seq)
            number = (mine or theirs or one.failures[0]).attempt
            yield self._of(
                "attempt", seqs, f"attempt {number} {words[0]} in the first run, and {words[1]} in the second"
            )

    def _end(self, one: TimelineRow, other: TimelineRow) -> Iterator[Difference]:
        seqs = one.seq, other.seq
        ends = [row.outcome if row.status == "done" else row.status for row in (one, other)]
        if ends[0] != ends[1]:
            yield self._of("outcome", seqs, f"the outcomes are {ends[0]} and {ends[1]}")
        faults = failure_text(one.error), failure_text(other.error)
        if faults[0] != faults[1]:
            yield self._of("error", seqs, f"the errors are {faults[0] or 'none'} and {faults[1] or 'none'}")
        if (one.update, one.ops) != (other.update, other.ops):
            a, b = one.update, other.update
            if not changed_fields(a, b):  # the same values, merged differently
                a, b = one.ops, other.ops
            lines = flat(fields_diff(a, b)) if self._texts else ()
            yield self._of("update", seqs, f"the updates differ in {names_of(changed_fields(a, b))}", lines)


def _paired(
    one: Sequence[NumberedCall], other: Sequence[NumberedCall]
) -> Iterator[tuple[NumberedCall | None, NumberedCall | None]]:
    """Pair calls with the same request, in the order of the first run; the others by kind, in their order."""
    same: dict[object, deque[int]] = {}
    for number, made in enumerate(other):
        same.setdefault(request_of(made), deque()).append(number)
    beside = [numbers.popleft() if (numbers := same.get(request_of(made))) else None for made in one]
    taken = {number for number in beside if number is not None}
    left: dict[str, deque[int]] = {}
    for number, (call, _) in enumerate(other):
        if number not in taken:
            left.setdefault(call.intended.kind, deque()).append(number)
    for made, same_as in zip(one, beside, strict=True):
        like = left.get(made[0].intended.kind)
        at = same_as if same_as is not None or not like else like.popleft()
        yield made, None if at is None else other[at]
    yield from ((None, other[number]) for number in sorted(number for numbers in left.values() for number in numbers))


def _result_of(call: JournaledCall) -> object:
    """Return the result of a call, without ids of runs and instances, which always differ."""
    settled = call.settled
    if settled is None or call.running:
        return "no result yet"
    if settled.error is not None:
        return failure_text(settled.error)
    found = settled.result
    metadata = found.get("metadata") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(metadata, Mapping) or "run_id" not in metadata:
        return found
    run_id = str(metadata["run_id"])
    plain: dict[str, Any] = {**found, "metadata": {key: part for key, part in metadata.items() if key != "run_id"}}
    if isinstance(plain.get("error"), str):
        plain["error"] = plain["error"].replace(run_id, "inside")
    plain.pop("traceback", None)
    return plain


def _question(asked: AskedQuestion) -> dict[str, object]:
    question = asked.question
    call, shown = parts_of(question.kind, question.payload)
    payload = {key: value for key, value in call.items() if key not in OWN_PARTS} | ({"shown": shown} if shown else {})
    prompt = "" if question.kind == "timer" else question.prompt  # it contains the time
    choices = list(question.choices)
    return {
        "kind": question.kind,
        "prompt": prompt,
        "payload": payload,
        "choices": choices,
        "schema": question.schema_,
    }


def _answer(asked: AskedQuestion) -> object:
    return None if asked.answer is None else asked.answer.model_dump(mode="json")


def _said(answer: object) -> str:
    return "none yet" if answer is None else short(answer)


_FINISHED = ("completed", "exhausted")
"""Statuses of runs whose state is a result. The state of a stopped run depends on timing."""


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """Two runs, prepared for a comparison.

    `texts` of its methods: whether differences include lines of texts. Without them a comparison is much faster,
    because texts are not compared line by line.
    """

    one: ComparedRun
    other: ComparedRun

    @classmethod
    def of(cls, run_a: Run, records_a: Sequence[Record], run_b: Run, records_b: Sequence[Record]) -> PairedRuns:
        """Read two runs.

        Args:
            run_a: a run.
            records_a: its records.
            run_b: another run, of the same graph, another version of it, or another graph.
            records_b: its records.
        """
        counted = _is_replay(run_a, run_b) or _is_replay(run_b, run_a)
        replay = run_a if _is_replay(run_a, run_b) else run_b
        structure = replay.machine.structure if counted else ""
        shared = replay.machine.fork.at if counted and replay.machine.fork is not None else 0
        one = ComparedRun.of(run_a, records_a, counted=counted, shared=shared, structure=structure)
        beside = one if run_a.root_id == run_b.root_id else None
        other = ComparedRun.of(run_b, records_b, beside, counted=counted, shared=shared, structure=structure)
        return cls(one, other)

    def places(self) -> list[Place]:
        """Return the steps of both, in the order of the first run."""
        return [*in_order([*self.one.steps], [*self.other.steps])]

    def differences(self) -> Iterator[Difference]:
        """Yield all differences in order, with their lines."""
        yield from self.starts()
        for place in self.places():
            yield from self.step(place)
        yield from self.ends()

    def starts(self, *, texts: bool = True) -> Iterator[Difference]:
        """Yield the differences of the states that the runs started with, and of values set from outside."""
        a, b = self.one.start, self.other.start
        if a is not None and b is not None and (names := changed_fields(a, b)):
            lines = flat(fields_diff(a, b)) if texts else ()
            yield Difference(
                "state", seqs=(1, 1), what=f"they began with other values of {names_of(names)}", lines=lines
            )
        for mine, theirs in zip_longest(self.one.set_from_outside(), self.other.set_from_outside()):
            before, after = (mine or (None, {})), (theirs or (None, {}))
            if names := changed_fields(before[1], after[1]):
                words = f"values were set from outside: {names_of(names)}"
                lines = flat(fields_diff(before[1], after[1])) if texts else ()
                yield Difference("state", seqs=(before[0], after[0]), what=words, lines=lines)

    def step(self, place: Place, *, texts: bool = True) -> Iterator[Difference]:
        """Return the differences of a step."""
        return StepPair(place, self.one, self.other, texts=texts).differences()

    def ends(self, *, texts: bool = True) -> Iterator[Difference]:
        """Yield the differences of the ends of the runs."""
        if self.one.cut or self.other.cut:
            return
        a, b = self.one.run, self.other.run
        seqs = (a.seq, b.seq)
        if a.status != b.status:
            words = f"the first run is {a.status}, the second one {b.status}"
            yield Difference("status", seqs=seqs, what=words)
        elif a.status in ("failed", "interrupted") and failure_text(a.error) != failure_text(b.error):
            words = f"they failed otherwise: {failure_text(a.error)} and {failure_text(b.error)}"
            yield Difference("error", seqs=seqs, what=words)
        if a.output != b.output:
            lines = line_diff(value_lines(a.output), value_lines(b.output)) if texts else ()
            words = " and ".join(short(one, 80).strip() or "an empty text" for one in (a.output, b.output))
            words = f"the outputs are {words}"
            yield Difference("output", seqs=seqs, what=words, lines=lines)
        elif (
            a.status == b.status
            and a.status in _FINISHED
            and a.output is None
            and (names := changed_fields(a.values, b.values))
        ):
            lines = flat(fields_diff(a.values, b.values)) if texts else ()
            yield Difference("state", seqs=seqs, what=f"the states differ in {names_of(names)}", lines=lines)


def in_order(one: Sequence[Place], other: Sequence[Place]) -> Iterator[Place]:
    """Yield all places in the order of the first sequence; places of the second alone where it reached them."""
    known, at = set(one), {place: number for number, place in enumerate(other)}
    passed = 0
    for place in one:
        until = at.get(place, -1)
        if until >= passed:
            yield from (beside for beside in other[passed:until] if beside not in known)
            passed = until + 1
        yield place
    yield from (beside for beside in other[passed:] if beside not in known)


def _is_replay(run: Run, other: Run) -> bool:
    """Return True if a run is a replay of the other one, which then counts without its superseded parts."""
    fork = run.machine.fork
    return fork is not None and fork.relation == "replay" and fork.parent == other.run_id
