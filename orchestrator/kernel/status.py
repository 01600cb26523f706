"""A run's status and origin.

They are apart from `orchestrator.kernel.records`, so that listing runs does not load the models of records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

RunStatus: TypeAlias = Literal["running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted"]
FINAL: frozenset[str] = frozenset({"completed", "failed", "cancelled", "exhausted"})


Relation: TypeAlias = Literal["fork", "replay", "call"]
"""How a run began from another: as a fork, as a replay, or by a call of its graph as a tool."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The run, and the record of it, from which another run began."""

    run_id: str
    seq: int
    """The record: the one that a fork contains last, or the intent of the call; 0 if it is not known."""
    relation: Relation
