"""Compares two runs, step by step: a pure function of their records.

A step is compared with the step of the other run that has the same branch, the same node and the same number among the
node's steps in that branch. So the order in which branches ran makes no difference, and runs of different versions of a
graph, or of different graphs, can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from orchestrator.kernel.records import Record
from orchestrator.views.field_diff import MOST
from orchestrator.views.paired_runs import PairedRuns
from orchestrator.views.run import Run
from orchestrator.views.run_diff import RunDiff, figures_of


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
    found = PairedRuns.of(run_a, records_a, run_b, records_b).differences()
    kept = tuple(islice(found, MOST))
    more = next(found, None) is not None
    return RunDiff((figures_of(run_a), figures_of(run_b)), kept, more, (run_a, run_b))
