"""An interpreter in a process of its own: pydantic-monty, which has no files, network or processes to give away."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ToolError, install_command
from orchestrator.tools.builtin.python.shown import shown_value

if TYPE_CHECKING:
    from pydantic_monty import MontySession, ResourceLimits

MISSING = f'the tool "python" needs the package pydantic-monty: {install_command("sandbox")}'
_GRACE = 5.0
"""Seconds beyond its limit after which a process is killed from outside."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What code in a sandbox may use."""

    memory: int
    """Bytes of memory."""
    seconds: float
    """Seconds that it may run, and as many that it may sleep."""
    depth: int
    """Calls inside of each other."""
    output: int
    """Characters of what it prints, and again of its value, that are kept."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a piece of code."""

    printed: str
    value: str
    """The value of its last expression as Python writes it; empty if there is none, or it is None."""
    error: str | None
    """The traceback of what it raised."""


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
        """How many pieces of code it was given."""
        self.lost = False
        """Whether it is not to be used again."""
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
                # A pool of one: nothing of one sandbox is ever in the process of another.
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
            variables: plain JSON, set before it begins.
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
            # A limit stops code at any place, so nothing that it worked on can be relied on. Code can raise the same
            # error with the same words, and loses its variables then; others may say what they like.
            self.lost = isinstance(raised.exception(), MemoryError | TimeoutError) and any(
                words in error for words in ("time limit exceeded", "worker exceeded", "memory limit")
            )
        except MontyError as raised:
            error = f"{type(raised).__name__}: {raised}"
        except ValueError as raised:  # a value that this side cannot hold
            error = f"ValueError: {raised}"
        if error is not None and len(error) > self._limits.output:
            error = f"{error[: self._limits.output]}..."
        return Ran(printed.text(), value, error)

    def kill(self) -> None:
        """End what runs now; whoever waits for it gets an error."""
        if self._pid is not None and not self._gone.is_set():
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """End the interpreter's process."""
        with self._running:  # what was killed still has to notice
            self._gone.set()
            self._stack.close()


class _Printed:
    """What is printed, up to a limit; the rest is counted."""

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
