"""A run's status and origin.

Defined outside `orchestrator.kernel.records`, so that listing runs does not load the models of records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

RunStatus: TypeAlias = Literal["running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted"]
FINAL: frozenset[str] = frozenset({"completed", "failed", "cancelled", "exhausted"})


Relation: TypeAlias = Literal["fork", "replay", "call"]
"""How a run started from another: as a fork, as a replay, or by a call of its graph as a tool."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The run, and its record, from which another run started."""

    run_id: str
    seq: int
    """The record: the last one that a fork contains, or the intent of the call; 0 if it is not known."""
    relation: Relation
