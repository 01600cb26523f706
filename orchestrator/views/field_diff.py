"""Differences of values and failures in words and lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.kernel.records import Failure
from orchestrator.views.call_text import line_diff, value_lines
from orchestrator.views.safe_text import told

MOST = 100
"""Differences and lines that are kept."""


def failure_text(error: Failure | None) -> str:
    return "" if error is None else told(str(error), 400)


def changed_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The fields whose values differ, or that only one side has."""
    names = dict.fromkeys((*one, *other))
    return [name for name in names if one.get(name) != other.get(name) or (name in one) != (name in other)]


def fields_diff(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Field -> the lines in which its values differ."""
    found: dict[str, tuple[str, ...]] = {}
    for name in changed_fields(one, other):
        a, b = ({name: side[name]} if name in side else {} for side in (one, other))
        found[name] = line_diff(value_lines(a), value_lines(b))
    return found


def names_of(fields: Iterable[str]) -> str:
    return ", ".join(told(name, 80) for name in fields) or "how they are merged"


def flat(fields: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    found = [line for name, lines in fields.items() for line in (f"{told(name, 80)}:", *lines)]
    return tuple(found[:MOST]) if len(found) <= MOST else (*found[:MOST], f"… {len(found) - MOST} more lines")
