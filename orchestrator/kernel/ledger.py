"""The effects of a run: what was intended, how it ended, and what it cost.

Totals are counted by node and by the model or tool called. They are for reports: no rule depends on them. A fork counts
only its own effects, a replay only those not taken from the replayed run, and a run that calls graphs as tools does not
count what their runs spent. Counts use the name that a node had when it ran, even if the run has moved to another
version of its graph since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from orchestrator.graph.limits import Usage
from orchestrator.kernel import records as r
from orchestrator.kernel.records import EffectIntended, EffectSettled, failed_result
from orchestrator.kernel.requests import parts_in
from orchestrator.kernel.state import Activation

IRREVERSIBLE = "lasting"
"""Key in a result's metadata: an irreversible effect happened, so the result is valid for all attempts."""


@dataclass(slots=True)
class EffectEntry:
    """One effect of an activation: its intent, and how it ended if that is known."""

    intended: EffectIntended
    settled: EffectSettled | None = None
    began: int = 0
    """The record of its first intent."""
    inner_usage: Usage | None = None
    """Usage so far of the run that it started, if it calls a graph as a tool."""

    @property
    def failed_try(self) -> EffectSettled | None:
        """The last try if it failed and the next one has not started."""
        settled = self.settled
        ends = settled is not None and settled.next_at is not None and settled.seq > self.intended.seq
        return settled if ends else None

    @property
    def is_open(self) -> bool:
        """True if the effect has not ended yet, or a further try follows."""
        settled = self.settled
        return (
            settled is None or settled.seq < self.intended.seq or (settled.next_at is not None and not settled.unknown)
        )

    @property
    def may_have_happened(self) -> bool:
        """True unless the effect is known not to have happened."""
        settled = self.settled
        return settled is None or settled.seq < self.intended.seq or settled.may_have_happened


def did_irreversible(result: object) -> bool:
    """Return whether an irreversible effect happened on the way to a result.

    Args:
        result: the result of an effect, as plain JSON.

    Returns:
        True if the result's metadata says so.
    """
    metadata = result.get("metadata") if isinstance(result, Mapping) else None
    return isinstance(metadata, Mapping) and bool(metadata.get(IRREVERSIBLE))


class Ledger:
    """The effects of unfinished activations, and the numbers of the parts of requests that the journal has."""

    __slots__ = ("_by_activation", "_by_key", "_failed", "parts")

    def __init__(self) -> None:
        self._by_activation: dict[str, list[EffectEntry]] = {}
        self._by_key: dict[str, EffectEntry] = {}
        self.parts: dict[str, int] = {}
        """Digest -> number of the parts of requests to models in the journal, see `kernel.requests`."""
        self._failed: dict[str, list[EffectEntry]] = {}
        """The effects of failed steps, for their next attempt if the run is reopened."""

    def intend(self, record: EffectIntended) -> bool:
        """Record an intent. Returns False if it repeats an earlier one."""
        if record.kind == "model":
            for name, _ in parts_in(record.request):
                self.parts.setdefault(name, len(self.parts))
        known = self._by_key.get(record.key)
        if known is not None:
            known.intended = record
            return False
        entry = EffectEntry(record, began=record.seq)
        self._by_key[record.key] = entry
        self._by_activation.setdefault(record.activation, []).append(entry)
        return True

    def settle(self, record: EffectSettled) -> None:
        """Record how an effect ended, unless its activation is done."""
        entry = self._by_key.get(record.key)
        if entry is not None:
            entry.settled = record

    def entry(self, key: str) -> EffectEntry | None:
        """Return the effect with a key, if its activation is unfinished."""
        return self._by_key.get(key)

    def __contains__(self, activation: str) -> bool:
        """Return True if an unfinished activation has effects."""
        return activation in self._by_activation

    def of(self, activation: str) -> tuple[EffectEntry, ...]:
        """Return the effects of an activation, from all its attempts, in the journal's order."""
        return tuple(self._by_activation.get(activation, ()))

    def forget(self, activation: str) -> None:
        """Remove the effects of an activation that is done."""
        if activation in self._by_activation:
            for entry in self._by_activation.pop(activation):
                self._by_key.pop(entry.intended.key, None)

    def drop(self, key: str) -> None:
        """Remove one effect, as if it had never been intended."""
        entry = self._by_key.pop(key, None)
        if entry is not None:
            kept = self._by_activation[entry.intended.activation]
            kept.remove(entry)
            if not kept:
                del self._by_activation[entry.intended.activation]

    def put_by(self, activation: str) -> None:
        """Set the effects of a failed step aside: no step waits for them, unless the run is reopened."""
        if activation in self._by_activation:
            self._failed[activation] = self._by_activation.pop(activation)
            for entry in self._failed[activation]:
                self._by_key.pop(entry.intended.key, None)

    def take_back(self, activation: str) -> None:
        """Undo `put_by`: the step starts again."""
        for entry in self._failed.pop(activation, ()):
            self._by_key[entry.intended.key] = entry
            self._by_activation.setdefault(activation, []).append(entry)

    def forget_failed(self, activation: str) -> None:
        """Remove the effects of a failed step that cannot start again."""
        self._failed.pop(activation, None)

    def entries(self) -> tuple[EffectEntry, ...]:
        """Return all effects of unfinished activations."""
        return tuple(self._by_key.values())

    def failed_entries(self) -> tuple[EffectEntry, ...]:
        """Return all effects of failed steps that can start again."""
        return tuple(entry for entries in self._failed.values() for entry in entries)

    def restore(self, entries: Iterable[EffectEntry], parts: Iterable[str], failed: Iterable[EffectEntry] = ()) -> None:
        """Fill an empty ledger from a snapshot."""
        self.parts = {name: number for number, name in enumerate(parts)}
        for entry in entries:
            self._by_key[entry.intended.key] = entry
            self._by_activation.setdefault(entry.intended.activation, []).append(entry)
        for entry in failed:
            self._failed.setdefault(entry.intended.activation, []).append(entry)


STEP = "step"
"""The kind of a node's own tally: the number of its steps, and how long they worked."""

Place: TypeAlias = tuple[str, str, str]
"""Node (in subgraphs `OUTER/INNER`), kind (`step`, `model`, `tool`, `effect`), name of the model, tool or effect."""

_NO_FAILURE = frozenset({"Cancelled", "NotMade", "Suspended"})
"""Errors of calls that were stopped."""


@dataclass(slots=True)
class Tally:
    """Counts at one place."""

    calls: int = 0
    """Calls that started, or steps that ended."""
    failed: int = 0
    """Calls or steps that failed after their last try; a tool result that is an error counts as a failure."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    """Duration of the calls, including all tries; for steps the time that they worked, without waiting for answers."""


@dataclass(slots=True)
class Totals:
    """The tallies of one run."""

    tallies: defaultdict[Place, Tally] = field(default_factory=lambda: defaultdict(Tally))
    under_way: dict[str, Place] = field(default_factory=dict)
    """Call that has not ended yet -> the place at which it counts."""
    working: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Activation of a running step -> its node, and the run's time alive when it started."""

    def begin(self, steps: Iterable[Activation], running: Container[str], seconds: float) -> None:
        """Record that steps start to work, or continue.

        Args:
            steps: the steps.
            running: keys of the running steps; the other steps do not work.
            seconds: the run's time alive, in seconds.
        """
        for step in steps:
            if step.key in running:
                outer = step.frame.place  # the same as `place_of`, without a call for each step
                self.working[step.key] = f"{outer}/{step.node}" if outer else step.node, seconds

    def rest(self, activation: str, seconds: float) -> None:
        """Record that a step stopped running. `seconds`: for how long the run has been alive."""
        begun = self.working.pop(activation, None)
        if begun is not None:
            self.tallies[begun[0], STEP, ""].seconds += seconds - begun[1]

    def landed(self, activation: str, node: str, seconds: float, *, failed: bool) -> None:
        """Record that a step ended.

        Args:
            activation: its key.
            node: its node, for a step that has stopped running.
            seconds: the run's time alive, in seconds.
            failed: True if it failed.
        """
        begun = self.working.pop(activation, None)
        tally = self.tallies[node if begun is None else begun[0], STEP, ""]
        if begun is not None:
            tally.seconds += seconds - begun[1]
        tally.calls += 1
        tally.failed += failed

    def passed(self, activation: str, node: str, following: Activation, seconds: float) -> None:
        """Record that a step ended, as `landed` does, and that the next one starts, as `begin` does."""
        begun = self.working.pop(activation, None)
        tally = self.tallies[node if begun is None else begun[0], STEP, ""]
        if begun is not None:
            tally.seconds += seconds - begun[1]
        tally.calls += 1
        outer = following.frame.place
        self.working[following.key] = f"{outer}/{following.node}" if outer else following.node, seconds

    def intended(self, record: r.EffectIntended, node: str, *, new: bool) -> None:
        """Record that a call starts. `new`: it does not repeat an earlier one."""
        if record.taken is not None:
            return
        place = self.under_way[record.key] = node, record.kind, record.name
        self.tallies[place].calls += new

    def settled(self, record: r.EffectSettled) -> None:
        """Record that a call, or one try of it, ended."""
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
        """Discard the tallies from before a fork, and start to time the running steps for the fork."""
        self.tallies.clear()
        self.under_way.clear()
        self.working.clear()
        self.begin(running.values(), running, seconds)


def place_of(activation: Activation) -> str:
    """Return the node of an activation, after the names of the enclosing nodes."""
    place = activation.frame.place
    return f"{place}/{activation.node}" if place else activation.node
