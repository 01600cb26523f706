"""What nodes do in the tests: scripted by hand, or drawn from a seed and what the token has seen.

A behaviour never knows when it runs: it is a function of what the node sees, so any difference between two
interleavings is the kernel's.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from orchestrator.graph.reducers import replace
from orchestrator.json import canonical
from orchestrator.kernel.plan import Plan

Values: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Sight:
    """All that a node may base its step on."""

    node: str
    values: Values
    """Plain JSON."""
    item: object = None
    items: tuple[object, ...] = ()
    attempt: int = 1
    error: str | None = None
    answers: int = 0
    child: Values | None = None
    """Final state of the graph inside."""

    @property
    def visits(self) -> int:
        """How often this node ran in the token's own past."""
        return sum(entry.partition(":")[0].partition("[")[0] == self.node for entry in self.values["log"])

    @property
    def label(self) -> str:
        """What the node writes to the log: its name, and the item."""
        name = self.node
        if self.child is not None:
            name = f"{name}[{' '.join(self.child['log'])}]"
        if self.item is None:
            return name
        item = self.item.get("id") if isinstance(self.item, dict) else self.item
        return f"{name}:{item}"


@dataclass(frozen=True)
class Act:
    """What an activation does: fails first, asks, then ends in an outcome or fails for good."""

    outcome: str = "done"
    update: Values = field(default_factory=dict)
    retries: int = 0
    """Attempts that fail before one counts."""
    asks: int = 0
    """Questions put, one after the other, before it goes on."""
    fail: str | None = None


Behaviour: TypeAlias = Callable[[Plan, Sight], Act]
Line: TypeAlias = Callable[[Sight], "str | Mapping[str, Any] | Act | None"]


class Script:
    """Nodes by name: a constant, or a function of what is seen; `str` is an outcome, a mapping an update.

    A node that the script does not name takes its last declared outcome and writes its label to the log.
    """

    def __init__(self, **lines: Line | str | Mapping[str, Any] | Act | None) -> None:
        self.lines = lines

    def __call__(self, plan: Plan, sight: Sight) -> Act:
        line = self.lines.get(sight.node)
        said = line(sight) if callable(line) else line
        act = said if isinstance(said, Act) else Act(outcome="") if said is None else None
        if act is None:
            act = Act(outcome=said) if isinstance(said, str) else Act(outcome="", update=said)  # type: ignore[arg-type]
        outcome = act.outcome if act.outcome else plan.nodes[sight.node].outcomes[-1]
        if act.outcome == "done" and "done" not in plan.nodes[sight.node].outcomes:
            outcome = plan.nodes[sight.node].outcomes[-1]
        return Act(outcome, {"log": sight.label, **act.update}, act.retries, act.asks, act.fail)


def times(count: int, first: str, then: str) -> Line:
    """Takes one outcome on the first `count` visits, another one after."""
    return lambda sight: first if sight.visits < count else then


@dataclass
class Seeded:
    """Outcomes and updates from (seed, node, visits in the token's own past, the state it sees, item)."""

    seed: int
    visits: int = 2
    """After so many visits in its own past a node takes the way that leads to the end."""
    writes: float = 0.0
    """How likely a step writes a plain field."""
    asks: float = 0.0
    retries: float = 0.0
    fails: float = 0.0
    silent: float = 0.1
    """How likely a step writes nothing."""
    replaces: float = 0.0
    """How likely a step replaces the value of a field with a reducer."""

    def __call__(self, plan: Plan, sight: Sight) -> Act:
        # The trail holds keys that only one of two implementations knows.
        seen = {name: value for name, value in sight.values.items() if name != "trail"}
        told = [self.seed, sight.node, sight.visits, seen, sight.item, list(sight.items)]
        dice = random.Random(zlib.crc32(canonical(told).encode()))
        outcomes = plan.nodes[sight.node].outcomes
        ways = way_out(plan)
        outcome = ways[sight.node] if sight.visits >= self.visits else dice.choice(outcomes)
        update: dict[str, Any] = {}
        if dice.random() >= self.silent:
            update = {"log": sight.label, "total": dice.randrange(5)}
            if dice.random() < 0.2:
                update["mine"] = f"{sight.label}{dice.randrange(3)}"
            for name in ("f", "g"):
                if dice.random() < self.writes:
                    update[name] = f"{sight.label}{dice.randrange(3)}"
            if self.replaces and dice.random() < self.replaces:
                update["total"] = replace(dice.randrange(5))
        elif sight.visits >= self.visits or len(outcomes) > 1:
            update = {"log": sight.label}  # a loop must leave a trace, or it never ends
        asks = int(dice.random() < self.asks) + int(dice.random() < self.asks)
        retries = int(dice.random() < self.retries)
        fail = "drawn" if dice.random() < self.fails else None
        return Act(outcome, update, retries, asks, fail)


def way_out(plan: Plan) -> dict[str, str]:
    """Node -> the outcome whose edges lead to the end in the fewest steps."""
    known: dict[str, str] | None = plan.__dict__.get("_way_out")
    if known is not None:
        return known
    distance = {"END": 0, "STOP": 0}
    queue = deque(distance)
    while queue:
        target = queue.popleft()
        for edge in plan.edges:
            if edge.target == target and edge.source not in distance and edge.source != "*":
                distance[edge.source] = distance[target] + 1
                queue.append(edge.source)
    found: dict[str, str] = {}
    for node, shape in plan.nodes.items():
        labels = {edge.outcome for edge in plan.edges if edge.source == node}

        def away(outcome: str, node: str = node, labels: set[str | None] = labels) -> tuple[float, int]:
            wanted = outcome if outcome in labels else None
            ways = [distance.get(e.target, 999) for e in plan.edges if e.source == node and e.outcome == wanted]
            return (min(ways, default=999), len(ways))

        found[node] = min(shape.outcomes, key=away)
    plan.__dict__["_way_out"] = found
    return found
