"""An interpreter in its own process: pydantic-monty, which gives code no files, network or processes."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import os
import pathlib
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from pydantic import JsonValue

from orchestrator.errors import ToolError, install_command
from orchestrator.tools.pool import Pool
from orchestrator.tools.result import ToolFailure, ToolResult
from orchestrator.tools.tool import Tool
from orchestrator.user_code import fenced

if TYPE_CHECKING:
    from pydantic_monty import MontySession, ResourceLimits

MISSING = f'the tool "python" needs the package pydantic-monty: {install_command("sandbox")}'
_GRACE = 5.0
"""Seconds beyond its limit after which a process is killed from outside."""
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
_LONGEST = 100_000
"""Maximum number of characters of code."""
_FOREVER = 1e9
"""Maximum number of seconds of a time limit."""


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


class Sandbox:
    """An interpreter that keeps its variables between pieces of code. Its methods block; any thread may `kill` it."""

    def __init__(self, limits: SandboxLimits) -> None:
        """
        Raises:
            ToolError: the package is not installed.
        """
        try:
            from pydantic_monty import Monty
        except ImportError:
            raise ToolError(MISSING) from None
        self.ran = 0
        """Number of pieces of code run so far."""
        self.lost = False
        """True if the interpreter must not be used again."""
        self._limits = limits
        self._gone = threading.Event()
        self._running = threading.Lock()
        held: ResourceLimits = {
            "max_memory": limits.memory,
            "max_feed_duration_secs": limits.seconds,
            "max_recursion_depth": limits.depth,
            "max_total_sleep_secs": limits.seconds,
        }
        try:
            with ExitStack() as stack:
                # A pool of one process: sandboxes never share a process.
                pool = stack.enter_context(Monty(max_processes=1, request_timeout=2 * limits.seconds + _GRACE))
                checkout = pool.checkout(limits=held, os_policy={"sleep_system_max": math.inf})
                self._session: MontySession = stack.enter_context(checkout)
                self._pid = self._session.worker_pid
                self._stack = stack.pop_all()
        except OSError as error:
            raise ToolError(f"the sandbox cannot be started: {error}") from None

    def run(self, code: str, variables: Mapping[str, Any]) -> Ran:
        """Run code to its end or its limit.

        Args:
            variables: plain JSON, set before the code starts.
        """
        from pydantic_monty import MontyCrashedError, MontyError, MontyRuntimeError, MontySyntaxError

        self.ran += 1
        printed = _Printed(self._limits.output)
        value, error = "", None
        try:
            with self._running:
                found = self._session.feed_run(code, inputs=dict(variables), print_callback=printed.add)
            value = "" if found is None else shown_value(found, self._limits.output)
        except MontyCrashedError as crash:
            self.lost = True
            self._gone.set()
            error = f"MemoryError or TimeoutError: the sandbox died ({crash})"
        except (MontyRuntimeError, MontySyntaxError) as raised:
            error = raised.display()
            # A limit stops code anywhere, so its state cannot be relied on. Code can raise the same error with the same
            # message, and then loses its variables; other errors do not matter.
            self.lost = isinstance(raised.exception(), MemoryError | TimeoutError) and any(
                words in error for words in ("time limit exceeded", "worker exceeded", "memory limit")
            )
        except MontyError as raised:
            error = f"{type(raised).__name__}: {raised}"
        except ValueError as raised:  # a value that cannot be represented here
            error = f"ValueError: {raised}"
        if error is not None and len(error) > self._limits.output:
            error = f"{error[: self._limits.output]}..."
        return Ran(printed.text(), value, error)

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


class _Sandboxed(Tool):
    """Base class of `Python` and `PythonSession`."""

    name = "python"
    risk = "none"
    effect = "pure"
    group = "python"

    def __init__(
        self, *, memory: int = 64 << 20, seconds: float = 10.0, depth: int = 200, output_limit: int = 10_000
    ) -> None:
        """
        Args:
            memory: bytes of memory that code may use.
            seconds: seconds that it may run, and also the seconds that it may sleep.
            depth: maximum depth of nested calls.
            output_limit: characters kept of the printed text, and again of the value.

        Raises:
            ValueError: a limit is not positive, or not a number (NaN).
            TypeError: a limit is not a number.
        """
        whole = {"memory": memory, "depth": depth, "output_limit": output_limit}
        for name, value in whole.items():
            if not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]  the sandbox would say it late
                raise TypeError(f"Python: {name}={value!r} is not a whole number")
            if not 0 < value < 1 << 63:
                raise ValueError(f"Python: {name}={value!r}: limits must be positive and finite")
        if not 0 < seconds <= _FOREVER:
            raise ValueError(f"Python: seconds={seconds!r}: limits must be positive and finite")
        self._limits = SandboxLimits(memory, seconds, depth, output_limit)


class Python(_Sandboxed):
    """Python code, run by an interpreter that can only compute. Each call starts with no variables.

        Python(memory=256 << 20, seconds=30)

    The interpreter is [pydantic-monty](https://github.com/pydantic/monty), a subset of Python written in Rust, in its
    own process: without files, environment, network, processes or other packages. Memory, time, depth of calls and
    output are limited. A call has no effect besides its output, so its effect is `pure` and its risk `none`.
    """

    async def call(self, code: str, variables: dict[str, JsonValue] | None = None) -> ToolResult:
        """Run Python code, and return what it prints and the value of its last expression.

        Available are the usual built-in functions and math, json, re, datetime, itertools, collections, functools,
        random, decimal, dataclasses, typing and a few more modules of the standard library. There are no files, no
        network and no other packages. Variables of earlier calls are not kept.

        Args:
            code: the code. End with an expression, or print the result.
            variables: variables that are set before the code runs.
        """
        _check(code, variables)
        sandbox = await anyio.to_thread.run_sync(Sandbox, self._limits)
        try:
            return _result_of(await _ran(sandbox, code, variables))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(sandbox.close)


class PythonSession(_Sandboxed):
    """Like `Python`, but the calls of a run share an interpreter with its variables and functions, and are made one
    after the other.

    These are lost when a limit is reached, and when the run is stopped and resumed, as they are not journaled. The
    first output of a new interpreter is marked.
    """

    def __init__(
        self,
        *,
        memory: int = 64 << 20,
        seconds: float = 10.0,
        depth: int = 200,
        output_limit: int = 10_000,
        interpreters: int = 16,
    ) -> None:
        """
        Args:
            memory: bytes of memory that one interpreter may use.
            seconds: seconds that a call may run; also the seconds that all calls together may sleep.
            depth: maximum depth of nested calls.
            output_limit: characters kept of a call's printed text, and again of its value.
            interpreters: number of runs that may have one at the same time; others wait until one is released.

        Raises:
            ValueError: a limit is not positive, or not a number (NaN).
            TypeError: a limit is not a number.
        """
        super().__init__(memory=memory, seconds=seconds, depth=depth, output_limit=output_limit)
        self.pool = Pool[Sandbox](partial(Sandbox, self._limits), interpreters, check=lambda one: not one.lost)

    async def call(self, code: str, env: Sandbox, variables: dict[str, JsonValue] | None = None) -> ToolResult:
        """Run Python code, and return what it prints and the value of its last expression.

        Available are the usual built-in functions and math, json, re, datetime, itertools, collections, functools,
        random, decimal, dataclasses, typing and a few more modules of the standard library. There are no files, no
        network and no other packages. Variables and functions are kept for the next call.

        Args:
            code: the code. End with an expression, or print the result.
            variables: variables that are set before the code runs.
        """
        _check(code, variables)
        notes = [] if env.ran else ["[a new interpreter: the variables of earlier code are gone]"]
        ran = await _ran(env, code, variables)
        if env.lost:
            notes.append("[the variables are lost; the next code gets a new interpreter]")
        return _result_of(ran, *notes)


def _check(code: str, variables: dict[str, JsonValue] | None) -> None:
    if len(code) > _LONGEST:
        raise ToolError(f"the code has {len(code)} characters, and the limit is {_LONGEST}")
    if wrong := [name for name in variables or {} if not name.isidentifier()]:
        raise ToolError(f"{wrong[0]!r} is not the name of a variable")


async def _ran(sandbox: Sandbox, code: str, variables: dict[str, JsonValue] | None) -> Ran:
    try:
        return await anyio.to_thread.run_sync(
            fenced(partial(sandbox.run, code, variables or {})), abandon_on_cancel=True
        )
    except BaseException:
        sandbox.kill()
        raise


def _result_of(ran: Ran, *notes: str) -> ToolResult:
    text = "\n".join(part.removesuffix("\n") for part in (ran.printed, ran.value, *notes) if part)
    if ran.error is None:
        return ToolResult(output=text or "(no output: end with an expression, or print)")
    words = "\n".join(part.removesuffix("\n") for part in (ran.printed, ran.error, *notes) if part)
    return ToolFailure(output=text or None, error=words)


if find_spec("pydantic_monty") is None:  # reported when the tool is named, and not only when a model calls it
    raise ImportError(MISSING)
python = Python()
