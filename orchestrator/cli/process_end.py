"""Signals at the edges of a command: before it is known, while its result is told, and until the process is gone.

In between `interrupts.run_async` handles them. The exit code is the result's from when the result was told, and 130
before; there is never a traceback.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_INTERRUPTED = 130
_GRACE = 0.2
"""Seconds that a second signal leaves to a result that is being written: it may be written already."""


class _SignalState:
    """What the signals do at the moment."""

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code that is certain by now."""
        self.telling = self.noted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.code is not None:
            os._exit(self.code)  # everything is told, and closed
        if not self.telling:
            raise KeyboardInterrupt
        if self.noted:
            self._exit_soon()
        self.noted = True

    def _exit_soon(self) -> None:
        """End the process unless the result is settled in time. Whoever reads it may have stopped reading."""
        if not hasattr(signal, "setitimer"):
            os._exit(_INTERRUPTED)
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            return  # an earlier signal set it
        signal.signal(signal.SIGALRM, lambda *_: os._exit(_INTERRUPTED if self.code is None else self.code))
        signal.setitimer(signal.ITIMER_REAL, _GRACE)

    def listen(self) -> None:
        """Handle the signals from now on."""
        if threading.current_thread() is threading.main_thread():
            for number in stop_signals():
                signal.signal(number, self)


_ending = _SignalState()


def begin() -> None:
    """Handle the signals until a command does, and after it."""
    _ending.listen()
    atexit.register(_ignore)  # as the first: so it is called last, and Python's own end takes the handlers away


@contextmanager
def telling(code: int) -> Iterator[None]:
    """A result is told in here that means this exit code. A first signal does not keep it from being told whole."""
    _ending.telling = True
    _ending.listen()
    try:
        yield
    finally:
        _ending.telling = False
    settle(code)


def settle(code: int) -> None:
    """The process ends with this exit code, whatever signal comes."""
    _ending.code = code
    _ending.listen()


def _ignore() -> None:
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)


def stop_signals() -> list[int]:
    """The signals that end a command."""
    hangup: signal.Signals | None = getattr(signal, "SIGHUP", None)
    ignored = hangup is None or signal.getsignal(hangup) is signal.SIG_IGN  # as by `nohup`
    return [signal.SIGINT, signal.SIGTERM] if ignored or hangup is None else [signal.SIGINT, signal.SIGTERM, hangup]
