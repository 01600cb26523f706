"""Which activation lands next: first, last, by chance, starving nodes, starving branches."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.kernel.plan import Plan
from orchestrator.kernel.state import Activation

Kind = Literal["first", "last", "random", "starve", "nodes", "branches"]


@dataclass
class Order:
    """Gives the number of the activation that lands next among those that run."""

    kind: Kind
    seed: int = 0
    node: str = ""
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.kind} {self.node or self.seed}"

    def __call__(self, running: Sequence[Activation]) -> int:
        last = len(running) - 1
        if self.kind == "first":
            return 0
        if self.kind == "last":
            return last
        if self.kind == "random" or self.dice.random() < 0.05:
            return self.dice.randrange(last + 1)
        return max(range(last + 1), key=lambda i: (self._rank(running[i]), -i))

    def _rank(self, a: Activation) -> float:
        if self.kind == "starve":
            return float(a.node != self.node)
        if self.kind == "nodes":
            return self._hash(a.node)
        parts = a.path.split("/")
        return self._hash("/".join(parts[: 1 + self.seed % 3]))

    def _hash(self, text: str) -> float:
        return zlib.crc32(f"{self.seed}:{text}".encode())


def orders(plan: Plan, count: int, seed: int = 0) -> list[Order]:
    """So many different ones: first and last always, then one starving each node, then by chance and by rank."""
    found = [Order("first"), Order("last")]
    names = [*plan.nodes, *(name for inner in plan.sub.values() for name in inner.nodes)]
    if count > 6:
        found += [Order("starve", seed + i, name) for i, name in enumerate(names[: count // 3])]
    kinds: tuple[Kind, ...] = ("random", "branches", "nodes")
    number = 0
    while len(found) < count:
        found.append(Order(kinds[number % 3], seed * 1000 + number))
        number += 1
    return found[:count]
