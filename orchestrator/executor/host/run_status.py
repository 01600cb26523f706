"""The status of a run as a reader sees it: what the journal says, and whether a process drives it.

A run that is running in its journal and that no process drives is `interrupted`: its holder died, or was cancelled. It
is `running` if it only waits to be taken up: it was enqueued, or its answer or event came while no process drove it.
Its row then says from when on it may be taken up (`RunInfo.due`); while a process drives a run, the row says nothing.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.executor.clock import DriveClock
from orchestrator.executor.lease import is_held
from orchestrator.kernel.run_state import RunState
from orchestrator.stores.base import RunInfo


def waits_to_be_taken_up(info: RunInfo) -> bool:
    """Whether a run is to go on as soon as an executor takes it up, and none has done so since that was decided."""
    return info.status == "running" and info.due is not None


def due_of_given_back(clock: DriveClock, before: RunInfo, machine: RunState) -> float | None:
    """`RunInfo.due` of a run to which something was journaled without driving it.

    If that set it going, it is due at once; an interrupted run stays interrupted.

    Args:
        clock: the time of this process' work on the run.
        before: the row before that.
    """
    if machine.status != "running":
        return clock.first_due(machine)
    return before.due if before.status == "running" else clock.now()


def is_interrupted(info: RunInfo) -> bool:
    """Whether a run was running, and no living process holds its lease: the one that was read with the row."""
    return info.status == "running" and info.due is None and not is_held(info.lease)


def with_status(info: RunInfo) -> RunInfo:
    """The row of a run, with the status `interrupted` where the run is."""
    return replace(info, status="interrupted") if is_interrupted(info) else info
