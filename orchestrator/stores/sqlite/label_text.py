"""The labels in the row of a run, as text."""

from __future__ import annotations

import json


def labels_of(text: object) -> dict[str, str] | None:
    """The labels in a run's row; None if they are damaged."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return None
    return found
