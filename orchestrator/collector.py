"""The threshold of Python's garbage collector.

Python looks for garbage after every 700 new objects (2,000 in newer versions), and each search that reaches the oldest
generation looks at all objects of the process. What a live run holds is no garbage, so searches take a growing part of
the time the more runs are live.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

COMMAND = 200_000
"""The threshold of commands, among them `serve` and `worker`."""

_lock = Lock()
_held: list[int] = []
"""Thresholds that open blocks hold."""
_outside = gc.get_threshold()
"""The thresholds before the first of these blocks."""


def checked(objects: int | None) -> int | None:
    """Return a threshold that is a positive number or None.

    Raises:
        ValueError: it is not.
    """
    if objects is not None and objects < 1:
        raise ValueError(f"gc_threshold={objects!r}: give a positive number of objects, or None")
    return objects


@contextmanager
def threshold(objects: int | None) -> Iterator[None]:
    """Hold a threshold within the block; of several that overlap, the highest counts. The end of the last restores it.

    Args:
        objects: number of new objects after which garbage is looked for; None: as in the rest of the process.
    """
    if objects is None:
        yield
        return
    global _outside
    with _lock:
        if not _held:
            _outside = gc.get_threshold()
        _held.append(objects)
        gc.set_threshold(max(_held), *_outside[1:])
    try:
        yield
    finally:
        with _lock:
            _held.remove(objects)
            gc.set_threshold(max(_held, default=_outside[0]), *_outside[1:])
