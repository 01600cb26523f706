"""SIGINT, SIGTERM and SIGHUP while a command works: the first one stops it in good order, the second one at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import anyio

from orchestrator.cli.exits import INTERRUPTED
from orchestrator.cli.signals import stop_signals

T = TypeVar("T")


class Interrupted(Exception):
    """Raised when a signal asked the command to stop, after what it did has been put in order."""


def run_async(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` in an event loop; the first signal cancels it, so that runs are checkpointed and given back.

    Raises:
        Interrupted: a signal came, and `work` has ended because of it.
    """
    stop = _Stop()
    with _handled(stop):
        return anyio.run(stop.guard, work)


def run_look(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work`, of a command that has nothing to report when a signal stops it.

    Without the handlers of `run_async` a signal would raise `KeyboardInterrupt` in whichever task runs just then, and
    task groups would wrap it.

    Raises:
        KeyboardInterrupt: a signal came, and `work` has ended because of it.
    """
    try:
        return run_async(work)
    except Interrupted:
        raise KeyboardInterrupt from None


class _Stop:
    """Handler of the signals. It is no task, so that it is called even while a step keeps the loop busy."""

    def __init__(self) -> None:
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: anyio.CancelScope | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            os._exit(INTERRUPTED)
        if self._loop is not None and self._scope is not None:
            self._loop.call_soon_threadsafe(self._scope.cancel)

    @property
    def came(self) -> bool:
        """True if a signal came."""
        return self._count > 0

    async def guard(self, work: Callable[[], Awaitable[T]]) -> T:
        with anyio.CancelScope() as scope:
            self._scope, self._loop = scope, asyncio.get_running_loop()
            if self._count:
                scope.cancel()
            return await work()
        raise Interrupted


@contextmanager
def _handled(stop: _Stop) -> Iterator[None]:
    numbers = stop_signals()
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        # After a first signal the second one ends the process whenever it comes, also while its end is being told.
        if not stop.came:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
