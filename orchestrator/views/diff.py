"""Compares two runs, step by step: a pure function of their records.

A step is compared with the step of the other run that has the same branch, the same node and the same number among the
node's steps in that branch. So the order in which branches ran makes no difference, and runs of different versions of a
graph, or of different graphs, can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest

from orchestrator.kernel.records import Record
from orchestrator.views.call_text import line_diff, short, value_lines
from orchestrator.views.compared_run import ComparedRun, Place
from orchestrator.views.field_diff import MOST, failure_text, fields_diff, flat, names_of
from orchestrator.views.run import Run
from orchestrator.views.run_diff import Difference, RunDiff, RunFigures
from orchestrator.views.step_diff import StepPair

_FINISHED = ("completed", "exhausted")
"""How runs end whose state is a result. That of a run that was stopped depends on which of its branches was faster."""


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
    structure = (run_a if _is_replay(run_a, run_b) else run_b).machine.structure if counted else ""
    one = ComparedRun.of(run_a, records_a, counted=counted, structure=structure)
    beside = one if run_a.root_id == run_b.root_id else None
    found = _differences(one, ComparedRun.of(run_b, records_b, beside, counted=counted, structure=structure))
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


def _differences(one: ComparedRun, other: ComparedRun) -> Iterator[Difference]:
    yield from _starts(one, other)
    for place in _in_order([*one.steps], [*other.steps]):
        yield from StepPair(place, one, other).differences()
    if not one.cut and not other.cut:
        yield from _ends(one, other)


def _in_order(one: Sequence[Place], other: Sequence[Place]) -> Iterator[Place]:
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


def _starts(one: ComparedRun, other: ComparedRun) -> Iterator[Difference]:
    """Differences of the states that the runs began with, and of what was set from outside."""
    a, b = one.start, other.start
    if a is not None and b is not None:
        lines = fields_diff(a, b)
        if lines:
            yield Difference(
                "state", seqs=(1, 1), what=f"they began with other values of {names_of(lines)}", lines=flat(lines)
            )
    for mine, theirs in zip_longest(one.set_from_outside(), other.set_from_outside()):
        before, after = (mine or (None, {})), (theirs or (None, {}))
        lines = fields_diff(before[1], after[1])
        if lines:
            words = f"values were set from outside: {names_of(lines)}"
            yield Difference("state", seqs=(before[0], after[0]), what=words, lines=flat(lines))


def _ends(one: ComparedRun, other: ComparedRun) -> Iterator[Difference]:
    a, b = one.run, other.run
    seqs = (a.seq, b.seq)
    if a.status != b.status:
        yield Difference("status", seqs=seqs, what=f"the first run is {a.status}, the second one {b.status}")
    elif a.status in ("failed", "interrupted") and failure_text(a.error) != failure_text(b.error):
        words = f"they failed otherwise: {failure_text(a.error)} and {failure_text(b.error)}"
        yield Difference("error", seqs=seqs, what=words)
    if a.output != b.output:
        lines = line_diff(value_lines(a.output), value_lines(b.output))
        words = f"the outputs are {short(a.output, 80)} and {short(b.output, 80)}"
        yield Difference("output", seqs=seqs, what=words, lines=lines)
    elif a.status == b.status and a.status in _FINISHED and a.output is None:
        lines_by_field = fields_diff(a.values, b.values)
        if lines_by_field:
            words = f"the states differ in {names_of(lines_by_field)}"
            yield Difference("state", seqs=seqs, what=words, lines=flat(lines_by_field))
