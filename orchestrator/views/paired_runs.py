"""Two runs side by side: their steps in one order, and how they differ before, in and after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from orchestrator.kernel.records import Record
from orchestrator.views.call_text import line_diff, short, value_lines
from orchestrator.views.compared_run import ComparedRun, Place
from orchestrator.views.field_diff import changed_fields, failure_text, fields_diff, flat, names_of
from orchestrator.views.run import Run
from orchestrator.views.run_diff import Difference
from orchestrator.views.step_diff import StepPair

_FINISHED = ("completed", "exhausted")
"""How runs end whose state is a result. That of a run that was stopped depends on which of its branches was faster."""


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """Two runs, read to be compared.

    `texts` of its methods: whether differences have their lines. Without them a comparison takes a fraction of the
    time, because no two texts are compared line by line.
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
        structure = (run_a if _is_replay(run_a, run_b) else run_b).machine.structure if counted else ""
        one = ComparedRun.of(run_a, records_a, counted=counted, structure=structure)
        beside = one if run_a.root_id == run_b.root_id else None
        return cls(one, ComparedRun.of(run_b, records_b, beside, counted=counted, structure=structure))

    def places(self) -> list[Place]:
        """The steps of both, in the order of the first run."""
        return [*in_order([*self.one.steps], [*self.other.steps])]

    def differences(self) -> Iterator[Difference]:
        """All differences, in their order, with their lines."""
        yield from self.starts()
        for place in self.places():
            yield from self.step(place)
        yield from self.ends()

    def starts(self, *, texts: bool = True) -> Iterator[Difference]:
        """Differences of the states that the runs began with, and of what was set from outside."""
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
        """Differences of one step."""
        return StepPair(place, self.one, self.other, texts=texts).differences()

    def ends(self, *, texts: bool = True) -> Iterator[Difference]:
        """Differences of how the runs ended."""
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
            words = f"the outputs are {short(a.output, 80)} and {short(b.output, 80)}"
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
    """All places in the order of the first sequence; those of the second only where that came to them."""
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
    """Whether a run is a replay of the other one: then that counts as it went in the end, if it was reopened."""
    fork = run.machine.fork
    return fork is not None and fork.relation == "replay" and fork.parent == other.run_id
