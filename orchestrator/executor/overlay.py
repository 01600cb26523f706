"""What a drawing shows of a run, as data: the one thing that `render` wants to know of runs."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

Place: TypeAlias = tuple[str, str]
"""A frame's path and the name of a node in it. The path of the top graph is empty. Of any other path's segments
those that are names are the subgraph nodes around it; the others (`fork.0`) say in which branch they ran."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Where a run has been and where it is. A drawing adds up all frames of one subgraph node."""

    visits: Mapping[Place, int] = field(default_factory=lambda: MappingProxyType({}))
    """Node -> how many of its activations ended with an outcome."""
    taken: Mapping[tuple[str, int], int] = field(default_factory=lambda: MappingProxyType({}))
    """(Frame path, number of the edge in `graph.edges`) -> how many tokens took it."""
    waiting: AbstractSet[Place] = frozenset()
    """Nodes with an open question."""
    running: AbstractSet[Place] = frozenset()
    """Nodes that work."""
    failed: AbstractSet[Place] = frozenset()
    """Nodes whose failure no edge took."""
    status: str = ""
    """The run's status."""
