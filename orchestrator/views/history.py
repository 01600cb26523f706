"""The steps of a run, as `Executor.history` returns them."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from orchestrator.graph.isolation import SharedList, listed
from orchestrator.graph.state import StateSchema
from orchestrator.json import JsonObject
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.merge import values_after
from orchestrator.kernel.migration import plan_at
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Failure, Migrated, Record, StepDone, StepFailed
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.state import Activation
from orchestrator.kernel.version import Version
from orchestrator.views.overlay import place_of
from orchestrator.views.reader import Fold, read
from orchestrator.views.step_work import AskTracker, Unasked, asked_at

_EVERY = 1000
"""Records between cached copies of the run's state: an earlier step is reached by a short fold from a copy."""


@dataclass(frozen=True)
class Point:
    """A step of a run's history: a checkpoint from which a fork can start."""

    seq: int
    ts: float
    path: str
    node: str
    outcome: str | None
    """None if the step failed, and its graph with it."""
    update: Mapping[str, object]
    attempt: int
    started: float
    ended: float
    error: Failure | None
    failed: int
    """Number of tool calls that failed or could not be made in a step that ended with an outcome."""
    guards: Mapping[str, bool | str]
    """For a `Route`: outcome -> True if its guard was true, or why that is unknown."""
    cached: bool
    """True if outcome and update come from an earlier step, from the cache."""
    unasked: Unasked
    """Marks a step that ended without asking what its kind asks: `passed` or `no call`."""
    _cursor: StateReader

    @property
    def values(self) -> dict[str, Any]:
        """The state of the acting branch after the step, as plain JSON.

        The records are folded when it is read. Reading the points in order folds each record once.
        """
        return self._cursor.values(self.seq)

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain JSON, without the state."""
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
    """Reads states of a run."""

    def values(self, seq: int) -> dict[str, Any]:
        """Return the state of the acting branch after the step that a record ended, as plain JSON."""
        ...


class StateCursor:
    """The state of a run at any of its records: it moves by folding, and restarts from copies."""

    def __init__(self, plan: Plan, records: Sequence[Record]) -> None:
        self._records = records
        self._machine = RunState(plan)
        self._kept = {0: self._machine.copy()}
        self._lock = threading.Lock()
        self._reopened = max((record.seq for record in records if record.type == "reopened"), default=0)

    def values(self, seq: int) -> dict[str, Any]:
        """Return the state of the acting branch after the step that a record ended, as plain JSON."""
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
                values = values_after(activation, record.update, record.ops, record.reduced)
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
    """A state cursor of a run whose records are read when a state is first requested.

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
    """Makes the steps of a run from its records, which may arrive in parts.

    Args:
        plan: the plan of the run's first graph; its code is not needed.

    Attributes:
        later: content digest -> plan of each graph to which the records migrate the run.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._ask_tracker = plan, AskTracker()
        self.later = dict(plan.later)

    def take(self, records: Iterable[Record], cursor: StateReader) -> list[Point]:
        """Return the steps that further records ended, with a source of the states after them."""
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
    """Return the steps of a run.

    Args:
        plan: the plan of the run's graph; its code is not needed.
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


Patch: TypeAlias = dict[str, list[object]]


@dataclass(slots=True)
class StateDelta:
    """The state before and after a step, as changes from other states."""

    base: str | int
    """The activation whose final state is this one's initial state, or the number of a full state."""
    merged: Patch = field(default_factory=dict)
    """Values that a join added to the base."""
    patch: Patch = field(default_factory=dict)
    """Values that the step changed."""


def states(plan: Plan, records: Iterable[r.Record]) -> States:
    """Return the states of all steps of a run.

    Args:
        plan: the plan of the run's graph; its code is not needed.
        records: the run's records from its first one.
    """
    found = States()
    read(plan, records, found)
    return found


class States(Fold):
    """All states of a run.

    Attributes:
        whole: Full states: the initial states of graphs.
        steps: Activation -> its state.
    """

    def __init__(self) -> None:
        self.whole: list[JsonObject] = []
        self.steps: dict[str, StateDelta] = {}
        self._made: dict[str, str | int] = {}
        """Key of a version -> the activation, or number of a full state, with this state."""
        self._merges: dict[str, tuple[str | int, Patch]] = {}

    def applying(self, record: r.Record) -> None:
        """See `Observer.applying`."""
        ended = self.run.running.get(record.activation) if isinstance(record, r.StepDone | r.StepFailed) else None
        if ended is not None:
            self._end(ended, record) if isinstance(record, r.StepDone) else self.before(ended)

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`. A fork, or a migration, changes values in versions with the same keys as before."""
        if isinstance(record, r.Migrated):
            self._restart()
        if not isinstance(record, r.Forked) or not record.update:
            return
        for token in self.run.live_tokens():
            self._merges.pop(token.version.key, None)
            self._made[token.version.key] = self._whole(token.frame.plan.schema, token.version)

    def _restart(self) -> None:
        """Separate later states from the present ones, which may have the same keys."""
        self._made.clear()
        self._merges.clear()
        for frame in self.run.frames():
            versions = [*frame.ended_versions, frame.root]
            for token in frame.live.values():
                versions += [token.version, *(one for fork in token.forks for one in (fork.version, fork.trunk))]
            for version in versions:
                if version.key not in self._made:
                    self._made[version.key] = self._whole(frame.plan.schema, version)

    def finish(self) -> None:
        """See `Fold.finish`. Steps that have not ended have a state, too."""
        for activation in (*self.run.running.values(), *self.run.live_tokens()):
            self.before(activation)

    def added(self, token: Activation) -> None:
        """See `Observer.added`. Merges are read while their parents are known."""
        version, schema = token.version, token.frame.plan.schema
        if version.key in self._made or version.key in self._merges:
            return
        base = next((one for one in reversed(version.parents) if one.key in self._made), None)
        if base is not None:
            patch = patch_of(schema, base.values, version.values)
            self._merges[version.key] = self._made[base.key], patch
        elif version.key:
            self._made[version.key] = self._whole(schema, version)

    def dropped(self, token: Activation) -> None:
        """See `Observer.dropped`. Active steps also had a state."""
        if token.counted:
            self.before(token)

    def restored(self, token: Activation) -> None:
        """See `Observer.restored`. A step that landed after it was stopped now has a state after it."""
        if token.late is not None:
            self._end(token, token.late)

    def before(self, activation: Activation) -> StateDelta:
        """Return the state before a step, and remember it for later calls."""
        known = self.steps.get(activation.key)
        if known is not None:
            return known
        version = activation.version
        if version.key in self._made:
            step = StateDelta(self._made[version.key])
        elif version.key in self._merges:
            step = StateDelta(*self._merges[version.key])
        else:  # set from outside, for example by a fork
            step = StateDelta(self._whole(activation.frame.plan.schema, version))
        self.steps[activation.key] = step
        return step

    def _end(self, activation: Activation, record: r.StepDone) -> None:
        step = self.before(activation)
        frame, version = activation.frame, activation.version
        if record.update or record.reduced:
            after = values_after(activation, record.update, record.ops, record.reduced)
            step.patch = patch_of(frame.plan.schema, version.values, after)
            self._made[activation.key] = activation.key
        else:
            self._made[version.key] = activation.key

    def _whole(self, schema: StateSchema, version: Version) -> int:
        self.whole.append(schema.dump(version.values))
        return len(self.whole) - 1


def patch_of(schema: StateSchema, before: Mapping[str, object], after: Mapping[str, object]) -> Patch:
    """Return the patch from one state to another, as plain JSON. Fields with the same object cost nothing."""
    found: Patch = {}
    for name, new in after.items():
        old = before.get(name)
        if new is old:
            continue
        if type(new) is SharedList:
            more = new.since(old)
            if more is not None:
                if more:
                    found[name] = ["+", schema.dump({name: more})[name]]
                continue
        new, old = listed(new), listed(old)
        if type(new) is list and type(old) is list and len(new) > len(old) and new[: len(old)] == old:
            found[name] = ["+", schema.dump({name: new[len(old) :]})[name]]
        elif type(new) is str and type(old) is str and old and len(new) > len(old) and new.startswith(old):
            found[name] = ["+", new[len(old) :]]
        elif type(new) is dict and type(old) is dict and old:
            changed = {key: value for key, value in new.items() if key not in old or old[key] is not value}
            gone = [key for key in old if key not in new]
            if changed or gone:
                found[name] = ["~", schema.dump({name: changed})[name], [str(key) for key in gone]]
        else:
            dumped = schema.dump({name: new})[name]
            if name not in before or dumped != schema.dump({name: old})[name]:
                found[name] = ["=", dumped]
    return found
