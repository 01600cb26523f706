"""The format of snapshots: its number, and its names for what the code names otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Data: TypeAlias = dict[str, Any]

FORMAT = 9

_RUN = ("head", "approve", "paused", "cancelled", "steps", "seconds", "updated", "content", "tools")
_FRAME = ("steps", "calls", "tokens", "active", "cost", "began", "exhausting")

RUN_FIELDS: Mapping[str, str] = {
    **{name: name for name in _RUN},
    "_calls": "calls",
    "_input_tokens": "input_tokens",
    "_output_tokens": "output_tokens",
    "_cost": "cost",
    "_estimated": "estimated",
    "_awake": "was_running",
    "_longest": "longest_reply",
    "_dearest": "costliest_call",
}
"""Name in a snapshot -> field of `RunState`."""

FRAME_FIELDS: Mapping[str, str] = {
    **{name: name for name in _FRAME},
    "after": "after_limit",
    "squashable": "may_drop_history",
    "raised": "raised",
    "spent_name": "spent_name",
    "timed_from": "timed_from",
    "parent_gone": "parent_dropped",
    "lasting": "irreversible",
    "held_calls": "reserved_calls",
    "held_cost": "reserved_cost",
    "held_tokens": "reserved_tokens",
}
"""Name in a snapshot -> field of `FrameState`."""
