"""Work in proportion to clients' data, away from the event loop, so that other requests and runs go on.

A thread alone is not enough: a call of C code holds the interpreter lock, and the loop with it, until it returns. So
what is large is worked on in a thread, and in pieces, see `orchestrator.jsontypes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from orchestrator.jsontypes import is_small

T = TypeVar("T")
_AT_ONCE = 4
_threads: RunVar[CapacityLimiter] = RunVar("threads for large values")


async def away(function: Callable[[], T], *of: object) -> T:
    """Call what takes time: here if the values that it works on are small, else in a thread.

    Threads work a few at a time, which leaves other requests and runs time.

    Args:
        function: the function.
        of: all values in proportion to which it takes time; none: it takes long, or blocks.
    """
    if of and is_small(of):
        return function()
    try:
        limiter = _threads.get()
    except LookupError:
        _threads.set(limiter := CapacityLimiter(_AT_ONCE))
    return await to_thread.run_sync(function, limiter=limiter)
