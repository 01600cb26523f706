"""What an executor, or anybody, may ask of a run. Nothing here changes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.graph.limits import Limits, LimitsLeft, Reserve, Usage
from orchestrator.graph.topology import RESERVED
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel import records as r
from orchestrator.kernel.admission import Admission
from orchestrator.kernel.frame import Frame
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.needs import fault_of, wants_order
from orchestrator.kernel.token import Activation

NO_USAGE = Usage()

_ROUNDING = 1e-9
"""What sums of costs may be off by."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A live token."""

    path: str
    node: str
    phase: str
    values: JsonObject


class Inquiry(Admission):
    """The questions that a run answers about itself."""

    @property
    def run_id(self) -> str:
        """The run's id, empty before its first record."""
        return self.started.run_id if self.started is not None else ""

    @property
    def labels(self) -> dict[str, str]:
        """What the run was labelled with."""
        return self.started.labels if self.started is not None else {}

    @property
    def status(self) -> str:
        """`running`, `paused`, or how it ended. Whether somebody drives a running one, only its lease tells."""
        if self.ended is not None:
            return self.ended.status
        if self.running or self.result is not None:
            return "running"
        if self.paused or self.questions:
            return "paused"
        return "running"

    @property
    def usage(self) -> Usage:
        """What the run has spent, with the runs of graphs that it called as tools; steps and seconds are its own."""
        return Usage(
            steps=self.steps,
            calls=self._calls,
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
            cost=self._cost,
            seconds=self.seconds,
            estimated=self._estimated,
        )

    @property
    def shared(self) -> Usage:
        """What it has spent of that which the runs around it share: not its steps and seconds."""
        return Usage(
            calls=self._calls,
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
            cost=self._cost,
            estimated=self._estimated,
        )

    @property
    def dearest(self) -> float | None:
        """What the dearest call of a model cost so far; None: there was none."""
        return self._dearest

    @property
    def longest(self) -> int:
        """Tokens of the longest reply of a model so far; 0: there was none."""
        return self._longest

    @property
    def visits(self) -> dict[tuple[str, str], int]:
        """(place of a graph, node) -> admissions."""
        return {(place, node): count for place, tally in self.tallies.items() for node, count in tally.visits.items()}

    @property
    def taken(self) -> dict[tuple[str, int], int]:
        """(place of a graph, number of an edge) -> how often it was taken."""
        return {(place, edge): count for place, tally in self.tallies.items() for edge, count in tally.taken.items()}

    @property
    def busy(self) -> dict[tuple[str, str], float]:
        """(place of a graph, node) -> seconds its steps took."""
        return {(place, node): spent for place, tally in self.tallies.items() for node, spent in tally.busy.items()}

    def probe(
        self, activation: Activation, outcome: str, update: JsonObject, ops: Mapping[str, str]
    ) -> r.Failure | None:
        """Why this end of an activation would not be legal, or None. To be asked before it is journaled."""
        frame = activation.frame
        topology = frame.plan.topology
        node = activation.node
        routes = topology.routes(node, outcome)
        if not routes and outcome != "exhausted":
            declared = frame.plan.nodes[node].outcomes
            why = "has no edge" if outcome in declared or outcome in RESERVED else "is not declared"
            return self._fault(
                activation, f"{node} returned outcome {outcome!r}, which {why}; it has {', '.join(map(repr, declared))}"
            )
        if node in topology.fans:
            fields = [route.each for route in routes if route.each is not None]
            values = frame.stepped(activation, update, ops).values if update and fields else activation.values
            for name in fields:
                items = values.get(name)
                if not isinstance(items, (list, tuple)):
                    kind = type(items).__name__
                    return self._fault(activation, f"{node} maps over {name!r}, which is no list: {kind}")
                if wants_order(items):
                    fault = fault_of(items)
                    if fault is not None:
                        return self._fault(activation, f"{node} maps over {name!r}: {fault}")
        return None

    def _fault(self, activation: Activation, message: str) -> r.Failure:
        return r.Failure(type="InvalidOutcome", message=message, node=activation.node, path=activation.path)

    def reduced_for(self, activation: Activation, update: JsonObject, ops: Mapping[str, str]) -> JsonObject | None:
        """`StepDone.reduced` for an update: what a fold without the reducers' code could not compute."""
        schema = activation.frame.plan.schema
        names = [name for name in schema.coded if activation.merged or name in update]
        if not names:
            return None
        return schema.reduced(activation.frame.stepped(activation, update, ops).values, names)

    def refuse(self, activation: Activation, more: Usage = NO_USAGE) -> tuple[str, str] | None:
        """The limit (name, path of its graph) that forbids this activation a further call, if any does.

        Args:
            more: what was spent besides, and is not in the journal yet.
        """
        for frame in activation.frame.line:
            if frame.after:
                continue
            limits = frame.limits
            if limits.calls is not None and frame.calls + more.calls >= limits.calls:
                return "calls", frame.path
            if limits.tokens is not None and frame.tokens + more.tokens >= limits.tokens:
                return "tokens", frame.path
            if limits.cost is not None and frame.cost + more.cost >= limits.cost:
                return "cost", frame.path
        return None

    def reserves(self, activation: Activation) -> bool:
        """Whether calls of this activation reserve: tokens or cost are limited around it."""
        return any(
            not frame.after and (frame.limits.tokens is not None or frame.limits.cost is not None)
            for frame in activation.frame.line
        )

    def crowded(self, activation: Activation, reserve: Reserve) -> bool:
        """Whether a call has to wait: with what the calls under way reserved, there is no room left for it.

        Where none is under way it never waits: as long as the limit is not spent, one call can be made.
        """
        for frame in activation.frame.line:
            if frame.after or not frame.held_calls:
                continue
            limits = frame.limits
            tokens = frame.tokens + frame.held_tokens + reserve.tokens
            cost = frame.cost + frame.held_cost + reserve.cost
            if (limits.tokens is not None and tokens > limits.tokens) or (
                limits.cost is not None and cost > limits.cost + _ROUNDING
            ):
                return True
        return False

    def held(self, key: str) -> Reserve:
        """What a call under way reserves."""
        return self._held.get(key) or Reserve()

    @property
    def reserved(self) -> Reserve:
        """What all calls under way reserve."""
        held = self._held.values()
        return Reserve(
            tokens=sum(one.tokens for one in held),
            cost=sum(one.cost for one in held),
            calls=sum(one.calls for one in held),
        )

    def limits_left(self, activation: Activation) -> LimitsLeft:
        """What is left for this activation: of each limit, the least of all graphs around it."""
        left: dict[str, float] = {}

        def note(name: str, most: float | None, spent: float) -> None:
            if most is not None:
                left[name] = min(left.get(name, most), max(0, most - spent))

        for frame in activation.frame.line:
            limits: Limits = frame.limits
            note("steps", limits.steps, frame.steps)
            note("seconds", limits.seconds, self.seconds - frame.began)
            note("tokens", limits.tokens, frame.tokens)
            note("cost", limits.cost, frame.cost)
            note("calls", limits.calls, frame.calls)
        return LimitsLeft.model_validate(left)

    def seconds_left(self) -> list[tuple[str, float]]:
        """(path of a graph, seconds alive that are left to it) for graphs that have such a limit and still count."""
        found = []
        for frame in self.frames():
            most = frame.limits.seconds
            if most is not None and not frame.after and frame.exhausting is None and frame.result is None:
                found.append((frame.path, most - (self.seconds - frame.began)))
        return found

    def time_left(self, frame: Frame) -> float | None:
        """Seconds alive that the time-out of the subgraph node around a graph leaves to it; None: it has none."""
        parent = frame.parent
        graph = None if parent is None else parent.frame.plan.graph
        if parent is None or graph is None or frame.result is not None:
            return None
        timeout = graph.nodes[parent.node].timeout
        return None if timeout is None else timeout - (self.seconds - frame.began)

    def time_left_inside(self, activation: str) -> float | None:
        """Seconds alive that are left to the graph inside an activation, by time-out or limit; None: any number."""
        frame = self._inner.get(activation)
        if frame is None:
            return None
        most, left = frame.limits.seconds, self.time_left(frame)
        found = [] if left is None else [left]
        if most is not None:
            found.append(most - (self.seconds - frame.began))
        return min(found, default=None)

    def timeouts(self) -> list[tuple[Activation, float]]:
        """(activation of a subgraph's node, seconds alive left) of those with a time-out, the outermost first."""
        found = []
        for frame in self.frames():
            left = self.time_left(frame)
            if left is not None and frame.parent is not None:
                found.append((frame.parent, left))
        return found

    def effects(self, activation: str) -> tuple[EffectEntry, ...]:
        """The effects of an activation that is not done, of all its attempts."""
        return self.ledger.of(activation)

    def knows_message(self, digest: str) -> bool:
        """Whether the journal holds this message already."""
        return self.ledger.knows_message(digest)

    def values(self) -> JsonObject:
        """The trunk's state as plain JSON; of an ended run its final state."""
        if self.root is None:
            return {}
        values = self.root.result.values if self.root.result is not None else self.root.trunk().values
        return self.plan.schema.dump(values)

    def branches(self) -> list[Branch]:
        """All live tokens, those of nested graphs after the ones of the graph around them."""
        return [
            Branch(token.path, token.node, token.phase.value, frame.plan.schema.dump(token.version.values))
            for frame in self.frames()
            for token in frame.live.values()
        ]
