"""Plans that models write, as data: one file for each form."""

from __future__ import annotations


class PlanFault(ValueError):
    """Raised when a text is no plan in its form; says what is wrong and how to write it, for the planner to read."""
