"""How much a test does: little on every change, all of it with `pytest --full`."""

from __future__ import annotations

import os
from typing import TypeVar

_T = TypeVar("_T")

FULL = "TESTS_FULL" in os.environ
"""Whether pytest was started with `--full`."""


def sized(quick: _T, full: _T) -> _T:
    """Return what a test works with: the small form, or the full one with `--full`."""
    return full if FULL else quick
