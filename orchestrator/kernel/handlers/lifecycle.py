"""Records about the run as a whole: its beginning, its changes, its end."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.errors import StoreCorrupt
from orchestrator.kernel import admission, breakpoints, migration
from orchestrator.kernel import records as r
from orchestrator.kernel.endings import finish, set_aside
from orchestrator.kernel.frame import new_frame
from orchestrator.kernel.handlers.steps import begin
from orchestrator.kernel.ids import hash_id
from orchestrator.kernel.reopening import reopen
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import FrameResult
from orchestrator.kernel.version import Version


def run_started(run: RunState, record: r.RunStarted) -> None:
    """Begin the run's graph."""
    run.started, run.approve, run.content = record, record.approve, record.content
    run.tools, run.lineage = record.tools, ((record.structure, record.content),)
    key = hash_id(record.run_id)
    run.root = new_frame(run, run.plan, key, Version(run.plan.schema.decode(record.values), key=key))
    if record.limits is not None:
        run.root.limits = record.limits
    if record.pause_before or record.pause_after:
        breakpoints.change(run, record.pause_before, record.pause_after)
    begin(run, run.root)


def cancelled(run: RunState, record: r.Cancelled) -> None:
    """End the run's graph at once."""
    if run.root is not None and run.result is None:
        run.cancelled = True
        finish(run, run.root, FrameResult("cancelled", run.root.trunk.values))


def limits_changed(run: RunState, record: r.LimitsChanged) -> None:
    """Change the limits of the run's graph."""
    if run.root is not None:
        run.root.limits = record.limits
        admission.mark(run, run.root)


def reopened(run: RunState, record: r.Reopened) -> None:
    """Have the ended run go on where it was (R13)."""
    reopen(run, record.limits)


def migrated(run: RunState, record: r.Migrated) -> None:
    """Continue in another version of the graph.

    Raises:
        StoreCorrupt: the graph of that version is missing.
    """
    plan = run.later.get(record.content)
    if plan is None:
        raise StoreCorrupt(run.run_id, record.seq, f"the graph {record.content!r} that it migrates to is missing")
    migration.migrate(run, record, plan)


def ended(run: RunState, record: r.Ended) -> None:
    """Note the end."""
    run.ended = record
    if run.root is not None and run.result is None:
        if record.status == "exhausted":  # its limit is higher in the graph that it is folded in now
            run.root.before_limit = set_aside(run, run.root)
        finish(run, run.root, FrameResult(record.status, run.root.trunk.values, record.error))
    if run.root is not None and run.root.result is not None and record.reduced:
        values = {**run.root.result.values, **run.plan.schema.decode(record.reduced)}
        run.root.result = replace(run.root.result, values=values)
    run.questions.clear()
    run.asked.clear()
