"""The steps of a run, as `Executor.history` returns them."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.graph.state import StateSchema
from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.merge import step_version
from orchestrator.kernel.migration import plan_at
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Failure, Migrated, Record, StepDone, StepFailed
from orchestrator.kernel.run_state import RunState
from orchestrator.views.overlay import place_of
from orchestrator.views.step_work import AskTracker, Unasked, asked_at

_EVERY = 1000
"""Records between two kept copies of the run's state: an earlier step is reached by a short fold from a copy."""


@dataclass(frozen=True)
class Point:
    """A step of a run's history: a checkpoint that a fork can begin from."""

    seq: int
    ts: float
    path: str
    node: str
    outcome: str | None
    """None: the step failed, and its graph with it."""
    update: Mapping[str, object]
    attempt: int
    started: float
    ended: float
    error: Failure | None
    failed: int
    """Tool calls that failed or could not be made in a step that ended with an outcome nevertheless."""
    guards: Mapping[str, bool | str]
    """For a `Route`: outcome -> True if its guard was true, or why that is unknown."""
    cached: bool
    """True if outcome and update are those of an earlier step, from the cache."""
    unasked: Unasked
    """Name of a step that ended without asking what its kind asks: `passed` or `no call`."""
    _cursor: StateReader

    @property
    def values(self) -> dict[str, Any]:
        """The state of the acting branch after the step, as plain JSON.

        It is folded from the records when it is read. Reading the points in order folds each record once.
        """
        return self._cursor.values(self.seq)

    def to_json(self) -> dict[str, Any]:
        """The step as plain JSON, without the state."""
        return {
            "seq": self.seq,
            "path": self.path,
            "node": self.node,
            "outcome": self.outcome,
            "update": dict(self.update),
            "started": self.started,
            "ended": self.ended,
            **({"guards": dict(self.guards)} if self.guards else {}),
            **({"cached": True} if self.cached else {}),
            **({"unasked": self.unasked} if self.unasked else {}),
        }


class StateReader(Protocol):
    """Gives states of a run."""

    def values(self, seq: int) -> dict[str, Any]:
        """The state of the acting branch after the step that a record ended, as plain JSON."""
        ...


class StateCursor:
    """The state of a run at any of its records: it moves by folding, and starts over from copies."""

    def __init__(self, plan: Plan, records: Sequence[Record]) -> None:
        self._records = records
        self._machine = RunState(plan)
        self._kept = {0: self._machine.copy()}
        self._lock = threading.Lock()
        self._reopened = max((record.seq for record in records if record.type == "reopened"), default=0)

    def values(self, seq: int) -> dict[str, Any]:
        """The state of the acting branch after the step that a record ended, as plain JSON."""
        with self._lock:
            self._go_to(seq - 1)
            record = self._records[seq - 1]
            key = getattr(record, "activation", "")
            activation = self._machine.running.get(key)
            if activation is None and seq < self._reopened:  # it landed after it was stopped, and counts
                activation = self._machine.stopped.get(key)
            if activation is None:
                return {}
            schema: StateSchema = activation.frame.plan.schema
            values: Mapping[str, object] = activation.values
            if isinstance(record, StepDone) and (record.update or record.reduced):
                values = step_version(activation, record.update, record.ops, record.reduced).values
            return dict(schema.dump(values))

    def _go_to(self, seq: int) -> None:
        if self._machine.head > seq:
            kept = sorted(self._kept)
            self._machine = self._kept[kept[bisect_right(kept, seq) - 1]].copy()
        while self._machine.head < seq:
            apply_stored(self._machine, self._records[self._machine.head])
            head = self._machine.head
            if head % _EVERY == 0 and head not in self._kept:
                self._kept[head] = self._machine.copy()


class LateCursor:
    """The same, of a run whose records are read when a state is first asked for.

    Args:
        make: makes the cursor of all records; it may block.
    """

    def __init__(self, make: Callable[[], StateCursor]) -> None:
        self._make, self._made = make, list[StateCursor]()
        self._lock = threading.Lock()

    def values(self, seq: int) -> dict[str, Any]:
        """See `StateCursor.values`."""
        with self._lock:
            if not self._made:
                self._made.append(self._make())
        return self._made[0].values(seq)


class StepFold:
    """Makes the steps of a run from its records, which may come part by part.

    Args:
        plan: of the graph that the run began in; its code is not needed.

    Attributes:
        later: content digest -> plan of each graph that the records migrate the run to.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._ask_tracker = plan, AskTracker()
        self.later = dict(plan.later)

    def take(self, records: Iterable[Record], cursor: StateReader) -> list[Point]:
        """The steps that further records ended, with what gives the states after them."""
        ask_tracker, found = self._ask_tracker, list[Point]()
        for record in records:
            ask_tracker.note(record)
            if isinstance(record, Migrated):
                self._plan = self.later.get(record.content, self._plan)
            if isinstance(record, StepDone | StepFailed):
                asks = asked_at(plan_at(self._plan, place_of(record.path)), record.node)
                found.append(_point(record, cursor, ask_tracker.unasked(record.activation, asks)))
        return found


def points(plan: Plan, records: Sequence[Record]) -> list[Point]:
    """The steps of a run.

    Args:
        plan: of the run's graph; its code is not needed.
        records: the run's records from its first one.
    """
    return StepFold(plan).take(records, StateCursor(plan, records))


def _point(record: StepDone | StepFailed, cursor: StateReader, called: Unasked) -> Point:
    done = record if isinstance(record, StepDone) else None
    return Point(
        seq=record.seq,
        ts=record.ts,
        path=record.path,
        node=record.node,
        outcome=None if done is None else done.outcome,
        update={} if done is None else done.update,
        attempt=record.attempt,
        started=record.started,
        ended=record.ended,
        error=record.error,
        failed=0 if done is None else done.failed,
        guards={} if done is None else done.guards,
        cached=done is not None and done.cached,
        unasked="" if done is None else called,
        _cursor=cursor,
    )
