"""Python code as a tool."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.to_thread
from pydantic import JsonValue

from orchestrator.calls import fenced
from orchestrator.errors import ToolError
from orchestrator.tools.builtin.python.sandbox import Ran, Sandbox, SandboxLimits
from orchestrator.tools.pool import Pool
from orchestrator.tools.result import ToolFailure, ToolResult
from orchestrator.tools.tool import Tool

_LONGEST = 100_000
"""Characters of the longest code that is taken."""
_FOREVER = 1e9
"""Seconds of the longest limit."""


class _Sandboxed(Tool):
    """What both tools are given, and are."""

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
            seconds: seconds that it may run, and as many that it may sleep.
            depth: calls inside of each other.
            output_limit: characters of what it prints, and again of its value, that are kept.

        Raises:
            ValueError: a limit is not positive, or is none.
            TypeError: a limit is no number.
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
    """Python code, run by an interpreter that can do nothing but compute. Each call begins anew.

        Python(memory=256 << 20, seconds=30)

    The interpreter is [pydantic-monty](https://github.com/pydantic/monty), a subset of Python written in Rust, in a
    process of its own: without files, environment, network, processes or other packages. Memory, time, depth of calls
    and output are limited. Nothing leaves it but its output, so a call's effect is `pure` and its risk `none`.
    """

    async def call(self, code: str, variables: dict[str, JsonValue] | None = None) -> ToolResult:
        """Run Python code, and see what it prints and the value of its last expression.

        There are the usual built-in functions and math, json, re, datetime, itertools, collections, functools, random,
        decimal, dataclasses, typing and a few more modules of the standard library; no files, no network, and no other
        packages. Each call begins anew: it finds no variables of earlier ones.

        Args:
            code: what to run. End with an expression, or print.
            variables: variables that the code finds set.
        """
        _check(code, variables)
        sandbox = await anyio.to_thread.run_sync(Sandbox, self._limits)
        try:
            return _result_of(await _ran(sandbox, code, variables))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(sandbox.close)


class PythonSession(_Sandboxed):
    """As `Python`, but the calls of one run share an interpreter, its variables and functions, and are made one after
    the other.

    They are lost when a limit was reached, and when the run is stopped and resumed: they are no part of its journal.
    The first output of a new interpreter says that it is one.
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
            seconds: seconds that a call may run; all calls may sleep as many together.
            depth: calls of functions inside of each other.
            output_limit: characters of what a call prints, and again of its value, that are kept.
            interpreters: how many runs may have one at the same time; others wait until one is given up.

        Raises:
            ValueError: a limit is not positive, or is none.
            TypeError: a limit is no number.
        """
        super().__init__(memory=memory, seconds=seconds, depth=depth, output_limit=output_limit)
        self.pool = Pool[Sandbox](partial(Sandbox, self._limits), interpreters, check=lambda one: not one.lost)

    async def call(self, code: str, env: Sandbox, variables: dict[str, JsonValue] | None = None) -> ToolResult:
        """Run Python code, and see what it prints and the value of its last expression.

        There are the usual built-in functions and math, json, re, datetime, itertools, collections, functools, random,
        decimal, dataclasses, typing and a few more modules of the standard library; no files, no network, and no other
        packages. Variables and functions are kept for the next call.

        Args:
            code: what to run. End with an expression, or print.
            variables: variables that the code finds set.
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
