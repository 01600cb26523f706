"""For callers without an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio
import anyio.lowlevel

T = TypeVar("T")


def run_sync(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work()` in an event loop of its own, and return its result.

    Where a loop runs already, as in a notebook, that loop is another thread's: this call blocks the caller's.
    """
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:  # no loop runs here
        return anyio.run(work)
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(anyio.run, work).result()
