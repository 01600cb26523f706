"""What a drawing shows of a run, as data: the one thing that `render` wants to know of runs.

`orchestrator.views.trace` makes it from a journal, record by record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

Place: TypeAlias = tuple[str, str]
"""A frame's path and the name of a node in it. The path of the top graph is empty. Of any other path's segments
those that are names are the subgraph nodes around it; the others (`fork.0`) say in which branch they ran."""
Way: TypeAlias = tuple[str, int]
"""A frame's path and the number of an edge in its graph's `edges`."""
StepState: TypeAlias = Literal["planned", "running", "waiting", "visited", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """An item of a map whose items need each other: a step that a plan of the run's own has."""

    id: str
    needs: tuple[str, ...] = ()
    """Ids of the steps that it waits for."""
    item: object = None
    """The item itself, plain JSON."""
    state: StepState = "planned"
    """`skipped`: a step that it needs ended elsewhere, so it never began."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The steps that one map over such items opened, in their order."""

    path: str
    """Frame path of the map."""
    edge: int
    """Number of the map's edge."""
    steps: Sequence[PlannedStep]


@dataclass(frozen=True, slots=True)
class Overlay:
    """Where a run has been and where it is. A drawing adds up all frames of one subgraph node."""

    visits: Mapping[Place, int] = field(default_factory=lambda: MappingProxyType({}))
    """Node -> how many of its activations ended with an outcome."""
    taken: Mapping[Way, int] = field(default_factory=lambda: MappingProxyType({}))
    """Edge -> how many tokens took it; of a map, how many branches it opened."""
    waiting: AbstractSet[Place] = frozenset()
    """Nodes with an open question, and the subgraph nodes around them."""
    running: AbstractSet[Place] = frozenset()
    """Nodes that work, and the subgraph nodes around them."""
    failed: AbstractSet[Place] = frozenset()
    """Nodes whose last activation failed, and no edge of theirs took it."""
    status: str = ""
    """The run's status."""
    seconds: Mapping[Place, float] = field(default_factory=lambda: MappingProxyType({}))
    """Node -> how long its ended activations took, together. Waiting for answers does not count."""
    items: Mapping[Place, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Node that a map leads to -> (items of the map that it has done, items of the map)."""
    queued: AbstractSet[Place] = frozenset()
    """Nodes where the run goes on; told while nothing in it works."""
    entered: AbstractSet[Place] = frozenset()
    """Subgraph nodes in which something began."""
    told: Mapping[Place, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    """Node -> what it asks, or why it failed."""
    faulty: Mapping[Place, int] = field(default_factory=lambda: MappingProxyType({}))
    """Node -> how many calls of tools failed in activations that ended with an outcome all the same."""
    planned: Sequence[Planned] = ()
    """Steps that the run planned itself, in the order of their plans."""
