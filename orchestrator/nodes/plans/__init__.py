"""Plans written by models, as data: one module for each form."""

from __future__ import annotations


class PlanFault(ValueError):
    """Raised when a text is not a plan in its form. The message explains the fault and the form to the planner."""
