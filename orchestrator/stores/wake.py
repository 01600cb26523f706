"""Waiting, in asyncio or trio, for something that another thread does.

`anyio.to_thread` would take a thread per call; here one thread serves every call and wakes each caller
through the one thread-safe door that its event loop has.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from anyio import CancelScope

if TYPE_CHECKING:
    import trio

__all__ = ["Ticket"]

T = TypeVar("T")


class Ticket(Generic[T]):
    """The result-to-be of work that another task, or another thread, does."""

    __slots__ = ("_error", "_signal", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        """Whether the work is done, or has raised."""
        self._value: T | None = None
        self._error: BaseException | None = None
        self._signal: _AsyncioSignal | _TrioSignal | None = None

    def finish(self, value: T) -> None:
        """Called once, in whatever thread: the work is done."""
        self._value = value
        self._tell()

    def fail(self, error: BaseException) -> None:
        """Called once, in whatever thread: the work raised."""
        self._error = error
        self._tell()

    def _tell(self) -> None:
        # In this order: whoever begins to wait leaves its signal first and then looks whether it is done.
        self.done = True
        signal = self._signal
        if signal is not None:
            signal.notify()

    async def result(self) -> T:
        """Wait for the work and give what it gave, or raise what it raised.

        Cancellation is held off until then (the work goes on anyway, and the caller must know what became of
        it). Only a bare `asyncio.Task.cancel()` breaks the wait; the work is then done all the same.
        """
        if not self.done:
            signal = self._signal = _signal()
            if not self.done:
                await signal.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # an error that refers to its own frame would keep everything in it alive
        return cast(T, self._value)


class _AsyncioSignal:
    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()

    def notify(self) -> None:
        _call(self._loop.call_soon_threadsafe, self._set)

    def _set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        with CancelScope(shield=True):
            await self._future


class _TrioSignal:
    __slots__ = ("_set", "_task", "_token", "_trio")

    def __init__(self) -> None:
        import trio

        self._trio = trio.lowlevel
        self._token = trio.lowlevel.current_trio_token()
        self._task: trio.lowlevel.Task | None = None
        self._set = False

    def notify(self) -> None:
        _call(self._token.run_sync_soon, self._wake)

    def _wake(self) -> None:
        self._set = True
        if self._task is not None:
            self._trio.reschedule(self._task)

    async def wait(self) -> None:
        if not self._set:
            self._task = self._trio.current_task()
            await self._trio.wait_task_rescheduled(lambda _: self._trio.Abort.FAILED)


def _signal() -> _AsyncioSignal | _TrioSignal:
    if "trio" in sys.modules:  # asked first: in trio's guest mode an asyncio loop may run as well
        import trio

        if trio.lowlevel.in_trio_run():
            return _TrioSignal()
    return _AsyncioSignal(asyncio.get_running_loop())


def _call(door: Callable[[Callable[[], None]], object], function: Callable[[], None]) -> None:
    # RuntimeError (trio's RunFinishedError is one): the event loop is gone, and with it whoever waited
    with contextlib.suppress(RuntimeError):
        door(function)
