"""Where tokens of a graph can be: every node, with every sequence of forks that can be open around it."""

from __future__ import annotations

from typing import TypeAlias

from orchestrator.graph.checks.shape import MOST_PAIRS
from orchestrator.graph.topology import START, Topology

Placement: TypeAlias = tuple[str, tuple[str, ...]]
"""A node, and the open forks around it, outermost first."""


class Placements:
    """The placements that a graph allows.

    Attributes:
        arriving: Those of tokens that came to a node, and of tokens that wait at a join.
        fired: Those of the tokens that joins made.
    """

    def __init__(self, topology: Topology) -> None:
        self.arriving: set[Placement] = set()
        self.fired: set[Placement] = set()
        stack: list[Placement] = [(START, ())]
        if topology.exhausted_target is not None:
            stack.append((topology.exhausted_target, ()))
        self.arriving.update(stack)
        while stack and len(self.arriving) <= MOST_PAIRS:
            vertex, forks = stack.pop()
            fork = topology.match.get(vertex)
            if fork is not None and fork in forks:
                place = forks.index(fork)
                forks = forks[:place] if topology.closes[vertex] else forks[: place + 1]
                self.fired.add((vertex, forks))
            if vertex in topology.fans and vertex not in forks:
                forks = (*forks, vertex)
            for target in topology.successors.get(vertex, ()):
                if (target, forks) not in self.arriving:
                    self.arriving.add((target, forks))
                    stack.append((target, forks))

    def allow(self, node: str, forks: tuple[str, ...], *, fired: bool = False) -> bool:
        """Whether a token can be at a node with these forks open around it. `fired`: a join at this node made it."""
        return (node, forks) in (self.fired if fired else self.arriving)
