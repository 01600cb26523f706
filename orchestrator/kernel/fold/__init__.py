"""The fold: the state of a run after the records so far.

`fold(run, record)` is pure: it returns a new state and leaves the old one unchanged. `apply` changes a state in place
and returns what started and what must stop; an executor owns one state per run and applies each record that it
journals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.errors import OrchestratorError, StoreCorrupt
from orchestrator.kernel.admission import admit
from orchestrator.kernel.fold import effects, lifecycle, questions, steps
from orchestrator.kernel.records import Record
from orchestrator.kernel.run_state import Delta, RunState

_HANDLERS: Mapping[str, Callable[[RunState, Any], None]] = {
    "run_started": lifecycle.run_started,
    "step_done": steps.step_done,
    "step_failed": steps.step_failed,
    "step_retried": steps.step_retried,
    "graph_opened": steps.graph_opened,
    "timer_set": questions.timer_set,
    "timer_fired": questions.timer_fired,
    "limit_spent": steps.limit_spent,
    "effect_intended": effects.effect_intended,
    "effect_settled": effects.effect_settled,
    "spent": effects.spent,
    "asked": questions.asked,
    "answered": questions.answered,
    "event_received": questions.event_received,
    "answers_withdrawn": questions.answers_withdrawn,
    "paused": questions.paused,
    "resumed": questions.resumed,
    "cancelled": lifecycle.cancelled,
    "diverged": lifecycle.diverged,
    "limits_changed": lifecycle.limits_changed,
    "forked": lifecycle.forked,
    "migrated": lifecycle.migrated,
    "ended": lifecycle.ended,
    "reopened": lifecycle.reopened,
}
"""Record type -> its handler. Types without a handler change only the head and the clock."""

_AFTER_A_GAP = frozenset({"resumed", "forked", "migrated", "reopened"})
"""Types of records that start a drive: the time before them does not count as time alive."""


def apply(run: RunState, record: Record) -> Delta:
    """Fold one record into a run's state, in place.

    Raises:
        StoreCorrupt: the record does not follow the ones before it; nothing was changed.
    """
    kind, seq, ts = record.type, record.seq, record.ts
    if seq != run.head + 1:
        raise StoreCorrupt(run.run_id, seq, f"it follows record {run.head}")
    if (run.root is None) != (kind == "run_started"):
        raise StoreCorrupt(run.run_id, seq, f"only the first record of a journal is run_started, but this is {kind}")
    for observer in run.observers:
        observer.applying(record)
    delta = run.delta = Delta()
    if run.was_running and ts > run.updated and kind not in _AFTER_A_GAP:
        run.seconds += ts - run.updated
    run.head, run.updated = seq, ts
    if kind == "step_done" and steps.go_straight(run, record):  # type: ignore[arg-type]  # told by its type
        return delta
    if run.lone is not None:
        run.lone.end()
        run.lone = None
    handler = _HANDLERS.get(kind)
    if handler is not None:
        handler(run, record)
    if run.ready_frames or run.exhausting_frames or run.lines:
        admit(run)
    if delta.started:
        run.totals.begin(delta.started, run.running, run.seconds)
    run.was_running = bool(run.running)
    return delta


def fold(run: RunState, record: Record) -> RunState:
    """Return the state after one more record, leaving the given state unchanged.

    Raises:
        StoreCorrupt: the record does not follow the ones before it.
    """
    following = run.copy()
    apply(following, record)
    return following


_MISFITS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def apply_stored(run: RunState, record: Record) -> Delta:
    """Fold a record that was read from a store, where any program may have written it.

    Raises:
        StoreCorrupt: the record does not fit the run, so no executor wrote it.
    """
    try:
        return apply(run, record)
    except OrchestratorError:
        raise
    except _MISFITS as error:
        why = f"it does not fit the run: {type(error).__name__}: {str(error)[:200]}"
        raise StoreCorrupt(run.run_id, record.seq, why) from error
