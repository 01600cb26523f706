"""Python code as a tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from pydantic import JsonValue

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.python.sandbox import Ran, Sandbox, SandboxLimits
from orchestrator.tools.result import ToolFailure, ToolResult
from orchestrator.tools.tool import Tool

if TYPE_CHECKING:
    from orchestrator.context import Context

_LONGEST = 100_000
"""Characters of the longest code that is taken."""


class Python(Tool):
    """Python code, run by an interpreter that can do nothing but compute.

        Python(memory=256 << 20, seconds=30)

    The interpreter is [pydantic-monty](https://github.com/pydantic/monty), a subset of Python written in Rust, in a
    process of its own: without files, environment, network, processes or other packages. Memory, time, depth of calls
    and output are limited. Nothing leaves it but its output, so a call's effect is `pure` and its risk `none`.

    Each call begins anew, unless `keep` says that the calls of a run share their variables.
    """

    name = "python"
    risk = "none"
    effect = "pure"
    group = "python"

    def __init__(
        self,
        *,
        memory: int = 64 << 20,
        seconds: float = 10.0,
        depth: int = 200,
        output_limit: int = 10_000,
        keep: bool = False,
    ) -> None:
        """
        Args:
            memory: bytes of memory that code may use.
            seconds: seconds that it may run, and as many that it may sleep.
            depth: calls inside of each other.
            output_limit: characters of what it prints, and again of its value, that are kept.
            keep: the calls of one run share one interpreter and its variables, and are made one after the other. They
                are lost when the run is stopped and resumed, and after a limit was reached; the first output of a new
                interpreter says that it is one.

        Raises:
            ValueError: a limit is not positive.
        """
        if memory <= 0 or not seconds > 0 or depth <= 0 or output_limit <= 0:
            raise ValueError("Python: all limits are positive numbers")
        self._limits = SandboxLimits(memory, seconds, depth, output_limit)
        self._keep = keep
        self._kept: dict[str, Sandbox] = {}
        self._locks: dict[str, anyio.Lock] = {}

    async def call(
        self, code: str, variables: dict[str, JsonValue] | None = None, ctx: Context[object] | None = None
    ) -> ToolResult:
        """Run Python code and see what it prints and the value of its last expression. There are the usual built-in
        functions and math, json, re, datetime, itertools, collections, functools, random, decimal, dataclasses, typing
        and a few more modules of the standard library; no files, no network, and no other packages.

        Args:
            code: what to run. End with an expression, or print.
            variables: variables that the code finds set.
        """
        if len(code) > _LONGEST:
            raise ToolError(f"the code has {len(code)} characters; at most {_LONGEST} are taken")
        if wrong := [name for name in variables or {} if not name.isidentifier()]:
            raise ToolError(f"{wrong[0]!r} is no name of a variable")
        async with self._sandbox(ctx) as sandbox:
            new = self._keep and not sandbox.ran
            try:
                ran = await anyio.to_thread.run_sync(
                    partial(sandbox.run, code, variables or {}), abandon_on_cancel=True
                )
            except BaseException:
                sandbox.kill()
                raise
            if ran.lost:
                await self._forget(sandbox)
        return _told(ran, new=new, keeps=self._keep)

    async def close(self) -> None:
        """End all interpreters that are kept."""
        while self._kept:
            await _ended(self._kept.popitem()[1])

    @asynccontextmanager
    async def _sandbox(self, ctx: Context[object] | None) -> AsyncIterator[Sandbox]:
        if not self._keep:
            sandbox = await anyio.to_thread.run_sync(Sandbox, self._limits)
            try:
                yield sandbox
            finally:
                await _ended(sandbox)
            return
        name = "" if ctx is None else ctx.run_id
        async with self._locks.setdefault(name, anyio.Lock()):
            if name not in self._kept:
                self._kept[name] = await anyio.to_thread.run_sync(Sandbox, self._limits)
            try:
                yield self._kept[name]
            except BaseException:
                await self._forget(self._kept[name])
                raise

    async def _forget(self, sandbox: Sandbox) -> None:
        for name, one in list(self._kept.items()):
            if one is sandbox:
                await _ended(self._kept.pop(name))


async def _ended(sandbox: Sandbox) -> None:
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(sandbox.close)


def _told(ran: Ran, *, new: bool, keeps: bool) -> ToolResult:
    notes = ["[a new interpreter: nothing of earlier code is there]"] if new else []
    if ran.lost and keeps:
        notes.append("[the variables are lost; the next code gets a new interpreter]")
    text = "\n".join(part.removesuffix("\n") for part in (ran.printed, ran.value, *notes) if part)
    if ran.error is None:
        return ToolResult(output=text or "(no output: end with an expression, or print)")
    words = "\n".join(part.removesuffix("\n") for part in (ran.printed, ran.error, *notes) if part)
    return ToolFailure(output=text or None, error=words)
