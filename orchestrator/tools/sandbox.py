"""An interpreter in its own process: pydantic-monty, which gives code no files, network or processes.

`Sandbox.run` runs code that only computes. `Sandbox.start` runs code that may call functions of the host: it returns at
each call, and `Sandbox.resume` continues with the result, so that the host can wait in between as long as it likes.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import os
import pathlib
import re
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio.to_thread
from pydantic import JsonValue

from orchestrator.errors import ToolError, install_command
from orchestrator.user_code import fenced

if TYPE_CHECKING:
    from pydantic_monty import MontySession, OSPolicy, ResourceLimits

T = TypeVar("T")

NEEDED = f"the package pydantic-monty: {install_command('sandbox')}"
"""The package that runs code, with the command that installs it."""
_GRACE = 5.0
"""Seconds beyond its limit after which a process is killed from outside."""
_SUSPENSIONS = 20_000
"""Maximum number of times that the code of a sandbox asks the host."""
_MOST_PASSED = 1_000_000
"""Maximum number of characters and values that one call of a function of the host is given."""
_LOSING = ("time limit exceeded", "worker exceeded", "memory limit", "suspension limit")
"""Words in the errors of limits."""
_NOT_FROM_HERE = "cannot suspend in this synchronous context"
"""Words in the error of a call of the host that built-in code makes, such as `map`."""
_DEEPEST = 30
_LEAVES = (
    bool,
    float,
    complex,
    type(None),
    type(...),
    type,
    range,
    re.Pattern,
    decimal.Decimal,
    pathlib.PurePath,
    dt.date,
    dt.time,
    dt.timedelta,
    dt.tzinfo,
    BaseException,
)
_BRACKETS: dict[type, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}"}


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of code in a sandbox."""

    memory: int
    """Bytes of memory."""
    seconds: float
    """Seconds that code may run, and also the seconds that it may sleep."""
    depth: int
    """Maximum depth of nested calls."""
    output: int
    """Characters kept of the printed text, and again of the value."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of a piece of code."""

    printed: str
    value: str
    """The `repr` of its last expression; empty if there is none, or it is None."""
    error: str | None
    """Traceback of its error; None if it succeeded."""


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a function of the host, for whose result the code waits."""

    name: str
    """Its name; one of `HOST` for what the code asks the system."""
    args: tuple[JsonValue, ...] = ()
    kwargs: Mapping[str, JsonValue] = field(default_factory=dict)


HOST = ("time.time", "datetime.now", "date.today", "os.urandom")
"""What the code asks the system if the sandbox is reproducible: the host answers with the same values each time."""
Answer: TypeAlias = "dict[str, Any]"
"""`{"return_value": ...}`, or `{"exc_type": ..., "message": ...}` for an exception raised in the code."""


class Sandbox:
    """An interpreter that keeps its variables between pieces of code. Its methods block; any thread may `kill` it."""

    def __init__(self, limits: SandboxLimits, *, reproducible: bool = False) -> None:
        """
        Args:
            limits: the limits of each piece of code.
            reproducible: whether equal code does the same each time, given equal answers of the host: the host answers
                for the clock and for random numbers (`HOST`), and sleeping takes no time.

        Raises:
            ToolError: the package is not installed.
        """
        try:
            from pydantic_monty import Monty
        except ImportError:
            raise ToolError(f"running code needs {NEEDED}") from None
        self.ran = 0
        """Number of pieces of code run so far."""
        self.lost = False
        """True if the interpreter must not be used again."""
        self._limits = limits
        self._reproducible = reproducible
        self._gone = threading.Event()
        self._running = threading.Lock()
        self._printed = _Printed(limits.output)
        self._waiting: Any = None
        """The snapshot of code that waits for the host."""
        self._functions: Collection[str] = ()
        held: ResourceLimits = {
            "max_memory": limits.memory,
            "max_feed_duration_secs": limits.seconds,
            "max_recursion_depth": limits.depth,
            "max_total_sleep_secs": limits.seconds,
            "max_suspensions": _SUSPENSIONS,
        }
        policy: OSPolicy = {"sleep_system_max": math.inf}
        if reproducible:
            policy = {"datetime": "call_host", "random_start": "call_host", "sleep": "zero"}
        try:
            with ExitStack() as stack:
                # A pool of one process: sandboxes never share a process.
                pool = stack.enter_context(Monty(max_processes=1, request_timeout=2 * limits.seconds + _GRACE))
                self._session: MontySession = stack.enter_context(pool.checkout(limits=held, os_policy=policy))
                self._pid = self._session.worker_pid
                self._stack = stack.pop_all()
        except OSError as error:
            raise ToolError(f"the sandbox cannot be started: {error}") from None

    def run(self, code: str, variables: Mapping[str, Any]) -> Ran:
        """Run code to its end or its limit.

        Args:
            variables: plain JSON, set before the code starts.
        """
        printed = self._begun()

        def work() -> Ran:
            found = self._session.feed_run(code, inputs=dict(variables), print_callback=printed.add)
            return self._ended(found)

        return self._guarded(work)

    def start(self, code: str, functions: Collection[str]) -> Called | Ran:
        """Run code up to its first call of a function of the host, its end, or its limit.

        Args:
            functions: the names of the functions that it may call.
        """
        printed = self._begun()
        self._functions = functions
        return self._guarded(lambda: self._until_call(self._session.feed_start(code, print_callback=printed.add)))

    def resume(self, answer: Answer) -> Called | Ran:
        """Continue code that waits for the result of a call; see `start`."""
        waiting, self._waiting = self._waiting, None
        return self._guarded(lambda: self._until_call(waiting.resume(answer)))

    def stopped(self, error: str) -> Ran:
        """Give up code that waits for the result of a call, with what it printed so far."""
        self.lost, self._waiting = True, None
        return Ran(self._printed.text(), "", error)

    def _begun(self) -> _Printed:
        self.ran += 1
        self._printed = _Printed(self._limits.output)
        return self._printed

    def _ended(self, found: object) -> Ran:
        return Ran(self._printed.text(), "" if found is None else shown_value(found, self._limits.output), None)

    def _until_call(self, snapshot: Any) -> Called | Ran:
        from pydantic_monty import FunctionSnapshot, MontyComplete, NameLookupSnapshot

        while not isinstance(snapshot, MontyComplete):
            if isinstance(snapshot, NameLookupSnapshot):
                known = snapshot.object_id is None and snapshot.variable_name in self._functions
                snapshot = snapshot.resume(value=_function(snapshot.variable_name)) if known else snapshot.resume()
            elif not isinstance(snapshot, FunctionSnapshot):  # futures, which the host never gives
                raise ValueError("the code waits for something that never comes")
            elif snapshot.is_os_function and snapshot.function_name not in HOST:
                snapshot = snapshot.resume_not_handled()
            elif not snapshot.is_os_function and snapshot.function_name not in self._functions:
                words = f"name {snapshot.function_name!r} is not defined"
                snapshot = snapshot.resume({"exc_type": "NameError", "message": words})
            elif snapshot.is_os_function:
                self._waiting = snapshot
                return _asked(snapshot.function_name, snapshot.args)
            else:
                try:
                    called = _called(snapshot.function_name, snapshot.args, snapshot.kwargs)
                except TypeError as error:
                    snapshot = snapshot.resume({"exc_type": "TypeError", "message": str(error)})
                else:
                    self._waiting = snapshot
                    return called
        return self._ended(snapshot.output)

    def _guarded(self, work: Callable[[], T]) -> T | Ran:
        """Run code, and return its error as a result.

        Where a time limit, or the end of the process, stops code depends on the machine. The error has no measured
        time, and if the sandbox is reproducible, the result has nothing that was printed before it.
        """
        from pydantic_monty import MontyCrashedError, MontyError, MontyRuntimeError, MontySyntaxError

        timed = False
        try:
            with self._running:
                return work()
        except MontyCrashedError as crash:
            self.lost = True
            self._gone.set()
            error, timed = "MemoryError or TimeoutError: the sandbox died", True
            error += "" if self._reproducible else f" ({crash})"
        except (MontyRuntimeError, MontySyntaxError) as raised:
            error = raised.display()
            # A limit stops code anywhere, so its state cannot be relied on. Code can raise the same error with the same
            # message, and then loses its variables; other errors do not matter.
            self.lost = isinstance(raised.exception(), MemoryError | TimeoutError | RuntimeError) and any(
                words in error for words in _LOSING
            )
            if self.lost and isinstance(raised.exception(), TimeoutError):
                error, timed = f"TimeoutError: more than {self._limits.seconds:g} s", True
            if _NOT_FROM_HERE in error:
                error += ": call it in a loop or a comprehension, not by map, filter, key= or a method such as __repr__"
        except MontyError as raised:
            error = f"{type(raised).__name__}: {raised}"
        except ValueError as raised:  # a value that cannot be represented here
            error = f"ValueError: {raised}"
        if len(error) > self._limits.output:
            error = f"{error[: self._limits.output]}..."
        if timed and self._reproducible:
            return Ran("", "", f"{error}; what the code printed is left out")
        return Ran(self._printed.text(), "", error)

    def kill(self) -> None:
        """Stop the running code; the call that waits for it raises an error."""
        if self._pid is not None and not self._gone.is_set():
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """End the interpreter's process."""
        with self._running:  # a killed call has to finish first
            self._gone.set()
            self._stack.close()


async def in_thread(sandbox: Sandbox, work: Callable[..., T], *args: object) -> T:
    """Call a method of a sandbox in a thread. A cancellation stops the code."""
    try:
        return await anyio.to_thread.run_sync(fenced(partial(work, *args)), abandon_on_cancel=True)
    except BaseException:
        sandbox.kill()
        raise


def _function(name: str) -> Callable[..., None]:
    """Return what stands for a function of the host, by its name."""

    def function() -> None: ...

    function.__name__ = function.__qualname__ = name
    return function


def _asked(name: str, args: Sequence[object]) -> Called:
    """Return what the code asks the system: the offset of a time zone in seconds, or a number of bytes."""
    first = args[0] if args else None
    if isinstance(first, dt.tzinfo):
        offset = first.utcoffset(dt.datetime(2000, 1, 1))
        return Called(name, (0.0 if offset is None else offset.total_seconds(),))
    return Called(name, (first,) if name == "os.urandom" and isinstance(first, int) else ())


def _called(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> Called:
    """Return a call with its arguments as plain JSON.

    Raises:
        TypeError: an argument is not JSON, or they are too large.
    """
    left = [_MOST_PASSED]
    given = tuple(_plain(one, name, left, 0) for one in args)
    return Called(name, given, {key: _plain(one, name, left, 0) for key, one in kwargs.items()})


def _plain(value: Any, name: str, left: list[int], depth: int) -> JsonValue:
    """Return a value as plain JSON. A list that holds another one a thousand times counts each time."""
    left[0] -= 1 + (len(value) if isinstance(value, str) else 0)
    if left[0] < 0 or depth > _DEEPEST:
        raise TypeError(f"{name}() was given more than {_MOST_PASSED:,} characters and values, or too many levels")
    if value is None or type(value) in (bool, int, float, str):
        return value  # type: ignore[no-any-return]
    if type(value) in (list, tuple):
        return [_plain(one, name, left, depth + 1) for one in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _plain(one, name, left, depth + 1) for key, one in value.items()}
    raise TypeError(f"{name}() takes numbers, texts, lists and dicts with texts as keys, not {type(value).__name__!r}")


class _Printed:
    """Printed text up to a limit; further characters are only counted."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._parts: list[str] = []
        self._dropped = 0

    def add(self, stream: str, text: str) -> None:
        taken = text[: self._left]
        self._left -= len(taken)
        self._dropped += len(text) - len(taken)
        if taken:
            self._parts.append(taken)

    def text(self) -> str:
        note = f"\n[... {self._dropped} characters left out]\n" if self._dropped else ""
        return "".join(self._parts) + note


def shown_value(value: object, limit: int) -> str:
    """Return the `repr` of a value, cut after a number of characters.

    A list may hold another list a thousand times, and that one a third: its full text would be endless, so this stops
    where `repr` would not.
    """
    found: list[str] = []
    left = limit
    for piece in _pieces(value, limit, 0):
        left -= len(piece)
        if left < 0:
            return "".join(found) + piece[:left] + "..."
        found.append(piece)
    return "".join(found)


def _pieces(value: Any, most: int, depth: int) -> Iterator[str]:
    kind = type(value)
    brackets = _BRACKETS.get(kind)
    if isinstance(value, _LEAVES):
        yield repr(value)
    elif kind is str or kind is bytes:
        yield repr(value if len(value) <= most else value[: most + 1])
    elif kind is int:
        # Converting a very long number is slow, and Python refuses to.
        yield repr(value) if value.bit_length() < 10_000 else f"<a whole number of {value.bit_length()} bits>"
    elif depth > _DEEPEST:
        yield "..."
    elif brackets is not None:
        if not value and kind in (set, frozenset):
            yield f"{kind.__name__}()"
            return
        yield ("frozenset(" if kind is frozenset else "") + brackets[0]
        yield from _inner(value.items() if kind is dict else ((item,) for item in value), most, depth)
        yield ("," if kind is tuple and len(value) == 1 else "") + brackets[1] + (")" if kind is frozenset else "")
    elif hasattr(value, "attributes") and hasattr(value, "name"):  # an object of a class defined in the sandbox
        yield f"{value.name}("
        first = True
        for name, item in dict(value.attributes).items():
            yield f"{'' if first else ', '}{name}="
            yield from _pieces(item, most, depth + 1)
            first = False
        yield ")"
    else:
        yield f"<{kind.__name__}>"


def _inner(items: Iterable[tuple[object, ...]], most: int, depth: int) -> Iterator[str]:
    first = True
    for parts in items:
        if not first:
            yield ", "
        first = False
        yield from _pieces(parts[0], most, depth + 1)
        if len(parts) > 1:
            yield ": "
            yield from _pieces(parts[1], most, depth + 1)
