"""Waiting for others, and what becomes of who waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import anyio

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
