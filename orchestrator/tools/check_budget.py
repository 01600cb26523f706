"""What a check of one value may cost.

Schemas may come from servers, and values from models. So each check has a budget of steps, which grows with the value
and not with the ways in which the schema could fit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEEPEST = 50
"""Levels of a value and its schema that are looked at."""
_STEPS = 50_000
"""Schemas that are looked at to check any value."""
_STEPS_EACH = 25
"""How many more for each part of a large value."""


class Exhausted(Exception):
    """The budget of a check is spent."""


class Budget:
    """The schema that references lead into, and the steps that are left to check a value."""

    def __init__(self, root: Mapping[str, Any], value: Any) -> None:
        self.root = root
        self._value = value
        self._left = _STEPS
        self._extended = False

    def spend(self, steps: int = 1) -> None:
        """
        Raises:
            Exhausted: there are fewer left.
        """
        self._left -= steps
        if self._left < 0 and not self._extended:  # most values are small, and never counted
            self._extended = True
            self._left += _STEPS_EACH * _size(self._value)
        if self._left < 0:
            raise Exhausted


def _size(value: object) -> int:
    """How many parts a value has."""
    count, level = 0, [value]
    while level:
        count += len(level)
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return count
