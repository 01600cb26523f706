"""Signals before a command is known, while its result is printed, and until the process has ended.

In between `interrupts.run_async` handles them. The exit code is the result's as soon as the result is printed, and 130
before; there is never a traceback.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_INTERRUPTED = 130
_GRACE = 0.2
"""Seconds that a second signal leaves to a result that is being written, and the end to a thread."""


class _SignalState:
    """What the signals do at the moment."""

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code that is certain by now."""
        self.telling = self.noted = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None
        """What handled the alarm before `_exit_soon` set it."""

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
        self._before = signal.getsignal(signal.SIGALRM) or signal.SIG_DFL  # None: it was not set from Python
        signal.signal(signal.SIGALRM, lambda *_: os._exit(_INTERRUPTED if self.code is None else self.code))
        signal.setitimer(signal.ITIMER_REAL, _GRACE)

    def disarm(self) -> None:
        """Take back the alarm of `_exit_soon`, if it was set: it would end a process that takes longer to end."""
        if self._before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            self._before = None

    def listen(self) -> None:
        """Handle the signals from now on."""
        if threading.current_thread() is threading.main_thread():
            for number in stop_signals():
                signal.signal(number, self)


_ending = _SignalState()
_KNOWN = {
    "annotated_doc", "annotated_types", "anyio", "cython_runtime", "graphviz", "griffe", "networkx", "orchestrator",
    "pydantic", "pydantic_core", "rich", "shellingham", "sniffio", "typer", "typing_extensions", "typing_inspection",
    "yaml",
}  # fmt: skip
"""Packages that leave nothing to the end of a process but what they register for it."""
_KNOWN_BEGINS = ("_cython_", "_distutils_hack", "_sysconfigdata_", "_virtualenv", "__editable__")
"""How names of modules begin that packages, installations and environments add."""
_PROGRAMS = {"orchestrator", "orchestrator.exe", "orchestrator-script.py"}
"""Programs that do nothing after the command: what installers write, and the package itself (its `__main__.py`)."""


def begin() -> None:
    """Handle the signals until a command does, and after it."""
    _ending.listen()
    atexit.register(_ignore)  # as the first: so it is called last, and Python's own end takes the handlers away


@contextmanager
def lent() -> Iterator[None]:
    """The process is another program's: signals and the search for garbage are afterwards as they were before."""
    main_thread = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in stop_signals()} if main_thread else {}
    thresholds = gc.get_threshold()
    try:
        yield
    finally:
        atexit.unregister(_ignore)
        _ending.disarm()
        _ending.code = None
        _ending.noted = False
        gc.set_threshold(*thresholds)
        for number, handler in handlers.items():
            if handler is not None:  # one that was not set from Python cannot be set again
                signal.signal(number, handler)


@contextmanager
def telling(code: int) -> Iterator[None]:
    """A result is told in here that means this exit code. A first signal does not keep it from being told whole."""
    _ending.telling = True
    _ending.listen()
    try:
        yield
        settle(code)  # before the telling is over: in between a signal would find neither
    finally:
        _ending.telling = False


def settle(code: int) -> None:
    """The process ends with this exit code, whatever signal comes."""
    _ending.code = code
    _ending.listen()


def leave(code: object) -> None:
    """End the process with a command's exit code, unless something may have been left to Python's own end.

    Exit handlers are called, and the streams flushed. What is saved is taking all modules apart one by one, and the
    search for garbage among them, which is a fifth of a command. Code that is not known to do without, such as that of
    a graph in a file, may have open files that are written when they are taken apart: then, and when threads still run,
    a stream cannot be written, or a profiler, a debugger or another program called the command, this returns.

    Args:
        code: the code, as in `SystemExit`.
    """
    if not isinstance(code, int) or not _is_whole_program() or not _all_known() or _threads_run():
        return
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code & 0xFF)


def _is_whole_program() -> bool:
    """Whether the process does nothing after the command."""
    place, program = os.path.split(getattr(sys.modules["__main__"], "__file__", None) or "")
    if (os.path.basename(place) if program == "__main__.py" else program) not in _PROGRAMS:
        return False
    if sys.flags.inspect or os.environ.get("PYTHONINSPECT"):
        return False
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "__main__":
        frame = frame.f_back  # those of the command
    names = frame and frame.f_globals
    while frame is not None and frame.f_globals is names:
        frame = frame.f_back  # of the program
    while frame is not None and frame.f_globals.get("__name__") == "runpy":
        frame = frame.f_back  # of `python -m`
    return frame is None


def _all_known() -> bool:
    """Whether all modules of the process are Python's, this library's, or of packages that it depends on."""
    library = os.path.dirname(os.__file__) + os.sep
    for name in {name.partition(".")[0] for name in sys.modules}:
        if name in sys.stdlib_module_names:
            place = getattr(sys.modules.get(name), "__file__", None)
            if place is not None and not place.startswith(library):
                return False  # a file of the user's with the name of a module that this Python lacks
        elif name not in _KNOWN and name != "__main__" and not name.startswith(_KNOWN_BEGINS):
            return False
    return True


def _threads_run() -> bool:
    """Whether threads that Python would wait for go on. Those of an event loop that has ended end in a moment."""
    threads = [one for one in threading.enumerate() if one is not threading.current_thread() and not one.daemon]
    for thread in threads:
        thread.join(_GRACE)
    return any(thread.is_alive() for thread in threads)


def _ignore() -> None:
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    _ending.disarm()


def stop_signals() -> list[int]:
    """The signals that end a command."""
    hangup: signal.Signals | None = getattr(signal, "SIGHUP", None)
    ignored = hangup is None or signal.getsignal(hangup) is signal.SIG_IGN  # as by `nohup`
    return [signal.SIGINT, signal.SIGTERM] if ignored or hangup is None else [signal.SIGINT, signal.SIGTERM, hangup]
