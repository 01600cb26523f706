"""Waiting for others, and what becomes of who waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

Aside: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""What is done around waiting: others can have meanwhile what the waiting one holds beside."""


async def locked(lock: anyio.Lock, aside: Aside) -> None:
    """Acquire a lock; what is held beside it is let go while it is waited for."""
    try:
        lock.acquire_nowait()
        return
    except anyio.WouldBlock:
        pass
    owned = False
    try:
        async with aside():
            await lock.acquire()
            owned = True
    except BaseException:
        if owned:
            lock.release()
        raise


def is_open(loop: anyio.lowlevel.EventLoopToken) -> bool:
    """Return whether an event loop has not been closed."""
    native: Any = loop.native_token
    if hasattr(native, "is_closed"):
        return not native.is_closed()
    try:
        native.run_sync_soon(lambda: None)
    except RuntimeError:
        return False
    return True
