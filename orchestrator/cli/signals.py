"""Signals from the start of the process to its end.

While a command works (`run_async`), SIGINT, SIGTERM or SIGHUP stops it gracefully, and a second one immediately.
Otherwise a signal ends the process with the result's exit code if the result was printed, else with 130, without a
traceback. This module is imported first, so event loops are imported when one is needed.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

    import anyio


_INTERRUPTED = 130
_GRACE = 0.2
"""Seconds after a second signal in which a result may still be written."""


class _SignalState:
    """Current effect of the signals."""

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code, once it is final."""
        self.telling = self.noted = False
        self.may_leave = False
        """True if the process may exit without Python's finalization."""
        self._before: Callable[[int, FrameType | None], object] | int | None = None
        """Handler of the alarm that `_exit_soon` replaced."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.code is not None:
            os._exit(self.code)  # the result is printed and everything is closed
        if not self.telling:
            raise KeyboardInterrupt
        if self.noted:
            self._exit_soon()
        self.noted = True

    def _exit_soon(self) -> None:
        """End the process unless the result is written in time: its reader may have stopped reading."""
        if not hasattr(signal, "setitimer"):
            os._exit(_INTERRUPTED)
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            return  # an earlier signal set it
        self._before = signal.getsignal(signal.SIGALRM) or signal.SIG_DFL  # None: it was not set from Python
        signal.signal(signal.SIGALRM, lambda *_: os._exit(_INTERRUPTED if self.code is None else self.code))
        signal.setitimer(signal.ITIMER_REAL, _GRACE)

    def disarm(self) -> None:
        """Cancel the alarm of `_exit_soon`, if set: it would end a process that takes longer to exit."""
        if self._before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            self._before = None

    def listen(self) -> None:
        """Start to handle the signals."""
        if threading.current_thread() is threading.main_thread():
            for number in stop_signals():
                signal.signal(number, self)


_ending = _SignalState()


def begin() -> None:
    """Handle the signals before and after a command handles them."""
    _ending.listen()
    _ending.may_leave = not (atexit._ncallbacks() or {"sitecustomize", "usercustomize"} & sys.modules.keys())
    atexit.register(_end)  # registered first, so it is called last, after threads have ended


@contextmanager
def lent() -> Iterator[None]:
    """Restore the signal handlers and the garbage collector at the end: the process belongs to another program."""
    main_thread = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in stop_signals()} if main_thread else {}
    thresholds = gc.get_threshold()
    try:
        yield
    finally:
        atexit.unregister(_end)
        _ending.disarm()
        _ending.code = None
        _ending.noted = _ending.may_leave = False
        gc.set_threshold(*thresholds)
        for number, handler in handlers.items():
            if handler is not None:  # a handler that was not set from Python cannot be restored
                signal.signal(number, handler)


@contextmanager
def telling(code: int) -> Iterator[None]:
    """Context in which a result with this exit code is printed. A first signal does not interrupt it."""
    _ending.telling = True
    _ending.listen()
    try:
        yield
        settle(code)  # before `telling` is reset: a signal in between would find neither flag set
    finally:
        _ending.telling = False


def settle(code: int) -> None:
    """Set the final exit code of the process, whatever signal arrives."""
    _ending.code = code
    _ending.listen()


def other_code() -> None:
    """Note that user code is about to be loaded. It may leave files open, which Python closes at exit."""
    _ending.may_leave = False


def _is_program(path: str) -> bool:
    """Return whether the process is the command: an installed script, or the package run as a module."""
    place, name = os.path.split(path)
    name = os.path.basename(place) if name == "__main__.py" else name
    return name in ("orchestrator", "orchestrator.exe", "orchestrator-script.py")


def _end() -> None:
    """End the process here, unless code may need Python's finalization, which takes a fifth of a short command.

    Finalization clears all modules and resets signal handlers. By now Python has joined threads and called all other
    exit handlers.
    """
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    _ending.disarm()
    if _ending.code is None or not _ending.may_leave or not _is_program(sys.argv[0]):
        return
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_ending.code & 0xFF)


def stop_signals() -> list[int]:
    """Return the signals that end a command."""
    hangup: signal.Signals | None = getattr(signal, "SIGHUP", None)
    ignored = hangup is None or signal.getsignal(hangup) is signal.SIG_IGN  # ignored, for example by `nohup`
    return [signal.SIGINT, signal.SIGTERM] if ignored or hangup is None else [signal.SIGINT, signal.SIGTERM, hangup]


T = TypeVar("T")


class Interrupted(Exception):
    """Raised when a signal asked the command to stop, after it has cleaned up."""


def run_async(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` in an event loop; the first signal cancels it, so that runs are checkpointed and released.

    Raises:
        Interrupted: a signal arrived, and `work` has ended because of it.
    """
    import anyio

    stop = _Stop()
    with _handled(stop):
        return anyio.run(stop.guard, work)


def run_look(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work`, of a command that has nothing to report when a signal stops it.

    Without the handlers of `run_async` a signal would raise `KeyboardInterrupt` in whichever task runs just then, and
    task groups would wrap it.

    Raises:
        KeyboardInterrupt: a signal arrived, and `work` has ended because of it.
    """
    try:
        return run_async(work)
    except Interrupted:
        raise KeyboardInterrupt from None


class _Stop:
    """Handler of the signals. It is not a task, so it is called even while a step keeps the loop busy."""

    def __init__(self) -> None:
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: anyio.CancelScope | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            os._exit(_INTERRUPTED)
        if self._loop is not None and self._scope is not None:
            self._loop.call_soon_threadsafe(self._scope.cancel)

    @property
    def came(self) -> bool:
        """Return True if a signal arrived."""
        return self._count > 0

    async def guard(self, work: Callable[[], Awaitable[T]]) -> T:
        import asyncio

        import anyio

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
        # After a first signal, a second one ends the process at any time, also while its result is being printed.
        if not stop.came:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
