"""The statuses of a run."""

from __future__ import annotations

from typing import Literal, TypeAlias

RunStatus: TypeAlias = Literal["running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted"]
FINAL: frozenset[str] = frozenset({"completed", "failed", "cancelled", "exhausted"})
