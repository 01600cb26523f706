"""The state before and after each step as deltas: what a page needs to show any of them, at the size of the updates.

The state before a step is the state after another step (its base), or one of a few whole states; before a join it is
the base with what the merge added. So states form a tree, and a page walks it up from the step that it shows.

    patch = {field: ["=", value] | ["+", what was added to a list or text] | ["~", {key: value}, [keys gone]]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from orchestrator.graph.isolation import SharedList, listed
from orchestrator.graph.state import StateSchema
from orchestrator.json import JsonObject
from orchestrator.kernel import records as r
from orchestrator.kernel.merge import step_version
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import Delta
from orchestrator.kernel.state import Activation
from orchestrator.kernel.version import Version
from orchestrator.views.reader import Fold, read

Patch: TypeAlias = dict[str, list[object]]


@dataclass(slots=True)
class StateDelta:
    """The state before and after a step, as changes of other states."""

    base: str | int
    """The activation whose state after is this one's state before, or the number of a whole state."""
    merged: Patch = field(default_factory=dict)
    """Values that a join added to the base."""
    patch: Patch = field(default_factory=dict)
    """Values that the step changed."""


def states(plan: Plan, records: Iterable[r.Record]) -> States:
    """The states of all steps of a run.

    Args:
        plan: of the run's graph; its code is not needed.
        records: the run's records from its first one.
    """
    found = States()
    read(plan, records, found)
    return found


class States(Fold):
    """All states of a run.

    Attributes:
        whole: States in full: those that the graphs began with.
        steps: Activation -> its state.
    """

    def __init__(self) -> None:
        self.whole: list[JsonObject] = []
        self.steps: dict[str, StateDelta] = {}
        self._made: dict[str, str | int] = {}
        """Key of a version -> the activation, or number of a whole state, that has it as its state."""
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
        """Tell later states from those that there are now."""
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
        """See `Observer.added`. A merge is read while its parents are known."""
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
        """See `Observer.dropped`. What was at work had a state, too."""
        if token.counted:
            self.before(token)

    def restored(self, token: Activation) -> None:
        """See `Observer.restored`. A step that landed after it was stopped has a state after it from now on."""
        if token.late is not None:
            self._end(token, token.late)

    def before(self, activation: Activation) -> StateDelta:
        """The state before a step, which is remembered."""
        known = self.steps.get(activation.key)
        if known is not None:
            return known
        version = activation.version
        if version.key in self._made:
            step = StateDelta(self._made[version.key])
        elif version.key in self._merges:
            step = StateDelta(*self._merges[version.key])
        else:  # put in from outside, as a fork of the run does
            step = StateDelta(self._whole(activation.frame.plan.schema, version))
        self.steps[activation.key] = step
        return step

    def _end(self, activation: Activation, record: r.StepDone) -> None:
        step = self.before(activation)
        frame, version = activation.frame, activation.version
        if record.update or record.reduced:
            after = step_version(activation, record.update, record.ops, record.reduced)
            step.patch = patch_of(frame.plan.schema, version.values, after.values)
            self._made[activation.key] = activation.key
        else:
            self._made[version.key] = activation.key

    def _whole(self, schema: StateSchema, version: Version) -> int:
        self.whole.append(schema.dump(version.values))
        return len(self.whole) - 1


def patch_of(schema: StateSchema, before: Mapping[str, object], after: Mapping[str, object]) -> Patch:
    """The patch from one state to another, as plain JSON. Fields that are the same object cost nothing."""
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
