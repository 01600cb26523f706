"""SIGTERM while executors are open: their runs are checkpointed and given back, then the process ends by the signal.

Without this the signal would end the process at once, and whoever goes on with its runs would find leases of a
dead holder and lack what was not written yet. A program that handles SIGTERM itself is left alone, and so is one
whose executors are open in other threads than the main one: those close its executors, or are killed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import anyio
import anyio.lowlevel


class _Guarded:
    """The executors that are open in the main thread of this process."""

    def __init__(self) -> None:
        self.tell: dict[anyio.Event, Callable[[], object]] = {}
        self.told = False
        self.process = 0

    def listen(self) -> bool:
        """Hear the signal, if nobody else wants to."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and not self.told:
            self.process = os.getpid()
            signal.signal(signal.SIGTERM, self.hear)
        return signal.getsignal(signal.SIGTERM) == self.hear

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Have all executors stop. A second signal ends the process at once, and so does one that a fork gets."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.told = os.getpid() == self.process
        for event, tell in list(self.tell.items() if self.told else ()):
            try:
                tell()
            except RuntimeError:  # its event loop is gone, and could not close it
                del self.tell[event]
        if not self.told or not self.tell:
            os.kill(os.getpid(), signal.SIGTERM)

    def leave(self, event: anyio.Event) -> None:
        """One executor is closed, or has stopped."""
        self.tell.pop(event, None)
        if self.tell:
            return
        if self.told:
            os.kill(os.getpid(), signal.SIGTERM)
        elif signal.getsignal(signal.SIGTERM) == self.hear:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


_guarded = _Guarded()


async def guard(stop: Callable[[], Awaitable[None]]) -> None:
    """Call `stop` when the process is told to terminate, and let it end after that."""
    if not _guarded.listen():
        return
    event = anyio.Event()
    loop: Any = anyio.lowlevel.current_token().native_token
    soon = loop.call_soon_threadsafe if hasattr(loop, "call_soon_threadsafe") else loop.run_sync_soon
    _guarded.tell[event] = lambda: soon(event.set)
    try:
        await event.wait()
    finally:
        if _guarded.told:
            with anyio.CancelScope(shield=True):
                await stop()
        _guarded.leave(event)
