"""Sizes of tests: small for every change, full with `pytest --full`."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Collection
from typing import Any, TypeVar

import pytest

_T = TypeVar("_T")

FULL = "TESTS_FULL" in os.environ or "--full" in (*sys.argv, *os.environ.get("PYTEST_ADDOPTS", "").split())
"""Whether pytest was started with `--full`."""


def sized(quick: _T, full: _T) -> _T:
    """Return what a test works with: the small form, or the full one with `--full`."""
    return full if FULL else quick


def rounds(bounded: int, each: int, scale: int) -> int:
    """Return how many rounds a storm makes: `each` for every step of `--storm-scale`; the bounded number at scale 1."""
    return bounded if scale == 1 else each * scale


def in_turn(rows: Collection[Any], *columns: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a table of several parameters: each with each value of the columns only with `--full`.

    Otherwise each row is there once, with the values of the columns in turn. They change every other row, because the
    event loop changes every row.
    """
    if FULL:
        return [*itertools.product(rows, *columns)]
    found = []
    for number, row in enumerate(rows):
        turn, others = number // 2, []
        for column in columns:
            turn, place = divmod(turn, len(column))
            others.append([*column][place])
        found.append((row, *others))
    return found


def quick_on(loop: str) -> pytest.MarkDecorator:
    """Run a test on this event loop only; with `--full` on both. For long tests that depend little on the loop.

    Args:
        loop: `asyncio` or `trio`.
    """
    return pytest.mark.parametrize("anyio_backend", sized([loop], ["asyncio", "trio"]), indirect=True)
