"""Signals while executors are open: runs are checkpointed and released before the process ends.

The command line handles them around a whole command, in `cli.signals`.

SIGTERM would end the process at once: the next executor of its runs would find leases of a dead holder, and lack the
records not written yet. Ctrl-C (SIGINT) is handled so on trio only: trio raises `KeyboardInterrupt` wherever the main
thread happens to be, which may be in the middle of a write; asyncio cancels the main task, which interrupts its runs. A
second signal is not delayed: it acts as it would without any executor.

A program that handles a signal itself is left alone, and so is one whose executors are open in other threads than
the main one: those close its executors, or are killed.
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
    """Executors open in the main thread of this process, and the signals that stop them."""

    def __init__(self) -> None:
        self.callbacks: dict[anyio.Event, Callable[[], object]] = {}
        self.received: int | None = None
        """The signal received."""
        self.process = 0
        self._before: dict[int, Any] = {}
        """The handlers that ours replace."""

    def listen(self, *, interrupts: bool) -> bool:
        """Handle the signals that have only their default handler. Return True if any is handled here."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if self.received is None:
            self.process = os.getpid()
            self._take(signal.SIGTERM, lambda handler: handler is signal.SIG_DFL)
            if interrupts:
                self._take(signal.SIGINT, _is_of_trio)
        return any(signal.getsignal(number) == self.on_signal for number in self._before)

    def _take(self, number: int, free: Callable[[Any], bool]) -> None:
        handler = signal.getsignal(number)
        if free(handler):
            self._before[number] = handler
            signal.signal(number, self.on_signal)

    def _give_back(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self.on_signal:
                signal.signal(number, handler)
        self._before.clear()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Stop all executors. A second signal acts at once, and so does one in a forked process."""
        self._give_back()
        if os.getpid() != self.process:
            os.kill(os.getpid(), number)
            return
        self.received = number
        for event, callback in list(self.callbacks.items()):
            try:
                callback()
            except RuntimeError:  # its event loop was closed first, and it could not close
                del self.callbacks[event]
        if not self.callbacks:
            self._end()

    def leave(self, event: anyio.Event) -> None:
        """Forget an executor that is closed, or has stopped."""
        self.callbacks.pop(event, None)
        if not self.callbacks:
            self._give_back()
            if self.received is not None:
                self._end()

    def _end(self) -> None:
        number, self.received = self.received, None
        if number == signal.SIGINT:
            _interrupt()
        else:
            os.kill(os.getpid(), signal.SIGTERM)


_guarded = _Guarded()


async def stop_on_signal(stop: Callable[[], Awaitable[None]]) -> None:
    """Call `stop` when a signal is to end the process, and let the process end after that."""
    loop: Any = anyio.lowlevel.current_token().native_token
    on_trio = not hasattr(loop, "call_soon_threadsafe")
    if not _guarded.listen(interrupts=on_trio):
        return
    event = anyio.Event()
    soon = loop.run_sync_soon if on_trio else loop.call_soon_threadsafe
    _guarded.callbacks[event] = lambda: soon(event.set)
    try:
        await event.wait()
    finally:
        if _guarded.received is not None:
            with anyio.CancelScope(shield=True):
                await stop()
        _guarded.leave(event)


def _is_of_trio(handler: Any) -> bool:
    return str(getattr(handler, "__module__", "")).startswith("trio.")


def _interrupt() -> None:
    """Make trio raise `KeyboardInterrupt` in the main task, not here."""
    import trio

    @trio.lowlevel.enable_ki_protection
    def raise_it() -> None:
        signal.raise_signal(signal.SIGINT)

    raise_it()
