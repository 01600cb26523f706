"""A shell process that runs commands one after the other and keeps its directory and variables between them.

Commands go to the shell's standard input, wrapped so that a command itself reads from `/dev/null`; what it prints comes
through one pipe, and its exit code through another, which commands do not inherit: nothing that a command prints can be
taken for its end. The shell is the child of a supervisor (see `supervisor.py`), which ends all that it started.
"""

from __future__ import annotations

import secrets
import shlex
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self

import anyio

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.terminal.supervised import CHUNK, SupervisedProcess
from orchestrator.tools.builtin.terminal.supervisor import STATUS


class BoundedOutput:
    """Takes bytes, and gives back a text in which the middle is left out if there were too many."""

    def __init__(self, limit: int) -> None:
        """
        Args:
            limit: bytes that are kept, half of them from the beginning and half from the end.
        """
        self._limit = limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self.total = 0
        """Bytes that there were."""

    @property
    def cut(self) -> int:
        """Bytes that are left out."""
        return max(0, self.total - self._limit)

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        room = self._limit // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._in_tail += len(data)
        most = self._limit - self._limit // 2
        while self._in_tail - len(self._tail[0]) >= most:
            self._in_tail -= len(self._tail.popleft())

    def text(self) -> str:
        """The stored output as text, with a note where the middle is missing. Invalid UTF-8 becomes U+FFFD."""
        tail = b"".join(self._tail)
        if not self.cut:
            return (self._head + tail).decode(errors="replace")
        tail = tail[-(self._limit - self._limit // 2) :]
        head, end = self._head.decode(errors="ignore"), tail.decode(errors="ignore")
        return f"{head}\n[... {self.cut} bytes left out ...]\n{end}"


OnOutput = Callable[[bytes], Awaitable[None]]


class ShellEnded(Exception):
    """Raised when the shell is gone: the command ended it, or it was closed."""

    def __init__(self, code: int | None, said: str = "") -> None:
        self.code = code
        """Its exit code; None if it was killed together with its supervisor."""
        self.said = said
        """Reason why it did not start."""
        super().__init__(f"the shell ended with exit code {code}")


class Shell:
    """A shell and all that it started. Use `start`, and `close` in any case.

    It runs one command at a time; its caller sees to that.
    """

    def __init__(self, process: SupervisedProcess, cwd: str) -> None:
        self._process = process
        self.cwd = cwd
        """The directory that it began in."""
        self.ran = 0
        """Number of commands that it was given."""
        self._said = b""

    @property
    def mark(self) -> str:
        """Value of an environment variable that all of its processes inherit."""
        return self._process.mark

    @property
    def closed(self) -> bool:
        """True if it was closed or has ended."""
        return self._process.closed

    @classmethod
    async def start(cls, command: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> Self:
        """Start a shell.

        Args:
            command: the shell's full path and its arguments.
            cwd: the directory that it starts in.
            env: its whole environment.

        Raises:
            ToolError: it cannot be started here.
        """
        if sys.platform == "win32":
            raise ToolError("a terminal needs a Unix system")
        try:
            return cls(await SupervisedProcess.start(command, cwd=cwd, env=env), cwd)
        except OSError as error:
            raise ToolError(f"the shell cannot be started in {cwd!r}: {error.strerror or error}") from None

    # -- commands ------------------------------------------------------------------------------------------------

    async def run(self, command: str, output: BoundedOutput, on_output: OnOutput | None = None) -> int:
        """Run a command to its end, and return its exit code.

        If this is cancelled, the command continues: `close` the shell then.

        Args:
            output: receives what is printed, also by jobs in the background that earlier commands left.
            on_output: gets it, too, as it comes.

        Raises:
            ShellEnded: the command ended the shell, or it was gone before.
        """
        token = secrets.token_hex(8)
        # With `command`, a syntax error in `eval` does not end the shell, and no function takes the place of `printf`.
        line = (
            f"command eval {shlex.quote(command)} </dev/null {STATUS}>&-\n"
            f"command printf '%s %s\\n' \"$?\" {token} >&{STATUS}\n"
        )
        self.ran += 1
        code: int | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, output, on_output)
                group.start_soon(self._process.write, line.encode(errors="replace"))
                code = await self._ended(token)
                group.cancel_scope.cancel()
        finally:
            await self._drain(output, on_output)
        if code is None:
            said = self._said.decode(errors="replace").strip()
            raise ShellEnded(await self.close(), said)
        return code

    async def _read(self, output: BoundedOutput, on_output: OnOutput | None) -> None:
        while True:
            await self._process.readable("output")
            data = self._process.read("output")
            if data == b"":
                return
            if data is not None:
                output.add(data)
                if on_output is not None:
                    await on_output(data)

    async def _drain(self, output: BoundedOutput, on_output: OnOutput | None) -> None:
        """Read what was printed before the end was reported; no more, as a background job may print for ever."""
        left = 1 if self.closed else CHUNK
        while left > 0:
            data = self._process.read("output", left)
            if not data:
                return
            left -= len(data)
            output.add(data)
            if on_output is not None:
                with anyio.CancelScope(shield=True):
                    await on_output(data)

    async def _ended(self, token: str) -> int | None:
        """The command's exit code; None if the shell is gone."""
        code: int | None = None
        async with anyio.create_task_group() as group:

            async def status() -> None:
                nonlocal code
                while code is None:
                    await self._process.readable("status")
                    data = self._process.read("status")
                    if data == b"":
                        return  # the shell runs no commands any more, but may have become another program
                    code = self._exit_code(data or b"", token)
                group.cancel_scope.cancel()

            group.start_soon(status)
            await self._process.readable("end")
            group.cancel_scope.cancel()
        return self._exit_code(self._process.read("status") or b"", token) if code is None else code

    def _exit_code(self, data: bytes, token: str) -> int | None:
        """The exit code, if it is in what came through the status pipe; all else is stored as output."""
        self._said += data
        for line in self._said.decode(errors="replace").splitlines():
            code, _, its = line.partition(" ")
            if its == token and code.isdigit():
                self._said = b""
                return int(code)
        return None

    # -- the end -------------------------------------------------------------------------------------------------

    async def close(self) -> int | None:
        """End the shell and all that it started; see `SupervisedProcess.close`."""
        return await self._process.close()
