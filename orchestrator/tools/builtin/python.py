"""Tools that run Python code in a sandbox."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

import anyio
import anyio.to_thread
from pydantic import JsonValue

from orchestrator.errors import ToolError
from orchestrator.tools.pool import Pool
from orchestrator.tools.result import ToolFailure, ToolResult
from orchestrator.tools.sandbox import NEEDED, Ran, Sandbox, SandboxLimits, in_thread
from orchestrator.tools.tool import Tool

MISSING = f'the tool "python" needs {NEEDED}'
_LONGEST = 100_000
"""Maximum number of characters of code."""
_FOREVER = 1e9
"""Maximum number of seconds of a time limit."""


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
            return _result_of(await in_thread(sandbox, sandbox.run, code, variables or {}))
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
        ran = await in_thread(env, env.run, code, variables or {})
        if env.lost:
            notes.append("[the variables are lost; the next code gets a new interpreter]")
        return _result_of(ran, *notes)


def _check(code: str, variables: dict[str, JsonValue] | None) -> None:
    if len(code) > _LONGEST:
        raise ToolError(f"the code has {len(code)} characters, and the limit is {_LONGEST}")
    if wrong := [name for name in variables or {} if not name.isidentifier()]:
        raise ToolError(f"{wrong[0]!r} is not the name of a variable")


def _result_of(ran: Ran, *notes: str) -> ToolResult:
    text = "\n".join(part.removesuffix("\n") for part in (ran.printed, ran.value, *notes) if part)
    if ran.error is None:
        return ToolResult(output=text or "(no output: end with an expression, or print)")
    words = "\n".join(part.removesuffix("\n") for part in (ran.printed, ran.error, *notes) if part)
    return ToolFailure(output=text or None, error=words)


if find_spec("pydantic_monty") is None:  # reported when the tool is named, and not only when a model calls it
    raise ImportError(MISSING)
python = Python()
