"""What a run has spent, by node and by what its nodes called: for reports. No rule depends on it.

Of a fork only its own is counted, of a replay only what it did not take from the replayed run, and of a run that called
graphs as tools not what their runs spent. A node has the name that it had when it worked, also if the run moved to
another version of its graph since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from orchestrator.kernel import records as r
from orchestrator.kernel.records.effects import failed_result
from orchestrator.kernel.state import Activation

STEP = "step"
"""The kind of a node's own tally: its steps, and how long they worked."""

Place: TypeAlias = tuple[str, str, str]
"""Node (in subgraphs `OUTER/INNER`), kind (`step`, `model`, `tool`, `effect`), name of what was called."""

_NO_FAILURE = frozenset({"Cancelled", "NotMade", "Suspended"})
"""Errors of calls that were stopped."""


@dataclass(slots=True)
class Tally:
    """What is counted at one place."""

    calls: int = 0
    """Calls that began, or steps that ended."""
    failed: int = 0
    """Calls or steps that failed after their last try; a tool's result that is an error counts."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    """How long the calls took, all tries together; of steps how long they worked, without waiting for answers."""


@dataclass(slots=True)
class Totals:
    """The tallies of one run."""

    tallies: defaultdict[Place, Tally] = field(default_factory=lambda: defaultdict(Tally))
    under_way: dict[str, Place] = field(default_factory=dict)
    """Call that has no end yet -> where it counts."""
    working: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Activation of a running step -> its node, and the run's time alive when it began."""

    def begin(self, steps: Iterable[Activation], running: Container[str], seconds: float) -> None:
        """Steps begin to work, or go on.

        Args:
            steps: the steps.
            running: keys of the steps that run; others of them do not work.
            seconds: the run's time alive.
        """
        for step in steps:
            if step.key in running:
                outer = step.frame.place  # as `place_of`, without a call for each step
                self.working[step.key] = f"{outer}/{step.node}" if outer else step.node, seconds

    def rest(self, activation: str, seconds: float) -> None:
        """A step does not work any more. `seconds`: the run's time alive."""
        begun = self.working.pop(activation, None)
        if begun is not None:
            self.tallies[begun[0], STEP, ""].seconds += seconds - begun[1]

    def landed(self, activation: str, node: str, seconds: float, *, failed: bool) -> None:
        """A step ended.

        Args:
            activation: its key.
            node: its node, for a step that does not work any more.
            seconds: the run's time alive.
            failed: whether it failed.
        """
        begun = self.working.pop(activation, None)
        tally = self.tallies[node if begun is None else begun[0], STEP, ""]
        if begun is not None:
            tally.seconds += seconds - begun[1]
        tally.calls += 1
        tally.failed += failed

    def intended(self, record: r.EffectIntended, node: str, *, new: bool) -> None:
        """A call begins; `new`: it does not repeat an earlier one."""
        if record.taken is not None:
            return
        place = self.under_way[record.key] = node, record.kind, record.name
        self.tallies[place].calls += new

    def settled(self, record: r.EffectSettled) -> None:
        """A call, or a try of one, ended."""
        place = self.under_way.get(record.key)
        if place is None:
            return
        tally, usage, error = self.tallies[place], record.usage, record.error
        stopped = error is not None and error.type in _NO_FAILURE
        if usage is not None:
            tally.input_tokens += usage.input_tokens
            tally.output_tokens += usage.output_tokens
            tally.cost += usage.cost
        if not stopped:
            tally.seconds += max(0.0, record.ended - record.started)
        if record.next_at is not None and not record.unknown:
            return
        del self.under_way[record.key]
        if not stopped:
            tally.failed += not record.ok or (place[1] == "tool" and failed_result(record.result) is not None)

    def begin_fork(self, running: Mapping[str, Activation], seconds: float) -> None:
        """Forget what was spent before a fork. What runs in it works for the fork from now on."""
        self.tallies.clear()
        self.under_way.clear()
        self.working.clear()
        self.begin(running.values(), running, seconds)


def place_of(activation: Activation) -> str:
    """The node of an activation, behind those around it."""
    place = activation.frame.place
    return f"{place}/{activation.node}" if place else activation.node
