"""The differences of one step that two runs have in common: its calls, questions, attempts and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from orchestrator.kernel.question import OWN_PARTS, in_family, parts_of
from orchestrator.views.call_text import line_diff, request_lines, short, value_lines
from orchestrator.views.calls import JournaledCall
from orchestrator.views.compared_run import ComparedRun, NumberedCall, Place, request_of, was_cut_off
from orchestrator.views.field_diff import changed_fields, failure_text, fields_diff, flat, names_of
from orchestrator.views.run_diff import Difference, DifferenceKind
from orchestrator.views.safe_text import told
from orchestrator.views.timeline import AskedQuestion, TimelineRow


class StepPair:
    """The same step of both runs.

    Args:
        place: the step.
        one: a run.
        other: another run.
        texts: whether differences have their lines.
    """

    def __init__(self, place: Place, one: ComparedRun, other: ComparedRun, *, texts: bool = True) -> None:
        self.place, self.reads, self._texts = place, (one, other), texts
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
            if mine is None or theirs is None or request_of(mine) != request_of(theirs):
                yield self._request(mine[0] if mine else None, theirs[0] if theirs else None)
            else:
                yield from self._result(mine[0], theirs[0])

    def _made(self, row: TimelineRow, beside: TimelineRow, which: int) -> list[NumberedCall]:
        """The calls of a step, each with the number of its attempt among those that count.

        Of an attempt that was set aside it has those that hold for the later ones, if the other run has them, too:
        whether a later attempt asked for them the journal does not say.
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
            [] if call is None else request_lines(call.intended, read.messages)
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
        """The questions of the step that its graph asks.

        Not those that were asked again, those about calls of unknown outcome, and those inside a call whose result the
        other run, a replay, has without making it. A replay is not asked what a fork is about calls of its family.
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
            and one.question.id not in read.discards.withdrawn
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
            if not changed_fields(a, b):  # the same values, merged otherwise
                a, b = one.ops, other.ops
            lines = flat(fields_diff(a, b)) if self._texts else ()
            yield self._of("update", seqs, f"the updates differ in {names_of(changed_fields(a, b))}", lines)


def _paired(
    one: Sequence[NumberedCall], other: Sequence[NumberedCall]
) -> Iterator[tuple[NumberedCall | None, NumberedCall | None]]:
    """Calls with the same request side by side, in the order of the first run; the others by kind, in their order."""
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
    """What a call gave, without the ids of runs and of instances that differ each time."""
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
    prompt = "" if question.kind == "timer" else question.prompt  # it has the time
    choices = list(question.choices)
    return {
        "kind": question.kind, "prompt": prompt, "payload": payload, "choices": choices, "schema": question.schema_,
    }  # fmt: skip


def _answer(asked: AskedQuestion) -> object:
    return None if asked.answer is None else asked.answer.model_dump(mode="json")


def _said(answer: object) -> str:
    return "none yet" if answer is None else short(answer)
