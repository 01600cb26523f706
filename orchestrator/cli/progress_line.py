"""One line on stderr that counts while a long command works; only on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Self

_EVERY = 0.1
"""Seconds between two updates."""


class ProgressLine:
    """Counts what is done. Use it in a `with` block, whose end removes the line.

    Args:
        what: what is counted, such as `runs copied`.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = False
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def show(self, done: int, total: int | None = None) -> None:
        """Show how much is done."""
        now = time.monotonic()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next = now + _EVERY
        self._shown = True
        print(
            f"\r{done:,}{'' if total is None else f' of {total:,}'} {self._what}", end="", file=sys.stderr, flush=True
        )

    def __exit__(self, *error: object) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
