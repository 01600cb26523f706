"""Compares two runs, step by step: a pure function of their records.

Steps are the same that are the how-manieth of their node in their branch, so which branch was faster is no difference,
and runs of different versions of a graph, or of different graphs, can be compared.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, TypeAlias

from orchestrator.kernel import records as r
from orchestrator.kernel.records import Failure, Record
from orchestrator.views.call_text import line_diff, messages_of, request_lines, short, value_lines
from orchestrator.views.calls import JournaledCall
from orchestrator.views.causes import Causes
from orchestrator.views.discards import Discards
from orchestrator.views.reader import read
from orchestrator.views.run import Run
from orchestrator.views.run_diff import Difference, DifferenceKind, RunDiff, RunFigures
from orchestrator.views.safe_text import told
from orchestrator.views.timeline import AskedQuestion, Timeline, TimelineRow

MOST = 100
"""Differences that are kept."""
_Place: TypeAlias = tuple[str, str, int]
_Numbered: TypeAlias = tuple[JournaledCall, int]
"""A call, and the number of its attempt among those that count."""
OWN = frozenset({"key", "began", "call_id"})
"""Parts of a question's payload that each run has its own of."""
FAMILY = "family"
"""Key in the payload of questions about calls that relatives of a run have made."""
_FINISHED = ("completed", "exhausted")
"""How runs end whose state is a result. That of a run that was stopped depends on which of its branches was faster."""
_CUT_OFF = ("Cancelled", "NotMade", "Suspended")
"""Errors of calls that the run itself stopped, or that had to ask something first."""


def diff(run_a: Run, run_b: Run) -> RunDiff:
    """Compare two runs. Reads their records from their stores and blocks meanwhile.

    Args:
        run_a: a run.
        run_b: another run, of the same graph, another version of it, or another graph.

    Returns:
        The differences: prompts, results, answers, outcomes, updates, the end, and what both spent.
    """
    return diff_of(run_a, run_a.records(), run_b, run_b.records())


def diff_of(run_a: Run, records_a: Sequence[Record], run_b: Run, records_b: Sequence[Record]) -> RunDiff:
    """The same, of runs whose records were read."""
    counted = _is_replay(run_a, run_b) or _is_replay(run_b, run_a)
    one = _Read.of(run_a, records_a, counted=counted)
    beside = one if run_a.root_id == run_b.root_id else None
    found = _differences(one, _Read.of(run_b, records_b, beside, counted=counted))
    kept = tuple(islice(found, MOST))
    more = next(found, None) is not None
    return RunDiff((_figures(run_a), _figures(run_b)), kept, more, (run_a, run_b))


def _is_replay(run: Run, other: Run) -> bool:
    """Whether a run is a replay of the other one: then that counts as it went in the end, if it was reopened."""
    fork = run.machine.fork
    return fork is not None and fork.relation == "replay" and fork.parent == other.run_id


def _figures(run: Run) -> RunFigures:
    graph = run.definition
    return RunFigures(run.run_id, graph.name, graph.content, run.status, run.steps, run.machine.usage)


@dataclass(frozen=True, slots=True)
class _Read:
    """One run, read for a comparison."""

    run: Run
    records: Sequence[Record]
    steps: dict[_Place, TimelineRow]
    """In the order in which they began."""
    messages: Mapping[str, Mapping[str, object]]
    cut: bool
    """Whether it is a replay that ended where it diverged: what did not come is no difference."""
    discards: Discards
    """What of it does not count, because it was reopened or asked again."""
    counted: bool
    """Whether only what counts is compared, attempts that were set aside not: one of the runs is a replay."""

    @classmethod
    def of(cls, run: Run, records: Sequence[Record], beside: _Read | None = None, *, counted: bool = False) -> _Read:
        """Read a run. `beside`: a run of the same family, whose steps have the same keys where they are the same."""
        known = {} if beside is None else {row.activation: place for place, row in beside.steps.items()}
        counts: Counter[tuple[str, str]] = Counter()
        steps: dict[_Place, TimelineRow] = {}
        causes, discards = Causes(), Discards()
        rows = Timeline(causes)
        read(run.plan, records, causes, rows, discards)
        if counted:
            _discard(rows, discards)
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
        return cls(run, records, steps, messages_of(records), ended_diverged(records), discards, counted)

    def number_of(self, call: JournaledCall) -> int:
        """The number of a call's attempt among those of its step that count, from 1."""
        before = self.discards.first.get(call.intended.activation, 1) - 1 if self.counted else 0
        return max(1, call.intended.attempt - before)

    def keeps(self, call: JournaledCall) -> bool:
        """Whether it is of an attempt that was set aside, and holds for the later ones."""
        return self.counted and self.discards.is_kept(call.intended.key)

    @property
    def start(self) -> r.RunStarted | None:
        first = self.records[0] if self.records else None
        return first if isinstance(first, r.RunStarted) else None

    def set_from_outside(self) -> Iterator[tuple[int, Mapping[str, object]]]:
        """The values that forks and migrations set, with their records."""
        for record in self.records:
            if isinstance(record, r.Forked) and record.update:
                yield record.seq, record.update
            elif isinstance(record, r.Migrated) and record.values:
                yield record.seq, record.values


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
            made = {_asked((call, call.intended.attempt)) for call in row.calls if call.intended.seq > fork.seq}
            row.calls = [
                call
                for call in row.calls
                if call.intended.seq > fork.seq
                or not (call.running or (_was_cut_off(call) and _asked((call, call.intended.attempt)) in made))
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


def _differences(one: _Read, other: _Read) -> Iterator[Difference]:
    yield from _starts(one, other)
    for place in _in_order([*one.steps], [*other.steps]):
        yield from _Pair(place, one, other).differences()
    if not one.cut and not other.cut:
        yield from _ends(one, other)


def _in_order(one: Sequence[_Place], other: Sequence[_Place]) -> Iterator[_Place]:
    """All places in the order of the first run; those of the second run only where that run came to them."""
    known, at = set(one), {place: number for number, place in enumerate(other)}
    passed = 0
    for place in one:
        until = at.get(place, -1)
        if until >= passed:
            yield from (beside for beside in other[passed:until] if beside not in known)
            passed = until + 1
        yield place
    yield from (beside for beside in other[passed:] if beside not in known)


def _starts(one: _Read, other: _Read) -> Iterator[Difference]:
    """Differences of the states that the runs began with, and of what was set from outside."""
    a, b = one.start, other.start
    if a is not None and b is not None:
        lines = _fields_diff(a.values, b.values)
        if lines:
            yield Difference(
                "state", seqs=(1, 1), what=f"they began with other values of {_names(lines)}", lines=_flat(lines)
            )
    for mine, theirs in zip_longest(one.set_from_outside(), other.set_from_outside()):
        before, after = (mine or (None, {})), (theirs or (None, {}))
        lines = _fields_diff(before[1], after[1])
        if lines:
            words = f"values were set from outside: {_names(lines)}"
            yield Difference("state", seqs=(before[0], after[0]), what=words, lines=_flat(lines))


def _ends(one: _Read, other: _Read) -> Iterator[Difference]:
    a, b = one.run, other.run
    seqs = (a.seq, b.seq)
    if a.status != b.status:
        yield Difference("status", seqs=seqs, what=f"the first run is {a.status}, the second one {b.status}")
    elif a.status in ("failed", "interrupted") and _failure(a.error) != _failure(b.error):
        words = f"they failed otherwise: {_failure(a.error)} and {_failure(b.error)}"
        yield Difference("error", seqs=seqs, what=words)
    if a.output != b.output:
        lines = line_diff(value_lines(a.output), value_lines(b.output))
        words = f"the outputs are {short(a.output, 80)} and {short(b.output, 80)}"
        yield Difference("output", seqs=seqs, what=words, lines=lines)
    elif a.status == b.status and a.status in _FINISHED and a.output is None:
        lines_by_field = _fields_diff(a.values, b.values)
        if lines_by_field:
            words = f"the states differ in {_names(lines_by_field)}"
            yield Difference("state", seqs=seqs, what=words, lines=_flat(lines_by_field))


class _Pair:
    """The same step of both runs."""

    def __init__(self, place: _Place, one: _Read, other: _Read) -> None:
        self.place, self.reads = place, (one, other)
        self.rows = one.steps.get(place), other.steps.get(place)

    def differences(self) -> Iterator[Difference]:
        """How the runs differ in this step."""
        one, other = self.rows
        if (other is None and self.reads[1].cut) or (one is None and self.reads[0].cut):
            return
        if one is None or other is None:
            there = one or other
            assert there is not None
            which = "second" if one is None else "first"
            seqs = (None, there.began) if one is None else (there.began, None)
            yield self._of("step", seqs, f"only the {which} run came here")
            return
        if one.status == other.status == "dropped":
            return  # how far it came before it was stopped is a matter of time
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
            if mine is None or theirs is None or _asked(mine) != _asked(theirs):
                yield self._request(mine[0] if mine else None, theirs[0] if theirs else None)
            else:
                yield from self._result(mine[0], theirs[0])

    def _made(self, row: TimelineRow, beside: TimelineRow, which: int) -> list[_Numbered]:
        """The calls of a step, each with the number of its attempt among those that count.

        Of an attempt that was set aside it has those that hold for the later ones, if the other run has them, too:
        whether a later attempt asked for them the journal does not say.
        """
        read, other = self.reads[which], self.reads[1 - which]
        made = [(call, read.number_of(call)) for call in row.calls]
        there = {_asked((call, other.number_of(call))) for call in beside.calls}
        return [one for one in made if not read.keeps(one[0]) or _asked(one) in there]

    def _request(self, mine: JournaledCall | None, theirs: JournaledCall | None) -> Difference:
        both = mine, theirs
        lines = [
            [] if call is None else request_lines(call.intended, read.messages)
            for call, read in zip(both, self.reads, strict=True)
        ]
        names = [None if call is None else f"{call.intended.kind} {told(call.intended.name, 80)}" for call in both]
        if names[0] is None or names[1] is None:
            what = f"only the {'second' if mine is None else 'first'} run called {names[0] or names[1]}"
        elif names[0] == names[1]:
            what = f"the request to {names[0]} differs"
        else:
            what = f"the first run called {names[0]}, the second one {names[1]}"
        seqs = tuple(None if call is None else call.intended.seq for call in both)
        return self._of("request", (seqs[0], seqs[1]), what, line_diff(*lines))

    def _result(self, mine: JournaledCall, theirs: JournaledCall) -> Iterator[Difference]:
        results = [_result_of(call) for call in (mine, theirs)]
        if results[0] == results[1] or any(_was_cut_off(call) for call in (mine, theirs)):
            return
        name = f"{mine.intended.kind} {told(mine.intended.name, 80)}"
        seqs = [call.intended.seq if call.settled is None else call.settled.seq for call in (mine, theirs)]
        lines = line_diff(*(value_lines(one) for one in results))
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
                lines = line_diff(value_lines(shown), value_lines(beside))
                yield self._of("question", seqs, "it asked something else", lines)
            given, taken = _answer(mine), _answer(theirs)
            if given != taken:
                words = f"the answers are {_said(given)} and {_said(taken)}"
                yield self._of("answer", (mine.answered or mine.seq, theirs.answered or theirs.seq), words)

    def _own_questions(self, which: int) -> list[AskedQuestion]:
        """The questions of the step that its graph asks.

        Not those that were asked again, those about calls of unknown outcome, and those inside a call whose result the
        other run, a replay, has without making it. A replay is not asked what a fork is about calls of its family.
        """
        row, beside = self.rows[which], self.rows[1 - which]
        assert row is not None
        assert beside is not None
        read, other = self.reads[which], self.reads[1 - which]
        taken = {_asked((call, other.number_of(call))) for call in beside.calls if call.intended.taken is not None}
        spans = [
            (call.intended.seq, call.settled.seq)
            for call in row.calls
            if call.settled is not None
            and call.intended.taken is None
            and _asked((call, read.number_of(call))) in taken
        ]
        return [
            one
            for one in row.asked
            if one.question.kind != "unknown_outcome"
            and one.question.id not in read.discards.withdrawn
            and not (read.counted and FAMILY in one.question.payload)
            and not any(begun < one.seq < ended for begun, ended in spans)
        ]

    def _attempts(self, one: TimelineRow, other: TimelineRow) -> Iterator[Difference]:
        for mine, theirs in zip_longest(one.failures, other.failures):
            if mine is not None and theirs is not None and _failure(mine.error) == _failure(theirs.error):
                continue
            words = [
                "went well" if failed is None else f"failed ({_failure(failed.error)}) and was tried again"
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
        faults = _failure(one.error), _failure(other.error)
        if faults[0] != faults[1]:
            yield self._of("error", seqs, f"the errors are {faults[0] or 'none'} and {faults[1] or 'none'}")
        if (one.update, one.ops) != (other.update, other.ops):
            lines = _fields_diff(one.update, other.update)
            if not lines:  # the same values, merged otherwise
                lines = _fields_diff(one.ops, other.ops)
            yield self._of("update", seqs, f"the updates differ in {_names(lines)}", _flat(lines))


def _paired(
    one: Sequence[_Numbered], other: Sequence[_Numbered]
) -> Iterator[tuple[_Numbered | None, _Numbered | None]]:
    """Calls with the same request side by side, in the order of the first run; the others by kind, in their order."""
    same: dict[object, deque[int]] = {}
    for number, made in enumerate(other):
        same.setdefault(_asked(made), deque()).append(number)
    beside = [numbers.popleft() if (numbers := same.get(_asked(made))) else None for made in one]
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


def _asked(call: _Numbered) -> tuple[str, str, str, int]:
    intended = call[0].intended
    return intended.kind, intended.name, intended.digest, call[1]


def _result_of(call: JournaledCall) -> object:
    """What a call gave, without the ids of runs and of instances that differ each time."""
    settled = call.settled
    if settled is None or call.running:
        return "no result yet"
    if settled.error is not None:
        return _failure(settled.error)
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


def _was_cut_off(call: JournaledCall) -> bool:
    error = None if call.settled is None else call.settled.error
    return error is not None and error.type in _CUT_OFF


def _question(asked: AskedQuestion) -> dict[str, object]:
    question = asked.question
    payload = {key: value for key, value in question.payload.items() if key not in OWN}
    prompt = "" if question.kind == "timer" else question.prompt  # it has the time
    choices = list(question.choices)
    return {
        "kind": question.kind, "prompt": prompt, "payload": payload, "choices": choices, "schema": question.schema_,
    }  # fmt: skip


def _answer(asked: AskedQuestion) -> object:
    return None if asked.answer is None else asked.answer.model_dump(mode="json")


def _said(answer: object) -> str:
    return "none yet" if answer is None else short(answer)


def _failure(error: Failure | None) -> str:
    return "" if error is None else told(str(error), 400)


def _fields_diff(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Field -> the lines in which its values differ."""
    found: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys((*one, *other)):
        a, b = (side.get(name) for side in (one, other))
        if a != b or (name in one) != (name in other):
            found[name] = line_diff(
                value_lines({name: a} if name in one else {}), value_lines({name: b} if name in other else {})
            )
    return found


def _names(fields: Mapping[str, object]) -> str:
    return ", ".join(told(name, 80) for name in fields) or "how they are merged"


def _flat(fields: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    found = [line for name, lines in fields.items() for line in (f"{told(name, 80)}:", *lines)]
    return tuple(found[:MOST]) if len(found) <= MOST else (*found[:MOST], f"… {len(found) - MOST} more lines")
