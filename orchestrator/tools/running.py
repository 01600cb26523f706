"""Functions of users are run: async ones in the event loop, sync ones in a thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import anyio.to_thread
from anyio import CapacityLimiter

from orchestrator.graph.signatures import is_async


async def run_function(call: Callable[[], Any], *, inline: bool = False, limiter: CapacityLimiter | None = None) -> Any:
    """What a function gives, awaited if it is awaitable.

    A sync function runs in a thread, which goes on by itself if the caller is cancelled.

    Args:
        inline: a sync function is quick, and runs here.
        limiter: how many threads there may be.
    """
    if inline or is_async(call):
        found = call()
    else:
        # Inside of something: trio takes no coroutine out of a thread, which a sync function may well return.
        (found,) = await anyio.to_thread.run_sync(lambda: (call(),), abandon_on_cancel=True, limiter=limiter)
    return await found if inspect.isawaitable(found) else found
