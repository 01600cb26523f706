"""The format of snapshots: its number, and the fields that are written as they are."""

from __future__ import annotations

from typing import Any, TypeAlias

Data: TypeAlias = dict[str, Any]

FORMAT = 10
"""The number of the format. A snapshot of another one is not read: the records are folded instead."""

RUN_FIELDS = (
    "head", "approve", "paused", "cancelled", "steps", "seconds", "updated", "content", "tools", "calls",
    "input_tokens", "output_tokens", "cost", "estimated", "was_running", "longest_reply", "costliest_call",
)  # fmt: skip
"""Fields of `RunState`."""

FRAME_FIELDS = (
    "steps", "calls", "tokens", "active", "cost", "began", "exhausting", "after_limit", "may_drop_history", "raised",
    "spent_name", "timed_from", "parent_dropped", "irreversible", "reserved_calls", "reserved_cost", "reserved_tokens",
)  # fmt: skip
"""Fields of `FrameState`."""
