"""Differences of values and failures in words and lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.kernel.records import Failure
from orchestrator.views.call_text import line_diff, value_lines
from orchestrator.views.safe_text import told

MOST = 100
"""Differences and lines that are kept."""


def failure_text(error: Failure | None) -> str:
    return "" if error is None else told(str(error), 400)


def fields_diff(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Field -> the lines in which its values differ."""
    found: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys((*one, *other)):
        a, b = (side.get(name) for side in (one, other))
        if a != b or (name in one) != (name in other):
            found[name] = line_diff(
                value_lines({name: a} if name in one else {}), value_lines({name: b} if name in other else {})
            )
    return found


def names_of(fields: Mapping[str, object]) -> str:
    return ", ".join(told(name, 80) for name in fields) or "how they are merged"


def flat(fields: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    found = [line for name, lines in fields.items() for line in (f"{told(name, 80)}:", *lines)]
    return tuple(found[:MOST]) if len(found) <= MOST else (*found[:MOST], f"… {len(found) - MOST} more lines")
