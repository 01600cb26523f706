"""Cost of a run: the calls and usage of its journal, and its critical path.

The critical path is the longest chain of calls that had to wait for each other. It follows from dependencies, not from
times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.graph.limits import Usage
from orchestrator.kernel import records as r
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import EffectIntended, EffectSettled, Record
from orchestrator.kernel.run_state import Delta
from orchestrator.kernel.state import Activation, FrameState
from orchestrator.kernel.version import Version
from orchestrator.views.reader import Fold, read


@dataclass(frozen=True, slots=True)
class Spending:
    """Calls and usage of one journal."""

    calls: Mapping[str, int]
    """Kind of a call (`model`, `tool`, `effect`) -> number of successful calls."""
    usage: Usage
    """Usage of all calls and attempts, including failed ones, but not of runs of graphs that were called as tools."""


def spending(records: Iterable[Record]) -> Spending:
    """Add up what the calls of a journal spent."""
    kinds: dict[str, str] = {}
    succeeded: set[str] = set()
    usage = Usage()
    for record in records:
        if isinstance(record, EffectIntended):
            kinds[record.key] = record.kind
        elif isinstance(record, EffectSettled):
            usage += record.usage or Usage()
            if record.ok:
                succeeded.add(record.key)
    return Spending(Counter(kinds[key] for key in succeeded if key in kinds), usage)


class CompletedCall(NamedTuple):
    """A call that succeeded."""

    intended: r.EffectIntended
    settled: r.EffectSettled


def critical_path(plan: Plan, records: Iterable[r.Record], weight: Callable[[CompletedCall], float]) -> float:
    """Return the weight of the heaviest chain of calls, each of which could only start after the previous one.

    Calls inside one step form a chain if one started after the other had ended.

    Args:
        plan: the plan of the run's graph; its code is not needed.
        records: the run's records from its first one.
        weight: the weight of a call that succeeded: 1 to count it, 0 to ignore it.
    """
    chains = _Chains(weight)
    read(plan, records, chains)
    return chains.heaviest


class _Chains(Fold):
    """The heaviest chain of calls up to each step."""

    def __init__(self, weight: Callable[[CompletedCall], float]) -> None:
        self._weight = weight
        self._before: dict[str, float] = {}
        """Activation -> the heaviest chain that ends before it starts."""
        self._made: dict[str, float] = {}
        """Key of a version -> the heaviest chain that leads to it."""
        self._most: dict[str, float] = {}
        """Key of a frame -> the heaviest chain that ends in it."""
        self._intended: dict[str, r.EffectIntended] = {}
        self._calls: dict[str, list[CompletedCall]] = {}
        self._ended: Activation | None = None
        """The activation that the record being folded ends."""
        self.heaviest = 0.0

    def applying(self, record: r.Record) -> None:
        """See `Observer.applying`."""
        self._ended = self.run.running.get(record.activation) if isinstance(record, r.StepDone) else None
        if self._ended is not None:
            self._end(self._ended)
        elif isinstance(record, r.EffectIntended):
            self._intended[record.key] = record
        elif isinstance(record, r.EffectSettled) and record.ok and record.key in self._intended:
            self._calls.setdefault(record.activation, []).append(CompletedCall(self._intended[record.key], record))

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`."""
        ended = self._ended
        for activation in delta.started:
            # If it continues after a question or an inner graph, its first start counts.
            if activation.key not in self._before:
                same = ended is not None and activation.version is ended.version
                behind = self._made[ended.key] if same and ended is not None else 0.0
                self._before[activation.key] = max(behind, self._of(activation.version, activation.frame))

    def finish(self) -> None:
        """See `Fold.finish`. The calls of steps that have not ended count, too."""
        for activation in self.run.running.values():
            self._end(activation)

    def _end(self, activation: Activation) -> None:
        own = self._before.get(activation.key, 0.0) + _chain(self._calls.pop(activation.key, []), self._weight)
        total = max(own, self._made.get(activation.key, 0.0))
        self._made[activation.key] = total
        self.heaviest = max(self.heaviest, total)
        frame = activation.frame
        self._most[frame.key] = max(self._most.get(frame.key, 0.0), total)
        parent = frame.parent
        if parent is not None:  # inner steps end before the enclosing node
            self._made[parent.key] = max(self._made.get(parent.key, 0.0), total)

    def _of(self, version: Version, frame: FrameState) -> float:
        """Return the weight of the heaviest chain of calls up to a version."""
        known = self._made.get(version.key) if version.key else None
        if known is not None:
            return known
        if version.parents:
            found = 0.0
            seen: set[int] = set()
            left = list(version.parents)
            while left:
                one = left.pop()
                made = self._made.get(one.key) if one.key else None
                if made is not None:
                    found = max(found, made)
                elif id(one) not in seen:
                    seen.add(id(one))
                    left += one.parents
            return max(found, self._outside(frame))
        # The start of a graph, or a version merged from all its steps.
        return max(self._most.get(frame.key, 0.0), self._outside(frame))

    def _outside(self, frame: FrameState) -> float:
        return 0.0 if frame.parent is None else self._before.get(frame.parent.key, 0.0)


def _chain(calls: list[CompletedCall], weight: Callable[[CompletedCall], float]) -> float:
    """Return the weight of the heaviest chain of calls inside one step."""
    ends: list[tuple[int, float]] = []
    for call in sorted(calls, key=lambda one: one.settled.seq):
        before = max((total for seq, total in ends if seq < call.intended.seq), default=0.0)
        ends.append((call.settled.seq, before + weight(call)))
    return max((total for _, total in ends), default=0.0)
