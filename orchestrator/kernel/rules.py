"""Versions of the execution rules.

A run keeps the rules it began under: `RunStarted.rules` names them, and journals older than that field follow rules 1.
So a journal always folds to the same states, whatever later versions decide for new runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RULES = 2
"""The rules of new runs: those in `docs/kernel.md`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The choices of one version of the rules. Under rules 1 all are false."""

    ranked: bool = True
    """R6: branches with equal paths are ordered by the branches that their closing joins merged, not by an id."""
    replaces_conflict: bool = True
    """R7: `replace(value)` conflicts with any concurrent update of its field."""
    declared_order: bool = True
    """R8, R11: of several joins that qualify, the one declared first comes first."""


_KNOWN: Mapping[int, Rules] = {1: Rules(ranked=False, replaces_conflict=False, declared_order=False), 2: Rules()}


def rules_of(number: int) -> Rules:
    """The rules with this number.

    Raises:
        ValueError: this version does not know them.
    """
    found = _KNOWN.get(number)
    if found is None:
        raise ValueError(
            f"the run follows rules {number}, and this version knows rules 1 to {RULES}; update the library"
        )
    return found
