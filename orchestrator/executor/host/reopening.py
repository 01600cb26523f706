"""Going on with a run that has ended: the record `reopened`, and what refuses it."""

from __future__ import annotations

from orchestrator.clock import Clock
from orchestrator.errors import RunConflict, RunEnded
from orchestrator.executor.host.manner import Manner
from orchestrator.executor.run_log import RunLog
from orchestrator.graph.limits import Limits
from orchestrator.kernel.machine import apply_stored
from orchestrator.kernel.queries import spent_limit
from orchestrator.kernel.records import FINAL, LimitsChanged, Reopened
from orchestrator.kernel.reopening import can_reopen
from orchestrator.kernel.run_state import RunState
from orchestrator.stores.base import RunInfo

_FLAGS = {"steps": "--max-steps", "seconds": "--max-seconds"}


class Reopening:
    """Reopens one run, in each machine that it is folded into.

    Args:
        clock: stamps the record.
        info: the run's row, as the caller has seen it.
        how: how it is taken up.
    """

    def __init__(self, clock: Clock, info: RunInfo, how: Manner) -> None:
        self._clock, self._head, self._how = clock, info.head, how
        self.record: Reopened | None = None
        """The record to journal; None: the run had not ended."""

    def apply(self, machine: RunState) -> RunState:
        """Reopen a run that is folded up to its last record, and return it.

        Raises:
            RunEnded: it is completed, or the limit that ended it is still spent.
            RunConflict: another executor has moved it.
        """
        if self.record is None and machine.ended is None:
            return machine
        if self.record is None:
            if machine.head != self._head:
                raise RunConflict(machine.run_id, "another executor has gone on with it")
            self.record = self._record(machine)
        apply_stored(machine, self.record)
        return machine

    def _record(self, machine: RunState) -> Reopened:
        root, ended = machine.root, machine.ended
        if root is None or ended is None or ended.status == "completed" or not can_reopen(machine):
            raise RunEnded(machine.run_id, machine.status)
        if root.result is not None and root.result.status == "exhausted" and root.before_limit is None:
            why = "its branches were merged in an earlier version of its graph: fork it at a record before that"
            raise RunEnded(machine.run_id, machine.status, why)
        limits = root.limits.changed(self._how.limits)
        spent = spent_limit(machine, limits) if ended.status == "exhausted" else None
        if spent is not None:
            raise RunEnded(machine.run_id, machine.status, *_still_spent(*spent))
        return Reopened(
            seq=machine.head + 1,
            ts=self._clock.now(),
            by=self._how.by,
            reason=self._how.reason,
            status=ended.status,
            # Explicit where a limit was spent: the graph's own may have been raised, and old journals do not know it.
            limits=limits if self._how.limits is not None or ended.status == "exhausted" else None,
        )


def _still_spent(name: str, most: float, used: float, node: str) -> tuple[str, str]:
    """Which limit is to be raised: by an argument, and by an option."""
    more = max(2 * most, used + 1)
    given = f"visits={{{node!r}: {more:g}}}" if name == "visits" else f"{name}={more:g}"
    of = f" of node {node!r}" if node else ""
    spent = f"{name}={most:g}{of} are spent ({used:g} used): raise that limit, "
    call = f"limits=Limits({given})"
    option = f"{_FLAGS[name]} {more:g}" if name in _FLAGS else f"which no option does: in Python, {call}"
    return f"{spent}{call}{f', or {option}' if name in _FLAGS else ''}", f"{spent}{option}"


def reopening_of(clock: Clock, info: RunInfo, how: Manner) -> Reopening | None:
    """How a run is reopened that has ended; None if it has not ended.

    Raises:
        RunEnded: it is completed, or not to be reopened.
    """
    if info.status not in FINAL:
        return None
    if info.status == "completed" or not how.retry:
        raise RunEnded(info.run_id, info.status)
    return Reopening(clock, info, how)


def begin(log: RunLog, reopening: Reopening | None, how: Manner) -> None:
    """Journal that a run was reopened, or has other limits, at the beginning of a drive."""
    if reopening is not None and reopening.record is not None:
        log.reopen(reopening.record)
    else:
        change_limits(log, how.limits)


def change_limits(log: RunLog, changes: Limits | None) -> None:
    """Journal other limits of a run that goes on; its fields that `changes` does not set explicitly stay."""
    root = log.machine.root
    limits = None if root is None else root.limits.changed(changes)
    if root is not None and limits is not None and limits != root.limits and log.machine.ended is None:
        log.push(LimitsChanged(**log.now(), limits=limits))
